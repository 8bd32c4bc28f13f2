//! One switch under way: which jobs have done their part, and how it ended. Bookkeeping only; the orders are given by
//! [`super::execute`].

use std::{collections::BTreeSet, time::Duration};

use coswitch_policies::{Astray, Bytes, Incoming, JobId, Left, SimTime, Start, SwitchPlan};

/// See the module's description.
#[derive(Debug)]
pub(super) struct Switching {
    pub(super) plan: SwitchPlan,
    pub(super) began: SimTime,
    waiting: BTreeSet<JobId>,
    stage: Stage,
    astray: Vec<Astray>,
    pub(super) bytes_out: Bytes,
    pub(super) bytes_in: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Out,
    In,
}

/// What is to be done after a job has done its part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Others are still at it.
    Wait,
    /// Everything that had to leave has left: bring these in.
    BringIn(Vec<Incoming>),
    /// The switch is over; these jobs are elsewhere than planned.
    Over(Vec<Astray>),
}

impl Switching {
    pub(super) fn new(plan: SwitchPlan, began: SimTime) -> Self {
        let waiting = plan.outgoing.iter().copied().collect();
        let (bytes_out, bytes_in) = (Bytes(0), Bytes(0));
        Self { plan, began, waiting, stage: Stage::Out, astray: Vec::new(), bytes_out, bytes_in }
    }

    /// What is to be done at once: nothing may have to leave.
    pub(super) fn begin(&mut self) -> Next {
        self.next()
    }

    /// The job is parked, or runs, as planned; or it has ended.
    pub(super) fn on_done(&mut self, job: JobId) -> Next {
        if self.waiting.remove(&job) { self.next() } else { Next::Wait }
    }

    /// The job could not be parked and runs on.
    pub(super) fn on_stayed(&mut self, job: JobId) -> Next {
        if !self.waiting.remove(&job) {
            return Next::Wait;
        }
        self.astray.push(Astray { job, left: Left::Active });
        self.next()
    }

    fn next(&mut self) -> Next {
        if !self.waiting.is_empty() {
            return Next::Wait;
        }
        match self.stage {
            Stage::In => Next::Over(std::mem::take(&mut self.astray)),
            // A job that did not leave still holds its memory: nobody may come in.
            Stage::Out if !self.astray.is_empty() => {
                self.astray.extend(self.plan.incoming.iter().map(|incoming| Astray {
                    job: incoming.job,
                    left: if incoming.start == Start::Launch { Left::Unlaunched } else { Left::Parked },
                }));
                Next::Over(std::mem::take(&mut self.astray))
            }
            Stage::Out => {
                self.stage = Stage::In;
                self.waiting = self.plan.incoming.iter().map(|incoming| incoming.job).collect();
                if self.waiting.is_empty() { self.next() } else { Next::BringIn(self.plan.incoming.clone()) }
            }
        }
    }

    /// How long nobody computed because of the switch; nothing where others ran on meanwhile.
    pub(super) fn exposed(&self, now: SimTime, others_run: bool) -> Duration {
        if others_run { Duration::ZERO } else { now.since(self.began) }
    }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{Placement, SlotId, SwitchId, SwitchOrder};

    use super::*;

    fn switching(outgoing: &[u32], incoming: &[(u32, Start)]) -> Switching {
        let plan = SwitchPlan {
            switch: SwitchId(0),
            slot: SlotId(0),
            outgoing: outgoing.iter().copied().map(JobId).collect(),
            incoming: incoming
                .iter()
                .map(|(job, start)| Incoming {
                    job: JobId(*job),
                    start: *start,
                    placement: Placement::default(),
                })
                .collect(),
            order: SwitchOrder::Sequential,
        };
        Switching::new(plan, SimTime(0))
    }

    #[test]
    fn nobody_comes_in_before_everybody_has_left() {
        let mut switch = switching(&[1, 2], &[(3, Start::Restore)]);
        assert_eq!(switch.begin(), Next::Wait);
        assert_eq!(switch.on_done(JobId(1)), Next::Wait);
        assert!(matches!(switch.on_done(JobId(2)), Next::BringIn(jobs) if jobs.len() == 1));
        assert_eq!(switch.on_done(JobId(3)), Next::Over(vec![]));
    }

    #[test]
    fn a_job_that_stays_keeps_the_others_out() {
        let mut switch = switching(&[1], &[(3, Start::Restore), (4, Start::Launch)]);
        let astray = |job, left| Astray { job: JobId(job), left };
        let expected = vec![astray(1, Left::Active), astray(3, Left::Parked), astray(4, Left::Unlaunched)];
        assert_eq!(switch.on_stayed(JobId(1)), Next::Over(expected));
    }

    #[test]
    fn an_activation_begins_with_bringing_in_and_an_empty_switch_is_over_at_once() {
        assert!(matches!(switching(&[], &[(3, Start::Launch)]).begin(), Next::BringIn(_)));
        assert_eq!(switching(&[], &[]).begin(), Next::Over(vec![]));
        assert_eq!(switching(&[1], &[]).on_done(JobId(1)), Next::Over(vec![]));
    }
}
