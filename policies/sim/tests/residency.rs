//! Residency planning against an exhaustive search: the bytes that rotations restore, by the plan and by the
//! best plan possible.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{
    Bytes, Cluster, Decision, JobId, JobSpec, Policy, Residency, SchedulerConfig, SimTime, Start, SwitchOrder,
};
use coswitch_sim::{CostModel, Faults, SimJob, simulate};
use proptest::prelude::*;

/// Turns per case: several rotations.
const TURNS: usize = 24;

/// Bytes restored in the first turns, in MiB, when jobs of these sizes take turns on one node.
fn restored(sizes: &[u64], capacity: u64, residency: Residency) -> u64 {
    let job = |(id, mib): (u32, &u64)| SimJob {
        spec: JobSpec {
            id: JobId(id),
            name: "".into(),
            ranks: 1,
            memory_per_rank: Bytes::mib(*mib),
            arrival: SimTime(0),
        },
        work: Duration::from_secs(100),
        communication: None,
        memory: None,
        processors: 1,
        priority: 0,
        limit: None,
        queue: Default::default(),
    };
    let jobs: Vec<SimJob> = (0..).zip(sizes).map(job).collect();
    let config = SchedulerConfig { residency, ..SchedulerConfig::new(Policy::Gang, Duration::from_secs(1)) };
    let cluster = Cluster::uniform(1, Bytes::mib(capacity));
    let report =
        simulate(&cluster, &config, &jobs, &CostModel::default(), Faults::default(), 100_000).unwrap();
    let plans =
        report.journal.iter().flat_map(|step| &step.decisions).filter_map(|decision| match decision {
            Decision::Switch(plan) => Some(plan),
            _ => None,
        });
    let incoming = plans.take(TURNS).flat_map(|plan| &plan.incoming);
    let restores = incoming.filter(|incoming| incoming.start == Start::Restore);
    restores.map(|incoming| sizes[incoming.job.0 as usize]).sum()
}

/// The fewest bytes that turns in that order can restore: tries every choice of resident jobs at each turn.
/// First-fit decreasing assigns the largest job first, and of equal ones the first.
fn fewest(sizes: &[u64], capacity: u64) -> u64 {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|job| (std::cmp::Reverse(sizes[*job]), *job));
    let held =
        |set: u32| -> u64 { (0..sizes.len()).filter(|job| set >> job & 1 == 1).map(|job| sizes[job]).sum() };
    let mut costs: BTreeMap<u32, u64> = BTreeMap::from([(0, 0)]);
    for turn in 0..TURNS {
        let job = order[turn % order.len()];
        let mut next: BTreeMap<u32, u64> = BTreeMap::new();
        for (set, cost) in costs {
            let first = turn < order.len();
            let cost = if set >> job & 1 == 1 || first { cost } else { cost + sizes[job] };
            for stay in (0..=set).filter(|stay| stay & set == *stay) {
                let then = stay | 1 << job;
                if held(then) <= capacity {
                    let least = next.entry(then).or_insert(u64::MAX);
                    *least = (*least).min(cost);
                }
            }
        }
        costs = next;
    }
    costs.into_values().min().unwrap()
}

#[test]
fn five_jobs_in_the_room_of_three_move_half_of_what_they_would_without_a_plan() {
    let sizes = [1024; 5];
    let (none, planned) =
        (restored(&sizes, 3072, Residency::None), restored(&sizes, 3072, Residency::Planned));
    assert!(planned * 10 <= none * 6, "{planned} of {none} MiB");
    assert_eq!(planned, fewest(&sizes, 3072));
}

#[test]
fn a_prefetched_row_is_there_when_its_turn_begins_and_the_plan_still_moves_less() {
    let moved = |residency| {
        let job = |id| SimJob {
            spec: JobSpec {
                id: JobId(id),
                name: "".into(),
                ranks: 1,
                memory_per_rank: Bytes::mib(1024),
                arrival: SimTime(0),
            },
            work: Duration::from_secs(100),
            communication: None,
            memory: None,
            processors: 1,
            priority: 0,
            limit: None,
            queue: Default::default(),
        };
        let jobs: Vec<SimJob> = (0..5).map(job).collect();
        let config = SchedulerConfig {
            residency,
            switching: SwitchOrder::Prefetch,
            ..SchedulerConfig::new(Policy::Gang, Duration::from_secs(10))
        };
        let cluster = Cluster::uniform(1, Bytes::mib(3072));
        let cost = CostModel::default();
        let report = simulate(&cluster, &config, &jobs, &cost, Faults::default(), 100_000).unwrap();
        // Launches take 300 ms each; beyond them, each switch exposes nothing.
        let exposed = report.metrics.exposed.saturating_sub(5 * cost.launch);
        assert!(exposed < Duration::from_millis(100), "{exposed:?} of {} switches", report.switches);
        report.bytes_in.0
    };
    assert!(moved(Residency::Planned) < moved(Residency::None));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_jobs_of_one_size_nobody_could_move_less(jobs in 2_usize..8, room in 1_u64..8) {
        let sizes = vec![100; jobs];
        prop_assert_eq!(restored(&sizes, room * 100, Residency::Planned), fewest(&sizes, room * 100));
    }

    /// Choosing among jobs of several sizes is a knapsack problem: the plan may miss the best, and never does
    /// worse than none.
    #[test]
    fn with_jobs_of_several_sizes_it_moves_at_most_what_no_plan_would(
        sizes in prop::collection::vec(1_u64..5, 2..7),
        more in 0_u64..10,
    ) {
        let sizes: Vec<u64> = sizes.iter().map(|size| size * 100).collect();
        let room = sizes.iter().max().unwrap() + more * 100;
        let (planned, best) = (restored(&sizes, room, Residency::Planned), fewest(&sizes, room));
        prop_assert!(best <= planned && planned <= restored(&sizes, room, Residency::None));
        prop_assert!(planned <= 2 * best + room, "{planned} where {best} would do");
    }
}
