//! The ranks' side of a cut: freezing, thawing, resuming.

use std::time::{Duration, Instant};

use coswitch_policies::{Bytes, Epoch};
use tracing::warn;

use super::{
    part::{FrozenRanks, Part, Resources, State, blocking},
    survivor::read_to,
};
use crate::{
    cgroup::JobCgroup,
    plane::Command,
    protocol::{AppEvent, Failure, Step},
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
        if let State::Running { .. } = self.state
            && let Err(error) = self.resources().cgroup.thaw()
        {
            return self.answer(Step::Resume, Err(Failure::dead(error)));
        }
        self.guard();
    }

    /// Lets the ranks run after a cut that failed or was given up.
    pub(super) fn thaw(&mut self) {
        if !self.stands_still
            && let Err(error) = self.resources().cgroup.thaw()
        {
            return self.answer(Step::Resume, Err(Failure::dead(error)));
        }
        self.state = match self.take_state() {
            State::Frozen(FrozenRanks { root, .. }) => State::Running { root },
            other => other,
        };
        self.guard();
    }

    /// The ranks are about to stand still.
    fn rest(&self, cgroup: JobCgroup) {
        self.node.scheduling.rest(self.job);
        self.node.guard.rest(self.job, cgroup);
    }

    /// The processes have ended, or are about to leave memory.
    pub(super) fn unguard(&self) {
        self.node.scheduling.leave(self.job);
        self.node.guard.leave(self.job);
    }

    /// From now on the ranks run, and may be stopped for want of memory.
    pub(super) fn guard(&self) {
        if matches!(self.state, State::Running { .. }) && !self.stands_still {
            let Resources { cgroup, segment, .. } = self.resources();
            self.node.guard.run(self.job, cgroup.clone());
            self.node.scheduling.run(self.job, segment, cgroup);
        }
    }

    /// Lets the ranks run when all nodes are ready.
    pub(super) async fn resume(&mut self, epoch: Epoch) -> Result<AppEvent, Failure> {
        let began = Instant::now();
        if let Some(resources) = &self.resources {
            self.node.ensure_links(&resources.launch.placement).await.map_err(Failure::dead)?;
        }
        if let Some(resources) = &self.resources {
            // A restore has taken the rings back.
            self.read_to = read_to(&resources.segment);
        }
        // The data plane first: a rank may ring as soon as it runs.
        self.node.plane.tell(Command::Resume(self.job, epoch));
        let mut stood_still = Duration::ZERO;
        match self.take_state() {
            State::Stopped { root, restored } => {
                restored.resume().map_err(Failure::dead)?;
                self.state = State::Running { root };
            }
            // Pages in swap come back by page faults.
            State::Frozen(ranks) | State::PagedOut(ranks) => {
                let FrozenRanks { root, since, freeze } = ranks;
                self.resources().cgroup.thaw().map_err(Failure::dead)?;
                stood_still = freeze + since.elapsed();
                self.state = State::Running { root };
            }
            other => self.state = other,
        }
        self.guard();
        Ok(AppEvent::Resumed { epoch, thaw: Some(began.elapsed()), stood_still })
    }
}
