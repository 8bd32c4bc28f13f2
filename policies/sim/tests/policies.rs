//! The policies side by side on a workload small enough to check by hand.

use std::{fmt::Write, time::Duration};

use coswitch_policies::{
    Bytes, Cluster, JobId, JobSpec, Policy, Residency, SchedulerConfig, SimTime, SwitchOrder,
};
use coswitch_sim::{CostModel, Faults, SimJob, SimReport, Transfer, simulate};

/// Four jobs of 10 s, two of which fit together, on two nodes of 1000 MiB with two cores; 100 MiB/s both
/// ways.
fn run(policy: Policy) -> SimReport {
    run_so(policy, SwitchOrder::Sequential, Residency::None, 1000)
}

fn run_so(policy: Policy, switching: SwitchOrder, residency: Residency, mib: u64) -> SimReport {
    run_in_slices(policy, switching, residency, mib, None)
}

fn run_in_slices(
    policy: Policy,
    switching: SwitchOrder,
    residency: Residency,
    mib: u64,
    slice: Option<Duration>,
) -> SimReport {
    let job = |id: u32| SimJob {
        spec: JobSpec {
            id: JobId(id),
            name: format!("job-{id}").into(),
            ranks: 2,
            memory_per_rank: Bytes::mib(500),
            arrival: SimTime(0),
        },
        work: Duration::from_secs(10),
        communication: None,
        memory: None,
        processors: 1,
        priority: 0,
        limit: None,
        queue: Default::default(),
    };
    let cost = CostModel {
        dump: Transfer::at(Bytes::mib(1000)),
        restore: Transfer::at(Bytes::mib(1000)),
        flush: Duration::ZERO,
        launch: Duration::ZERO,
        cores: 2,
        swap_slowdown: 10,
        slice,
        ..CostModel::default()
    };
    let config =
        SchedulerConfig { switching, residency, ..SchedulerConfig::new(policy, Duration::from_secs(4)) };
    let jobs: Vec<SimJob> = (0..4).map(job).collect();
    simulate(&Cluster::uniform(2, Bytes::mib(mib)), &config, &jobs, &cost, Faults::default(), 1000).unwrap()
}

fn figures(report: &SimReport) -> String {
    let turnarounds: Vec<_> = report.metrics.jobs.iter().map(|job| job.turnaround).collect();
    let mut text = format!("turnaround {turnarounds:?}\n");
    let metrics = &report.metrics;
    writeln!(text, "makespan {:?}, {} switches", metrics.makespan, report.switches).unwrap();
    writeln!(text, "out {}, in {}, exposed {:?}", report.bytes_out, report.bytes_in, metrics.exposed)
        .unwrap();
    let (first, second) = (metrics.tradeoff.relative_makespan.unwrap(), metrics.tradeoff.spread);
    writeln!(text, "trade-off {first:.3} + {second:.3}, utilisation {:.3}", metrics.utilisation).unwrap();
    write!(text, "peak {}", report.memory_peak[0]).unwrap();
    text
}

/// Two sets of two jobs: each has half of its turn, though every node has two cores, and 1 % of a slice is
/// for the switch.
#[test]
fn jobs_of_a_set_that_take_slices_run_one_after_the_other() {
    let slice = Some(Duration::from_millis(10));
    let run = |slice| run_in_slices(Policy::Hybrid, SwitchOrder::Sequential, Residency::None, 2000, slice);
    assert_eq!(run(None).metrics.makespan, Duration::from_secs(20));
    assert_eq!(run(slice).metrics.makespan, Duration::from_millis(40_400));
}

