//! Jobs with nodes of their own (`policy: batch`): a live run starts them in the order, and beside the jobs,
//! that the simulator of the same queue says; users park, resume and ask as under any policy.

use std::{collections::BTreeMap, fmt::Write as _, thread, time::Duration};

use coswitch_policies::{
    JobId, SimTime,
    spaceshare::{
        allocate::Request,
        choice::{AllocatorName, QueueName},
        machine::GroupId,
        queue::{QueueId, QueuedJob},
        sharing::SpaceSharing,
    },
};
use coswitch_report::journal::Event;
use coswitch_sim::spaceshare::{NoObserver, SpaceJob, run};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::Master,
    serving::{ENDLESS, HEAT, accepted, check_right, end, queue, serve, state, submit},
};

const NODES: u32 = 4;
const CLEAN_LIMIT: Duration = Duration::from_secs(8);

/// Nodes, arrival, run time and time limit, in tenths of a second. The second job waits for all nodes; which
/// of the others overtake it differs by the queue.
const JOBS: [(u32, u64, u64, u64); 5] =
    [(3, 0, 70, 100), (4, 3, 10, 30), (1, 6, 20, 40), (1, 9, 80, 200), (2, 12, 10, 30)];

fn tenths(number: u64) -> Duration {
    Duration::from_millis(100 * number)
}

/// By job: when it starts and ends.
type Stays = BTreeMap<JobId, (SimTime, SimTime)>;

fn simulated(queue: QueueName) -> Stays {
    let sharing = SpaceSharing::of(queue, AllocatorName::FirstFit);
    let job = |(id, &(nodes, at, runs, limit)): (u32, &(u32, u64, u64, u64))| SpaceJob {
        queued: QueuedJob {
            job: JobId(id),
            queue: QueueId(0),
            group: GroupId(0),
            request: Request::nodes(nodes),
            submitted: tenths(at).into(),
            limit: tenths(limit),
        },
        run: tenths(runs),
    };
    let jobs: Vec<SpaceJob> = (0..).zip(&JOBS).map(job).collect();
    let executions = run(&jobs, &mut sharing.machine(NODES), &mut *sharing.order(), &mut NoObserver);
    let executions = executions.expect("the simulation ends").into_iter();
    (0..).map(JobId).zip(executions.map(|execution| (execution.started, execution.finished))).collect()
}

fn live(queue: QueueName) -> Stays {
    let mut file = format!(
        "cluster: {{nodes: {NODES}, memory: 64MiB, store: \"{{store}}\"}}\n\
         scheduler: {{policy: batch, queue: {queue}}}\njobs:\n"
    );
    for (id, (nodes, at, runs, limit)) in JOBS.iter().enumerate() {
        let (seconds, limit) = (tenths(*runs).as_secs_f64(), tenths(*limit).as_secs());
        writeln!(
            file,
            "  - {{name: job-{id}, command: [sleep, '{seconds}'], ranks: {nodes}, memory: 16MiB, \
             arrival: {}ms, time_limit: {limit}s}}",
            100 * at
        )
        .expect("a string takes all");
    }
    let ended = Master::run(&file).end(RUN_LIMIT, CLEAN_LIMIT);
    assert_eq!(ended.code, Some(0), "{queue}: {ended:?}");
    let mut stays: Stays = BTreeMap::new();
    for event in &ended.events {
        match &event.kind {
            Event::JobLaunched { job, .. } => drop(stays.insert(*job, (event.at, event.at))),
            Event::JobFinished { job, .. } => {
                stays.get_mut(job).expect("it was launched").1 = event.at;
            }
            _ => {}
        }
    }
    stays
}

/// The jobs in the order in which they start, and those that run beside each other.
fn order(stays: &Stays) -> (Vec<JobId>, Vec<(JobId, JobId)>) {
    let mut starts: Vec<JobId> = stays.keys().copied().collect();
    starts.sort_by_key(|job| (stays[job].0, *job));
    let overlap = |(a, b): &(JobId, JobId)| {
        let ((from, to), (other_from, other_to)) = (stays[a], stays[b]);
        from < other_to && other_from < to
    };
    let pairs = stays.keys().flat_map(|a| stays.keys().filter(move |b| a < *b).map(|b| (*a, *b)));
    (starts, pairs.filter(overlap).collect())
}

