//! The key of a run's images: from the file that a served cluster, or a run whose jobs are parked, has in its
//! directory.

use std::{io, path::Path};

use anyhow::{Context, bail};
use coswitch_ckpt::{Sealing, private};
use coswitch_daemon::node::node_name;
use coswitch_dispatcher::provisioning::ClusterKey;
use coswitch_policies::NodeId;
use serde::Deserialize;

use crate::{parked, standing};

/// What both files have.
#[derive(Deserialize)]
pub(crate) struct ImageKey {
    run: String,
    sealing_key: ClusterKey,
}

impl ImageKey {
    /// # Errors
    /// Where there is no such file, or it was written by another version of coswitch.
    pub(crate) fn read(directory: &Path) -> anyhow::Result<Self> {
        for path in [standing::FILE, parked::FILE].map(|file| directory.join(file)) {
            match private::read(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                text => {
                    let text = text.with_context(|| format!("failed to read {}", path.display()))?;
                    let key = serde_json::from_slice(&text);
                    return key.with_context(|| format!("there is no key of images in {}", path.display()));
                }
            }
        }
        bail!(
            "no cluster is served from {}, and no run is parked there: no file there has the key of its \
             images",
            directory.display()
        )
    }

    /// Opens the images of a node; `None` where the node is of another run.
    pub(crate) fn sealing(&self, node: &str) -> Option<Sealing> {
        let (_, number) = node.rsplit_once("-n")?;
        let is_of_run = number.parse().is_ok_and(|number| node_name(&self.run, NodeId(number)) == node);
        // Nothing is written or restored.
        is_of_run.then(|| Sealing::new(self.sealing_key.clone(), node.to_owned(), "/dev/null".into()))
    }
}
