//! Restore of a parked part from a snapshot, and its discard.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_ckpt::{JobUser, Restored, SegmentFile};
use coswitch_policies::{Bytes, Epoch, JobId};
use coswitch_ring::Segment;
use tracing::warn;

use super::{
    hearing::Hearing,
    part::{Part, State, blocking},
    saved::SavedPart,
    services::NodeServices,
    stall::StallDetector,
};
use crate::{
    children::Child,
    plane::Command,
    protocol::{AppEvent, Failure, Step, moving_time},
};

/// For little memory; the [`moving_time`] of the images is added.
const RESTORE_LIMIT: Duration = Duration::from_secs(240);

impl Part {
    pub(super) async fn restore(&mut self, epoch: Epoch) -> Result<AppEvent, Failure> {
        if !matches!(self.state, State::Parked) {
            return Err(Failure::dead("it is not parked"));
        }
        let began = Instant::now();
        let RestoredPart { restored, channels, part, bytes } = self.restore_processes(epoch, began).await?;
        let root = Child::adopt(restored.root.as_raw()).map_err(Failure::dead)?;
        for foreign in &restored.foreign {
            warn!(
                output = %foreign.path.display(),
                kept_in = %foreign.kept_in.display(),
                "what was written to a file since the snapshot was set aside"
            );
        }
        self.state = State::Stopped { root, restored };
        self.told.epoch = epoch;
        self.hearing = Hearing::default();
        if let Some(part) = part {
            self.recall(part);
        }
        self.node.running.rest(self.job, self.resources().cgroup.clone());
        // Ranks that ended after the snapshot run again; it was taken before the last of them ended.
        self.all_exited = false;
        self.ends_by = None;
        match self.node.plane.ask(|reply| Command::RestoreChannels(self.job, epoch, channels, reply)).await {
            Some(true) => {
                // A master that has come since then does not know of it, and an answer that came since
                // then is gone; it is given again.
                if let Some((sequence, puts)) = self.told.reached.clone() {
                    self.tell(AppEvent::Fence { sequence, puts });
                }
                Ok(AppEvent::Restored { epoch, bytes, restore: began.elapsed() })
            }
            _ => Err(Failure::dead("its channel states do not decode, or do not fit its segment")),
        }
    }

    /// Restores segment and processes, and gives up a restore that makes no progress.
    async fn restore_processes(&self, epoch: Epoch, began: Instant) -> Result<RestoredPart, Failure> {
        let resources = self.resources();
        let (node, job, segment) = (Arc::clone(&self.node), self.job, resources.file.clone());
        let (cgroup, memory) = (resources.cgroup.clone(), Arc::clone(&resources.segment));
        let user = resources.launch.user.clone();
        let cgroups = cgroup.procs().iter().filter_map(|file| file.parent()).map(Into::into).collect();
        let (mut detector, mut stalled) = (StallDetector::new(began), false);
        let read = || {
            if detector.is_stalled(Instant::now(), cgroup.used_by_criu()) {
                // Without its processes the restore soon fails.
                stalled |= cgroup.kill().is_ok();
            }
            cgroup.used().unwrap_or_default()
        };
        let work = blocking(move || restore_snapshot(&node, job, epoch, (segment, &memory), cgroups, user));
        let restored = self.with_progress(Step::Restore, self.image_bytes, read, work).await;
        restored.map_err(|error| match stalled {
            true => Failure::dead(format!("it did not go on and was given up: {error}")),
            false => Failure::dead(error),
        })
    }

    /// Ends the processes and keeps the snapshots. After a failed restore there are no processes.
    pub(super) async fn discard(&mut self) -> Result<AppEvent, Failure> {
        if !matches!(self.state, State::Absent | State::Parked) {
            self.end_processes().await.map_err(Failure::dead)?;
            self.state = State::Parked;
        }
        Ok(AppEvent::Discarded)
    }
}

struct RestoredPart {
    restored: Restored,
    channels: Vec<u8>,
    /// Snapshots of earlier versions have none.
    part: Option<SavedPart>,
    bytes: Bytes,
}

fn restore_snapshot(
    node: &NodeServices,
    job: JobId,
    epoch: Epoch,
    (segment, memory): (SegmentFile, &Segment),
    cgroups: Vec<PathBuf>,
    user: Option<JobUser>,
) -> anyhow::Result<RestoredPart> {
    let snapshot = node.store.snapshot(&job.to_string(), epoch.0)?;
    let channels = snapshot.channels()?.unwrap_or_default();
    let part = SavedPart::of(&snapshot)?;
    snapshot.load_segment(&segment.path)?;
    // A hole would take memory when it is touched, where there may be none.
    memory.allocate()?;
    snapshot.place_program()?;
    let images = snapshot.manifest().files.iter().filter(|file| file.name.starts_with("images/"));
    let bytes = images.map(|file| Bytes(file.bytes)).sum();
    let limit = RESTORE_LIMIT + moving_time(bytes);
    let mut request = snapshot.restore_request(cgroups, Some(segment), limit);
    request.arena = Some(node.arena.clone());
    request.user = user;
    let restored = snapshot.restore(&node.criu, &request)?;
    // Newer ones are of a past that has not happened.
    if let Err(error) = node.store.remove_newer(&job.to_string(), epoch.0) {
        warn!(%job, %error, "a snapshot that is void could not be removed");
    }
    Ok(RestoredPart { restored, channels, part, bytes })
}
