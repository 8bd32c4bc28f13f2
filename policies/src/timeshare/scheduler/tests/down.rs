//! Nodes that are lost, and come back.

use super::*;

impl Desk {
    fn lose(&mut self, node: u32) -> String {
        self.tell(SchedulerEvent::NodeDown { node: NodeId(node) })
    }

    fn regain(&mut self, node: u32) -> String {
        self.tell(SchedulerEvent::NodeUp { node: NodeId(node) })
    }

    fn displace(&mut self, job: u32, at: Residence) -> String {
        self.tell(SchedulerEvent::Displaced { job: JobId(job), at })
    }

    fn awaited(&self, job: u32) -> Vec<NodeId> {
        self.scheduler.awaited_nodes(JobId(job))
    }
}

#[test]
fn a_parked_job_waits_for_its_node_and_a_new_one_goes_elsewhere() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600), (2, 600)]);
    desk.done();
    desk.wait();
    desk.done();
    // Job 0 is parked, job 1 runs.
    assert_snapshot!(desk.at(12).lose(1), @"");
    assert_snapshot!(desk.displace(1, Residence::Parked), @"");
    assert!(desk.scheduler.only_waits_for_nodes());
    assert_eq!((desk.awaited(0), desk.awaited(1)), (vec![NodeId(1)], vec![NodeId(1)]));
    assert_snapshot!(desk.submit(&[(1, 600)]), @r"
    job-2 admitted to slot-2
    switch-2 to slot-2: out none, in job-2 (new)
    ");
    desk.done();
    assert_snapshot!(desk.at(20).regain(1), @r"
    job-0 admitted to slot-3
    job-1 admitted to slot-4
    turn goes on of slot-2 with job-2 until 22s
    timer-2 set for 22s
    ");
}

#[test]
fn what_does_not_use_the_node_goes_on() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(1, 600), (1, 600)]);
    desk.done();
    assert_snapshot!(desk.at(3).lose(1) + &desk.displace(1, Residence::Unlaunched), @r"
    job-1 admitted to slot-1
    turn goes on of slot-0 with job-0 until 10s
    timer-0 set for 10s
    ");
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB   | node-1 1000MiB
    > slot-0 | job-0*1 = 600MiB | -
      slot-1 | job-1*1 = 600MiB | -
    ");
}

#[test]
fn a_job_too_large_for_the_nodes_that_are_left_waits_and_keeps_no_other_waiting() {
    let mut desk = Desk::new(Policy::Batch);
    desk.lose(1);
    assert_snapshot!(desk.submit(&[(2, 600), (1, 600)]), @r"
    job-1 admitted to slot-0
    job-0 queued behind 0
    switch-0 to slot-0: out none, in job-1 (new)
    ");
    assert_eq!((desk.awaited(0), desk.awaited(1)), (vec![NodeId(1)], Vec::new()));
    desk.done();
    desk.finish(1);
    assert!(desk.scheduler.only_waits_for_nodes());
}

#[test]
fn nothing_is_planned_before_the_jobs_of_the_node_have_been_reported() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600), (1, 600)]);
    desk.done();
    assert_snapshot!(desk.at(3).lose(1), @"");
    assert_snapshot!(desk.displace(0, Residence::Unlaunched), @r"
    switch-1 to slot-1: out none, in job-1 (new)
    ");
}

#[test]
fn a_job_that_a_switch_moves_comes_with_its_outcome_and_is_not_blamed() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600), (2, 600)]);
    desk.done();
    desk.wait();
    for _ in 0..5 {
        desk.lose(1);
        desk.fail(&[(0, Residence::Parked), (1, Residence::Unlaunched)]);
        assert!(desk.scheduler.only_waits_for_nodes());
        desk.regain(1);
    }
}

/// The node is up again when the outcome of each switch arrives.
#[test]
fn a_job_is_not_given_up_because_its_nodes_are_lost() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600)]);
    desk.done();
    desk.lose(1);
    desk.displace(0, Residence::Parked);
    desk.regain(1);
    for _ in 0..4 {
        desk.lose(1);
        desk.regain(1);
        let planned = desk.fail(&[(0, Residence::Parked)]);
        assert!(planned.contains("in job-0"), "it is tried again: {planned}");
    }
    assert_snapshot!(desk.done(), @r"
    turn of slot-1 with job-0
    ");
}

#[test]
fn a_parked_job_goes_on_where_its_part_has_moved_to() {
    let mut desk = Desk::new(Policy::Gang);
    let config = SchedulerConfig::new(Policy::Gang, Duration::from_secs(10));
    desk.scheduler = Scheduler::new(Cluster::uniform(3, Bytes::mib(1000)), config).unwrap();
    desk.submit(&[(2, 600), (2, 600)]);
    desk.done();
    desk.wait();
    desk.done();
    desk.at(12).lose(1);
    desk.displace(1, Residence::Parked);
    let part = |desk: &Desk| desk.scheduler.parts_on_lost(NodeId(1));
    for job in part(&desk) {
        let can: Vec<NodeId> =
            desk.scheduler.may_take_part(job, NodeId(1)).into_iter().map(|(node, _)| node).collect();
        assert_eq!(can, [NodeId(2)], "{job}: one node has a part of it, and one is lost");
        desk.tell(SchedulerEvent::Moved { job, from: NodeId(1), to: NodeId(2) });
        assert_eq!(desk.scheduler.awaited_nodes(job), []);
    }
    assert_eq!(part(&desk), []);
}
