//! Rotation of single jobs (paper 003, §4.5): which job leaves and which comes, how many bytes move, and that
//! every job has turns.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{
    Bytes, Cluster, ConfigError, Decision, JobId, JobSpec, Policy, Purpose, Residency, Rotation, Scheduler,
    SchedulerConfig, SimTime, SwitchOrder, SwitchPlan,
};
use coswitch_sim::{CostModel, Faults, SimJob, SimReport, simulate};
use proptest::prelude::*;

/// Jobs of one rank on each of two nodes of 1000 MiB, with so many MiB a rank and seconds of work.
fn run(jobs: &[(u64, u64)], config: &SchedulerConfig) -> SimReport {
    let job = |(id, (mib, seconds)): (u32, &(u64, u64))| SimJob {
        spec: JobSpec {
            id: JobId(id),
            name: "".into(),
            ranks: 2,
            memory_per_rank: Bytes::mib(*mib),
            arrival: SimTime(0),
        },
        work: Duration::from_secs(*seconds),
        communication: None,
        processors: 1,
        priority: 0,
        memory: None,
        limit: None,
        queue: Default::default(),
    };
    let jobs: Vec<SimJob> = (0..).zip(jobs).map(job).collect();
    let cluster = Cluster::uniform(2, Bytes::mib(1000));
    simulate(&cluster, config, &jobs, &CostModel::default(), Faults::default(), 200_000).unwrap()
}

fn config(rotation: Rotation) -> SchedulerConfig {
    SchedulerConfig { rotation, ..SchedulerConfig::new(Policy::Hybrid, Duration::from_secs(2)) }
}

/// Switches between turns, each with the jobs that leave and the jobs that come.
fn exchanges(report: &SimReport) -> Vec<(Vec<u32>, Vec<u32>)> {
    let plans =
        report.journal.iter().flat_map(|step| &step.decisions).filter_map(|decision| match decision {
            Decision::Switch(plan) if plan.purpose == Purpose::Turn => Some(plan),
            _ => None,
        });
    let named = |SwitchPlan { outgoing, incoming, .. }: &SwitchPlan| {
        let out = outgoing.iter().filter(|outgoing| outgoing.running).map(|outgoing| outgoing.job.0);
        (out.collect(), incoming.iter().map(|incoming| incoming.job.0).collect())
    };
    plans.map(named).collect()
}

#[test]
fn one_job_of_a_set_is_exchanged_for_the_one_that_waited_longest() {
    let report = run(&[(450, 60); 5], &config(Rotation::Job));
    let first: Vec<_> = exchanges(&report).into_iter().take(6).collect();
    let pair = |out, into| (vec![out], vec![into]);
    let turns = [pair(0, 2), pair(1, 3), pair(2, 4), pair(3, 0), pair(4, 1)];
    assert_eq!(first, [vec![(vec![], vec![0, 1])], turns.to_vec()].concat());
}

#[test]
fn a_large_job_takes_the_place_of_several() {
    let report = run(&[(900, 30), (450, 30), (450, 30)], &config(Rotation::Job));
    let first: Vec<_> = exchanges(&report).into_iter().take(4).collect();
    let expected = [(vec![], vec![0]), (vec![0], vec![1, 2]), (vec![1, 2], vec![0]), (vec![0], vec![1, 2])];
    assert_eq!(first, expected);
}

#[test]
fn fewer_bytes_move_in_a_turn_than_with_whole_sets() {
    let jobs = [(300, 60); 6];
    let moved = |rotation| {
        let report = run(&jobs, &config(rotation));
        report.bytes_out.0 / u64::from(report.switches)
    };
    let (job, set) = (moved(Rotation::Job), moved(Rotation::Set));
    assert!(job * 2 < set, "{job} and {set} bytes a switch");
}

#[test]
fn other_policies_and_auto_quanta_are_refused() {
    let cluster = || Cluster::uniform(2, Bytes::mib(1000));
    let gang = SchedulerConfig { policy: Policy::Gang, ..config(Rotation::Job) };
    assert_eq!(Scheduler::new(cluster(), gang).unwrap_err(), ConfigError::NoRing);
    let auto = coswitch_policies::AutoQuantum { overhead: 20_000, longest: Duration::from_secs(60) };
    let auto = SchedulerConfig { auto: Some(auto), ..config(Rotation::Job) };
    assert_eq!(Scheduler::new(cluster(), auto).unwrap_err(), ConfigError::AutoRing);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_job_waits_for_no_more_exchanges_than_there_are_jobs(
        sizes in prop::collection::vec((100_u64..=1000, 20_u64..60), 2..8),
        order in prop_oneof![
            Just(SwitchOrder::Sequential), Just(SwitchOrder::Overlapped), Just(SwitchOrder::Prefetch)
        ],
        planned in any::<bool>(),
    ) {
        let residency = if planned { Residency::Planned } else { Residency::None };
        let report = run(&sizes, &SchedulerConfig { switching: order, residency, ..config(Rotation::Job) });
        prop_assert!(report.failed.is_empty() && report.times.jobs.len() == sizes.len());
        let mut waited: BTreeMap<u32, usize> = (0..).take(sizes.len()).map(|job| (job, 0)).collect();
        for (out, into) in exchanges(&report) {
            // Where a job has ended, the largest that fits takes its room.
            waited.values_mut().for_each(|times| *times += usize::from(!out.is_empty()));
            for job in into {
                let times = waited.remove(&job).unwrap_or_default();
                prop_assert!(times <= sizes.len(), "job {job} came after {times} exchanges");
            }
            waited.extend(out.into_iter().map(|job| (job, 0)));
        }
    }
}
