//! What users ask of a standing cluster.

use std::collections::BTreeSet;

use coswitch_dispatcher::protocol::{JobUser, NodeEvent, Replaced};

use super::*;
use crate::{
    api::{JobState, Refusal, Submission},
    config::Owner,
};

pub(super) const ALICE: User = User(1000);

/// An answer in a few words.
pub(super) fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Cluster(status) => format!("cluster of {} nodes", status.cluster.nodes),
        Reply::Submitted(jobs) => {
            let jobs = jobs.iter().map(|job| format!("{} {}", job.job, job.name));
            format!("accepted {}", jobs.collect::<Vec<_>>().join(", "))
        }
        Reply::Jobs(queue) => {
            let seconds = |at: SimTime| at.since(queue.now).as_secs_f64();
            let job = |job: &crate::api::JobStatus| {
                let next = job.outlook.runs_from.map_or(String::new(), |at| format!(" in {}", seconds(at)));
                let done = job.outlook.done.map_or(String::new(), |at| format!(" done in {}", seconds(at)));
                format!("{} {}{next}{done}", job.job, job.state)
            };
            format!("[{}]", queue.jobs.iter().map(job).collect::<Vec<_>>().join(", "))
        }
        Reply::Upgraded(nodes) => {
            let one = |upgrade: &crate::api::NodeUpgrade| match upgrade.pause {
                Some(pause) => format!("{} stood {} ms", upgrade.node, pause.as_millis()),
                None => format!("{} would stand still", upgrade.node),
            };
            nodes.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        Reply::Node(status) => {
            format!("{} drained {} awaited {:?}", status.node, status.drained, status.waiting)
        }
        Reply::Job(job) => format!("{} is {} after {} ms", job.job, job.state, job.ran.as_millis()),
        Reply::Timetable(timetable) => {
            let seconds = |at: SimTime| at.since(SimTime(0)).as_secs_f64();
            let turn = |turn: &coswitch_policies::ForeseenTurn| {
                let until = turn.until.map_or(String::new(), |at| format!(" to {}", seconds(at)));
                let jobs = turn.jobs.iter().map(|(job, _)| job.to_string()).collect::<Vec<_>>();
                format!("{} from {}{until}", jobs.join("+"), seconds(turn.from))
            };
            let turns = timetable.turns.iter().map(turn).collect::<Vec<_>>().join(", ");
            let switch = timetable.switch.as_ref().map_or(String::new(), |switch| {
                format!(
                    " {} since {} out {:?} in {:?}",
                    switch.switch,
                    seconds(switch.began),
                    switch.outgoing,
                    switch.incoming
                )
            });
            format!("timetable [{turns}]{switch}")
        }
        Reply::Why(reason) => format!("{}: {}", reason.job, reason.text),
        Reply::Refused(refusal) => format!("refused: {refusal}"),
    }
}

pub(super) fn asked_by(user: User, request: Request) -> Input {
    Input::Asked(Asked { ticket: Ticket(0), user, request })
}

pub(super) fn asked(request: Request) -> Input {
    asked_by(User::ROOT, request)
}

pub(super) fn submission(mib: u64) -> Submission {
    Submission { job: job(0, mib, 0), after: vec![], time_limit: None }
}

pub(super) fn owned_by(user: User, mut submission: Submission) -> Submission {
    let User(number) = user;
    let ids = JobUser { uid: number, gid: number, groups: Vec::new() };
    let owner = Owner { name: number.to_string(), ids, home: "/".into(), shell: "/bin/sh".into() };
    submission.job.owner = Some(owner);
    submission
}

pub(super) fn submit(jobs: Vec<Submission>) -> Input {
    asked(Request::Submit(jobs))
}

pub(super) fn cluster(jobs: Vec<Job>) -> Run {
    let set = job_set(jobs, SwitchOrder::Sequential, Residency::None);
    Run::new(set, RunSettings { standing: true, ..RunSettings::default() }).expect("the settings are right")
}

pub(super) fn ended() -> Input {
    report(0, Report::Ended(AppOutcome::Succeeded))
}

