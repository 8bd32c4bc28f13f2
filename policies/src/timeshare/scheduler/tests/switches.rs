//! Switches in which something happens that was not planned.

use super::*;

#[test]
fn a_job_that_ends_while_it_is_switched_out_is_not_spoken_of_again() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 500), (2, 600)]);
    desk.at(1).done();
    desk.at(11).fire();
    assert_eq!(desk.at(12).finish(1), "");
    assert_snapshot!(desk.at(13).done(), @r"
    turn of slot-1 with job-0
    ");
    assert_eq!(desk.scheduler.job(JobId(1)).unwrap().observed, Residence::Finished);
}

#[test]
fn a_job_that_arrives_during_a_switch_waits_for_its_end() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(2, 600), (2, 600)]);
    desk.at(1).done();
    desk.at(11).fire();
    assert_eq!(desk.at(12).submit(&[(2, 300)]), "job-2 admitted to slot-1\n");
    assert_snapshot!(desk.at(13).done(), @r"
    switch-2 to slot-1: out none, in job-2 (new)
    turn of slot-1 with job-1 until 23s
    timer-1 set for 23s
    ");
}

#[test]
fn a_strobe_during_an_activation_waits_for_its_end() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(2, 600), (2, 600)]);
    desk.at(1).done();
    desk.at(5).submit(&[(2, 300)]);
    assert_eq!(desk.at(11).fire(), "");
    assert_snapshot!(desk.at(12).done(), @r"
    switch-2 to slot-1: out job-0 job-2, in job-1 (new)
    ");
}

#[test]
fn a_job_that_finds_no_room_keeps_its_turn_for_as_long_as_it_takes() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 500), (2, 600)]);
    desk.at(1).done();
    let stuck = || {
        let full = Misplaced { cause: Cause::NoRoom, ..Misplaced::new(JobId(1), Residence::Running) };
        vec![full, Misplaced::new(JobId(0), Residence::Unlaunched)]
    };
    for turn in 1..9 {
        desk.at(11 * turn).fire();
        let told = desk.at(11 * turn + 1).fail_with(stuck());
        assert!(told.contains("turn of slot-0 with job-1") && !told.contains("abandoned"), "{told}");
    }
    desk.at(99).fire();
    assert!(desk.at(100).done().contains("job-0"), "and it leaves when there is room");
}

#[test]
fn a_dump_that_fails_gives_the_turn_back_and_is_tried_again() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 500), (2, 600)]);
    desk.at(1).done();
    desk.at(11).fire();
    assert_snapshot!(desk.at(12).fail(&[(1, Residence::Running), (0, Residence::Unlaunched)]), @r"
    turn of slot-0 with job-1 until 22s
    timer-1 set for 22s
    ");
    let failures: String = [22, 33]
        .map(|at| {
            desk.at(at).fire();
            desk.at(at + 1).fail(&[(1, Residence::Running), (0, Residence::Unlaunched)])
        })
        .concat();
    assert_snapshot!(failures, @r"
    turn of slot-0 with job-1 until 33s
    timer-2 set for 33s
    job-1 abandoned after 3 failed switches
    ");
    assert_eq!(desk.scheduler.job(JobId(1)).unwrap().wanted, Wanted::Gone);
    assert_snapshot!(desk.tell(SchedulerEvent::Failed { job: JobId(1) }), @r"
    switch-4 to slot-1: out none, in job-0 (new)
    ");
}

#[test]
fn a_restore_that_fails_is_tried_again_while_the_others_run() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(2, 600), (2, 400)]);
    assert_snapshot!(desk.at(1).fail(&[(1, Residence::Unlaunched)]), @r"
    switch-1 to slot-0: out none, in job-1 (new)
    turn of slot-0 with job-0
    ");
    assert_snapshot!(desk.at(2).done(), @r"
    turn goes on of slot-0 with job-0 job-1
    ");
}

#[test]
fn a_job_lost_in_a_switch_has_failed() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 500)]);
    assert_eq!(desk.at(1).fail(&[(0, Residence::Failed)]), "all done\n");
    assert_eq!(desk.scheduler.job(JobId(0)).unwrap().observed, Residence::Failed);
}
