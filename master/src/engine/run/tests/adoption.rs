//! A new master goes on with the jobs of one that has died.

use coswitch_report::Known;

use super::{
    requests::{asked, cluster, submission, submit},
    *,
};
use crate::api::Submission;

/// What the files and the nodes tell a new master.
fn next(told: &[Output], held: &[u32], released: &[(u32, AppOutcome)]) -> Run {
    let everywhere: Vec<NodeId> = (0..NODES).map(NodeId).collect();
    let held: Vec<Held> = held.iter().map(|job| part(*job, 1, &everywhere)).collect();
    let held = everywhere.iter().map(|node| (*node, held.clone())).collect();
    next_with(told, held, released)
}

fn part(job: u32, launched: u32, placement: &[NodeId]) -> Held {
    Held { job: JobId(job), launched: Some(launched), placement: placement.to_vec() }
}

fn next_with(told: &[Output], held: BTreeMap<NodeId, Vec<Held>>, released: &[(u32, AppOutcome)]) -> Run {
    next_knowing(told, usize::MAX, held, released)
}

/// The journal was compacted, and has kept `ended` of the jobs that have ended.
fn next_knowing(
    told: &[Output],
    ended: usize,
    held: BTreeMap<NodeId, Vec<Held>>,
    released: &[(u32, AppOutcome)],
) -> Run {
    let set = job_set(vec![], SwitchOrder::Sequential, Residency::None);
    resumed(set, takeover(told, ended, held, released)).expect("the settings are right")
}

fn resumed(set: JobSet, takeover: Takeover) -> anyhow::Result<Run> {
    let time_0 = Some(Duration::from_secs(1));
    Run::resume_run(set, RunSettings { standing: true, time_0, ..RunSettings::default() }, takeover)
}

fn takeover(
    told: &[Output],
    ended: usize,
    held: BTreeMap<NodeId, Vec<Held>>,
    released: &[(u32, AppOutcome)],
) -> Takeover {
    let kept = told.iter().filter_map(|output| match output {
        Output::Keep(job) => Some((**job).clone()),
        _ => None,
    });
    let events: Vec<RunEvent> = told
        .iter()
        .filter_map(|output| match output {
            Output::Tell(event) => Some(event.clone()),
            _ => None,
        })
        .collect();
    let mut known = Known::of(&events);
    known.sum_up(ended);
    Takeover {
        generation: 2,
        past: Past::of(kept.collect(), known),
        held,
        copies: BTreeMap::new(),
        released: released.iter().map(|(job, outcome)| (JobId(*job), outcome.clone())).collect(),
    }
}

