//! The ranks' side of a cut: freezing them, and letting them go on where it did not come about.

use std::time::{Duration, Instant};

use coswitch_policies::{Bytes, Epoch};

use super::{Failure, Ice, Part, State, blocking};
use crate::{
    plane::Command,
    protocol::{AppEvent, Step},
};

const FREEZE_LIMIT: Duration = Duration::from_secs(5);

impl Part {
    /// The data plane has seen the first marker of a cut.
    pub(super) async fn freeze(&mut self, epoch: Epoch) {
        let began = Instant::now();
        let cgroup = self.made().cgroup.clone();
        let frozen = blocking(move || cgroup.freeze(FREEZE_LIMIT)).await;
        if let Err(error) = &frozen {
            tracing::warn!(%epoch, %error, "ranks did not freeze");
        } else {
            self.state = match std::mem::replace(&mut self.state, State::Ended) {
                State::Running { root } | State::Frozen(Ice { root, .. }) => {
                    State::Frozen(Ice { root, since: Instant::now(), freeze: began.elapsed() })
                }
                // No rank is left; a cut that reaches other nodes in time goes through here as well.
                other => other,
            };
        }
        self.node.plane.tell(Command::Frozen(self.job, epoch, frozen.is_ok()));
    }

    /// The network is empty: report how long that took.
    pub(super) fn on_flushed(&mut self, epoch: Epoch, drained: Bytes) {
        let (freeze, flush) = match &self.state {
            State::Frozen(Ice { since, freeze, .. }) => (*freeze, since.elapsed()),
            _ => Default::default(),
        };
        self.tell(AppEvent::Flushed { epoch, freeze, flush, drained });
    }

    /// Lets frozen ranks run.
    pub(super) fn thaw(&mut self) {
        if let Err(error) = self.made().cgroup.thaw() {
            return self.answer(Step::Resume, Err(Failure::dead(error)));
        }
        self.state = match std::mem::replace(&mut self.state, State::Ended) {
            State::Frozen(Ice { root, .. }) => State::Running { root },
            other => other,
        };
    }

    /// The gang is complete on all nodes: let its ranks compute.
    pub(super) fn resume(&mut self, epoch: Epoch) -> Result<AppEvent, Failure> {
        let began = Instant::now();
        // The data plane first: a rank that runs may ring at once.
        self.node.plane.tell(Command::Resume(self.job, epoch));
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Stopped { root, restored } => {
                restored.resume().map_err(Failure::dead)?;
                self.state = State::Running { root };
            }
            // What is paged out comes back by page faults.
            State::Frozen(Ice { root, .. }) | State::PagedOut(Ice { root, .. }) => {
                self.made().cgroup.thaw().map_err(Failure::dead)?;
                self.state = State::Running { root };
            }
            other => self.state = other,
        }
        Ok(AppEvent::Resumed { epoch, thaw: Some(began.elapsed()) })
    }
}
