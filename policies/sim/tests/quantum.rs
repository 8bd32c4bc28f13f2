//! Tests of `quantum: auto`: slices as short as the share of switching allows, and fewer rows where no slice
//! is long enough.

use std::time::Duration;

use coswitch_policies::{
    AutoQuantum, Bytes, Cluster, Decision, JobId, JobSpec, Policy, Residency, SchedulerConfig, SimTime,
};
use coswitch_sim::{CostModel, Faults, SimJob, SimReport, Transfer, simulate};

/// Three jobs of 500 MiB and 100 s in rows of their own, on a node of that size whose store moves 500 MiB a
/// second.
fn run(mib: u64, residency: Residency, overhead: u32, longest: u64) -> SimReport {
    let job = |id| SimJob {
        spec: JobSpec {
            id: JobId(id),
            name: "".into(),
            ranks: 1,
            memory_per_rank: Bytes::mib(500),
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
    let store = Transfer::at(Bytes::mib(500));
    let cost = CostModel { dump: store, restore: store, flush: Duration::ZERO, ..CostModel::default() };
    let auto = AutoQuantum { overhead, longest: Duration::from_secs(longest) };
    let config = SchedulerConfig {
        auto: Some(auto),
        residency,
        ..SchedulerConfig::new(Policy::Gang, Duration::from_secs(1))
    };
    let jobs: Vec<SimJob> = (0..3).map(job).collect();
    simulate(&Cluster::uniform(1, Bytes::mib(mib)), &config, &jobs, &cost, Faults::default(), 10_000).unwrap()
}

fn narrowed(report: &SimReport) -> Vec<u32> {
    let decisions = report.journal.iter().flat_map(|step| &step.decisions);
    let rows = decisions.filter_map(|decision| match decision {
        Decision::Narrowed { rows, .. } => Some(*rows),
        _ => None,
    });
    rows.collect()
}

#[test]
fn switching_costs_about_the_share_that_it_may() {
    // A switch takes 2 s: at 10 % slices of 20 s.
    let report = run(600, Residency::None, 100_000, 60);
    let overhead = report.metrics.exposed.as_secs_f64() / report.metrics.makespan.as_secs_f64();
    assert!((0.05..0.11).contains(&overhead), "{overhead}");
    assert!(narrowed(&report).is_empty());
}

#[test]
fn where_no_slice_is_long_enough_only_as_many_rows_take_turns_as_memory_holds() {
    // A switch takes 2 s: at 1 % slices of 200 s would be needed.
    let alone = run(600, Residency::Planned, 10_000, 60);
    assert_eq!(narrowed(&alone)[0], 1, "each runs to its end");
    assert!(alone.switches <= 5, "{}", alone.switches);
    let two = run(1100, Residency::Planned, 10_000, 60);
    assert_eq!(narrowed(&two)[0], 2, "two wait in memory for each other");
    assert!(two.switches > 50, "and change places often, for it costs nothing: {}", two.switches);
    assert!(narrowed(&run(1500, Residency::Planned, 10_000, 60)).is_empty(), "all fit");
}