/// Two jobs that take turns, and one that follows the first; job 1 has begun its turn at 1110 ms.
fn two_turns() -> Vec<Output> {
    let mut run = cluster(vec![]);
    let follower = Submission { after: vec![JobId(0)], ..submission(60) };
    story(
        &mut run,
        &[
            (0, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (
                20,
                submit(vec![submission(60)]),
                "submitted job-1; turn of job-0 until 1.01s; accepted job-1 job-0-1",
            ),
            (30, submit(vec![follower]), "accepted job-2 job-0-2"),
            (1010, Input::Due, "park job-0"),
            (1100, report(0, Report::Parked), "launch job-1"),
            (1110, report(1, Report::Running), "switched; turn of job-1 until 2.11s"),
        ],
    )
}

const BEGINS: &str = "node-0 allows all; node-1 allows all";

fn ended() -> Report {
    Report::Ended(AppOutcome::Succeeded)
}

#[test]
fn jobs_are_found_where_they_were_left_and_take_turns_again() {
    let mut run = next(&two_turns(), &[0, 1], &[]);
    let told = story(
        &mut run,
        &[
            (1500, Input::Due, &format!("adopt job-0; adopt job-1; {BEGINS}")),
            (1510, submit(vec![submission(10)]), "accepted job-3 job-0-3"),
            (1520, report(1, Report::Running), ""),
            (1600, report(0, Report::Parked), "turn of job-1 until 2.6s; submitted job-3; launch job-3"),
        ],
    );
    assert!(told.iter().any(|output| matches!(
        output,
        Output::Tell(RunEvent { kind: Event::MasterReplaced { generation: 2, switches: 2, jobs, .. }, .. })
            if jobs.len() == 2
    )));
    story(
        &mut run,
        &[
            (1700, report(3, Report::Running), "switched; turn of job-1 job-3 until 2.6s"),
            (2700, Input::Due, "park job-1; park job-3"),
            (2750, report(1, Report::Parked), ""),
            (2760, report(3, ended()), "job-3 ended Exit(0); restore job-0"),
            (2800, report(0, Report::Running), "switched; turn of job-0 until 3.8s"),
            (2900, report(0, ended()), "job-0 ended Exit(0); restore job-1; submitted job-2"),
        ],
    );
}

#[test]
fn a_job_that_has_ended_without_a_master_counts_once_and_its_follower_comes() {
    let mut run = next(&two_turns(), &[1], &[(0, AppOutcome::Succeeded)]);
    story(
        &mut run,
        &[
            (1500, Input::Due, &format!("adopt job-0; adopt job-1; {BEGINS}")),
            (1510, report(0, ended()), "job-0 ended Exit(0)"),
            (1520, report(1, Report::Running), "turn of job-1; submitted job-2; turn of job-1 until 2.52s"),
        ],
    );
}

#[test]
fn the_number_and_the_name_of_a_forgotten_job_are_not_given_again() {
    let mut run = cluster(vec![]);
    let told = story(
        &mut run,
        &[
            (0, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, report(0, ended()), "job-0 ended Exit(0)"),
        ],
    );
    let mut run = next_knowing(&told, 0, BTreeMap::new(), &[]);
    story(
        &mut run,
        &[
            (100, Input::Due, BEGINS),
            (110, submit(vec![submission(60)]), "submitted job-1; launch job-1; accepted job-1 job-0-1"),
        ],
    );
}

/// The disk of the file of jobs had no room for it.
#[test]
fn the_number_of_a_job_that_was_not_written_down_is_not_given_again() {
    let outcome = JobOutcome::Failed("not kept".into());
    let kind = Event::JobFinished { job: JobId(5), outcome, last_output: String::new() };
    let mut run = next(&[Output::Tell(RunEvent { at: millis(10), kind })], &[], &[]);
    let accepted = "submitted job-6; launch job-6; accepted job-6 job-0";
    story(&mut run, &[(100, Input::Due, BEGINS), (110, submit(vec![submission(60)]), accepted)]);
}

#[test]
fn the_time_without_a_master_does_not_count_for_a_job_that_begins_again() {
    let mut told = two_turns();
    let mut run = next(&told, &[0], &[]);
    let submitted = "restore job-0; submitted job-1";
    told.extend(story(
        &mut run,
        &[
            (9000, Input::Due, &format!("adopt job-0; {BEGINS}")),
            (9010, report(0, Report::Parked), submitted),
            (9020, asked(Request::Resume(JobId(1))), "job-1 is waiting after 0 ms"),
        ],
    ));
    let mut run = next(&told, &[0], &[]);
    story(
        &mut run,
        &[
            (9100, Input::Due, &format!("adopt job-0; {BEGINS}")),
            (9110, report(0, Report::Parked), submitted),
            (9120, asked(Request::Resume(JobId(1))), "job-1 is waiting after 0 ms"),
        ],
    );
}

#[test]
fn settings_that_refuse_a_job_on_the_nodes_take_nothing_over() {
    let everywhere: Vec<NodeId> = (0..NODES).map(NodeId).collect();
    let held = everywhere.iter().map(|node| (*node, vec![part(0, 1, &everywhere)])).collect();
    let mut set = job_set(vec![], SwitchOrder::Sequential, Residency::None);
    set.cluster.memory = Capacity::OfAll(Bytes(50 * MIB));
    let error = resumed(set, takeover(&two_turns(), 9, held, &[])).err().expect("job-0 needs 60 MiB");
    assert!(error.to_string().contains("`job-0` (job-0) is on the nodes"), "{error}");
}

#[test]
fn who_parks_a_job_during_a_takeover_waits_until_it_has_left() {
    let mut run = next(&two_turns(), &[0, 1], &[]);
    story(
        &mut run,
        &[
            (1500, Input::Due, &format!("adopt job-0; adopt job-1; {BEGINS}")),
            (1510, asked(Request::Park(JobId(1))), ""),
            (1520, report(1, Report::Running), ""),
            (1600, report(0, Report::Parked), "park job-1"),
            (1700, report(1, Report::Parked), "restore job-0"),
            (1800, report(0, Report::Running), "switched; job-1 is held after 490 ms; turn of job-0"),
        ],
    );
}

#[test]
fn a_job_that_could_not_be_parked_is_not_held_by_the_next_master() {
    let mut run = cluster(vec![]);
    let why = "refused: job-0 cannot be parked: it could not leave memory; the log of the cluster says why";
    let told = story(
        &mut run,
        &[
            (0, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, asked(Request::Park(JobId(0))), "park job-0"),
            (
                30,
                report(0, Report::StillRunning { cause: full() }),
                &format!("misplaced job-0 running, no room; {why}; turn of job-0"),
            ),
        ],
    );
    let mut run = next(&told, &[0], &[]);
    story(
        &mut run,
        &[
            (1500, Input::Due, &format!("adopt job-0; {BEGINS}")),
            (1510, report(0, Report::Running), "turn of job-0"),
        ],
    );
}

#[test]
fn what_no_node_holds_is_submitted_again() {
    let mut run = next(&two_turns(), &[0], &[]);
    story(
        &mut run,
        &[
            (1500, Input::Due, &format!("adopt job-0; {BEGINS}")),
            // It had not been launched everywhere.
            (1510, report(0, Report::Unlaunched), "submitted job-0; submitted job-1; launch job-0"),
        ],
    );
    let mut run = next(&[], &[], &[]);
    story(
        &mut run,
        &[
            (1500, Input::Due, BEGINS),
            (1510, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
        ],
    );
}

#[test]
fn a_held_job_stays_out_until_it_is_resumed() {
    let mut run = cluster(vec![]);
    let told = story(
        &mut run,
        &[
            (0, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, asked(Request::Park(JobId(0))), "park job-0"),
            (90, report(0, Report::Parked), "switched; job-0 is held after 10 ms"),
        ],
    );
    let mut run = next(&told, &[0], &[]);
    story(
        &mut run,
        &[
            (1500, Input::Due, &format!("adopt job-0; {BEGINS}")),
            (1510, report(0, Report::Parked), ""),
            (1600, asked(Request::Resume(JobId(0))), "restore job-0; job-0 is parked after 10 ms"),
            (1700, report(0, Report::Running), "switched; turn of job-0"),
        ],
    );
}

/// The scheduler never heard of the job.
#[test]
fn a_run_ends_when_its_last_job_is_cancelled_before_it_was_submitted() {
    let mut run = run(job_set(vec![job(0, 60, 50)], SwitchOrder::Sequential, Residency::None));
    let told = run.on(millis(10), asked(Request::Park(JobId(0))));
    let kept = Output::Keep(Box::new(Accepted::of_file(&job(0, 60, 50))));
    let mut run = next(&[vec![kept], told].concat(), &[], &[]);
    run.settings.standing = false;
    story(
        &mut run,
        &[
            (1500, Input::Due, BEGINS),
            (
                1600,
                asked(Request::Cancel(JobId(0))),
                "job-0 ended Failed(\"cancelled\"); job-0 is cancelled after 0 ms; over JobsFailed",
            ),
        ],
    );
}

#[test]
fn a_job_that_was_being_cancelled_is_cancelled() {
    let mut run = next(&two_turns(), &[0, 1], &[(1, AppOutcome::Stopped)]);
    story(
        &mut run,
        &[
            (1500, Input::Due, &format!("adopt job-0; adopt job-1; {BEGINS}")),
            (1510, report(1, Report::Ended(AppOutcome::Stopped)), "job-1 ended Failed(\"cancelled\")"),
            (1520, report(0, Report::Parked), "restore job-0"),
        ],
    );
}

#[test]
fn a_job_that_is_cancelled_during_a_takeover_is_not_launched() {
    let mut run = next(&two_turns(), &[0, 1], &[]);
    let cancel = asked(Request::Cancel(JobId(2)));
    let inputs =
        [Input::Due, cancel, report(1, Report::Running), report(0, Report::Parked), report(0, ended())];
    let at = |ms: u64| SimTime(ms * 1_000_000);
    let told = (1500..).zip(inputs).flat_map(|(ms, input)| run.on(at(ms), input));
    let launches = told.filter(|output| matches!(output, Output::Launch(JobId(2), _))).count();
    assert_eq!(launches, 0);
}

#[test]
fn parts_of_jobs_that_have_ended_or_were_launched_again_are_removed_first() {
    let mut told = two_turns();
    told.push(Output::Tell(RunEvent {
        at: millis(1400),
        kind: Event::JobFinished { job: JobId(0), outcome: JobOutcome::Exit(0), last_output: String::new() },
    }));
    let (both, one) = ([NodeId(0), NodeId(1)], [NodeId(1), NodeId(1)]);
    let held = BTreeMap::from([
        (NodeId(0), vec![part(0, 1, &both), part(1, 65, &both)]),
        (NodeId(1), vec![part(1, 129, &one)]),
    ]);
    let mut run = next_with(&told, held, &[]);
    story(
        &mut run,
        &[(1500, Input::Due, &format!("node-0 removes job-0; node-0 removes job-1; adopt job-1; {BEGINS}"))],
    );
}

#[test]
fn a_drained_node_stays_drained() {
    let mut told = two_turns();
    told.push(Output::Tell(RunEvent { at: millis(1400), kind: Event::NodeDrained { node: NodeId(1) } }));
    let mut run = next(&told, &[0, 1], &[]);
    let told = story(
        &mut run,
        &[
            (1500, Input::Due, &format!("adopt job-0; adopt job-1; {BEGINS}")),
            (1520, report(1, Report::Running), ""),
            (1600, report(0, Report::Parked), "park job-1"),
        ],
    );
    assert!(told.iter().any(|output| matches!(
        output,
        Output::Tell(RunEvent { kind: Event::MasterReplaced { drained, .. }, .. }) if drained.len() == 1
    )));
}
