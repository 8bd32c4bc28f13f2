//! Jobs with nodes of their own: the scheduler of a live run starts them as the simulator of space sharing
//! does, whatever the queue, the allocator, the node sets and the hours of the day.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{
    Bytes, Cluster, Decision, JobId, JobSpec, NodeId, Policy, SchedulerConfig, SimTime,
    spaceshare::{
        allocate::Request,
        layout::{Daytime, GroupLayout, Layout, PrimeTime, QueueLayout, SetLayout},
        queue::{QueueId, QueuedJob},
        sharing::{NodeSets, SpaceSharing},
    },
};
use coswitch_sim::{
    CostModel, Faults, SimJob, simulate,
    spaceshare::{self, AllocatorName, NoObserver, QueueName, SpaceJob},
};
use proptest::prelude::*;

/// A job: nodes, the time until the next arrives, run time, its limit beyond that, in milliseconds; and its
/// queue.
type Wish = (u32, u64, u64, u64, u16);

const NODES: u32 = 8;

fn wishes() -> impl Strategy<Value = Vec<Wish>> {
    let job = (1..=NODES, 0u64..400, 1u64..1500, prop_oneof![1 => Just(0u64), 3 => 1u64..2000], 0u16..3);
    prop::collection::vec(job, 1..40)
}

/// Three node sets and three groups, of which one has its nodes by day and one by night; prime time ends
/// after two seconds.
fn divided(queue: QueueName, allocator: AllocatorName) -> SpaceSharing {
    let set =
        |name: &str, width, height| SetLayout { name: name.into(), width: Some(width), height, nodes: None };
    let names = |sets: &[&str]| sets.iter().map(ToString::to_string).collect::<Vec<_>>();
    let group = |name: &str, prime: &[&str], sets: &[&str]| GroupLayout {
        name: name.into(),
        prime: Some(names(prime)),
        sets: names(sets),
    };
    let home = |name: &str, priority, running| QueueLayout {
        name: name.into(),
        group: name.into(),
        priority,
        nodes: (name == "all").then_some(6),
        running,
        hours: None,
        time_limit: None,
        rank: 0,
        users: None,
    };
    let layout = Layout {
        partition: None,
        sets: vec![set("thin", 3, 1), set("fat", 2, 2), set("short", 1, 1)],
        groups: vec![
            group("all", &["thin", "fat"], &["fat", "short", "thin"]),
            group("night", &[], &["fat"]),
            group("day", &["short", "thin"], &["short"]),
        ],
        prime_time: PrimeTime { from: 9, to: 17, weekends: true },
        queues: vec![
            home("all", 0, None),
            home("night", 12, None),
            home("day", 6, (queue == QueueName::Aging).then_some(1)),
        ],
        age_factor: 1000,
        block_priority: Some(13),
    };
    let start = Daytime { since_midnight: Duration::from_secs(17 * 3600 - 2), weekday: 3 };
    let nodes = [5, 0, 7, 1, 2, 4, 3, 6].map(NodeId).to_vec();
    let sets = NodeSets { layout, nodes, start };
    SpaceSharing { sets: Some(Box::new(sets)), ..SpaceSharing::of(queue, allocator) }
}

fn jobs(wishes: &[Wish], sharing: &SpaceSharing) -> Vec<SpaceJob> {
    let machine = sharing.machine(NODES);
    let mut submitted = SimTime(0);
    let mut jobs: Vec<SpaceJob> = Vec::new();
    for &(nodes, gap, run, spare, queue) in wishes {
        let queue = if sharing.sets.is_some() { QueueId(queue) } else { QueueId(0) };
        let group = sharing.group_of(queue);
        submitted = submitted.after(Duration::from_millis(gap) + Duration::from_nanos(1));
        let request = Request::nodes(nodes);
        if machine.can_ever_hold(group, request) && nodes <= sharing.largest_job(NODES, queue) {
            let job = JobId(u32::try_from(jobs.len()).unwrap());
            // The scheduler hears of one event after the other: nothing else happens when one ends.
            let run = Duration::from_millis(run) + Duration::from_nanos(1009) * (job.0 + 1);
            let limit = run + Duration::from_millis(spare);
            jobs.push(SpaceJob { queued: QueuedJob { job, queue, group, request, submitted, limit }, run });
        }
    }
    jobs
}

/// The starts by the simulator of space sharing.
fn simulated(jobs: &[SpaceJob], sharing: &SpaceSharing) -> BTreeMap<JobId, SimTime> {
    let mut machine = sharing.machine(NODES);
    let executions = spaceshare::run(jobs, &mut machine, &mut *sharing.order(), &mut NoObserver).unwrap();
    (0..).map(JobId).zip(executions).map(|(job, execution)| (job, execution.started)).collect()
}

/// The starts by the scheduler, on a cluster where a launch takes no time.
fn scheduled(jobs: &[SpaceJob], sharing: &SpaceSharing) -> BTreeMap<JobId, SimTime> {
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
        queue: job.queued.queue,
    };
    let jobs: Vec<SimJob> = jobs.iter().map(job).collect();
    let config = SchedulerConfig {
        space: Some(sharing.clone()),
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
                for sharing in [SpaceSharing::of(queue, allocator), divided(queue, allocator)] {
                    let jobs = jobs(&wishes, &sharing);
                    let (live, alone) = (scheduled(&jobs, &sharing), simulated(&jobs, &sharing));
                    prop_assert_eq!(live, alone, "{:?}", sharing);
                }
            }
        }
    }
}
