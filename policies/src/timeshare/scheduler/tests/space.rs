//! Jobs with nodes of their own.

use super::*;
use crate::{
    Adopted, Placement, Present,
    spaceshare::{
        choice::{AllocatorName, QueueName},
        layout::{Daytime, GroupLayout, Layout, LayoutError, PrimeTime, QueueLayout, SetLayout},
        queue::QueueId,
        sharing::{NodeSets, SpaceSharing},
    },
};

/// A desk with four nodes, on which a job of `n` ranks takes `n` of them.
fn desk(queue: QueueName) -> Desk {
    desk_of(SpaceSharing::of(queue, AllocatorName::FirstFit))
}

fn desk_of(space: SpaceSharing) -> Desk {
    let space = Some(space);
    let config = SchedulerConfig { space, ..SchedulerConfig::new(Policy::Batch, Duration::from_secs(10)) };
    let mut desk = Desk::with(SchedulerConfig { space: None, ..config.clone() });
    desk.scheduler = Scheduler::new(Cluster::uniform(4, Bytes::mib(1000)), config).unwrap();
    desk
}

impl Desk {
    /// Submits a job of so many ranks that runs for so many seconds at most.
    fn queue(&mut self, ranks: u32, limit: u64) {
        let left = vec![(JobId(self.jobs), Duration::from_secs(limit))];
        self.tell(SchedulerEvent::Limited { left });
        self.submit(&[(ranks, 600)]);
        self.run_all();
    }

    fn then(&mut self, event: SchedulerEvent) {
        self.tell(event);
        self.run_all();
    }

    /// Ends every switch that is under way.
    fn run_all(&mut self) {
        while self.switch.is_some() {
            self.done();
        }
    }

    /// The jobs that run, each with its nodes.
    fn nodes(&self) -> Vec<(u32, Vec<u32>)> {
        let matrix = self.scheduler.matrix();
        assert!(matrix.rows().len() <= 1, "there are no turns");
        let runs = |job: &JobId| self.scheduler.job(*job).unwrap().observed == Residence::Running;
        let jobs = matrix.front().into_iter().flat_map(|row| row.jobs()).filter(runs);
        let nodes = |job| matrix.assignment_of(job).unwrap().placement.nodes().map(|node| node.0).collect();
        jobs.map(|job| (job.0, nodes(job))).collect()
    }

    fn starts_by(&self, job: u32) -> Option<u64> {
        let wait = self.scheduler.node_wait(self.now, JobId(job)).expect("the job waits");
        wait.starts_by.map(|at| at.since(SimTime(0)).as_secs())
    }
}

fn finished(job: u32) -> SchedulerEvent {
    SchedulerEvent::Finished { job: JobId(job) }
}

fn down(node: u32) -> SchedulerEvent {
    SchedulerEvent::NodeDown { node: NodeId(node) }
}

fn up(node: u32) -> SchedulerEvent {
    SchedulerEvent::NodeUp { node: NodeId(node) }
}

fn displaced(job: u32, at: Residence) -> SchedulerEvent {
    SchedulerEvent::Displaced { job: JobId(job), at }
}

#[test]
fn each_queue_lets_other_jobs_overtake() {
    let started = |queue| {
        let mut desk = desk(queue);
        // Job 1 needs all nodes. Job 2 ends before it could begin, job 3 does not.
        [(3, 10), (4, 10), (1, 5), (1, 20)].into_iter().for_each(|(ranks, limit)| desk.queue(ranks, limit));
        desk.nodes().into_iter().map(|(job, _)| job).collect::<Vec<_>>()
    };
    assert_eq!(started(QueueName::Fcfs), [0]);
    assert_eq!(started(QueueName::Easy), [0, 2]);
    assert_eq!(started(QueueName::Conservative), [0, 2]);
    // It passes over jobs that do not fit: the last does not, only because job 2 has its node.
    assert_eq!(started(QueueName::Aging), [0, 2]);
}

