//! Stories of jobs whose resident memory differs from what they declared.

use super::*;
use crate::timeshare::explain::explain;

/// Jobs 0 and 1 of 400 and 500 MiB on each node run side by side; job 2, of 300, waits.
fn beside_each_other() -> Desk {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(2, 400), (2, 500), (2, 300)]);
    desk.at(1).done();
    desk
}

#[test]
fn a_set_that_outgrows_its_node_is_split_at_the_end_of_its_turn() {
    let mut desk = beside_each_other();
    assert_eq!(desk.at(3).hold(1, 0, 510), "", "with its margin it still fits");
    assert_eq!(desk.at(4).hold(1, 0, 600), "");
    assert_snapshot!(desk.at(11).fire(), @r"
    slot-0 was split: job-1 grew to 600MiB on node-0, limit 1000MiB; job-0 goes to slot-1
    switch-1 to slot-1: out job-1, in job-2 (new)
    ");
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB           | node-1 1000MiB
    > slot-1 | job-0*1 job-2*1 = 700MiB | job-0*1 job-2*1 = 700MiB
      slot-0 | job-1*1 = 675MiB         | job-1*1 = 675MiB
    ");
    let job = desk.scheduler.job(JobId(1)).unwrap();
    assert_eq!((job.declared, job.spec.memory_per_rank), (Bytes::mib(500), Bytes::mib(675)));
}

#[test]
fn on_a_pressed_node_it_is_split_at_once() {
    let mut desk = beside_each_other();
    assert_eq!(
        desk.at(3).tell(SchedulerEvent::MemoryPressure { node: NodeId(0) }),
        "",
        "its sets fit, as far as known"
    );
    assert_eq!(desk.at(4).hold(1, 0, 600), "");
    assert_snapshot!(desk.at(5).tell(SchedulerEvent::MemoryPressure { node: NodeId(0) }), @r"
    slot-0 was split at once: job-1 grew to 600MiB on node-0, limit 1000MiB; job-0 goes to slot-1
    job-2 moved from slot-1 to slot-0
    switch-1 to slot-0: out job-0, in job-2 (new)
    turn goes on of slot-0 with job-1 until 11s
    ");
    assert_snapshot!(desk.at(6).done(), @r"
    turn goes on of slot-0 with job-1 job-2 until 11s
    ");
    let explained = explain(&desk.scheduler).jobs;
    assert_snapshot!(explained[0].text, @r"
    slot-1 on 2 nodes, the first there; slot-0 has 325MiB left on node-1, not 400MiB
    ");
}

#[test]
fn who_waits_in_memory_makes_room_for_who_grows() {
    let config = SchedulerConfig {
        residency: Residency::Planned,
        ..SchedulerConfig::new(Policy::Gang, Duration::from_secs(10))
    };
    let mut desk = Desk::with(config);
    desk.submit(&[(2, 400), (2, 500)]);
    desk.at(1).done();
    desk.at(11).fire();
    desk.at(12).done();
    assert_eq!(desk.hold(0, 0, 440), "", "both fit as before");
    assert_snapshot!(desk.at(13).hold(0, 0, 600), @r"
    switch-2 to slot-1: out job-1, in none
    ");
    assert_eq!(desk.at(14).done(), "");
}

#[test]
fn a_job_that_alone_takes_a_node_is_let_run_and_said_so_once() {
    let mut desk = beside_each_other();
    assert_snapshot!(desk.at(4).hold(1, 1, 950), @r"
    job-1 holds 950MiB on node-1, limit 1000MiB: it runs there by itself
    ");
    assert_eq!(desk.at(5).hold(1, 1, 990), "");
    assert_snapshot!(desk.at(11).fire(), @r"
    slot-0 was split: job-1 grew to 990MiB on node-1, limit 1000MiB; job-0 goes to slot-1
    switch-1 to slot-1: out job-1, in job-2 (new)
    ");
    assert_eq!(desk.scheduler.job(JobId(1)).unwrap().spec.memory_per_rank, Bytes::mib(1000));
}

#[test]
fn room_that_a_job_never_used_is_offered_to_later_rows() {
    let mut desk = beside_each_other();
    assert_snapshot!(desk.at(4).hold(1, 0, 200) + &desk.hold(1, 1, 210), @r"
    job-2 moved from slot-1 to slot-0
    switch-1 to slot-0: out none, in job-2 (new)
    turn goes on of slot-0 with job-0 job-1
    ");
}

#[test]
fn where_memory_is_not_looked_at_nothing_is_corrected() {
    let mut desk = Desk::new(Policy::Cosched);
    desk.submit(&[(2, 400), (2, 500)]);
    desk.at(1).done();
    assert_eq!(desk.hold(1, 0, 990) + &desk.tell(SchedulerEvent::MemoryPressure { node: NodeId(0) }), "");
    assert_eq!(desk.scheduler.job(JobId(1)).unwrap().spec.memory_per_rank, Bytes::mib(500));
}

#[test]
fn where_needs_are_as_declared_nothing_is_corrected() {
    let config = SchedulerConfig {
        estimate: Estimate::Declared,
        ..SchedulerConfig::new(Policy::Hybrid, Duration::from_secs(10))
    };
    let mut desk = Desk::with(config);
    desk.submit(&[(2, 400), (2, 500)]);
    desk.at(1).done();
    assert_eq!(desk.at(3).hold(1, 0, 900), "");
    assert_eq!(desk.at(4).tell(SchedulerEvent::MemoryPressure { node: NodeId(0) }), "");
}
