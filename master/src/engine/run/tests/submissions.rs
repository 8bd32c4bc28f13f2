//! What users submit to a standing cluster: whether it is taken, under which name, and when it comes.

use super::{
    requests::{ALICE, asked, asked_by, cluster, ended, owned_by, submission, submit},
    *,
};
use crate::api::Submission;

#[test]
fn each_job_has_a_name_of_its_own() {
    let mut run = cluster(vec![]);
    let named = |name: &str| Submission { job: Job { name: name.into(), ..job(0, 60, 0) }, ..submission(60) };
    let accepted = "submitted job-0; submitted job-1; submitted job-2; launch job-0; \
                    accepted job-0 heat-2, job-1 heat, job-2 heat-2-2";
    story(&mut run, &[(0, submit(vec![named("heat-2"), named("heat"), named("heat")]), accepted)]);
}

#[test]
fn a_job_of_a_submitted_file_comes_at_its_time() {
    let mut run = cluster(vec![]);
    let later = Submission { job: job(0, 60, 500), ..submission(60) };
    story(
        &mut run,
        &[
            (
                100,
                submit(vec![submission(60), later]),
                "submitted job-0; launch job-0; accepted job-0 job-0, job-1 job-0-1",
            ),
            (150, report(0, Report::Running), "switched; turn of job-0"),
        ],
    );
    assert_eq!(run.due(), Some(millis(600)));
    story(&mut run, &[(600, Input::Due, "submitted job-1; turn of job-0 until 1.15s")]);
}

#[test]
fn ranks_wait_as_the_scheduler_says_where_their_job_does_not() {
    for (said, waits) in [(None, Wait::Block), (Some(Wait::Spin), Wait::Spin)] {
        let mut run = cluster(vec![]);
        let job = Job { wait: said, ..job(0, 60, 0) };
        let outputs = run.on(millis(0), submit(vec![Submission { job, ..submission(60) }]));
        let launches_so = |output: &Output| matches!(output, Output::Launch(_, spec) if spec.wait == waits);
        assert!(outputs.iter().any(launches_so), "{outputs:?}");
    }
}