#[test]
fn reservations_are_told_and_kept() {
    let mut desk = desk(QueueName::Conservative);
    [(3, 10), (4, 10), (2, 5)].into_iter().for_each(|(ranks, limit)| desk.queue(ranks, limit));
    assert_eq!((desk.starts_by(1), desk.starts_by(2)), (Some(10), Some(20)));
    // The forecast is that of the very queue: job 0 ends sooner than its limit.
    let left = [(0, 4), (1, 3)].map(|(job, secs)| (JobId(job), Duration::from_secs(secs)));
    let present = Present { now: desk.now, left: left.into(), events_max: 100, ..Present::default() };
    let outlooks = desk.scheduler.forecast(present);
    let from = |job| outlooks[&JobId(job)].runs_from.unwrap().since(SimTime(0)).as_secs();
    assert_eq!((from(1), from(2)), (4, 7));
    desk.at(6).then(finished(0));
    assert_eq!((desk.nodes(), desk.starts_by(2)), (vec![(1, vec![0, 1, 2, 3])], Some(16)));
    desk.at(16).then(finished(1));
    assert_eq!(desk.nodes(), [(2, vec![0, 1])]);
}

#[test]
fn a_job_that_is_cancelled_or_held_leaves_the_queue_and_a_higher_one_is_next() {
    let mut desk = desk(QueueName::Easy);
    (0..4).for_each(|_| desk.queue(4, 10));
    desk.then(SchedulerEvent::Failed { job: JobId(1) });
    desk.then(SchedulerEvent::Held { job: JobId(2) });
    assert!(desk.scheduler.is_held_out(JobId(2)));
    desk.tell(SchedulerEvent::Prioritized { priorities: vec![(JobId(4), 1)] });
    desk.queue(4, 10);
    assert_eq!(desk.scheduler.queue().collect::<Vec<_>>(), [JobId(4), JobId(3)]);
    desk.then(SchedulerEvent::Released { job: JobId(2) });
    let mut order = Vec::new();
    while let Some((job, _)) = desk.nodes().first() {
        order.push(*job);
        desk.then(finished(*job));
    }
    assert_eq!(order, [0, 4, 3, 2]);
}

#[test]
fn a_parked_job_gives_its_nodes_to_others_and_gets_them_back_one_by_one() {
    let mut desk = desk(QueueName::Fcfs);
    desk.queue(2, 100);
    desk.queue(2, 100);
    desk.then(SchedulerEvent::Held { job: JobId(0) });
    assert!(desk.scheduler.is_held_out(JobId(0)));
    desk.queue(1, 100);
    desk.queue(1, 100);
    assert_eq!(desk.nodes(), [(1, vec![2, 3]), (2, vec![0]), (3, vec![1])]);
    desk.then(SchedulerEvent::Released { job: JobId(0) });
    desk.then(finished(2));
    desk.queue(1, 100);
    assert_eq!(desk.nodes(), [(1, vec![2, 3]), (3, vec![1])], "node 0 is kept for job 0");
    desk.then(finished(3));
    assert_eq!(desk.nodes(), [(0, vec![0, 1]), (1, vec![2, 3])]);
    desk.then(finished(1));
    assert_eq!(desk.nodes(), [(0, vec![0, 1]), (4, vec![2])]);
}

#[test]
fn a_job_that_loses_its_node_begins_again_before_all_others() {
    let mut desk = desk(QueueName::Easy);
    [(2, 100), (2, 100), (2, 10)].into_iter().for_each(|(ranks, limit)| desk.queue(ranks, limit));
    desk.at(3).then(down(0));
    desk.then(displaced(0, Residence::Unlaunched));
    assert_eq!(desk.nodes(), [(1, vec![2, 3])]);
    assert_eq!(desk.scheduler.queue().collect::<Vec<_>>(), [JobId(0), JobId(2)]);
    // A job that the nodes that are up never hold keeps no other from running: none has more than three.
    desk.then(finished(1));
    assert_eq!(desk.nodes(), [(0, vec![1, 2])]);
    desk.then(up(0));
    assert_eq!(desk.nodes(), [(0, vec![1, 2]), (2, vec![0, 3])]);
}

