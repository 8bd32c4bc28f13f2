//! Messages to and from the launcher: exits of ranks, PMI fences, and the end of the application's part.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    path::Path,
    time::Duration,
};

use coswitch_ckpt::private;
use coswitch_launcher::protocol::{ExitStatus, LauncherCommand, LauncherEvent, encode};
use coswitch_policies::local::Excerpt;
use coswitch_ring::Segment;
use nix::sys::{signal::Signal, wait::WaitStatus};
use tokio::time::Instant;
use tracing::warn;

use super::{
    hearing::Forged,
    launch::{last_output, local_ranks},
    part::{Part, State, blocking},
};
use crate::{
    plane::Command,
    protocol::{AppEvent, Exit, Failure, RankEnd, RankTraffic, Step},
};

/// Of so many samples of the counters of drivers, one has the processor time.
const PROCESSED_EVERY: u32 = 10;
/// For the end of a launcher whose ranks have ended.
const END_LIMIT: Duration = Duration::from_secs(10);

impl Part {
    pub(super) fn tell_launcher(&self, command: &LauncherCommand, due: i64) {
        for part in encode(command) {
            self.node.plane.tell(Command::ToLauncher(self.job, part, due));
        }
    }

    /// Takes a part of a message from the launcher, or from a rank that has written to its ring.
    pub(super) fn hear(&mut self, message: &[u8]) -> Result<(), Forged> {
        let Some(event) = self.launcher.push(message)? else { return Ok(()) };
        let Some(resources) = &self.resources else { return Ok(()) };
        let placement = &resources.launch.placement;
        let here = local_ranks(placement, self.node.config.node).collect::<BTreeSet<u32>>();
        let event = self.hearing.on(event, &here, here.len() == placement.len())?;
        self.on_launcher(event);
        Ok(())
    }

    fn on_launcher(&mut self, event: LauncherEvent) {
        match event {
            LauncherEvent::Ready => {}
            LauncherEvent::AllExited => {
                self.all_exited = true;
                self.ends_by = Some(Instant::now() + END_LIMIT);
                self.tell_ended();
            }
            LauncherEvent::Fence { sequence, puts } => {
                self.told.reached = Some((sequence, puts.clone()));
                self.tell(AppEvent::Fence { sequence, puts });
            }
            LauncherEvent::RankExited { rank, status } => self.tell_exit(rank, self.exit_of(status)),
            LauncherEvent::Abort { rank, code, .. } => self.tell_exit(rank, Exit::Aborted(code)),
            LauncherEvent::Broke { rank, reason } => {
                let reason = format!("rank {rank} has broken the PMI protocol: {reason}");
                self.answer(Step::Run, Err(Failure::dead(reason)));
            }
        }
    }

    fn exit_of(&self, status: ExitStatus) -> Exit {
        match status {
            ExitStatus::Exited(status) => Exit::Status(status),
            ExitStatus::Signaled(libc::SIGKILL) if self.resources().cgroup.was_out_of_memory() => {
                Exit::OutOfMemory
            }
            ExitStatus::Signaled(signal) => Exit::Signal(signal),
            ExitStatus::ExecFailed(reason) => Exit::NotStarted(reason),
        }
    }

    fn tell_exit(&self, rank: u32, exit: Exit) {
        // The end of all of them says that.
        if exit == Exit::Status(0) {
            return;
        }
        let launch = &self.resources().launch;
        let last_output = last_output(&launch.output, rank, launch.user.as_ref());
        let end = RankEnd { rank, exit: exit.clone(), last_output: last_output.clone() };
        let _ = self.told.failed_rank.set(end);
        self.tell(AppEvent::RankExited { rank, exit, last_output });
    }

    /// The launcher has not ended after its last message. Frozen ones have more time.
    pub(super) fn on_overdue(&mut self) {
        self.ends_by = None;
        if !matches!(self.state, State::Running { .. }) || self.stands_still {
            self.ends_by = Some(Instant::now() + END_LIMIT);
            return;
        }
        let reason = "all of its ranks have ended, as its launcher says, but that itself has not";
        self.answer(Step::Run, Err(Failure::dead(reason)));
    }

    pub(super) async fn on_root_ended(&mut self, status: io::Result<WaitStatus>) {
        self.tell_traffic();
        self.tell_processed();
        let excerpt = self.node.scheduling.draw(self.job).await;
        self.leave_running();
        self.tell_counted().await;
        self.keep(excerpt).await;
        self.state = State::Ended;
        match status {
            Ok(WaitStatus::Exited(_, 0)) => self.tell_ended(),
            Ok(WaitStatus::Signaled(_, Signal::SIGBUS, _)) => {
                let reason = "its launcher found pages of the segment missing: a rank has cut the file, \
                              or there was no free memory in /dev/shm";
                self.answer(Step::Run, Err(Failure::dead(reason)));
            }
            Ok(status) => {
                let reason = format!("its launcher ended with {status:?}");
                warn!(reason);
                self.answer(Step::Run, Err(Failure::dead(reason)));
            }
            Err(error) => self.answer(Step::Run, Err(Failure::dead(error))),
        }
    }

    /// Reports the end once the launcher has been reaped *and* its last message has come through the rings:
    /// the exits of all ranks are known by then.
    fn tell_ended(&self) {
        if self.all_exited && matches!(self.state, State::Ended) {
            self.tell(AppEvent::Exited);
        }
    }

    /// Once a second.
    pub(super) async fn on_sample(&mut self) {
        self.tell_traffic();
        self.sampled = self.sampled.wrapping_add(1);
        if self.sampled.is_multiple_of(PROCESSED_EVERY) {
            self.tell_processed();
            self.tell_counted().await;
        }
    }

    /// Reports what the node scheduler has counted of the job since the last report.
    pub(super) async fn tell_counted(&self) {
        if let Some(counted) = self.node.scheduling.count(self.job).await {
            self.tell(AppEvent::Scheduled(Box::new(counted)));
        }
    }

    /// Leaves what the node scheduler did for a report, where there was one.
    async fn keep(&self, excerpt: Option<Excerpt>) {
        let Some(excerpt) = excerpt.filter(|excerpt| !excerpt.lanes.is_empty()) else { return };
        let path = self.resources().launch.output.join(Excerpt::file_name(self.node.config.node));
        if let Err(error) = blocking(move || write_excerpt(&path, &excerpt)).await {
            warn!(%error, "what the node scheduler did could not be written");
        }
    }

    /// Tells the processor time of its group, where it has one.
    pub(super) fn tell_processed(&self) {
        let processed = self.resources.as_ref().and_then(|resources| resources.cgroup.processed());
        if let Some((group, used)) = processed {
            self.tell(AppEvent::Processed { group, used });
        }
    }

    pub(super) fn tell_traffic(&self) {
        // The counters of a parked part are in its snapshot.
        if let Some(resources) = &self.resources
            && !matches!(self.state, State::Parked)
        {
            self.tell(AppEvent::Traffic(traffic(&resources.segment)));
        }
    }
}

fn write_excerpt(path: &Path, excerpt: &Excerpt) -> io::Result<()> {
    private::overwrite(path)?.write_all(&serde_json::to_vec(excerpt)?)
}

fn traffic(segment: &Segment) -> Vec<RankTraffic> {
    let of_rank = |local| {
        let counters = segment.counters(local);
        RankTraffic {
            rank: segment.global_of(local),
            messages: counters.messages_sent,
            bytes: counters.bytes_sent,
            waiting: Duration::from_nanos(counters.wait_ns),
        }
    };
    (0..segment.local_ranks()).map(of_rank).collect()
}