#[test]
fn jobs_come_at_any_time_and_the_cluster_stays_without_any() {
    let mut run = cluster(vec![]);
    story(
        &mut run,
        &[
            (0, Input::Due, ""),
            (100, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (150, report(0, Report::Running), "switched; turn of job-0"),
            (200, asked(Request::Wait(JobId(0))), ""),
            // The name is taken: another one is given.
            (
                300,
                submit(vec![submission(60)]),
                "submitted job-1; turn of job-0 until 1.15s; accepted job-1 job-0-1",
            ),
            (400, asked(Request::Jobs { all: false }), "[job-0 running in 0, job-1 waiting in 0.81]"),
            (900, ended(), "job-0 ended Exit(0); job-0 is done after 750 ms; launch job-1"),
            (950, report(1, Report::Running), "switched; turn of job-1"),
            (960, asked(Request::Jobs { all: true }), "[job-0 done, job-1 running in 0]"),
            (980, report(1, Report::Ended(AppOutcome::Succeeded)), "job-1 ended Exit(0)"),
            (990, asked(Request::Wait(JobId(1))), "job-1 is done after 30 ms"),
            (999, Input::Stop(RunOutcome::Interrupted), "over Interrupted"),
        ],
    );
}

fn upgrade(nodes: &[u32], dry_run: bool) -> Input {
    asked(Request::Upgrade { nodes: nodes.iter().copied().map(NodeId).collect(), dry_run })
}

fn replaced(node: u32) -> Input {
    let (pause, paused, version) = (Duration::from_millis(40), BTreeSet::from([JobId(0)]), "9.9.9".into());
    Input::Node(NodeEvent::Replaced { node: NodeId(node), replaced: Replaced { pause, paused, version } })
}

#[test]
fn daemons_are_replaced_one_after_the_other_and_a_failure_ends_the_upgrade() {
    let mut run = cluster(vec![]);
    let failed = || NodeEvent::NotReplaced { node: NodeId(1), reason: "a test".into() };
    story(
        &mut run,
        &[
            (0, upgrade(&[], true), "node-0 would stand still, node-1 would stand still"),
            (1, upgrade(&[7], false), "refused: there is no node-7: the cluster has node-0 to node-1"),
            (2, upgrade(&[], false), "replace the daemon of node-0"),
            (3, upgrade(&[1], false), "refused: another upgrade is under way"),
            (4, replaced(0), "the daemon of node-0 is replaced; replace the daemon of node-1"),
            (5, replaced(1), "the daemon of node-1 is replaced; node-0 stood 40 ms, node-1 stood 40 ms"),
            (6, upgrade(&[1], false), "replace the daemon of node-1"),
            (7, Input::Node(failed()), "refused: the daemon of node-1 was not replaced: a test"),
            (8, upgrade(&[0], false), "replace the daemon of node-0"),
            (
                9,
                asked_by(ALICE, Request::Upgrade { nodes: vec![], dry_run: true }),
                "refused: only user 0, as whom the cluster runs, may upgrade it",
            ),
        ],
    );
}

#[test]
fn a_job_is_cancelled_wherever_it_is() {
    let mut run = cluster(vec![job(0, 60, 0), job(1, 60, 0), job(2, 60, 5000)]);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; submitted job-1; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0 until 1.01s"),
            // Not submitted yet; never launched; running.
            (
                20,
                asked(Request::Cancel(JobId(2))),
                "job-2 ended Failed(\"cancelled\"); job-2 is cancelled after 0 ms",
            ),
            (
                30,
                asked(Request::Cancel(JobId(1))),
                "job-1 ended Failed(\"cancelled\"); turn of job-0; job-1 is cancelled after 0 ms",
            ),
            (40, asked(Request::Cancel(JobId(0))), "end job-0; job-0 is running after 30 ms"),
            (50, report(0, Report::Ended(AppOutcome::Stopped)), "job-0 ended Failed(\"cancelled\")"),
            (60, asked(Request::Cancel(JobId(0))), "refused: job-0 has ended: failed: cancelled"),
            (5000, Input::Due, ""),
        ],
    );
}

#[test]
fn a_job_that_is_cancelled_in_a_switch_leaves_it() {
    let mut run = cluster(vec![job(0, 60, 0), job(1, 60, 0)]);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; submitted job-1; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0 until 1.01s"),
            (1010, Input::Due, "park job-0"),
            (
                1020,
                asked(Request::Cancel(JobId(1))),
                "job-1 ended Failed(\"cancelled\"); job-1 is cancelled after 0 ms",
            ),
            (1100, report(0, Report::Parked), "switched; restore job-0"),
            (1150, asked(Request::Cancel(JobId(0))), "end job-0; job-0 is parked after 1000 ms"),
            (
                1200,
                report(0, Report::Ended(AppOutcome::Stopped)),
                "job-0 ended Failed(\"cancelled\"); switched",
            ),
        ],
    );
}