#[test]
fn a_job_with_a_snapshot_waits_for_its_node_and_others_may_not_have_it() {
    let mut desk = desk(QueueName::Conservative);
    desk.queue(2, 100);
    desk.then(down(1));
    desk.then(displaced(0, Residence::Parked));
    desk.queue(1, 10);
    desk.queue(3, 10);
    assert_eq!(desk.nodes(), [(1, vec![2])], "node 0 is kept for job 0");
    desk.then(up(1));
    assert_eq!(desk.nodes(), [(0, vec![0, 1]), (1, vec![2])]);
    desk.then(finished(0));
    assert_eq!(desk.nodes(), [(1, vec![2]), (2, vec![0, 1, 3])]);
}

#[test]
fn nodes_that_are_kept_for_a_job_that_waits_keep_no_narrower_job_waiting() {
    let mut desk = desk(QueueName::Fcfs);
    desk.queue(2, 100);
    desk.then(down(1));
    desk.then(displaced(0, Residence::Parked));
    desk.queue(3, 10);
    assert!(desk.scheduler.only_waits_for_nodes(), "three nodes are up, and one of them is kept");
    desk.queue(2, 10);
    assert_eq!(desk.nodes(), [(2, vec![2, 3])]);
    assert!(!desk.scheduler.only_waits_for_nodes());
    desk.then(up(1));
    desk.then(finished(0));
    assert_eq!(desk.nodes(), [(2, vec![2, 3])]);
    desk.then(finished(2));
    assert_eq!(desk.nodes(), [(1, vec![0, 1, 2])]);
}

#[test]
fn another_scheduler_takes_up_what_runs_with_the_rest_of_its_time() {
    let mut desk = desk(QueueName::Easy);
    let job = |id, ranks| JobSpec {
        id: JobId(id),
        name: "j".into(),
        ranks,
        memory_per_rank: Bytes::mib(600),
        arrival: SimTime(0),
    };
    let adopted = |id, shares: &[u32], at| Adopted {
        job: job(id, shares.iter().sum()),
        placement: Placement::from_shares(shares),
        at,
        held: false,
        priority: 0,
    };
    desk.jobs = 2;
    let left = vec![(JobId(0), Duration::from_secs(7)), (JobId(1), Duration::from_secs(50))];
    desk.at(5).tell(SchedulerEvent::Limited { left });
    let jobs = vec![
        adopted(0, &[0, 1, 1], Residence::Running),
        // It was parked on a node that another job has now.
        adopted(1, &[1, 1], Residence::Parked),
    ];
    desk.then(SchedulerEvent::Adopted { switches: 9, jobs });
    assert_eq!(desk.nodes(), [(0, vec![1, 2])]);
    desk.queue(3, 10);
    desk.queue(1, 5);
    assert_eq!(desk.nodes(), [(0, vec![1, 2]), (3, vec![3])]);
    assert_eq!(desk.starts_by(2), None, "the queue does not know the job that comes back");
    desk.at(6).then(finished(0));
    assert_eq!(desk.nodes(), [(1, vec![0, 1]), (3, vec![3])]);
    assert_eq!(desk.starts_by(2), Some(6 + 50));
}

/// Two sets of two nodes, nodes 0 and 2, and 1 and 3. The group `day` has the first, and at night both; the
/// group `night` has the second, at night. Ten seconds after the start night begins.
fn divided(queue: QueueName) -> SpaceSharing {
    let set = |name: &str| SetLayout { name: name.into(), width: Some(2), height: 1, nodes: None };
    let group = |name: &str, prime: &[&str], sets: &[&str]| GroupLayout {
        name: name.into(),
        prime: Some(prime.iter().map(ToString::to_string).collect()),
        sets: sets.iter().map(ToString::to_string).collect(),
    };
    let groups = vec![group("day", &["even"], &["even", "odd"]), group("night", &[], &["odd"])];
    let layout = Layout {
        partition: None,
        sets: vec![set("even"), set("odd")],
        queues: groups.iter().map(QueueLayout::of_group).collect(),
        groups,
        prime_time: PrimeTime { from: 6, to: 17, weekends: true },
        age_factor: 1,
        block_priority: None,
    };
    let start = Daytime { since_midnight: Duration::from_secs(17 * 3600 - 10), weekday: 0 };
    let sets = NodeSets { layout, nodes: [0, 2, 1, 3].map(NodeId).to_vec(), start };
    SpaceSharing { sets: Some(Box::new(sets)), ..SpaceSharing::of(queue, AllocatorName::FirstFit) }
}

