//! Stays of jobs on nodes, stacked by memory where several jobs share a node.

use std::collections::BTreeMap;

use coswitch_policies::{Bytes, JobId, NodeId};

use crate::{SimJob, SimReport, picture::Axis};

/// Turns of a job that are closer together than this are drawn as one.
const JOIN: f64 = 0.4;

/// The stay of a job on a node: from and to in seconds, its memory, the memory stacked below it, and the peak
/// of the node between two moments without a job.
#[derive(Clone, Copy)]
pub(super) struct Stay {
    pub(super) job: JobId,
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) memory: u64,
    pub(super) below: u64,
    pub(super) whole: u64,
}

/// The stays on each node, stacked.
pub(super) fn lanes(
    nodes: &[(NodeId, Bytes)],
    axis: Axis,
    jobs: &[SimJob],
    report: &SimReport,
) -> Vec<Vec<Stay>> {
    let specs: BTreeMap<JobId, &SimJob> = jobs.iter().map(|job| (job.spec.id, job)).collect();
    let mut lanes: Vec<Vec<Stay>> = nodes.iter().map(|_| Vec::new()).collect();
    for times in &report.times.jobs {
        let share = u32::try_from(times.nodes.len()).unwrap_or(1).max(1);
        let memory =
            specs.get(&times.job).map_or(0, |job| job.spec.memory_of(job.spec.ranks.div_ceil(share)).0);
        let mut spans: Vec<(f64, f64)> = Vec::new();
        for span in &times.active {
            let (from, to) = (seconds(span.from.0), seconds(span.to.0));
            match spans.last_mut() {
                Some(last) if axis.x(from) - axis.x(last.1) < JOIN => last.1 = to,
                _ => spans.push((from, to)),
            }
        }
        for node in &times.nodes {
            if let Some(lane) = lanes.get_mut(node.0 as usize) {
                let stay = |(from, to): &(f64, f64)| Stay {
                    job: times.job,
                    from: *from,
                    to: *to,
                    memory,
                    below: 0,
                    whole: 0,
                };
                lane.extend(spans.iter().map(stay));
            }
        }
    }
    for lane in &mut lanes {
        lane.sort_by(|a, b| a.from.total_cmp(&b.from).then(a.job.cmp(&b.job)));
        let below = stack(lane);
        lane.iter_mut().zip(below).for_each(|(stay, below)| stay.below = below);
        set_wholes(lane);
    }
    lanes
}

/// Sets the peak of each stretch of time in which a node is never without a job.
fn set_wholes(mut lane: &mut [Stay]) {
    while let Some(first) = lane.first() {
        let (mut end, mut count, mut whole) = (first.to, 0, 0);
        while let Some(stay) = lane.get(count).filter(|stay| count == 0 || stay.from < end) {
            (end, count, whole) = (end.max(stay.to), count + 1, whole.max(stay.below + stay.memory));
        }
        let (busy, rest) = lane.split_at_mut(count);
        busy.iter_mut().for_each(|stay| stay.whole = whole);
        lane = rest;
    }
}

/// The memory below each stay: the lowest free interval among the stays at the same time.
fn stack(stays: &[Stay]) -> Vec<u64> {
    let mut placed: Vec<(f64, u64, u64)> = Vec::new();
    let mut below = Vec::with_capacity(stays.len());
    for stay in stays {
        placed.retain(|(to, ..)| *to > stay.from);
        placed.sort_by_key(|(_, bottom, _)| *bottom);
        let mut bottom = 0;
        for (_, other, memory) in &placed {
            if bottom + stay.memory <= *other {
                break;
            }
            bottom = bottom.max(other + memory);
        }
        placed.push((stay.to, bottom, stay.memory));
        below.push(bottom);
    }
    below
}

pub(super) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_on_a_node_at_the_same_time_share_its_height_and_others_have_it_alone() {
        let stay = |(job, from, to, memory)| Stay { job: JobId(job), from, to, memory, below: 0, whole: 0 };
        let mut lane: Vec<Stay> =
            [(0, 0.0, 4.0, 3), (1, 1.0, 2.0, 5), (2, 3.0, 6.0, 2), (3, 6.0, 7.0, 4)].map(stay).into();
        let below = stack(&lane);
        lane.iter_mut().zip(below).for_each(|(stay, below)| stay.below = below);
        set_wholes(&mut lane);
        let places: Vec<_> = lane.iter().map(|stay| (stay.below, stay.whole)).collect();
        assert_eq!(places, [(0, 8), (3, 8), (3, 8), (0, 4)]);
    }
}
