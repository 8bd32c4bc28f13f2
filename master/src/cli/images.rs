//! `coswitch images`: lists, verifies or removes the images in the stores of nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context;
use comfy_table::Cell;
use coswitch_ckpt::{Store, private, store::StoredSnapshot};
use coswitch_daemon::{
    cgroup::Hierarchies,
    node::{self, Tier},
};
use coswitch_dispatcher::provisioning::STORE;
use coswitch_report::{
    table::{right, table},
    words::plural,
};
use serde::Serialize;

use super::{Answer, Exit, Failure, Output};
use crate::{image_key::ImageKey, run_name::RunName, serve::DEFAULT_SOCKET, standing};

/// The default directory of earlier versions.
const EARLIER_STORE: &str = "/var/tmp";
/// The prefix of the directory of a node's store.
const PREFIX: &str = "coswitch-";

/// List, verify or remove the images of parked jobs.
#[derive(Debug, clap::Args)]
pub(crate) struct ImagesCommand {
    /// A directory that holds images, as `cluster.store` in the run file; may be repeated [default:
    /// /var/lib/coswitch, /var/tmp, and the stores of all nodes on this machine].
    #[arg(long, global = true, value_name = "DIR")]
    store: Vec<PathBuf>,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List all images.
    List,
    /// Compare every byte of a run's images with what was sealed; exits with 1 where an image is damaged.
    Verify {
        #[command(flatten)]
        selection: Selection,
        /// The directory (`--out`) of the served cluster, or of the run whose jobs are parked: the key of its
        /// images is there [default: that of the cluster that was last served].
        #[arg(long, value_name = "DIR")]
        run: Option<PathBuf>,
    },
    /// Remove images; those of runs that are alive only with --force.
    Remove {
        #[command(flatten)]
        selection: Selection,
        /// Also remove images of runs that are alive; these runs cannot restore them then.
        #[arg(long)]
        force: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Selection {
    /// Only images of this node, by its name in `list`.
    #[arg(long)]
    node: Option<String>,
    /// Only images of this job.
    #[arg(long)]
    job: Option<String>,
    /// Only images of this epoch.
    #[arg(long)]
    epoch: Option<u64>,
}

#[derive(Debug, Default, Serialize)]
struct FoundImages {
    images: Vec<Image>,
}

#[derive(Debug, Serialize)]
struct Image {
    node: String,
    job: String,
    epoch: u64,
    /// The directory that `cluster.store` names.
    store: PathBuf,
    bytes: u64,
    /// `sealed`, or why it cannot be restored; after `remove`: `removed`, or why not.
    state: String,
}

impl ImagesCommand {
    /// Applies the action to the selected images.
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let mut found = FoundImages::default();
        let mut all_good = true;
        let key = self.action.key()?;
        for (node, store) in stores(&self.store)? {
            let store = match key.as_ref().map(|key| key.sealing(&node)) {
                None => store,
                Some(Some(sealing)) => store.sealed(sealing),
                Some(None) => continue,
            };
            let entries = store.list().with_context(|| format!("failed to list the images of {node}"))?;
            for entry in entries.into_iter().filter(|entry| self.action.selects(&node, entry)) {
                let (state, good) = self.action.apply(&node, &store, &entry);
                all_good &= good;
                let StoredSnapshot { application: job, epoch, root, bytes, .. } = entry;
                let store = root.parent().unwrap_or(&root).to_owned();
                found.images.push(Image { node: node.clone(), job, epoch, store, bytes, state });
            }
        }
        output.print(&found).context("failed to print")?;
        Ok(if all_good { Exit::Done } else { Exit::JobFailed })
    }
}

impl Action {
    /// Where the images have to be opened.
    fn key(&self) -> Result<Option<ImageKey>, anyhow::Error> {
        let Self::Verify { run, .. } = self else { return Ok(None) };
        let run = run.clone().or_else(|| standing::noted(Path::new(DEFAULT_SOCKET)));
        let run = run.context("images are sealed: name the directory of their run by --run")?;
        ImageKey::read(&run).map(Some)
    }