impl Desk {
    fn queue_at_night(&mut self, ranks: u32, limit: u64) {
        self.tell(SchedulerEvent::Grouped { queues: vec![(JobId(self.jobs), QueueId(1))] });
        self.queue(ranks, limit);
    }
}

#[test]
fn a_group_has_its_nodes_at_its_hours_and_the_scheduler_wakes_up_for_them() {
    let mut desk = desk_of(divided(QueueName::Aging));
    desk.queue(2, 100);
    desk.tell(SchedulerEvent::Grouped { queues: vec![(JobId(1), QueueId(1))] });
    let asked = desk.submit(&[(2, 600)]);
    assert!(asked.contains("10 s") || asked.contains("10s"), "it asks for a timer: {asked}");
    assert_eq!(desk.nodes(), [(0, vec![0, 2])]);
    let wait = desk.scheduler.node_wait(desk.now, JobId(1)).unwrap();
    assert_eq!((wait.free, wait.hours().unwrap().as_str()), (0, "group night begins at 17:00"));
    let present = Present {
        now: desk.now,
        timers: [(SimTime(0).after(Duration::from_secs(10)), TimerId(0))].into(),
        events_max: 100,
        ..Present::default()
    };
    let from = desk.scheduler.forecast(present)[&JobId(1)].runs_from.unwrap();
    assert_eq!(from.since(SimTime(0)).as_secs(), 10);
    desk.at(10).then(SchedulerEvent::TimerFired { timer: TimerId(0) });
    assert_eq!(desk.nodes(), [(0, vec![0, 2]), (1, vec![1, 3])]);
    // What has begun goes on, and by day the nodes are not taken from it.
    desk.queue(2, 100);
    desk.queue_at_night(1, 100);
    let wait = |desk: &Desk, job| desk.scheduler.node_wait(desk.now, JobId(job)).unwrap();
    assert_eq!((wait(&desk, 2).opens, wait(&desk, 3).opens), (None, None));
    desk.at(12).then(finished(1));
    assert_eq!(desk.nodes(), [(0, vec![0, 2]), (2, vec![1, 3])]);
}

#[test]
fn nodes_that_are_down_or_drained_are_missing_in_their_set() {
    let mut desk = desk_of(divided(QueueName::Fcfs));
    desk.at(3).then(down(2));
    desk.queue(1, 100);
    assert_eq!(desk.nodes(), [(0, vec![0])]);
    // By night the other set has nodes for it; by day it has none.
    desk.queue(3, 100);
    assert!(desk.scheduler.node_wait(desk.now, JobId(1)).is_some());
    desk.then(finished(0));
    desk.then(SchedulerEvent::Drained { node: NodeId(1) });
    // Two nodes are left of four: it waits for one, and keeps no other job from running.
    desk.queue(1, 100);
    assert_eq!(desk.nodes(), [(2, vec![0])]);
    desk.then(SchedulerEvent::Undrained { node: NodeId(1) });
    desk.then(up(2));
    assert_eq!(desk.nodes(), [(2, vec![0])], "job 1 is the first, and needs both sets");
    desk.then(finished(2));
    desk.at(10).then(SchedulerEvent::NodeUp { node: NodeId(2) });
    assert_eq!(desk.nodes(), [(1, vec![0, 1, 2])]);
}