#[test]
fn batch_runs_the_jobs_one_by_one() {
    insta::assert_snapshot!(figures(&run(Policy::Batch)), @r"
    turnaround [10s, 20s, 30s, 40s]
    makespan 40s, 0 switches
    out 0B, in 0B, exposed 0ns
    trade-off 1.000 + 0.447, utilisation 1.000
    peak 500MiB
    ");
}

#[test]
fn gang_switches_between_four_rows() {
    insta::assert_snapshot!(figures(&run(Policy::Gang)), @r"
    turnaround [40.5s, 43s, 45.5s, 48s]
    makespan 48s, 8 switches
    out 7.8GiB, in 7.8GiB, exposed 8s
    trade-off 1.200 + 0.063, utilisation 0.833
    peak 500MiB
    ");
}

#[test]
fn hybrid_switches_between_two_rows_half_as_often() {
    insta::assert_snapshot!(figures(&run(Policy::Hybrid)), @r"
    turnaround [25s, 25s, 27.5s, 28s]
    makespan 28s, 4 switches
    out 7.8GiB, in 7.8GiB, exposed 7.5s
    trade-off 0.700 + 0.053, utilisation 0.732
    peak 1000MiB
    ");
}

#[test]
fn cosched_swaps_until_the_jobs_fit() {
    insta::assert_snapshot!(figures(&run(Policy::Cosched)), @r"
    turnaround [200s, 200s, 200s, 200s]
    makespan 200s, 0 switches
    out 0B, in 0B, exposed 0ns
    trade-off 5.000 + 0.000, utilisation 1.000
    peak 2.0GiB
    ");
}

#[test]
fn the_journal_of_a_switch_reads_like_a_story() {
    let report = run(Policy::Hybrid);
    let mut story = String::new();
    for step in report.journal.iter().take(7) {
        for decision in &step.decisions {
            writeln!(story, "{:>6?} {decision}", step.at.since(SimTime(0))).unwrap();
        }
    }
    insta::assert_snapshot!(story, @r"
    0ns job-0 admitted to slot-0
    0ns job-1 admitted to slot-0
    0ns job-2 admitted to slot-1
    0ns job-3 admitted to slot-1
    0ns switch-0 to slot-0: out none, in job-0 (new) job-1 (new)
    0ns turn of slot-0 with job-0 job-1 until 4s
    0ns timer-0 set for 4s
     4s switch-1 to slot-1: out job-0 job-1, in job-2 (new) job-3 (new)
     5s turn of slot-1 with job-2 job-3 until 9s
     5s timer-1 set for 9s
     9s switch-2 to slot-0: out job-2 job-3, in job-0 job-1
    ");
}

#[test]
fn the_more_a_switch_overlaps_the_less_it_exposes_where_memory_holds_both_sets() {
    // Gang: four rows of 500 MiB a node. With 1000 MiB both sets of a switch fit, with 600 they do not.
    let exposed = |order, mib| {
        let report = run_so(Policy::Gang, order, Residency::None, mib);
        report.metrics.exposed.as_millis()
    };
    let (sequential, overlapped, prefetch) = (
        exposed(SwitchOrder::Sequential, 1000),
        exposed(SwitchOrder::Overlapped, 1000),
        exposed(SwitchOrder::Prefetch, 1000),
    );
    assert!(prefetch < overlapped && overlapped < sequential, "{prefetch} {overlapped} {sequential}");
    for order in [SwitchOrder::Overlapped, SwitchOrder::Prefetch] {
        assert_eq!(
            exposed(order, 600),
            exposed(SwitchOrder::Sequential, 600),
            "it falls back to the cheaper one"
        );
    }
}

#[test]
fn residency_moves_fewer_bytes_and_none_where_everything_fits() {
    let moved = |residency, mib| {
        let report = run_so(Policy::Gang, SwitchOrder::Sequential, residency, mib);
        assert!(report.memory_peak.iter().all(|peak| *peak <= Bytes::mib(mib)));
        report.bytes_out.0 + report.bytes_in.0
    };
    assert_eq!(moved(Residency::Planned, 2000), 0);
    assert!(
        moved(Residency::Planned, 1500) < moved(Residency::Planned, 1000)
            && moved(Residency::Planned, 1000) < moved(Residency::None, 1000)
    );
}

#[test]
fn jobs_that_stay_in_memory_take_turns_there_though_they_do_not_fit() {
    for order in [SwitchOrder::Sequential, SwitchOrder::Overlapped, SwitchOrder::Prefetch] {
        let report = run_so(Policy::Gang, order, Residency::Always, 1000);
        assert_eq!((report.bytes_out, report.bytes_in), (Bytes(0), Bytes(0)), "no job leaves memory");
        assert!(report.switches > 4, "they take turns: {}", report.switches);
        assert_eq!(report.memory_peak, [Bytes::mib(2000); 2], "all four are in memory");
    }
}
