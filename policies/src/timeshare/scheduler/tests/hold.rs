//! Jobs that their users hold.

use super::*;
use crate::SwitchOrder;

impl Desk {
    fn user_holds(&mut self, job: u32) -> String {
        self.tell(SchedulerEvent::Held { job: JobId(job) })
    }

    fn user_releases(&mut self, job: u32) -> String {
        self.tell(SchedulerEvent::Released { job: JobId(job) })
    }
}

#[test]
fn a_held_job_leaves_in_its_turn_and_comes_back_to_its_nodes() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600)]);
    desk.done();
    assert_snapshot!(desk.at(5).user_holds(0), @r"
    switch-1 to slot-0: out job-0, in none
    ");
    assert_snapshot!(desk.done(), @r"
    job-0 held
    ");
    assert!(desk.scheduler.is_held_out(JobId(0)));
    assert_snapshot!(desk.at(9).user_releases(0), @r"
    job-0 admitted to slot-1
    switch-2 to slot-1: out none, in job-0
    ");
    assert_snapshot!(desk.done(), @r"
    turn of slot-1 with job-0
    ");
}

#[test]
fn the_others_go_on_without_it() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600), (2, 600), (2, 600)]);
    desk.done();
    desk.wait();
    desk.done();
    // Job 0 is parked, job 1 runs, job 2 was never launched.
    assert_snapshot!(desk.at(15).user_holds(0) + &desk.user_holds(2), @r"
    job-0 held
    job-2 held
    turn goes on of slot-1 with job-1
    ");
    assert_snapshot!(desk.at(20).user_releases(2) + &desk.user_releases(0), @r"
    job-2 admitted to slot-3
    turn goes on of slot-1 with job-1 until 20s
    timer-2 set for 20s
    job-0 admitted to slot-4
    ");
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB   | node-1 1000MiB
    > slot-1 | job-1*1 = 600MiB | job-1*1 = 600MiB
      slot-3 | job-2*1 = 600MiB | job-2*1 = 600MiB
      slot-4 | job-0*1 = 600MiB | job-0*1 = 600MiB
    ");
}

#[test]
fn a_job_that_cannot_leave_is_held_no_more() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600), (2, 600)]);
    desk.done();
    desk.at(3).user_holds(0);
    let no_room = Misplaced { cause: Cause::NoRoom, ..Misplaced::new(JobId(0), Residence::Running) };
    let never_ordered = Misplaced::new(JobId(1), Residence::Unlaunched);
    assert_snapshot!(desk.fail_with(vec![no_room, never_ordered]), @r"
    job-0 could not be held
    turn of slot-0 with job-0 until 13s
    timer-1 set for 13s
    ");
}

#[test]
fn with_prefetch_it_stops_first_and_leaves_by_a_switch_of_its_own() {
    let mut desk = Desk::with(SchedulerConfig {
        switching: SwitchOrder::Prefetch,
        residency: Residency::Planned,
        ..SchedulerConfig::new(Policy::Gang, Duration::from_secs(10))
    });
    desk.submit(&[(2, 300), (2, 300)]);
    desk.done();
    assert_snapshot!(desk.at(3).user_holds(0), @r"
    switch-1 to slot-1, prefetched: out job-0 (suspended), in job-1 (new)
    ");
    assert_snapshot!(desk.done(), @r"
    switch-2 to slot-1: out job-0, in none
    turn of slot-1 with job-1 until 13s
    timer-1 set for 13s
    ");
    assert_snapshot!(desk.done(), @r"
    job-0 held
    turn goes on of slot-1 with job-1
    ");
}

#[test]
fn the_turn_passes_on_in_the_same_switch() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600), (2, 600)]);
    desk.done();
    assert_snapshot!(desk.at(3).user_holds(0), @r"
    switch-1 to slot-1: out job-0, in job-1 (new)
    ");
    assert_snapshot!(desk.done(), @r"
    job-0 held
    turn of slot-1 with job-1
    ");
}

#[test]
fn one_that_is_released_before_it_has_left_was_never_gone() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600)]);
    desk.done();
    desk.at(5).user_holds(0);
    assert_snapshot!(desk.user_releases(0), @"");
    assert_snapshot!(desk.done(), @r"
    switch-2 to slot-0: out none, in job-0
    ");
}

#[test]
fn where_nothing_takes_turns_no_job_is_held() {
    let mut desk = Desk::new(Policy::Batch);
    desk.submit(&[(2, 600)]);
    desk.done();
    assert!(!desk.scheduler.can_hold());
    assert_eq!(desk.user_holds(0), "");
}
