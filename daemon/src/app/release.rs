//! The end of an application here: nothing of it is left.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use super::{Ice, Part, State, blocking};
use crate::{
    plane::Command,
    protocol::{AppEvent, Step},
};

const END_LIMIT: Duration = Duration::from_secs(10);

impl Part {
    /// Ends the processes, if any, and reaps the root.
    pub(super) async fn end_processes(&mut self) -> anyhow::Result<()> {
        let root = match std::mem::replace(&mut self.state, State::Ended) {
            State::Running { root }
            | State::Frozen(Ice { root, .. })
            | State::PagedOut(Ice { root, .. })
            | State::Stopped { root, .. } => Some(root),
            _ => None,
        };
        if let Some(made) = &self.made {
            made.cgroup.kill()?;
            // A frozen group's processes die, but the group stays frozen for those that come later.
            made.cgroup.thaw()?;
            let cgroup = made.cgroup.clone();
            blocking(move || cgroup.wait_empty(END_LIMIT)).await?;
        }
        if let Some(root) = root {
            tokio::time::timeout(END_LIMIT, root.ended()).await??;
        }
        Ok(())
    }

    pub(super) async fn release(mut self) {
        let removed = self.remove_everything().await;
        self.answer(Step::Run, removed.map(|()| AppEvent::Released).map_err(super::Failure::dead));
    }

    async fn remove_everything(&mut self) -> anyhow::Result<()> {
        self.end_processes().await?;
        self.node.plane.ask(|done| Command::RemoveApp(self.job, done)).await;
        if let Some(made) = self.made.take() {
            made.cgroup.remove()?;
        }
        let (node, job) = (Arc::clone(&self.node), self.job);
        blocking(move || {
            remove_tree(&node.config.shm(job))?;
            Ok(node.store.remove(&job.to_string())?)
        })
        .await
    }
}

fn remove_tree(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
