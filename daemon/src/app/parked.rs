//! Out of memory and back: dump, seal, restore, discard.
//!
//! The dump is over when the processes are gone and their memory is free; sealing the snapshot (hashing, syncing) goes
//! on in the background, because the next set needs the memory and not the disk. Only a sealed snapshot is restored.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use coswitch_ckpt::{
    DumpReport, DumpRequest, Origin, Restored, SegmentFile, SnapshotWriter, StoreError, TreeState,
};
use coswitch_policies::{Bytes, Epoch, JobId};
use nix::unistd::Pid;
use tokio::time::interval;

use super::{Failure, Ice, Node, Note, Part, State, blocking, launch, stall::Stall};
use crate::{
    children::Child,
    node::ADMITTED_BESIDES,
    plane::Command,
    protocol::{AppEvent, LaunchRequest, Step},
};

const DUMP_LIMIT: Duration = Duration::from_secs(240);
const RESTORE_LIMIT: Duration = Duration::from_secs(240);
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
const REAP_LIMIT: Duration = Duration::from_secs(10);

/// What a dump, done on a blocking thread, needs to know.
struct Dump {
    node: Arc<Node>,
    job: JobId,
    epoch: Epoch,
    root: i32,
    freezer: PathBuf,
    /// What the ranks hold: the store must have room for that.
    held: Bytes,
    segment: SegmentFile,
    outputs: Vec<PathBuf>,
    channels: Vec<u8>,
}

impl Part {
    pub(super) async fn dump(&mut self, epoch: Epoch) -> Result<AppEvent, Failure> {
        let root = self.look_whether_frozen().await?;
        let began = Instant::now();
        let channels = self.node.plane.ask(|reply| Command::ChannelStates(self.job, epoch, reply)).await;
        let made = self.made();
        let held = made.cgroup.used().map_err(Failure::alive)?;
        let dump = Dump {
            node: Arc::clone(&self.node),
            job: self.job,
            epoch,
            root,
            freezer: made.cgroup.freezer().to_path_buf(),
            held,
            segment: made.file.clone(),
            outputs: outputs(&self.node, &made.launch),
            channels: channels.ok_or_else(|| Failure::alive("the data plane has ended"))?,
        };
        let (store, job) = (self.node.store.clone(), self.job.to_string());
        let written = move || Bytes(store.bytes(&job, epoch.0));
        let work = blocking(move || dump.carry_out());
        let (writer, report) = self.watched(Step::Dump, held, written, work).await?;
        let dumped = Instant::now();
        self.reap_dumped().await.map_err(Failure::dead)?;
        let bytes = Bytes(report.image_bytes);
        self.image_bytes = bytes;
        self.seal(epoch, writer, root, report);
        Ok(AppEvent::Dumped { epoch, bytes, dump: dumped - began, release: dumped.elapsed() })
    }

    /// The root of ranks that are frozen, and alive. Of the launcher's words all that were said before the cut have
    /// been heard by now.
    pub(super) async fn look_whether_frozen(&mut self) -> Result<i32, Failure> {
        let State::Frozen(Ice { root, .. }) = &self.state else {
            return Err(Failure::alive("its ranks are not frozen"));
        };
        let pid = root.pid;
        if self.all_exited {
            // A snapshot would lack the launcher's last word, which has been taken already.
            return Err(Failure::alive("its ranks have ended"));
        }
        if let Ok(status) = tokio::time::timeout(Duration::ZERO, root.ended()).await {
            self.on_root_ended(status).await;
            return Err(Failure::alive("its ranks have ended"));
        }
        Ok(pid)
    }

