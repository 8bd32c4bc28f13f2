//! Partitions: whose jobs they take, and which jobs go first.

use coswitch_policies::spaceshare::{
    layout::{Daytime, Layout, QueueUser},
    sharing::NodeSets,
};

use super::{
    requests::{asked_by, owned_by, submission, submit},
    *,
};
use crate::api::Submission;

const ALICE: User = User(1000);
const BOB: User = User(1001);

/// A node each. Alice alone uses the first, and any user the second, whose jobs are taken first.
fn partitions() -> Run {
    let mut set = job_set(vec![], SwitchOrder::Sequential, Residency::None);
    let mut layout =
        Layout::of_partitions(&[("own".into(), vec!["0".into()]), ("any".into(), vec!["1".into()])]);
    layout.queues[0].users = Some(vec![QueueUser { name: "alice".into(), number: ALICE.0 }]);
    layout.queues[1].rank = 1;
    let sets = NodeSets { layout, nodes: vec![NodeId(0), NodeId(1)], start: Daytime::default() };
    set.scheduler.policy = Policy::Batch;
    set.scheduler.sets = Some(Box::new(sets));
    Run::new(set, RunSettings { standing: true, ..RunSettings::default() }).expect("the settings are right")
}

fn to(partition: &str) -> Submission {
    let job = Job { ranks: 1, queue: Some(partition.into()), ..job(0, 60, 0) };
    Submission { job, ..submission(60) }
}

fn owned(user: User, partition: &str) -> Submission {
    owned_by(user, to(partition))
}

fn submit_as(user: User, jobs: Vec<Submission>) -> Input {
    asked_by(user, Request::Submit(jobs))
}

#[test]
fn a_partition_refuses_users_that_are_not_its_own_and_names_them() {
    let mut run = partitions();
    let closed = "refused: job 2 of the submission, `job-0`: the partition `own` takes jobs of these users \
                  alone: alice; none of them was submitted";
    let refused =
        |why| format!("refused: job 1 of the submission, `job-0`: {why}; none of them was submitted");
    let foreign = refused("user 1001 submits jobs of their own alone");
    let urgent = refused("only root gives a priority above 0");
    let mut first = owned(ALICE, "own");
    first.job.priority = 1;
    story(
        &mut run,
        &[
            (0, Input::Due, ""),
            (10, submit_as(BOB, vec![owned(BOB, "any"), owned(BOB, "own")]), closed),
            (20, submit_as(BOB, vec![owned(ALICE, "any")]), &foreign),
            (30, submit_as(BOB, vec![to("any")]), &foreign),
            (40, submit_as(ALICE, vec![first]), &urgent),
            (
                50,
                submit_as(BOB, vec![owned(BOB, "any")]),
                "submitted job-0; launch job-0; accepted job-0 job-0",
            ),
            (60, submit_as(ALICE, vec![owned(ALICE, "own")]), "submitted job-1; accepted job-1 job-0-1"),
            (70, submit(vec![to("own")]), "submitted job-2; accepted job-2 job-0-2"),
        ],
    );
}

#[test]
fn jobs_of_the_partition_of_higher_priority_go_first() {
    let mut run = partitions();
    story(
        &mut run,
        &[
            (0, submit(vec![to("own")]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            // Under `fcfs` the one in front keeps all others waiting.
            (20, submit(vec![to("own")]), "submitted job-1; accepted job-1 job-0-1"),
            (30, submit(vec![to("any")]), "submitted job-2; launch job-2; accepted job-2 job-0-2"),
        ],
    );
}
