//! Stories of jobs that hold less than they declare, and may grow into it.

use super::*;
use crate::{Estimate, SwitchOrder};

/// Jobs of 600 and 700 MiB on each node, one at a time.
fn in_turns(switching: SwitchOrder) -> Desk {
    let config = SchedulerConfig {
        residency: Residency::Planned,
        switching,
        ..SchedulerConfig::new(Policy::Gang, Duration::from_secs(10))
    };
    let mut desk = Desk::with(config);
    desk.submit(&[(2, 700), (2, 600)]);
    desk.at(1).done();
    desk
}

fn allowances(desk: &Desk) -> Vec<u64> {
    desk.scheduler.allowances(None).into_values().map(|allowance| allowance.total.0 >> 20).collect()
}

#[test]
fn as_declared_one_job_has_to_leave_for_the_other() {
    let mut desk = in_turns(SwitchOrder::Sequential);
    assert_snapshot!(desk.at(11).fire(), @r"
    switch-1 to slot-1: out job-0, in job-1 (new)
    ");
}

#[test]
fn a_job_that_was_seen_to_hold_less_stays_and_one_that_never_ran_needs_what_it_declares() {
    let mut desk = in_turns(SwitchOrder::Sequential);
    assert_eq!(desk.at(4).know(0, 250), "");
    assert_snapshot!(desk.at(11).fire(), @r"
    switch-1 to slot-1: out job-0 (suspended), in job-1 (new)
    ");
    desk.at(12).done();
    assert_eq!(allowances(&desk), [875; 2], "job 0 may have grown until it stopped");
    assert_eq!(desk.rest(0, 250), "");
    assert_eq!(allowances(&desk), [] as [u64; 0], "250 and 600 fit, whatever job 1 does");
    // Where they do not fit as declared, they do as measured, beside an eighth of the node.
    assert_eq!(desk.at(13).know(1, 300) + &desk.rest(0, 450), "");
    assert_eq!(allowances(&desk), [1000 - 125; 2]);
    assert_snapshot!(desk.at(22).fire(), @r"
    switch-2 to slot-0: out job-1 (suspended), in job-0 (resumed)
    ");
}

#[test]
fn suspended_jobs_leave_when_a_running_one_grows_into_what_they_hold() {
    let mut desk = in_turns(SwitchOrder::Sequential);
    desk.at(4).know(0, 250);
    desk.at(11).fire();
    desk.at(12).done();
    assert_eq!(desk.at(14).know(1, 200) + &desk.rest(0, 500), "", "both fit as measured");
    assert_eq!(desk.at(15).grow(1, 210, Some(20)), "", "there is time");
    assert_snapshot!(desk.at(16).grow(1, 250, Some(150)), @r"
    switch-2 to slot-1: out job-0, in none
    ");
    assert_eq!(allowances(&desk), [875; 2], "until it has left");
    assert_eq!(desk.at(17).done() + &desk.at(18).grow(1, 590, Some(100)), "");
    assert_eq!(allowances(&desk), [] as [u64; 0]);
}

#[test]
fn where_running_jobs_were_stopped_all_that_they_declare_is_made_to_fit() {
    let mut desk = in_turns(SwitchOrder::Sequential);
    desk.at(4).know(0, 250);
    desk.at(11).fire();
    desk.at(12).done();
    assert_eq!(desk.at(14).know(1, 200) + &desk.rest(0, 450), "");
    let stopped = || SchedulerEvent::RunningStopped { node: NodeId(1) };
    assert_snapshot!(desk.at(15).tell(stopped()), @r"
    switch-2 to slot-1: out job-0, in none
    ");
    assert_eq!(desk.at(16).done() + &desk.at(17).tell(stopped()), "", "nothing more can leave");
}

#[test]
fn a_switch_is_prefetched_where_both_sets_fit_as_measured() {
    let mut desk = in_turns(SwitchOrder::Prefetch);
    desk.at(4).know(0, 250);
    assert_snapshot!(desk.at(11).fire(), @r"
    switch-1 to slot-1, prefetched: out job-0 (suspended), in job-1 (new)
    ");
    desk.at(12).done();
    assert_eq!(desk.at(13).know(1, 300) + &desk.rest(0, 450), "");
    assert_snapshot!(desk.at(22).fire(), @r"
    switch-2 to slot-0, prefetched: out job-1 (suspended), in job-0 (resumed)
    ");
}

#[test]
fn where_needs_are_as_declared_no_footprint_counts() {
    let mut desk = in_turns(SwitchOrder::Sequential);
    desk.scheduler.config.estimate = Estimate::Declared;
    desk.at(4).know(0, 250);
    assert_snapshot!(desk.at(11).fire(), @r"
    switch-1 to slot-1: out job-0, in job-1 (new)
    ");
}

#[test]
fn what_a_job_held_before_it_went_back_says_nothing_of_it() {
    let mut desk = in_turns(SwitchOrder::Sequential);
    // Its ranks on a node have ended.
    desk.at(4).know(0, 50);
    desk.at(5).tell(SchedulerEvent::NodeDown { node: NodeId(1) });
    desk.tell(SchedulerEvent::Displaced { job: JobId(0), at: Residence::Parked });
    desk.at(6).tell(SchedulerEvent::NodeUp { node: NodeId(1) });
    desk.at(7).done();
    assert_snapshot!(desk.at(20).fire(), @r"
    switch-2 to slot-3: out job-0, in job-1 (new)
    ");
}