#[test]
fn a_live_run_starts_jobs_in_the_order_of_the_simulator() {
    let expected: Vec<_> = QueueName::ALL.iter().map(|(_, queue)| order(&simulated(*queue))).collect();
    assert_ne!(expected[0], expected[1], "the queues differ");
    // They only sleep, and do not delay each other.
    let runs = QueueName::ALL.map(|(_, queue)| thread::spawn(move || order(&live(queue))));
    for ((run, expected), (name, _)) in runs.into_iter().zip(expected).zip(QueueName::ALL) {
        assert_eq!(run.join().expect("the run ends"), expected, "{name}");
    }
}

/// Each job takes both nodes.
const CLUSTER: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}"}
scheduler: {policy: batch, queue: conservative}
"#;

#[test]
fn users_park_and_resume_jobs_that_have_nodes_of_their_own() {
    let mut master = serve(CLUSTER);
    let refused = submit(&master, &[], HEAT);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(format!("{refused:?}").contains("--time-limit"), "{refused:?}");
    accepted(&submit(&master, &["--name", "long", "--time-limit", "1h"], ENDLESS));
    accepted(&submit(&master, &["--name", "short", "--time-limit", "10min"], HEAT));
    master.wait_until("the long job", STEP_LIMIT, |master| state(master, "long") == "running");
    let jobs = queue(&master);
    let from = jobs[1]["runs_from"].as_u64().expect("it is known when it starts");
    assert!(from > 3_000_000_000_000, "not before the hour has passed: {from}");
    let why = master.user(&["why", "short"]).json["text"].to_string();
    assert!(why.contains("it needs 2 nodes of its own, and 0 are free"), "{why}");
    assert!(why.contains("the queue `conservative` it is the first; it starts within"), "{why}");
    // A parked job gives its nodes to the next one, and comes back after that.
    assert_eq!(master.user(&["park", "long"]).code, Some(0));
    assert_eq!(master.user(&["wait", "short"]).code, Some(0));
    check_right(&master, "short");
    assert_eq!(state(&master, "long"), "held");
    assert_eq!(master.user(&["resume", "long"]).code, Some(0));
    master.wait_until("the long job again", STEP_LIMIT, |master| state(master, "long") == "running");
    assert_eq!(master.user(&["cancel", "long"]).code, Some(0));
    assert_ne!(master.user(&["wait", "long"]).code, Some(0));
    end(master);
}

/// A node each. The first is for another user than root, who may use any.
const PARTITIONS: &str = r#"
cluster: {nodes: 2, memory: 200MiB, store: "{store}"}
scheduler:
  policy: batch
  partitions: [{name: slow, nodes: [0], users: [daemon]}, {name: fast, nodes: [1], priority: 3}]
"#;

#[test]
fn a_job_of_the_partition_of_higher_priority_overtakes_one_that_keeps_others_waiting() {
    let mut master = serve(PARTITIONS);
    let runs = |master: &Master, name: &str| state(master, name) == "running";
    for (name, partition) in [("first", "slow"), ("second", "slow"), ("urgent", "fast")] {
        accepted(&submit(&master, &["--name", name, "--partition", partition], ENDLESS));
        if name != "second" {
            master.wait_until("the next job", STEP_LIMIT, |master| runs(master, name));
        }
    }
    assert_eq!(state(&master, "second"), "waiting", "its partition has no node left");
    accepted(&submit(&master, &["--name", "last", "--partition", "fast"], ENDLESS));
    // It keeps the second one waiting now, whose partition has its node again.
    assert_eq!(master.user(&["cancel", "first"]).code, Some(0));
    assert_ne!(master.user(&["wait", "first"]).code, Some(0));
    assert_eq!(state(&master, "second"), "waiting");
    assert_eq!(master.user(&["cancel", "urgent"]).code, Some(0));
    for name in ["last", "second"] {
        master.wait_until("both jobs", STEP_LIMIT, |master| runs(master, name));
        assert_eq!(master.user(&["cancel", name]).code, Some(0));
    }
    let unknown = submit(&master, &["--partition", "fsat"], ENDLESS);
    assert!(unknown.code == Some(2) && format!("{unknown:?}").contains("fsat"), "{unknown:?}");
    end(master);
}