    /// Tells how far `work` is, now and then, until it is done.
    pub(super) async fn watched<T>(
        &self,
        step: Step,
        total: Bytes,
        mut so_far: impl FnMut() -> Bytes,
        work: impl Future<Output = T>,
    ) -> T {
        let mut ticks = interval(PROGRESS_EVERY);
        ticks.tick().await;
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = ticks.tick() => self.tell(AppEvent::Progress { step, bytes: so_far().min(total), total }),
            }
        }
    }

    /// The processes are dead; now their ids and their group are free as well.
    async fn reap_dumped(&mut self) -> anyhow::Result<()> {
        if let State::Frozen(Ice { root, .. }) = std::mem::replace(&mut self.state, State::Parked) {
            tokio::time::timeout(REAP_LIMIT, root.ended()).await??;
        }
        let cgroup = self.made().cgroup.clone();
        Ok(blocking(move || cgroup.thaw().and_then(|()| cgroup.wait_empty(REAP_LIMIT))).await?)
    }

    fn seal(&self, epoch: Epoch, writer: SnapshotWriter, root: i32, report: DumpReport) {
        let (node, job, own) = (Arc::clone(&self.node), self.job, self.own.clone());
        tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            let origin = Origin::of(&node.criu, Pid::from_raw(root), &report);
            let tier = writer.tier().to_owned();
            let sealed = writer.seal(origin).map_err(|error| error.to_string()).map(|manifest| {
                let bytes = Bytes(manifest.files.iter().map(|file| file.bytes).sum());
                AppEvent::Sealed { epoch, seal: began.elapsed(), tier, bytes }
            });
            if let Err(error) = node.store.prune(&job.to_string()) {
                tracing::warn!(%job, %error, "an old snapshot could not be removed");
            }
            // The task may have ended meanwhile; then its snapshots go as well.
            let _ = own.send(Note::Sealed(epoch, sealed));
        });
    }

    pub(super) async fn restore(&mut self, epoch: Epoch) -> Result<AppEvent, Failure> {
        if !matches!(self.state, State::Parked) {
            return Err(Failure::dead("it is not parked"));
        }
        let began = Instant::now();
        let (node, job, segment) = (Arc::clone(&self.node), self.job, self.made().file.clone());
        let cgroups: Vec<PathBuf> =
            self.made().cgroup.procs().iter().filter_map(|file| file.parent()).map(Into::into).collect();
        let total = self.image_bytes;
        let (cgroup, mut stall, mut stalled) = (self.made().cgroup.clone(), Stall::new(began), false);
        let read = || {
            if stall.look(Instant::now(), cgroup.used_by_criu()) {
                // With its processes killed under it, it fails soon.
                stalled |= cgroup.kill().is_ok();
            }
            cgroup.used().unwrap_or_default()
        };
        let work = blocking(move || bring_back(&node, job, epoch, segment, cgroups));
        let back = self.watched(Step::Restore, total, read, work).await;
        let Back { restored, channels, bytes } = back.map_err(|error| match stalled {
            true => Failure::dead(format!("it did not go on and was given up: {error}")),
            false => Failure::dead(error),
        })?;
        let root = Child::adopt(restored.root.as_raw()).map_err(Failure::dead)?;
        for foreign in &restored.foreign {
            tracing::warn!(output = %foreign.path.display(), kept_in = %foreign.kept_in.display(), "output that is not the job's was set aside");
        }
        self.state = State::Stopped { root, restored };
        // Ranks that had ended after the snapshot have not any more; none is taken of those that had before.
        self.all_exited = false;
        match self.node.plane.ask(|reply| Command::Settle(self.job, epoch, channels, reply)).await {
            Some(true) => Ok(AppEvent::Restored { epoch, bytes, restore: began.elapsed() }),
            _ => Err(Failure::dead("its channel states do not decode")),
        }
    }

    /// The processes end and the snapshots stay. Where a restore had failed there are none to end.
    pub(super) async fn discard(&mut self) -> Result<AppEvent, Failure> {
        if !matches!(self.state, State::Absent | State::Parked) {
            self.end_processes().await.map_err(Failure::dead)?;
            self.state = State::Parked;
        }
        Ok(AppEvent::Discarded)
    }
}

impl Dump {
    /// Images, segment and channel states; the writer is what still has to be sealed.
    fn carry_out(self) -> Result<(SnapshotWriter, DumpReport), Failure> {
        let (store, job) = (&self.node.store, self.job.to_string());
        let needed = self.held.saturating_add(ADMITTED_BESIDES).0;
        let begun = store.begin_with(&job, self.epoch.0, SystemTime::now(), needed);
        let mut writer = begun.map_err(|error| match error {
            StoreError::Full { .. } => Failure::store_full(error),
            error => Failure::alive(error),
        })?;
        writer.save_channels(&self.channels).map_err(Failure::alive)?;
        writer.save_segment(&self.segment.path).map_err(Failure::alive)?;
        let request = DumpRequest {
            root: Pid::from_raw(self.root),
            freeze_cgroup: self.freezer,
            segment: Some(self.segment.clone()),
            images_dir: writer.images_dir(),
            work_dir: writer.work_dir(),
            arena: Some(self.node.arena.clone()),
            timeout: DUMP_LIMIT,
        };
        let dumped = self.node.criu.dump(&request);
        let mut report = dumped.map_err(|error| match error.tree() {
            TreeState::Frozen | TreeState::Running => Failure::alive(error),
            _ => Failure::dead(error),
        })?;
        // From here on the processes are gone: the images, and the memory that belongs to them, are all there is.
        writer.take_memory(report.memory.take(), &self.node.arena);
        // It is refilled before a restore.
        if let Err(error) = self.segment.empty() {
            tracing::warn!(%error, "the segment stays in memory");
        }
        writer.record_outputs(&self.outputs).map_err(Failure::dead)?;
        Ok((writer, report))
    }
}

/// What a restore has brought back.
struct Back {
    restored: Restored,
    channels: Vec<u8>,
    bytes: Bytes,
}

fn bring_back(
    node: &Node,
    job: JobId,
    epoch: Epoch,
    segment: SegmentFile,
    cgroups: Vec<PathBuf>,
) -> anyhow::Result<Back> {
    let snapshot = node.store.snapshot(&job.to_string(), epoch.0)?;
    let channels = snapshot.channels()?.unwrap_or_default();
    snapshot.load_segment(&segment.path)?;
    let mut request = snapshot.restore_request(cgroups, Some(segment), RESTORE_LIMIT);
    request.arena = Some(node.arena.clone());
    let restored = snapshot.restore(&node.criu, &request)?;
    let images = snapshot.manifest().files.iter().filter(|file| file.name.starts_with("images/"));
    let bytes = images.map(|file| Bytes(file.bytes)).sum();
    Ok(Back { restored, channels, bytes })
}

/// The files that the ranks here write their output to.
fn outputs(node: &Node, launch: &LaunchRequest) -> Vec<PathBuf> {
    let here = (0..).zip(&launch.placement).filter(|(_, place)| **place == node.config.node);
    here.flat_map(|(rank, _)| ["out", "err"].map(|kind| launch::output(&launch.output, rank, kind))).collect()
}