#[test]
fn a_full_queue_takes_a_submission_whole_or_not_at_all() {
    let mut set = job_set(vec![], SwitchOrder::Sequential, Residency::None);
    set.scheduler.max_queued = Some(2);
    let settings = RunSettings { standing: true, ..RunSettings::default() };
    let mut run = Run::new(set, settings).expect("the settings are right");
    let full = |waiting, jobs| {
        format!(
            "refused: {waiting} jobs wait, and at most 2 may (`max_queued`): {jobs} more were not submitted; \
             try again when some have begun"
        )
    };
    let two = || vec![submission(60), submission(60)];
    story(
        &mut run,
        &[
            (0, Input::Due, ""),
            (100, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (150, report(0, Report::Running), "switched; turn of job-0"),
            // The one that runs does not count.
            (200, submit([two(), two()].concat()), &full(0, 4)),
            (
                300,
                submit(two()),
                "submitted job-1; submitted job-2; turn of job-0 until 1.15s; accepted job-1 job-0-1, \
                 job-2 job-0-2",
            ),
            (400, submit(vec![submission(60)]), &full(2, 1)),
            (900, ended(), "job-0 ended Exit(0); launch job-1"),
            // One has begun, and there is room for one.
            (950, submit(two()), &full(1, 2)),
            (960, submit(vec![submission(60)]), "submitted job-3; accepted job-3 job-0-3"),
        ],
    );
}

#[test]
fn a_user_fills_only_their_own_share_of_the_queue() {
    let mut set = job_set(vec![], SwitchOrder::Sequential, Residency::None);
    set.scheduler.max_queued = Some(4);
    let settings = RunSettings { standing: true, ..RunSettings::default() };
    let mut run = Run::new(set, settings).expect("the settings are right");
    let by = |user, jobs| asked_by(user, Request::Submit(vec![owned_by(user, submission(60)); jobs]));
    let mut ask = |input| {
        let outputs = run.on(millis(1), input);
        outputs.iter().filter_map(super::shown).filter(|said| said.starts_with("refused")).collect::<String>()
    };
    assert_eq!(ask(by(ALICE, 1)), "", "it begins at once");
    let refused = |waiting, jobs| {
        format!(
            "refused: {waiting} of your jobs wait, and at most 2 may (`max_queued_per_user`): {jobs} more \
             were not submitted; try again when some have begun"
        )
    };
    assert_eq!(ask(by(ALICE, 3)), refused(0, 3));
    assert_eq!(ask(by(ALICE, 2)), "");
    assert_eq!(ask(by(ALICE, 1)), refused(2, 1));
    assert_eq!(ask(by(User(1001), 2)), "", "another user's share is free");
}

#[test]
fn the_time_limits_of_all_jobs_hold_for_what_users_submit() {
    let mut set = job_set(vec![], SwitchOrder::Sequential, Residency::None);
    let (usual, longest) = (Duration::from_millis(500), Duration::from_secs(1));
    set.scheduler.time_limits = TimeLimits { usual: Some(usual), longest: Some(longest) };
    let settings = RunSettings { standing: true, ..RunSettings::default() };
    let mut run = Run::new(set, settings).expect("the settings are right");
    let long = || Submission { time_limit: Some(2 * longest), ..submission(60) };
    let refused = "refused: job 1 of the submission, `job-0`: a time limit of 2.0 s is longer than that of \
                   any job here, 1.0 s (`time_limit_max`); none of them was submitted";
    story(
        &mut run,
        &[
            (0, Input::Due, ""),
            (50, submit(vec![long()]), refused),
            (100, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (150, report(0, Report::Running), "switched; turn of job-0"),
            (640, Input::Due, ""),
            (650, Input::Due, "end job-0"),
        ],
    );
}

#[test]
fn a_job_follows_others_that_succeed_and_no_others() {
    let follows =
        |after: &[u32]| Submission { after: after.iter().map(|job| JobId(*job)).collect(), ..submission(60) };
    let mut run = cluster(vec![]);
    story(
        &mut run,
        &[
            (0, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (1, submit(vec![follows(&[0])]), "accepted job-1 job-0-1"),
            (2, submit(vec![follows(&[0, 1])]), "accepted job-2 job-0-2"),
            (3, asked(Request::Why(JobId(2))), "job-2: it waits until job-0 and job-1 has succeeded"),
            (4, report(0, Report::Running), "switched; turn of job-0"),
            (10, ended(), "job-0 ended Exit(0); submitted job-1; launch job-1"),
            (
                20,
                report(1, Report::Ended(AppOutcome::Lost { reason: "a test".into() })),
                "job-1 ended Failed(\"a test\"); switched; \
                 job-2 ended Failed(\"job-1, which it was to follow, did not succeed\")",
            ),
            (
                21,
                submit(vec![follows(&[7])]),
                "refused: job 1 of the submission, `job-0`: there is no job-7, which it is to follow; none \
                 of them was submitted",
            ),
        ],
    );
}

/// A file numbers its jobs from 0; the cluster has a job of this number already.
#[test]
fn jobs_of_one_file_follow_each_other() {
    let in_file = |after: &[u32]| {
        let after = after.iter().map(|place| JobId(*place)).collect();
        Submission { job: Job { after, ..job(0, 60, 0) }, ..submission(60) }
    };
    let mut run = cluster(vec![]);
    story(
        &mut run,
        &[
            (0, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (
                1,
                submit(vec![in_file(&[]), in_file(&[0])]),
                "submitted job-1; accepted job-1 job-0-1, job-2 job-0-2",
            ),
            (2, asked(Request::Why(JobId(2))), "job-2: it waits until job-1 has succeeded"),
            (
                3,
                submit(vec![in_file(&[0])]),
                "refused: job 1 of the submission, `job-0`: job-0, which it is to follow, does not come \
                 before it; none of them was submitted",
            ),
        ],
    );
}