#[test]
fn a_time_limit_counts_turns_alone() {
    let limited = Submission { time_limit: Some(Duration::from_millis(1500)), ..submission(60) };
    let mut run = cluster(vec![job(0, 60, 0)]);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, submit(vec![limited]), "submitted job-1; turn of job-0 until 1.01s; accepted job-1 job-0-1"),
            (1010, Input::Due, "park job-0"),
            (1020, report(0, Report::Parked), "launch job-1"),
            (1030, report(1, Report::Running), "switched; turn of job-1 until 2.03s"),
            // A second of its limit is over by the end of this turn. No switch was measured yet: a MiB that
            // is dumped or restored counts with a millisecond.
            (
                1040,
                asked(Request::Jobs { all: false }),
                "[job-0 parked in 1.11, job-1 running in 0 done in 2.73]",
            ),
            (2030, Input::Due, "park job-1"),
            (2040, report(1, Report::Parked), "restore job-0"),
            (2050, report(0, Report::Running), "switched; turn of job-0 until 3.05s"),
            (3050, Input::Due, "park job-0"),
            (3060, report(0, Report::Parked), "restore job-1"),
            (3070, report(1, Report::Running), "switched; turn of job-1 until 4.07s"),
        ],
    );
    assert_eq!(run.due(), Some(millis(3570)));
    let ended = "job-1 ended Failed(\"it ran for its time limit of 1.5 s\"); restore job-0";
    story(
        &mut run,
        &[(3570, Input::Due, "end job-1"), (3580, report(1, Report::Ended(AppOutcome::Stopped)), ended)],
    );
}

#[test]
fn who_asks_wrongly_is_told_why_and_nothing_changes() {
    let mut run = cluster(vec![job(0, 60, 0)]);
    let with = |change: &dyn Fn(&mut Job)| {
        let mut wrong = submission(60);
        change(&mut wrong.job);
        submit(vec![submission(60), wrong])
    };
    let refused = |run: &mut Run, input: Input| match run.on(millis(1), input).pop() {
        Some(Output::Answer(_, Reply::Refused(refusal))) => refusal.to_string(),
        other => panic!("{other:?}"),
    };
    for (input, part) in [
        (with(&|job| job.ranks = 0), "it has 0 ranks"),
        (with(&|job| job.ranks = 5000), "a job has 1 to 1024"),
        (with(&|job| job.memory = Bytes(0)), "a rank without memory"),
        (with(&|job| job.memory = Bytes(101 * MIB)), "larger than a node"),
        (with(&|job| job.name = "../x".into()), "cannot name a job"),
        (with(&|job| job.program = "ls".into()), "absolute paths"),
        (submit(vec![submission(1); 1000]), "takes at most 1000"),
        (asked(Request::Wait(JobId(9))), "there is no job-9"),
        (asked_by(ALICE, Request::Cancel(JobId(0))), "there is no job-0"),
        (asked_by(ALICE, Request::Why(JobId(0))), "there is no job-0"),
        (asked_by(ALICE, Request::Submit(vec![submission(1)])), "user 1000 submits jobs of their own alone"),
    ] {
        let refusal = refused(&mut run, input);
        assert!(refusal.contains(part), "{refusal}");
    }
    let none = run.on(millis(2), asked_by(ALICE, Request::Jobs { all: true }));
    assert!(matches!(&none[..], [Output::Answer(_, Reply::Jobs(queue))] if queue.jobs.is_empty()));
    story(&mut run, &[(3, asked(Request::Jobs { all: true }), "[job-0 waiting]")]);
    assert!(JobState::Failed.has_ended() && Refusal::Ending.to_string().contains("ending"));
}

#[test]
fn a_job_is_parked_and_resumed_by_its_user() {
    let mut run = cluster(vec![job(0, 60, 0), job(1, 60, 0)]);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; submitted job-1; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0 until 1.01s"),
            (500, asked(Request::Park(JobId(0))), "park job-0"),
            (600, report(0, Report::Parked), "launch job-1"),
            (610, report(1, Report::Running), "switched; job-0 is held after 490 ms; turn of job-1"),
            (620, asked(Request::Park(JobId(0))), "job-0 is held after 490 ms"),
            (
                630,
                asked(Request::Why(JobId(0))),
                "job-0: its user holds it; `coswitch resume 0` lets it go on",
            ),
            (640, asked(Request::Jobs { all: false }), "[job-0 held, job-1 running in 0]"),
            (
                700,
                asked(Request::Resume(JobId(0))),
                "turn of job-1 until 1.61s; job-0 is parked after 490 ms",
            ),
            (1610, Input::Due, "park job-1"),
            (1700, report(1, Report::Parked), "restore job-0"),
            (1710, report(0, Report::Running), "switched; turn of job-0 until 2.71s"),
            // It cannot leave, and its user is told.
            (1800, asked(Request::Park(JobId(0))), "park job-0"),
            (
                1900,
                report(0, Report::StillRunning { cause: full() }),
                "misplaced job-0 running, no room, job-1 parked; refused: job-0 cannot be parked: it could \
                 not leave memory; the log of the cluster says why; turn of job-0 until 2.9s",
            ),
            // It ends while it is to be parked.
            (2000, asked(Request::Park(JobId(0))), "park job-0"),
            (
                2100,
                report(0, Report::Ended(AppOutcome::Succeeded)),
                "job-0 ended Exit(0); job-0 is done after 680 ms; restore job-1",
            ),
        ],
    );
}

