//! Release of an application: ends its processes and removes everything of it on this node.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc::UnboundedReceiver;
use tracing::warn;

use super::part::{FrozenRanks, Note, Part, State, blocking};
use crate::{
    node::remove_tree,
    plane::Command,
    protocol::{AppEvent, Failure, Step},
};

const END_LIMIT: Duration = Duration::from_secs(10);
/// Shorter than a daemon waits for the end of its applications.
const SEAL_LIMIT: Duration = Duration::from_secs(15);

impl Part {
    /// Ends the processes, if any, and reaps the root.
    pub(super) async fn end_processes(&mut self) -> anyhow::Result<()> {
        self.leave_running();
        let root = match self.take_state() {
            State::Running { root }
            | State::Frozen(FrozenRanks { root, .. })
            | State::PagedOut(FrozenRanks { root, .. })
            | State::Stopped { root, .. } => Some(root),
            State::Absent | State::Parked | State::Ended => None,
        };
        if let Some(resources) = &self.resources {
            let cgroup = resources.cgroup.clone();
            cgroup.kill()?;
            // Frozen processes die, but without this their group would freeze the next ones.
            cgroup.thaw()?;
            blocking(move || cgroup.wait_empty(END_LIMIT)).await?;
        }
        if let Some(root) = root {
            tokio::time::timeout(END_LIMIT, root.ended()).await??;
        }
        Ok(())
    }

    /// Ends the task. A parked part leaves its snapshots, which have all that it needs to go on; others are
    /// released. A checkpoint from before it was parked may still be being sealed.
    pub(super) async fn leave(self, inbox: &mut UnboundedReceiver<Note>) {
        match self.state {
            State::Parked if self.told.sealing.is_empty() => {}
            State::Parked => self.leave_sealed(inbox).await,
            _ => self.release().await,
        }
    }

    /// Ends the task and the processes. Another daemon takes up what is sealed.
    pub(super) async fn leave_sealed(mut self, inbox: &mut UnboundedReceiver<Note>) {
        if let Err(error) = self.end_processes().await {
            warn!(error = format!("{error:#}"), "its processes are left to the clean-up of the node");
        }
        while !self.told.sealing.is_empty() {
            match tokio::time::timeout(SEAL_LIMIT, inbox.recv()).await {
                Ok(Some(Note::Sealed(epoch, _))) => drop(self.told.sealing.remove(&epoch)),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    pub(super) async fn release(mut self) {
        let mut removed = self.remove_everything().await;
        if let Err(error) = &removed {
            warn!(error = format!("{error:#}"), "something of it is left, and is removed again");
            removed = self.remove_everything().await;
        }
        self.is_released = Arc::default();
        self.tell_counted().await;
        self.answer(Step::Release, removed.map(|()| AppEvent::Released).map_err(Failure::dead));
    }

    async fn remove_everything(&mut self) -> anyhow::Result<()> {
        self.end_processes().await?;
        self.node.plane.ask(|done| Command::RemoveApp(self.job, done)).await;
        if let Some(resources) = &self.resources {
            resources.cgroup.remove()?;
        }
        self.resources = None;
        let (node, job) = (Arc::clone(&self.node), self.job);
        blocking(move || {
            remove_tree(&node.config.shm(job))?;
            Ok(node.store.remove(&job.to_string())?)
        })
        .await
    }
}