#[test]
fn a_job_larger_than_its_group_is_refused() {
    let mut desk = desk_of(divided(QueueName::Easy));
    desk.tell(SchedulerEvent::Grouped { queues: vec![(JobId(0), QueueId(1))] });
    let refused = desk.submit(&[(3, 600)]);
    assert!(refused.starts_with("job-0 rejected: needs 3 nodes, and"), "{refused}");
    // Where memory holds them, several ranks share a node of the group.
    desk.tell(SchedulerEvent::Grouped { queues: vec![(JobId(1), QueueId(1))] });
    desk.at(10).submit(&[(3, 400)]);
    desk.run_all();
    assert_eq!(desk.nodes(), [(1, vec![1, 3])]);
    let mut wrong = divided(QueueName::Easy);
    wrong.sets.as_mut().unwrap().nodes.pop();
    let config =
        SchedulerConfig { space: Some(wrong), ..SchedulerConfig::new(Policy::Batch, Duration::from_secs(1)) };
    let refused = Scheduler::new(Cluster::uniform(4, Bytes::mib(1000)), config).unwrap_err();
    assert_eq!(refused, ConfigError::Sets(LayoutError::Nodes { sets: 3, nodes: 4 }));
}

#[test]
fn wrong_settings_are_refused() {
    let space = Some(SpaceSharing::default());
    let config = |policy| SchedulerConfig {
        space: space.clone(),
        ..SchedulerConfig::new(policy, Duration::from_secs(1))
    };
    let uniform = Cluster::uniform(2, Bytes::mib(10));
    let unequal = Cluster::new(vec![Bytes::mib(10), Bytes::mib(20)]);
    let refused = |cluster, policy| Scheduler::new(cluster, config(policy)).unwrap_err();
    assert_eq!(refused(uniform, Policy::Gang), ConfigError::SharedNodes);
    assert_eq!(refused(unequal, Policy::Batch), ConfigError::UnequalNodes);
    let space = Some(SpaceSharing::of(QueueName::Fcfs, AllocatorName::Buddy));
    let config = SchedulerConfig { space, ..SchedulerConfig::new(Policy::Batch, Duration::from_secs(1)) };
    let mut desk = Desk::with(config.clone());
    desk.scheduler = Scheduler::new(Cluster::uniform(3, Bytes::mib(1000)), config).unwrap();
    assert_eq!(
        desk.submit(&[(3, 10)]),
        "job-0 rejected: needs 3 nodes, and the allocator gives a job 2 at most\nall done\n"
    );
}

/// Two partitions: nodes 0 and 1, and nodes 2 and 3. The second one has a higher priority.
fn partitions(queue: QueueName) -> SpaceSharing {
    let part = |name: &str, nodes: [u32; 2]| (name.to_owned(), nodes.map(|node| node.to_string()).to_vec());
    let mut layout = Layout::of_partitions(&[part("any", [0, 1]), part("urgent", [2, 3])]);
    layout.queues[1].rank = 5;
    let sets = NodeSets { layout, nodes: (0..4).map(NodeId).collect(), start: Daytime::default() };
    SpaceSharing { sets: Some(Box::new(sets)), ..SpaceSharing::of(queue, AllocatorName::FirstFit) }
}

#[test]
fn no_job_waits_for_one_of_another_partition() {
    let mut desk = desk_of(partitions(QueueName::Fcfs));
    desk.queue(2, 100);
    // It keeps waiting what is behind it in its own partition.
    desk.queue(2, 100);
    desk.queue_at_night(1, 100);
    assert_eq!(desk.nodes(), [(0, vec![0, 1]), (2, vec![2])]);
    // The priority of a job counts within its partition.
    let priorities = vec![(JobId(4), 9), (JobId(3), 1)];
    desk.tell(SchedulerEvent::Prioritized { priorities });
    desk.queue_at_night(2, 100);
    desk.queue(1, 100);
    desk.queue_at_night(1, 100);
    assert_eq!(desk.nodes(), [(0, vec![0, 1]), (2, vec![2])], "job 3 waits for both nodes");
    let ahead = |job| desk.scheduler.node_wait(desk.now, JobId(job)).unwrap().ahead;
    assert_eq!([3, 5, 4, 1].map(ahead), [0, 1, 0, 1]);
    desk.then(finished(0));
    assert_eq!(desk.nodes(), [(2, vec![2]), (4, vec![0])], "the partition of job 3 is no matter of job 4");
}