#[test]
fn a_job_that_follows_another_is_held_as_well() {
    let follower = Submission { after: vec![JobId(0)], ..submission(60) };
    let mut run = cluster(vec![job(0, 60, 0)]);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0"),
            (1, submit(vec![follower]), "accepted job-1 job-0-1"),
            (2, asked(Request::Park(JobId(1))), "job-1 is held after 0 ms"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, ended(), "job-0 ended Exit(0)"),
            (
                30,
                asked(Request::Resume(JobId(1))),
                "submitted job-1; launch job-1; job-1 is waiting after 0 ms",
            ),
        ],
    );
}

#[test]
fn a_job_that_has_not_arrived_is_held_as_well() {
    let mut run = cluster(vec![job(0, 60, 5000), job(1, 60, 5000)]);
    story(
        &mut run,
        &[
            (10, asked(Request::Park(JobId(0))), "job-0 is held after 0 ms"),
            (20, asked(Request::Park(JobId(1))), "job-1 is held after 0 ms"),
            (30, asked(Request::Resume(JobId(1))), "job-1 is waiting after 0 ms"),
            (5000, Input::Due, "submitted job-1; launch job-1"),
            (6000, asked(Request::Resume(JobId(0))), "submitted job-0; job-0 is waiting after 0 ms"),
        ],
    );
}

#[test]
fn who_waits_for_a_job_to_be_parked_hears_that_it_was_resumed() {
    let mut run = cluster(vec![job(0, 60, 0)]);
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (500, asked(Request::Park(JobId(0))), "park job-0"),
            (
                510,
                asked(Request::Resume(JobId(0))),
                "refused: job-0 cannot be parked: it was resumed before it had left memory; \
                 job-0 is suspended after 490 ms",
            ),
            (600, report(0, Report::Parked), "switched; restore job-0"),
        ],
    );
}

#[test]
fn the_timetable_tells_turns_the_switch_under_way_and_the_memory_of_nodes() {
    let mut run = cluster(vec![job(0, 60, 0), job(1, 60, 0)]);
    let timetable = || asked(Request::Timetable { ahead: Duration::from_secs(2) });
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; submitted job-1; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0 until 1.01s"),
            (
                500,
                timetable(),
                "timetable [job-0 from 0.01 to 1.01, job-1 from 1.07 to 2.07, job-0 from 2.19 to 3.19]",
            ),
            (1010, Input::Due, "park job-0"),
            (1100, report(0, Report::Parked), "launch job-1"),
        ],
    );
    // In the switch no turn is the present one.
    run.on(millis(1150), Input::Due);
    samples(&mut run, 1160, &[(1, 20)], false);
    let Reply::Timetable(shown) = run.timetable(Duration::from_secs(1)) else { panic!("a timetable") };
    let switch = shown.switch.expect("it is under way");
    assert_eq!(
        (switch.began, switch.outgoing, switch.incoming),
        (millis(1010), vec![JobId(0)], vec![JobId(1)])
    );
    assert_eq!(shown.turns[0].jobs[0].0, JobId(1));
    let used: Vec<_> = shown.memory.iter().map(|memory| (memory.node, memory.used)).collect();
    assert_eq!(used, [(NodeId(0), Bytes(20 * MIB)), (NodeId(1), Bytes(20 * MIB))]);
}

#[test]
fn an_urgent_job_ends_the_turn_of_another_and_why_says_so() {
    let mut run = cluster(vec![job(0, 60, 0)]);
    let urgent = Submission { job: Job { priority: 5, ..job(0, 60, 0) }, ..submission(60) };
    let too_urgent = Submission { job: Job { priority: 1001, ..job(0, 60, 0) }, ..submission(60) };
    story(
        &mut run,
        &[
            (0, Input::Due, "submitted job-0; launch job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (
                50,
                submit(vec![too_urgent]),
                "refused: job 1 of the submission, `job-0`: its priority is 1001: it lies between -1000 and \
                 1000; none of them was submitted",
            ),
            (100, submit(vec![urgent]), "submitted job-1; park job-0; accepted job-1 job-0-1"),
            (200, report(0, Report::Parked), "launch job-1"),
            (250, report(1, Report::Running), "switched; turn of job-1"),
        ],
    );
    let why = run.why(User::ROOT, JobId(0)).expect("it lives");
    let said = shown(&why);
    assert!(said.contains("it is parked, with priority 0: jobs of priority 5 have all turns"), "{said}");
    story(
        &mut run,
        &[
            (400, report(1, Report::Ended(AppOutcome::Succeeded)), "job-1 ended Exit(0); restore job-0"),
            (500, report(0, Report::Running), "switched; turn of job-0"),
        ],
    );
}
