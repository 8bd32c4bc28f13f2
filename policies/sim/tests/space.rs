//! Jobs with nodes of their own: the scheduler of a live run starts them as the simulator of space sharing
//! does, whatever the queue and the allocator.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{
    Bytes, Cluster, Decision, JobId, JobSpec, Policy, SchedulerConfig, SimTime,
    spaceshare::{
        allocate::Request, machine::GroupId, queue::QueueId, queue::QueuedJob, sharing::SpaceSharing,
    },
};
use coswitch_sim::{
    CostModel, Faults, SimJob, simulate,
    spaceshare::{self, AllocatorName, NoObserver, QueueName, SpaceJob},
};
use proptest::prelude::*;

/// A job: nodes, the time until the next arrives, run time, and its limit beyond that, in milliseconds.
type Wish = (u32, u64, u64, u64);

const NODES: u32 = 8;

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let job = (1..=NODES, 0u64..400, 1u64..1500, prop_oneof![1 => Just(0u64), 3 => 1u64..2000]);
    prop::collection::vec(job, 1..40)
}

fn jobs(wishes: &[Wish], sharing: SpaceSharing) -> Vec<SpaceJob> {
    let machine = sharing.machine(NODES);
    let mut submitted = SimTime(0);
    let mut jobs: Vec<SpaceJob> = Vec::new();
    for &(nodes, gap, run, spare) in wishes {
        submitted = submitted.after(Duration::from_millis(gap) + Duration::from_nanos(1));
        let request = Request::nodes(nodes);
        if machine.can_ever_hold(GroupId(0), request) {
            let job = JobId(u32::try_from(jobs.len()).unwrap());
            // The scheduler hears of one event after the other: nothing else happens when one ends.
            let run = Duration::from_millis(run) + Duration::from_nanos(1009) * (job.0 + 1);
            let limit = run + Duration::from_millis(spare);
            let (queue, group) = (QueueId(0), GroupId(0));
            jobs.push(SpaceJob { queued: QueuedJob { job, queue, group, request, submitted, limit }, run });
        }
    }
    jobs
}

/// The starts by the simulator of space sharing.
fn simulated(jobs: &[SpaceJob], sharing: SpaceSharing) -> BTreeMap<JobId, SimTime> {
    let mut machine = sharing.machine(NODES);
    let executions = spaceshare::run(jobs, &mut machine, &mut *sharing.order(), &mut NoObserver).unwrap();
    (0..).map(JobId).zip(executions).map(|(job, execution)| (job, execution.started)).collect()
}

/// The starts by the scheduler, on a cluster where a launch takes no time.
fn scheduled(jobs: &[SpaceJob], sharing: SpaceSharing) -> BTreeMap<JobId, SimTime> {
    let job = |job: &SpaceJob| SimJob {
        spec: JobSpec {
            id: job.queued.job,
            name: job.queued.job.to_string().into(),
            ranks: job.queued.request.nodes,
            memory_per_rank: Bytes::mib(60),
            arrival: job.queued.submitted,
        },
        work: job.run,
        communication: None,
        memory: None,
        processors: 1,
        priority: 0,
        limit: Some(job.queued.limit),
    };
    let jobs: Vec<SimJob> = jobs.iter().map(job).collect();
    let config = SchedulerConfig {
        space: Some(sharing),
        ..SchedulerConfig::new(Policy::Batch, Duration::from_secs(1))
    };
    let cost = CostModel { launch: Duration::ZERO, ..CostModel::default() };
    let cluster = Cluster::uniform(NODES, Bytes::mib(100));
    let report = simulate(&cluster, &config, &jobs, &cost, Faults::default(), 100_000).unwrap();
    assert!(report.rejected.is_empty() && report.failed.is_empty());
    let mut starts = BTreeMap::new();
    for step in &report.journal {
        for decision in &step.decisions {
            if let Decision::Admitted { job, .. } = decision {
                assert!(starts.insert(*job, step.at).is_none(), "{job} starts once");
            }
        }
    }
    starts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_live_run_starts_jobs_when_the_simulator_of_its_queue_does(wishes in wishes()) {
        for (_, queue) in QueueName::ALL {
            for (_, allocator) in AllocatorName::ALL {
                let sharing = SpaceSharing { queue, allocator };
                let jobs = jobs(&wishes, sharing);
                prop_assert_eq!(scheduled(&jobs, sharing), simulated(&jobs, sharing), "{:?}", sharing);
            }
        }
    }
}
