//! Nodes that are drained, and take jobs again.

use super::*;

impl Desk {
    fn drain(&mut self, node: u32) -> String {
        self.tell(SchedulerEvent::Drained { node: NodeId(node) })
    }

    fn undrain(&mut self, node: u32) -> String {
        self.tell(SchedulerEvent::Undrained { node: NodeId(node) })
    }

    fn in_memory_on(&self, node: u32) -> Vec<JobId> {
        self.scheduler.in_memory_on(NodeId(node))
    }
}

#[test]
fn jobs_leave_a_drained_node_by_a_switch_and_come_back_afterwards() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600), (1, 600)]);
    desk.at(1).done();
    assert_eq!(desk.in_memory_on(1), [JobId(0)]);
    assert_snapshot!(desk.at(3).drain(1), @r"
    switch-1 to slot-1: out job-0, in job-1 (new)
    ");
    // Job 1 has the other node for itself.
    assert_snapshot!(desk.at(4).done(), @r"
    turn of slot-1 with job-1
    ");
    assert_eq!(desk.in_memory_on(1), []);
    assert_snapshot!(desk.at(9).undrain(1), @r"
    job-0 admitted to slot-2
    turn goes on of slot-1 with job-1 until 14s
    timer-1 set for 14s
    ");
}

#[test]
fn new_jobs_go_elsewhere_or_wait() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.drain(0);
    assert_snapshot!(desk.submit(&[(1, 300), (2, 600)]), @r"
    job-0 admitted to slot-0
    job-1 queued behind 0
    switch-0 to slot-0: out none, in job-0 (new)
    ");
    assert_eq!(desk.scheduler.awaited_nodes(JobId(1)), [NodeId(0)]);
    desk.at(1).done();
    assert_snapshot!(desk.at(2).undrain(0), @r"
    job-1 admitted to slot-0
    switch-1 to slot-0: out none, in job-1 (new)
    ");
}

#[test]
fn a_job_that_cannot_leave_stays_until_the_node_is_drained_again() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600)]);
    desk.at(1).done();
    assert_snapshot!(desk.at(2).drain(1), @r"
    switch-1 to slot-0: out job-0, in none
    ");
    assert_snapshot!(desk.at(3).fail(&[(0, Residence::Running)]), @r"
    job-0 could not be held
    turn of slot-0 with job-0
    ");
    assert_snapshot!(desk.at(4).drain(1), @r"
    switch-2 to slot-0: out job-0, in none
    ");
    assert_snapshot!(desk.at(5).done(), @"");
}

#[test]
fn jobs_of_a_node_that_is_undrained_while_they_leave_come_back_at_once() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600)]);
    desk.at(1).done();
    desk.at(2).drain(1);
    assert_snapshot!(desk.undrain(1), @"");
    assert_snapshot!(desk.at(3).done(), @r"
    switch-2 to slot-0: out none, in job-0
    ");
}

#[test]
fn a_job_comes_back_where_its_node_was_lost_while_it_left_and_undrained_before_it_was_back() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600)]);
    desk.at(1).done();
    desk.at(2).drain(1);
    desk.tell(SchedulerEvent::NodeDown { node: NodeId(1) });
    desk.undrain(1);
    desk.tell(SchedulerEvent::NodeUp { node: NodeId(1) });
    assert_snapshot!(desk.at(3).fail(&[(0, Residence::Parked)]), @r"
    switch-2 to slot-0: out none, in job-0
    ");
}

#[test]
fn a_drained_node_that_was_lost_takes_no_jobs_when_it_is_back() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.drain(1);
    desk.tell(SchedulerEvent::NodeDown { node: NodeId(1) });
    desk.tell(SchedulerEvent::NodeUp { node: NodeId(1) });
    assert_snapshot!(desk.submit(&[(2, 600)]), @r"
    job-0 queued behind 0
    ");
    desk.tell(SchedulerEvent::NodeDown { node: NodeId(1) });
    assert_snapshot!(desk.undrain(1), @"");
    assert_snapshot!(desk.tell(SchedulerEvent::NodeUp { node: NodeId(1) }), @r"
    job-0 admitted to slot-0
    switch-0 to slot-0: out none, in job-0 (new)
    ");
}

#[test]
fn where_no_job_leaves_memory_those_of_the_node_run_to_their_ends() {
    let mut desk = Desk::new(Policy::Cosched);
    desk.submit(&[(2, 600)]);
    desk.at(1).done();
    assert_snapshot!(desk.at(2).drain(1), @"");
    assert_eq!(desk.in_memory_on(1), [JobId(0)]);
    assert_snapshot!(desk.at(3).tell(SchedulerEvent::Finished { job: JobId(0) }), @r"
    all done
    ");
}
