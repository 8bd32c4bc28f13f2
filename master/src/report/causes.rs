//! Why a job stood still: for each stretch in which it did not run, what kept it from running beside those that did.
//!
//! The reasons are those of the matrix (DESIGN §2): memory that must fit, and the number of jobs a cell may hold. Pure.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{Bytes, JobId, MemoryRule, NodeId, SimTime, metrics::Span};

use super::history::History;

/// What kept a job from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// Beside the others it does not fit into the memory of this node.
    Memory { node: NodeId, needs: Bytes, left: Bytes },
    /// One of its nodes had as many jobs as the policy lets it have.
    Cell { most: u32 },
    /// It would have fitted, and another slot had its turn.
    Turn,
    /// Nobody ran: jobs were being started, or the nodes switched.
    Nobody,
}

/// A reason, who ran meanwhile, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) why: Why,
    pub(super) beside: Vec<JobId>,
    pub(super) time: Duration,
}

/// Why `job` stood still between its submission and its end, what lasted longest first.
pub(super) fn causes(history: &History, sets: &[(Span, Vec<JobId>)], job: JobId) -> Vec<Cause> {
    let Some((from, to)) = lived(history, job) else { return Vec::new() };
    let mut times: BTreeMap<&[JobId], Duration> = BTreeMap::new();
    for (span, running) in sets.iter().filter(|(_, running)| !running.contains(&job)) {
        let time = span.to.min(to).since(span.from.max(from));
        if !time.is_zero() {
            *times.entry(running).or_default() += time;
        }
    }
    let cause =
        |(beside, time): (&[JobId], _)| Cause { why: why(history, beside, job), beside: beside.into(), time };
    let mut causes: Vec<Cause> = times.into_iter().map(cause).collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.time));
    causes
}

fn lived(history: &History, job: JobId) -> Option<(SimTime, SimTime)> {
    let stays = &history.lives.jobs.get(&job)?.stays;
    Some((stays.first()?.span.from, stays.last()?.span.to))
}

fn why(history: &History, beside: &[JobId], job: JobId) -> Why {
    let Some(limits) = history.limits().filter(|_| !beside.is_empty()) else { return Why::Nobody };
    let others_on = |node| beside.iter().filter(move |other| has_ranks(history, **other, node));
    let nodes = || history.lives.jobs[&job].placement.nodes();
    // One that was never placed has no nodes to look at; it queued for its turn.
    let full = limits
        .max_per_cell
        .filter(|most| nodes().any(|node| others_on(node).count() as u64 >= (*most).into()));
    if let Some(most) = full {
        return Why::Cell { most };
    }
    let misfit = |node| {
        let used = others_on(node).map(|other| history.declared_on(*other, node)).sum::<Bytes>();
        let (needs, left) =
            (history.declared_on(job, node), Bytes(history.capacity.0.saturating_sub(used.0)));
        (needs > left).then_some(Why::Memory { node, needs, left })
    };
    let misfit = nodes().find_map(misfit).filter(|_| limits.memory == MemoryRule::MustFit);
    misfit.unwrap_or(Why::Turn)
}

fn has_ranks(history: &History, job: JobId, node: NodeId) -> bool {
    history.lives.jobs.get(&job).is_some_and(|life| life.placement.count_on(node) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        journal::{Event, RunEvent},
        report::fold::tests::two_jobs_in_turn,
    };
    use coswitch_policies::Policy;

    fn causes_of(policy: Policy, memory: u64, job: u32) -> Vec<(Why, u64)> {
        let mut events: Vec<RunEvent> = two_jobs_in_turn();
        for event in &mut events {
            match &mut event.kind {
                Event::RunStarted { policy: of, .. } => *of = policy,
                Event::JobSubmitted { memory: of, .. } => *of = Bytes::mib(memory),
                _ => {}
            }
        }
        let history = History::of(&events);
        let causes = causes(&history, &history.sets(), JobId(job));
        causes.into_iter().map(|cause| (cause.why, cause.time.as_secs())).collect()
    }

    #[test]
    fn a_job_that_does_not_fit_stands_still_for_want_of_memory() {
        let (node, needs, left) = (NodeId(0), Bytes::mib(300), Bytes::mib(100));
        let memory = Why::Memory { node, needs, left };
        assert_eq!(causes_of(Policy::Hybrid, 300, 1), [(memory, 15), (Why::Nobody, 4)]);
    }

    #[test]
    fn a_job_that_would_fit_stands_still_for_another_slot_or_by_the_policy() {
        assert_eq!(causes_of(Policy::Hybrid, 100, 1)[0], (Why::Turn, 15));
        assert_eq!(causes_of(Policy::Gang, 100, 1)[0], (Why::Cell { most: 1 }, 15));
    }
}
