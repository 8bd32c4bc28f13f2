//! Dump of the part: from frozen to parked; and checkpoint: from frozen to frozen.
//!
//! A dump is over when the processes have ended and their memory is free. The snapshot is sealed (encrypted,
//! synced) in the background, because the next set needs the memory and not the disk. Only a sealed snapshot
//! is restored. A checkpoint writes the same snapshot and leaves the processes where they are, so that they
//! compute on while it is sealed.

use std::{
    error::Error,
    path::PathBuf,
    sync::{Arc, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use coswitch_ckpt::{
    DumpError, DumpReport, DumpRequest, Origin, SegmentFile, SnapshotWriter, StoreError, TreeState, is_full,
};
use coswitch_policies::{Bytes, Epoch, JobId};
use nix::unistd::Pid;
use tracing::warn;

use super::{
    launch::{local_ranks, output},
    part::{FrozenRanks, Note, Part, Seal, State, blocking},
    services::NodeServices,
};
use crate::{
    cgroup::JobCgroup,
    node::SNAPSHOT_OVERHEAD,
    plane::Command,
    protocol::{AppEvent, Failure, LaunchRequest, Park, Step, moving_time},
};

/// For little memory; the [`moving_time`] of the ranks' memory is added.
const DUMP_LIMIT: Duration = Duration::from_secs(240);
const REAP_LIMIT: Duration = Duration::from_secs(10);

/// Input of a dump, which runs on a blocking thread.
struct Dump {
    node: Arc<NodeServices>,
    job: JobId,
    epoch: Epoch,
    root: i32,
    cgroup: JobCgroup,
    /// Memory of the ranks: the store must have that much free space.
    resident: Bytes,
    segment: SegmentFile,
    outputs: Vec<PathBuf>,
    channels: Vec<u8>,
    /// A [`super::SavedPart`].
    part: Vec<u8>,
    /// Where it has come with the application.
    program: Option<PathBuf>,
    /// The processes stay in memory.
    stays: bool,
    /// They are an ordinary user's.
    confined: bool,
}

/// A snapshot that is written and not sealed.
struct Written {
    root: i32,
    writer: SnapshotWriter,
    report: DumpReport,
}

impl Part {
    pub(super) async fn dump(&mut self, epoch: Epoch) -> Result<AppEvent, Failure> {
        let began = Instant::now();
        let written = self.write(epoch, false).await?;
        let dumped = Instant::now();
        self.reap_dumped().await.map_err(Failure::dead)?;
        let bytes = Bytes(written.report.image_bytes);
        self.image_bytes = bytes;
        self.seal(epoch, written);
        Ok(AppEvent::Dumped { epoch, bytes, dump: dumped - began, release: dumped.elapsed() })
    }

    /// Writes a snapshot; the ranks stay, frozen, until they are resumed.
    pub(super) async fn checkpoint(&mut self, epoch: Epoch) -> Result<AppEvent, Failure> {
        if self.park() == Park::PageOut {
            return Err(Failure::alive("a job that parks by page-out has no snapshots"));
        }
        let written = self.write(epoch, true).await?;
        let bytes = Bytes(written.report.image_bytes);
        self.image_bytes = bytes;
        self.seal(epoch, written);
        Ok(AppEvent::Checkpointed { epoch, bytes })
    }

    /// The snapshot of a checkpoint that failed on another node is of no use.
    pub(super) async fn drop_snapshot(&mut self, epoch: Epoch) {
        if self.told.sealing.contains(&epoch) {
            self.unwanted.insert(epoch);
            return;
        }
        let (node, job) = (Arc::clone(&self.node), self.job);
        let removed = blocking(move || node.store.remove_one(&job.to_string(), epoch.0)).await;
        if let Err(error) = removed {
            warn!(%epoch, %error, "the snapshot of a failed checkpoint could not be removed");
        }
    }

    async fn write(&mut self, epoch: Epoch, stays: bool) -> Result<Written, Failure> {
        let root = self.frozen_root().await?;
        let channels = self.node.plane.ask(|reply| Command::ChannelStates(self.job, epoch, reply)).await;
        let part = self.save().map_err(Failure::alive)?;
        let resources = self.resources();
        let sent = resources.launch.program.as_ref();
        let program = self.sent_program(sent).await.map_err(Failure::alive)?;
        let resident = resources.cgroup.used().map_err(Failure::alive)?;
        // Another file system than that of the program takes it anew.
        let resident = resident.saturating_add(Bytes(sent.map_or(0, |sent| sent.bytes)));
        let dump = Dump {
            node: Arc::clone(&self.node),
            job: self.job,
            epoch,
            root,
            cgroup: resources.cgroup.clone(),
            resident,
            segment: resources.file.clone(),
            outputs: outputs(&self.node, &resources.launch),
            channels: channels.ok_or_else(|| Failure::alive("the data plane has ended"))?,
            part,
            program,
            stays,
            confined: resources.launch.user.is_some(),
        };
        let (store, job) = (self.node.store.clone(), self.job.to_string());
        let so_far = move || Bytes(store.bytes(&job, epoch.0));
        let work = blocking(move || dump.carry_out());
        let (writer, report) = self.with_progress(Step::Dump, resident, so_far, work).await?;
        Ok(Written { root, writer, report })
    }

    /// Reaps the processes, which the dump has killed; afterwards their ids and their group are free.
    async fn reap_dumped(&mut self) -> anyhow::Result<()> {
        self.leave_running();
        if let State::Frozen(FrozenRanks { root, .. }) = std::mem::replace(&mut self.state, State::Parked) {
            tokio::time::timeout(REAP_LIMIT, root.ended()).await??;
        }
        let cgroup = self.resources().cgroup.clone();
        Ok(blocking(move || cgroup.thaw().and_then(|()| cgroup.wait_empty(REAP_LIMIT))).await?)
    }

    fn seal(&mut self, epoch: Epoch, Written { root, writer, report }: Written) {
        self.told.sealing.insert(epoch);
        let (node, job, own) = (Arc::clone(&self.node), self.job, self.own.clone());
        let needed = Arc::clone(&self.needed);
        tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            let origin = Origin::of(&node.criu, Pid::from_raw(root), &report);
            let sealed = writer.seal_in(origin).map_err(|error| error.to_string());
            let sealed = sealed.map(|(manifest, tier)| {
                let bytes = Bytes(manifest.files.iter().map(|file| file.bytes).sum());
                Seal { took: began.elapsed(), tier, bytes }
            });
            let needed = needed.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Err(error) = node.store.prune(&job.to_string(), &needed) {
                warn!(%job, %error, "an old snapshot could not be removed");
            }
            // The task may have ended meanwhile and removed its snapshots.
            let _ = own.send(Note::Sealed(epoch, sealed));
        });
    }

    /// The seal has ended.
    pub(super) async fn on_sealed(&mut self, epoch: Epoch, sealed: Result<Seal, String>) {
        self.told.sealing.remove(&epoch);
        if self.unwanted.remove(&epoch) {
            self.drop_snapshot(epoch).await;
        } else {
            self.tell(match sealed {
                Ok(Seal { took: seal, tier, bytes }) => {
                    let mut sealed = self.sealed_epochs().await;
                    // They could not be listed.
                    if sealed.is_empty() {
                        sealed.push(epoch);
                    }
                    AppEvent::Sealed { epoch, seal, tier, bytes, sealed }
                }
                Err(reason) => AppEvent::SealFailed { epoch, reason },
            });
        }
        self.answer_went_back().await;
    }
}

