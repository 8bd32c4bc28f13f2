//! What an earlier daemon of the node has left: processes that live, and snapshots in the store.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use coswitch_ckpt::Store;
use coswitch_policies::{Epoch, JobId};
use tracing::{error, info, warn};

use super::{App, Control, RELEASE_LIMIT};
use crate::{
    app::{AppHandle, SavedPart},
    node,
    plane::Command,
    protocol::Held,
    survival::Record,
};

impl Control {
    /// Takes up the applications that an earlier daemon of this node has left in the store. What was not
    /// sealed was never there. Where a run is resumed, all are left as they are where one cannot be.
    ///
    /// # Errors
    /// Where the store cannot be read, or a run cannot be resumed.
    pub(crate) fn take_up(&mut self) -> anyhow::Result<()> {
        self.node.store.remove_unfinished_copies();
        for name in self.node.store.applications()? {
            if job_of(&name).is_some_and(|job| self.apps.contains_key(&job)) {
                continue;
            }
            let taken_up = job_of(&name).context("no name of a job").and_then(|job| self.take_up_one(job));
            if let Err(error) = taken_up {
                if self.node.config.resumes {
                    return Err(error.context(format!("failed to take up {name}")));
                }
                error!(name, error = format!("{error:#}"), "an application could not be taken up");
                self.node.store.remove(&name)?;
            }
        }
        // Of applications that had not been parked.
        let is_kept = |name: &str| job_of(name).is_some_and(|job| self.apps.contains_key(&job));
        Ok(self.node.store.remove_programs_but(is_kept)?)
    }

    /// Adopts what is whole of that which the daemon before has left. The rest goes on from its snapshots, if
    /// at all.
    ///
    /// # Errors
    /// Where processes cannot be ended.
    pub(crate) async fn adopt_survivors(&mut self, records: Vec<Record>) -> anyhow::Result<()> {
        for record in records {
            let (job, held) = (record.part.job, Held::by(record.part.job, &record.part.launch));
            match AppHandle::survive(Arc::clone(&self.node), record).await {
                Ok((handle, task)) => {
                    info!(%job, "an application has survived the daemon before");
                    self.node.store.remove_unsealed(&job.to_string())?;
                    drop(self.apps.insert(job, App { handle, task, held, is_released: false }));
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    warn!(%job, error, "an application has survived in part, and is ended");
                    self.end_survivor(job).await?;
                }
            }
        }
        Ok(())
    }

    async fn end_survivor(&self, job: JobId) -> anyhow::Result<()> {
        self.node.running.leave(job);
        self.node.plane.ask(|done| Command::RemoveApp(job, done)).await;
        let (node, name) = (Arc::clone(&self.node), job.to_string());
        tokio::task::spawn_blocking(move || {
            Record::remove(&node.config.name(), job)?;
            let cgroup = node.cgroup.job(&name)?;
            cgroup.kill()?;
            cgroup.thaw()?;
            cgroup.wait_empty(RELEASE_LIMIT)?;
            cgroup.remove()?;
            Ok(node::remove_tree(&node.config.shm(job))?)
        })
        .await
        .expect("it does not panic")
    }

    fn take_up_one(&mut self, job: JobId) -> anyhow::Result<()> {
        let store = &self.node.store;
        let name = job.to_string();
        store.remove_unsealed(&name)?;
        let (epoch, saved) = newest_part(store, &name)?;
        let held = saved.held(job);
        let (handle, task) = AppHandle::take_up(Arc::clone(&self.node), job, saved, Epoch(epoch))?;
        self.apps.insert(job, App { handle, task, held, is_released: false });
        info!(%job, epoch, "an application was taken up");
        Ok(())
    }
}

/// The newest snapshot that opens, and what it says of the application. A restore passes over the others too.
fn newest_part(store: &Store, name: &str) -> anyhow::Result<(u64, SavedPart)> {
    let mut found = Err(anyhow!("nothing of it was sealed"));
    for epoch in store.sealed_epochs(name)? {
        let opened = store.snapshot(name, epoch).map_err(Into::into);
        let saved = opened.and_then(|snapshot| SavedPart::of(&snapshot)?.context("it has no part"));
        match saved {
            Ok(saved) => return Ok((epoch, saved)),
            Err(error) => {
                warn!(name, epoch, error = format!("{error:#}"), "a snapshot is passed over");
                found = Err(error);
            }
        }
    }
    found
}

/// The job whose snapshots have this name.
pub(crate) fn job_of(name: &str) -> Option<JobId> {
    let job = JobId(name.rsplit_once('-')?.1.parse().ok()?);
    (job.to_string() == name).then_some(job)
}
