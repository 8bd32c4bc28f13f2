//! The ranks' side of a cut: freezing, thawing, resuming.

use std::time::{Duration, Instant};

use coswitch_policies::{Bytes, Epoch};
use tracing::warn;

use super::{
    part::{FrozenRanks, Part, Resources, State, blocking},
    survivor::read_to,
};
use crate::{
    cgroup::{CgroupError, JobCgroup},
    plane::Command,
    protocol::{AppEvent, Failure, Step},
    running::Before,
};

const FREEZE_LIMIT: Duration = Duration::from_secs(5);

impl Part {
    /// Freezes the ranks for a cut and tells the data plane.
    pub(super) async fn freeze(&mut self, epoch: Epoch) {
        let began = Instant::now();
        let cgroup = self.resources().cgroup.clone();
        self.rest(cgroup.clone());
        self.told.on_cut(epoch);
        self.told.flushed = None;
        let frozen = blocking(move || cgroup.freeze_between_forks(FREEZE_LIMIT)).await;
        if let Err(error) = &frozen {
            warn!(%epoch, %error, "ranks did not freeze");
        } else {
            self.state = match self.take_state() {
                State::Running { root } | State::Frozen(FrozenRanks { root, .. }) => {
                    State::Frozen(FrozenRanks { root, since: Instant::now(), freeze: began.elapsed() })
                }
                // No rank is left; the cut, which other nodes take part in, goes on here as well.
                other => other,
            };
        }
        self.node.plane.tell(Command::Frozen(self.job, epoch, frozen.is_ok()));
        self.tell_processed();
        self.tell_counted().await;
    }

    pub(super) fn on_flushed(&mut self, epoch: Epoch, drained: Bytes) {
        let (freeze, flush) = match &self.state {
            State::Frozen(ranks) => (ranks.freeze, ranks.since.elapsed()),
            _ => Default::default(),
        };
        self.told.flushed = Some(epoch);
        if self.all_exited {
            return self.answer(Step::Cut, Err(Failure::Ending));
        }
        self.tell(AppEvent::Flushed { epoch, freeze, flush, drained });
    }

    /// The process id of the launcher, if the ranks are frozen and alive. All messages that the launcher sent
    /// before the cut have arrived by now.
    pub(super) async fn frozen_root(&mut self) -> Result<i32, Failure> {
        let root = match &self.state {
            State::Frozen(FrozenRanks { root, .. }) => root,
            State::Ended => return Err(Failure::Ending),
            _ => return Err(Failure::alive("its ranks are not frozen")),
        };
        let pid = root.pid;
        if self.all_exited {
            // The launcher's last message has been received and would be missing in a snapshot.
            return Err(Failure::Ending);
        }
        if let Ok(status) = tokio::time::timeout(Duration::ZERO, root.ended()).await {
            self.on_root_ended(status).await;
            return Err(Failure::Ending);
        }
        Ok(pid)
    }

    /// Freezes ranks that run, without a cut: their messages wait in the network.
    pub(super) async fn stand_still(&mut self) {
        self.stands_still = true;
        if let State::Running { .. } = self.state {
            let cgroup = self.resources().cgroup.clone();
            self.rest(cgroup.clone());
            if let Err(error) = blocking(move || cgroup.freeze(FREEZE_LIMIT)).await {
                warn!(%error, "ranks do not stand still");
            }
        }
    }

    /// Ends [`Part::stand_still`]. Ranks that a cut has frozen meanwhile stay so.
    pub(super) fn go_on(&mut self) {
        self.stands_still = false;
        if let Err(error) = self.let_run(Before::Frozen) {
            self.answer(Step::Resume, Err(Failure::dead(error)));
        }
    }

    /// Lets the ranks run after a cut that failed or was given up.
    pub(super) fn thaw(&mut self) {
        self.state = match self.take_state() {
            State::Frozen(FrozenRanks { root, .. }) => State::Running { root },
            other => other,
        };
        if let Err(error) = self.let_run(Before::Frozen) {
            self.answer(Step::Resume, Err(Failure::dead(error)));
        }
    }

    /// The ranks are about to stand still.
    fn rest(&self, cgroup: JobCgroup) {
        self.node.scheduling.rest(self.job);
        self.node.running.rest(self.job, cgroup);
    }

    /// The processes have ended, or are about to leave memory.
    pub(super) fn leave_running(&self) {
        self.node.scheduling.leave(self.job);
        self.node.running.leave(self.job);
    }

    /// From now on the ranks of a part in [`State::Running`] run, unless the head node is silent; memory and
    /// slices may stop them.
    pub(super) fn let_run(&self, before: Before) -> Result<(), CgroupError> {
        if matches!(self.state, State::Running { .. }) && !self.stands_still {
            let Resources { cgroup, segment, .. } = self.resources();
            self.node.running.run(self.job, cgroup.clone(), before)?;
            self.node.scheduling.run(self.job, segment, cgroup);
        }
        Ok(())
    }

    /// Lets the ranks run when all nodes are ready.
    pub(super) async fn resume(&mut self, epoch: Epoch) -> Result<AppEvent, Failure> {
        let began = Instant::now();
        if let Some(resources) = &self.resources {
            let linked = self.unless_released(self.node.ensure_links(&resources.launch.placement)).await?;
            linked.map_err(Failure::dead)?;
        }
        if let Some(resources) = &self.resources {
            // A restore has taken the rings back.
            self.read_to = read_to(&resources.segment);
        }
        // The data plane first: a rank may ring as soon as it runs.
        self.node.plane.tell(Command::Resume(self.job, epoch));
        let (mut stood_still, mut before) = (Duration::ZERO, Before::Runs);
        match self.take_state() {
            State::Stopped { root, restored } => {
                restored.resume().map_err(Failure::dead)?;
                self.state = State::Running { root };
            }
            // Pages in swap come back by page faults.
            State::Frozen(ranks) | State::PagedOut(ranks) => {
                let FrozenRanks { root, since, freeze } = ranks;
                stood_still = freeze + since.elapsed();
                self.state = State::Running { root };
                before = Before::Frozen;
            }
            other => self.state = other,
        }
        self.let_run(before).map_err(Failure::dead)?;
        Ok(AppEvent::Resumed { epoch, thaw: Some(began.elapsed()), stood_still })
    }
}
