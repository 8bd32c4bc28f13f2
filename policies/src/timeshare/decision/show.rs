//! One line of text for each decision, for logs and for tests that read like a story.

use std::{fmt, time::Duration};

use super::{
    Decision, Incoming, Outgoing, Purpose, RejectReason, Split, Start, SwitchOrder, SwitchPlan, Turn,
    TurnChange,
};
use crate::{Residence, SimTime};

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admitted { job, landing } => write!(f, "{job} admitted to {}", landing.slot),
            Self::Queued { job, ahead } => write!(f, "{job} queued behind {ahead}"),
            Self::Rejected { job, reason } => write!(f, "{job} rejected: {reason}"),
            Self::Moved(step) => write!(f, "{} moved from {} to {}", step.job, step.from, step.to),
            Self::Split(split) => write!(f, "{split}"),
            Self::Outgrew { job, node, resident, capacity } => {
                write!(f, "{job} holds {resident} on {node}, limit {capacity}: it runs there by itself")
            }
            Self::Switch(plan) => write!(f, "{plan}"),
            Self::SetTimer { timer, at } => write!(f, "{timer} set for {:?}", since_begin(*at)),
            Self::Abandon { job, failures } => write!(f, "{job} abandoned after {failures} failed switches"),
            Self::Checkpoint { job } => write!(f, "{job} checkpointed"),
            Self::Held { job } => write!(f, "{job} held"),
            Self::NotHeld { job } => write!(f, "{job} could not be held"),
            Self::SlotStarted(turn) => write!(f, "turn of {turn}"),
            Self::SlotChanged(turn) => write!(f, "turn goes on of {turn}"),
            Self::Narrowed { rows, needed } => {
                write!(f, "only {rows} rows take turns: all would need slices of {needed:?}")
            }
            Self::Widened => f.write_str("all rows take turns again"),
            Self::AllDone => f.write_str("all done"),
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, node, resident, capacity, at_once, moved } = self;
        let when = if *at_once { " at once" } else { "" };
        write!(f, "{} was split{when}: {job} grew to {resident} on {node}, limit {capacity}; ", moved.from)?;
        write!(f, "{} goes to {}", moved.job, moved.to)
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}{}", self.slot, listed(&self.jobs), until(self.ends))
    }
}

impl fmt::Display for TurnChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot, came, went, ends } = self;
        write!(f, "{slot}: in {}, out {}{}", listed(came), listed(went), until(*ends))
    }
}

fn until(ends: Option<SimTime>) -> String {
    ends.map_or_else(String::new, |at| format!(" until {:?}", since_begin(at)))
}

impl fmt::Display for SwitchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { switch, slot, purpose, outgoing, incoming, order } = self;
        match (purpose, order) {
            (Purpose::Ahead, _) => write!(f, "{switch} beside {slot}")?,
            (Purpose::Turn, SwitchOrder::Sequential) => write!(f, "{switch} to {slot}")?,
            (Purpose::Turn, SwitchOrder::Overlapped) => write!(f, "{switch} to {slot}, overlapped")?,
            (Purpose::Turn, SwitchOrder::Prefetch) => write!(f, "{switch} to {slot}, prefetched")?,
        }
        write!(f, ": out {}, in {}", listed(outgoing), listed(incoming))
    }
}

impl fmt::Display for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.job)?;
        if self.to == Residence::Suspended { f.write_str(" (suspended)") } else { Ok(()) }
    }
}

impl fmt::Display for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.start {
            Start::Launch => write!(f, "{} (new)", self.job),
            Start::Restore => write!(f, "{}", self.job),
            Start::Resume => write!(f, "{} (resumed)", self.job),
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRanks => f.write_str("it has no ranks"),
            Self::DuplicateId => f.write_str("its number was used before"),
            Self::TooLarge { ranks, needs, has } => {
                write!(f, "needs {needs} on one node for {ranks} of its ranks, the largest node has {has}")
            }
            Self::TooWide { nodes, most } => {
                write!(f, "needs {nodes} nodes, and the allocator gives a job {most} at most")
            }
        }
    }
}

fn since_begin(at: SimTime) -> Duration {
    at.since(SimTime::default())
}

fn listed(items: &[impl fmt::Display]) -> String {
    if items.is_empty() {
        return "none".into();
    }
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobId;

    #[test]
    fn jobs_are_listed_or_none() {
        assert_eq!(listed(&[JobId(0), JobId(2)]), "job-0 job-2");
        assert_eq!(listed(&[] as &[JobId]), "none");
    }
}
