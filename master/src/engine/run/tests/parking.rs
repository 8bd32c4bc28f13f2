//! All jobs are parked before the nodes are taken away.

use coswitch_dispatcher::protocol::{StepDone, SwitchStep};

use coswitch_policies::Epoch;

use super::*;

/// The nodes are taken away after 30 s.
fn ends_at_30(jobs: Vec<Job>) -> Run {
    let mut set = job_set(jobs, SwitchOrder::Sequential, Residency::None);
    set.scheduler.quantum = Duration::from_secs(60);
    let settings = RunSettings { ends: Some(millis(30_000)), ..RunSettings::default() };
    Run::new(set, settings).expect("the settings are right")
}

fn step(job: u32, node: u32, step: SwitchStep, took_ms: u64, mib: u64) -> Input {
    let took = Duration::from_millis(took_ms);
    report(job, Report::StepDone(StepDone { node: NodeId(node), step, took, bytes: Bytes(mib * MIB) }))
}

fn stored(job: u32, node: u32) -> Input {
    report(
        job,
        Report::Stored { node: NodeId(node), root: "/store".into(), bytes: Bytes(MIB), epoch: Epoch(1) },
    )
}

#[test]
fn jobs_leave_in_time_and_the_run_is_over_when_their_snapshots_are_sealed() {
    let mut run = ends_at_30(vec![job(0, 60, 0), job(1, 60, 0), job(2, 60, 90_000)]);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; submitted job-1; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0 until 60.01s"),
        ],
    );
    assert_eq!(samples(&mut run, 100, &[(0, 50)], false), [] as [String; 0]);
    // 10 ms for the switch; 32 ms for each of 50 MiB, and half as much again; 10 s besides.
    let due = 30_000 - 10 - 50 * 32 * 3 / 2 - 10_000;
    assert_eq!(run.due(), Some(millis(due)));
    story(
        &mut run,
        &[
            (due - 1, Input::Due, ""),
            (due, Input::Due, "turn of job-0; park job-0"),
            (18_000, step(0, 0, SwitchStep::Dump, 200, 50), ""),
            (18_010, step(0, 1, SwitchStep::Dump, 200, 50), ""),
            // The second one was never launched, and the third has not come.
            (18_100, report(0, Report::Parked), "switched"),
            (18_200, stored(0, 0), ""),
            (18_300, stored(0, 1), "over Parked"),
        ],
    );
}

#[test]
fn what_was_measured_decides_when_jobs_leave() {
    let mut run = ends_at_30(vec![job(0, 60, 0)]);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0"),
            (0, report(0, Report::Running), "switched; turn of job-0"),
            (1, step(0, 0, SwitchStep::Dump, 1000, 50), ""),
            (2, step(0, 0, SwitchStep::Seal, 2000, 0), ""),
            (3, stored(0, 0), ""),
        ],
    );
    samples(&mut run, 100, &[(0, 50)], false);
    assert_eq!(run.due(), Some(millis(30_000 - 3000 * 3 / 2 - 10_000)));
}

#[test]
fn a_signal_parks_at_once_and_jobs_that_end_meanwhile_have_ended() {
    let mut run = ends_at_30(vec![job(0, 60, 0)]);
    let ended = || report(0, Report::Ended(AppOutcome::Succeeded));
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, Input::Warned, "park job-0"),
            (30, Input::Warned, ""),
            (40, ended(), "job-0 ended Exit(0); switched; over Done"),
        ],
    );
}

/// What is parked when a cluster ends is removed.
#[test]
fn a_signal_parks_nothing_of_a_cluster_that_stays() {
    let mut run = requests::cluster(vec![job(0, 60, 0)]);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, Input::Warned, ""),
            (30, report(0, Report::Ended(AppOutcome::Succeeded)), "job-0 ended Exit(0)"),
        ],
    );
}

#[test]
fn a_seal_that_the_loss_of_a_node_has_made_void_is_not_waited_for() {
    let mut run = ends_at_30(vec![job(0, 60, 0)]);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, Input::Warned, "park job-0"),
            (30, step(0, 0, SwitchStep::Dump, 5, 50), ""),
            (40, step(0, 1, SwitchStep::Dump, 5, 50), ""),
            (50, report(0, Report::Parked), "switched"),
            (60, stored(0, 0), ""),
            (
                70,
                report(0, Report::Displaced { why: "a test".into() }),
                "job-0 displaced, Parked; over Parked",
            ),
        ],
    );
}

#[test]
fn a_job_that_cannot_be_parked_is_given_up_after_three_attempts() {
    let mut run = ends_at_30(vec![job(0, 60, 0)]);
    let stays = || report(0, Report::StillRunning { cause: full() });
    let misplaced = "misplaced job-0 running, no room";
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, Input::Warned, "park job-0"),
            (30, stays(), &format!("{misplaced}; turn of job-0; park job-0")),
            (40, stays(), &format!("{misplaced}; turn of job-0; park job-0")),
            (50, stays(), &format!("{misplaced}; turn of job-0; end job-0")),
            (
                60,
                report(0, Report::Ended(AppOutcome::Stopped)),
                "job-0 ended Failed(\"it could not be parked, and its nodes are taken away\"); \
                 over JobsFailed",
            ),
        ],
    );
}

#[test]
fn where_jobs_cannot_leave_memory_a_warning_ends_the_run() {
    let mut set = job_set(vec![job(0, 60, 0)], SwitchOrder::Sequential, Residency::Planned);
    set.scheduler.park = ParkMethod::Suspend;
    let settings = RunSettings { ends: Some(millis(30_000)), ..RunSettings::default() };
    let mut run = Run::new(set, settings).expect("the settings are right");
    let told = run.on(millis(0), Input::Due);
    let warns = |output: &Output| match output {
        Output::Tell(RunEvent { kind: Event::Warning { text }, .. }) => text.contains("are lost"),
        _ => false,
    };
    assert!(told.iter().any(warns), "{told:?}");
    story(
        &mut run,
        &[
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, Input::Warned, "over Interrupted"),
        ],
    );
}
