//! The causes that kept each job from running: for each stretch of time, the rule that kept it from running
//! beside the running jobs. Causes are the limits of the matrix: memory, and the number of jobs in a cell.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{Bytes, JobId, MemoryRule, NodeId, SimTime, metrics::Span};

use crate::history::History;

/// A rule that kept a job from running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    /// The job does not fit into the free memory of this node.
    Memory { node: NodeId, declared: Bytes, free: Bytes },
    /// One of its nodes had as many jobs as the policy allows.
    Cell { most: u32 },
    /// The job fitted, and another slot had its turn.
    Turn,
    /// No job ran: jobs were being started, or the nodes switched.
    Idle,
}

/// A rule that kept a job from running beside a set, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) rule: Rule,
    pub(super) beside: Vec<JobId>,
    pub(super) time: Duration,
}

/// The causes that kept `job` from running between its submission and its end, the longest first.
pub(super) fn causes(history: &History, sets: &[(Span, Vec<JobId>)], job: JobId) -> Vec<Cause> {
    let Some((from, to)) = lifetime(history, job) else { return Vec::new() };
    let mut times: BTreeMap<&[JobId], Duration> = BTreeMap::new();
    for (span, running) in sets.iter().filter(|(_, running)| !running.contains(&job)) {
        let time = span.to.min(to).since(span.from.max(from));
        if !time.is_zero() {
            *times.entry(running).or_default() += time;
        }
    }
    let cause = |(beside, time): (&[JobId], _)| Cause {
        rule: rule(history, beside, job),
        beside: beside.into(),
        time,
    };
    let mut causes: Vec<Cause> = times.into_iter().map(cause).collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.time));
    causes
}

fn lifetime(history: &History, job: JobId) -> Option<(SimTime, SimTime)> {
    let stays = &history.lives.jobs.get(&job)?.stays;
    Some((stays.first()?.span.from, stays.last()?.span.to))
}

fn rule(history: &History, beside: &[JobId], job: JobId) -> Rule {
    let Some(limits) = history.limits().filter(|_| !beside.is_empty()) else { return Rule::Idle };
    let others_on = |node| beside.iter().filter(move |other| has_ranks(history, **other, node));
    let nodes = || history.lives.jobs[&job].placement.nodes();
    // A job that was never placed has no nodes: it queued for its turn.
    let full = limits
        .max_per_cell
        .filter(|most| nodes().any(|node| others_on(node).count() as u64 >= (*most).into()));
    if let Some(most) = full {
        return Rule::Cell { most };
    }
    let too_large = |node| {
        let used = others_on(node).map(|other| history.declared_on(*other, node)).sum::<Bytes>();
        let declared = history.declared_on(job, node);
        let free = Bytes(history.capacity.on(node).0.saturating_sub(used.0));
        (declared > free).then_some(Rule::Memory { node, declared, free })
    };
    let too_large = nodes().find_map(too_large).filter(|_| limits.memory == MemoryRule::MustFit);
    too_large.unwrap_or(Rule::Turn)
}

fn has_ranks(history: &History, job: JobId, node: NodeId) -> bool {
    history.lives.jobs.get(&job).is_some_and(|life| life.placement.count_on(node) > 0)
}

#[cfg(test)]
mod tests {
    use coswitch_policies::Policy;

    use super::*;
    use crate::{
        fold::tests::two_jobs_in_turn,
        journal::{Event, RunEvent},
    };

    fn causes_of(policy: Policy, memory: u64, job: u32) -> Vec<(Rule, u64)> {
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
        causes.into_iter().map(|cause| (cause.rule, cause.time.as_secs())).collect()
    }

    #[test]
    fn a_job_that_does_not_fit_waits_for_memory() {
        let (node, declared, free) = (NodeId(0), Bytes::mib(300), Bytes::mib(100));
        let memory = Rule::Memory { node, declared, free };
        assert_eq!(causes_of(Policy::Hybrid, 300, 1), [(memory, 15), (Rule::Idle, 4)]);
    }

    #[test]
    fn a_job_that_fits_waits_for_another_slot_or_for_a_cell() {
        assert_eq!(causes_of(Policy::Hybrid, 100, 1)[0], (Rule::Turn, 15));
        assert_eq!(causes_of(Policy::Gang, 100, 1)[0], (Rule::Cell { most: 1 }, 15));
    }
}