    fn selects(&self, node: &str, entry: &StoredSnapshot) -> bool {
        let (Self::Verify { selection, .. } | Self::Remove { selection, .. }) = self else { return true };
        selection.node.as_deref().is_none_or(|selected| selected == node)
            && selection.job.as_ref().is_none_or(|selected| *selected == entry.application)
            && selection.epoch.is_none_or(|selected| selected == entry.epoch)
    }

    /// Applies the action to one image; returns the image's state, and whether the action succeeded.
    fn apply(&self, node: &str, store: &Store, entry: &StoredSnapshot) -> (String, bool) {
        let done = match self {
            Action::List => return (state(entry), true),
            Action::Verify { .. } if entry.problem.is_some() => return (state(entry), !entry.is_damaged()),
            Action::Verify { .. } => store.verify(&entry.application, entry.epoch).map(|()| "intact"),
            Action::Remove { force: false, .. } if is_alive(node) => {
                return ("kept: its run is alive".into(), false);
            }
            Action::Remove { .. } => store.remove_one(&entry.application, entry.epoch).map(|()| "removed"),
        };
        done.map_or_else(|error| (error.to_string(), false), |state| (state.into(), true))
    }
}

fn state(entry: &StoredSnapshot) -> String {
    entry.problem.as_ref().map_or_else(|| "sealed".into(), ToString::to_string)
}

fn is_alive(node: &str) -> bool {
    let master = node.parse::<RunName>().is_ok_and(|run| run.is_alive());
    master || node::standing_daemon(node).is_some()
}

/// The stores below `dirs`, by the names of their nodes.
fn stores(dirs: &[PathBuf]) -> Result<BTreeMap<String, Store>, anyhow::Error> {
    let mut tiers: BTreeMap<String, Vec<Tier>> = BTreeMap::new();
    let default_dirs = if dirs.is_empty() { default_dirs() } else { BTreeSet::new() };
    for dir in dirs.iter().chain(&default_dirs) {
        let entries = fs::read_dir(dir).with_context(|| format!("failed to list {}", dir.display()))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let node = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            // Other directories may have the same prefix.
            let node = node.filter(|node| node.parse::<RunName>().is_ok());
            // Anybody may make one where all may write; nothing in it is coswitch's.
            if let Some(node) = node.filter(|_| private::is_own(&entry.path())) {
                tiers.entry(node.into()).or_default().push(Tier::unbounded(entry.path()));
            }
        }
    }
    Ok(tiers.into_iter().map(|(node, tiers)| (node, Store::existing(tiers))).collect())
}

/// The default directories for images, and those of the nodes on this machine.
fn default_dirs() -> BTreeSet<PathBuf> {
    let nodes = Hierarchies::find().map(|hierarchies| node::leftovers(&hierarchies)).unwrap_or_default();
    let noted = nodes.iter().flat_map(|name| node::listed_stores(name));
    let dirs =
        noted.filter_map(|root| root.parent().map(Into::into)).chain([STORE.into(), EARLIER_STORE.into()]);
    dirs.filter(|dir: &PathBuf| dir.is_dir()).collect()
}

impl Answer for FoundImages {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        if !self.images.is_empty() {
            let mut table = table();
            table.set_header(["node", "job", "epoch", "MiB", "store", "state"]);
            for image in &self.images {
                let names = [&image.node, &image.job].map(Cell::new);
                let numbers = [right(image.epoch), right(image.bytes.div_ceil(1 << 20))];
                let last = [Cell::new(image.store.display()), Cell::new(&image.state)];
                table.add_row(names.into_iter().chain(numbers).chain(last));
            }
            writeln!(out, "{table}")?;
        }
        writeln!(out, "{}", plural(self.images.len(), "image"))
    }
}