impl Dump {
    /// Writes images, segment and channel states; the returned writer still has to seal them.
    fn carry_out(self) -> Result<(SnapshotWriter, DumpReport), Failure> {
        let mut writer = self.begin()?;
        writer.save_channels(&self.channels).map_err(alive)?;
        writer.save_part(&self.part).map_err(alive)?;
        writer.save_segment(&self.segment.path).map_err(alive)?;
        if let Some(program) = &self.program {
            writer.save_program(program).map_err(alive)?;
        }
        let request = DumpRequest {
            root: Pid::from_raw(self.root),
            freeze_cgroup: self.cgroup.freezer().to_path_buf(),
            segment: Some(self.segment.clone()),
            images_dir: writer.images_dir(),
            pages_dir: writer.pages_dir(),
            work_dir: writer.work_dir(),
            arena: Some(self.node.arena.clone()),
            stays: self.stays,
            confined: self.confined,
            timeout: DUMP_LIMIT + moving_time(self.resident),
        };
        let dumped = self.node.criu.dump(&request);
        let mut report = dumped.map_err(|error| match error.tree() {
            TreeState::Frozen | TreeState::Running => alive(error),
            // Its images are wrong, and it does not need them.
            TreeState::Lost if self.stays && matches!(error, DumpError::Images(_)) => Failure::alive(error),
            TreeState::Lost => Failure::dead(error),
        })?;
        writer.take_memory(report.memory.take(), &self.node.arena);
        if self.stays {
            writer.record_outputs(&self.outputs).map_err(alive)?;
            return Ok((writer, report));
        }
        // The processes have ended: only the images, and the memory that belongs to them, are left.
        // A restore refills the segment.
        if let Err(error) = self.segment.empty() {
            warn!(%error, "the segment stays in memory");
        }
        writer.record_outputs(&self.outputs).map_err(Failure::dead)?;
        Ok((writer, report))
    }

    fn begin(&self) -> Result<SnapshotWriter, Failure> {
        let needed = self.resident.saturating_add(SNAPSHOT_OVERHEAD).0;
        // Pages that do not fit the arena lie on the disk twice until they are sealed.
        let overflow = self.cgroup.working_set().0.saturating_sub(self.node.arena.available_bytes());
        let (job, now) = (self.job.to_string(), SystemTime::now());
        let begun = self.node.store.begin_with_overflow(&job, self.epoch.0, now, needed, overflow);
        begun.map_err(|error| match error {
            StoreError::Full { .. } => Failure::store_full(error),
            error => alive(error),
        })
    }
}

/// A failure that leaves the processes in memory. Where a file system has filled up, which may be `/dev/shm`,
/// the job stays as it does where no directory has room.
fn alive(error: impl Error + 'static) -> Failure {
    if is_full(&error) { Failure::store_full(error) } else { Failure::alive(error) }
}

/// The output files of the ranks here.
fn outputs(node: &NodeServices, launch: &LaunchRequest) -> Vec<PathBuf> {
    let here = local_ranks(&launch.placement, node.config.node);
    here.flat_map(|rank| ["out", "err"].map(|kind| output(&launch.output, rank, kind))).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_disk_that_fills_up_in_a_dump_is_a_store_that_is_full() {
        for (number, expected) in [(libc::ENOSPC, true), (libc::EDQUOT, true), (libc::EIO, false)] {
            let source = io::Error::from_raw_os_error(number);
            let failure = alive(DumpError::Pages { root: 1, source, tree: TreeState::Frozen });
            assert_eq!(matches!(failure, Failure::StoreFull { .. }), expected, "{failure}");
            assert!(expected || matches!(failure, Failure::Other { alive: true, .. }), "{failure}");
        }
    }
}
