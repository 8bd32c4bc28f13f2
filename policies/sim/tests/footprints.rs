//! Jobs that hold less than they declare, and may grow into it: what moves, and that no node is ever over its
//! memory.

use std::time::Duration;

use coswitch_policies::{
    Bytes, Cluster, Decision, Estimate, JobId, JobSpec, Policy, Residency, SchedulerConfig, SchedulerEvent,
    SimTime, SwitchOrder,
};
use coswitch_sim::{CostModel, Faults, MemoryCurve, SimJob, SimReport, Step, simulate};
use proptest::prelude::*;

const CAPACITY: u64 = 700;

/// A job of one rank on each of two nodes that declares so many MiB a rank, holds `first` of them, and from
/// `from` seconds of work on, `within` milliseconds later, `then`.
#[derive(Clone, Copy, Debug)]
struct Program {
    declares: u64,
    first: u64,
    then: u64,
    from: u64,
    within: u64,
}

fn run(programs: &[Program], config: &SchedulerConfig) -> SimReport {
    let job = |(id, program): (u32, &Program)| {
        let from = Duration::from_secs(program.from);
        let grown = from + Duration::from_millis(program.within);
        let points = vec![(from, Bytes::mib(program.first)), (grown, Bytes::mib(program.then))];
        SimJob {
            spec: JobSpec {
                id: JobId(id),
                name: "".into(),
                ranks: 2,
                memory_per_rank: Bytes::mib(program.declares),
                arrival: SimTime(0),
            },
            work: Duration::from_secs(40),
            communication: None,
            processors: 1,
            priority: 0,
            memory: Some(MemoryCurve::new(points)),
            limit: None,
            queue: Default::default(),
        }
    };
    let jobs: Vec<SimJob> = (0..).zip(programs).map(job).collect();
    let cluster = Cluster::uniform(2, Bytes::mib(CAPACITY));
    simulate(&cluster, config, &jobs, &CostModel::default(), Faults::default(), 200_000).unwrap()
}

fn config(policy: Policy, switching: SwitchOrder, estimate: Estimate) -> SchedulerConfig {
    SchedulerConfig {
        switching,
        estimate,
        residency: Residency::Planned,
        ..SchedulerConfig::new(policy, Duration::from_secs(3))
    }
}

/// Eight jobs that declare 150 MiB on each node and hold a fourth.
fn declare_too_much() -> Vec<Program> {
    vec![Program { declares: 150, first: 37, then: 37, from: 0, within: 0 }; 8]
}

#[test]
fn jobs_that_declare_four_times_what_they_hold_stay_in_memory() {
    for switching in [SwitchOrder::Sequential, SwitchOrder::Overlapped, SwitchOrder::Prefetch] {
        let of = |estimate| run(&declare_too_much(), &config(Policy::Hybrid, switching, estimate));
        let (declared, measured) = (of(Estimate::Declared), of(Estimate::Measured));
        let moved = |report: &SimReport| (report.bytes_in.0 + report.bytes_out.0) >> 20;
        assert!(moved(&measured) * 5 <= moved(&declared), "{} of {}", moved(&measured), moved(&declared));
        let launches = 2 * CostModel::default().launch;
        let exposed = measured.metrics.exposed.saturating_sub(launches);
        assert!(exposed * 100 <= measured.metrics.makespan, "{switching:?}: {exposed:?} exposed");
    }
}

/// How often running jobs were stopped for want of memory.
fn stops(report: &SimReport) -> usize {
    let is_stop = |event: &SchedulerEvent| matches!(event, SchedulerEvent::RunningStopped { .. });
    report.journal.iter().filter(|step| is_stop(&step.event)).count()
}

fn evictions(report: &SimReport) -> usize {
    let decisions = report.journal.iter().flat_map(|step| &step.decisions);
    decisions
        .filter(|decision| {
            matches!(decision, Decision::Switch(plan)
            if plan.incoming.is_empty() && plan.outgoing.iter().all(|outgoing| !outgoing.running))
        })
        .count()
}

#[test]
fn suspended_jobs_leave_before_a_growing_set_is_stopped() {
    let slow = Program { declares: 600, first: 100, then: 600, from: 12, within: 15_000 };
    let report = run(&[slow, slow], &config(Policy::Gang, SwitchOrder::Sequential, Estimate::Measured));
    assert!(evictions(&report) > 0 && stops(&report) == 0, "{} stops", stops(&report));
    assert!(report.memory_peak.iter().all(|peak| *peak <= Bytes::mib(CAPACITY)), "{:?}", report.memory_peak);
}

#[test]
fn a_set_that_grows_at_once_is_stopped_until_there_is_room() {
    let sudden = Program { declares: 600, first: 100, then: 600, from: 12, within: 100 };
    let report = run(&[sudden, sudden], &config(Policy::Gang, SwitchOrder::Sequential, Estimate::Measured));
    assert!(stops(&report) > 0);
    assert!(report.memory_peak.iter().all(|peak| *peak <= Bytes::mib(CAPACITY)), "{:?}", report.memory_peak);
    assert!(report.failed.is_empty());
}

/// What a job held in its checkpoint says nothing of what it will hold when it is frozen for a switch.
#[test]
fn a_checkpointed_job_is_not_one_that_rests() {
    let grows = Program { declares: 600, first: 100, then: 600, from: 2, within: 30_000 };
    let mut config = config(Policy::Gang, SwitchOrder::Sequential, Estimate::Measured);
    config.mean_time_between_failures = Some(Duration::from_secs(10));
    let report = run(&[grows], &config);
    let is_of = |step: &&Step| matches!(step.event, SchedulerEvent::Checkpointed { .. });
    let made = report.journal.iter().filter(is_of).count();
    assert!(made > 2, "{made}");
    let rests = |step: &Step| matches!(step.event, SchedulerEvent::Footprint { exact: true, .. });
    assert!(!report.journal.iter().any(rests));
}

fn programs() -> impl Strategy<Value = Vec<Program>> {
    let program = (100_u64..=700, 50_u64..1000, 0_u64..=1000, 0_u64..30, 100_u64..20_000);
    let program = program.prop_map(|(declares, first, then, from, within)| Program {
        declares,
        first: declares * first / 1000,
        then: declares * then / 1000,
        from,
        within,
    });
    prop::collection::vec(program, 2..7)
}

fn orders() -> impl Strategy<Value = SwitchOrder> {
    prop_oneof![Just(SwitchOrder::Sequential), Just(SwitchOrder::Overlapped), Just(SwitchOrder::Prefetch)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn however_jobs_grow_no_node_is_ever_over_its_memory(
        programs in programs(),
        policy in prop_oneof![Just(Policy::Gang), Just(Policy::Hybrid), Just(Policy::Paired)],
        order in orders(),
    ) {
        let report = run(&programs, &config(policy, order, Estimate::Measured));
        prop_assert!(report.failed.is_empty() && report.times.jobs.len() == programs.len());
        for peak in report.memory_peak {
            prop_assert!(peak <= Bytes::mib(CAPACITY), "{peak} at once");
        }
    }
}
