//! Nodes are drained and undrained.

use super::{
    requests::{asked, asked_by, cluster, submission, submit},
    *,
};
use crate::api::Submission;

#[test]
fn who_drains_a_node_is_answered_when_it_is_empty() {
    let mut run = cluster(vec![]);
    let one = Submission { job: Job { ranks: 1, ..job(0, 60, 0) }, ..submission(60) };
    story(
        &mut run,
        &[
            (0, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (
                20,
                asked_by(User(7), Request::Drain(NodeId(1))),
                "refused: you are user 7: only user 0, as whom this cluster runs, may ask that",
            ),
            (
                30,
                asked(Request::Drain(NodeId(2))),
                "refused: there is no node-2: the cluster has 2 nodes, from node-0 on",
            ),
            (40, asked(Request::Drain(NodeId(1))), "park job-0"),
            (50, report(0, Report::Parked), "switched; node-1 drained true awaited [JobId(0)]"),
            (
                60,
                asked(Request::Why(JobId(0))),
                "job-0: it waits for node-1, which is drained: its snapshot lies there",
            ),
            (70, submit(vec![one]), "submitted job-1; launch job-1; accepted job-1 job-0-1"),
            (80, report(1, Report::Running), "switched; turn of job-1"),
            (90, report(1, Report::Ended(AppOutcome::Succeeded)), "job-1 ended Exit(0)"),
            (100, asked(Request::Undrain(NodeId(1))), "restore job-0; node-1 drained false awaited []"),
            (110, report(0, Report::Running), "switched; turn of job-0"),
        ],
    );
}

#[test]
fn a_node_that_is_undrained_before_it_is_empty_was_not() {
    let mut run = cluster(vec![]);
    story(
        &mut run,
        &[
            (0, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, asked(Request::Drain(NodeId(1))), "park job-0"),
            (
                30,
                asked(Request::Undrain(NodeId(1))),
                "refused: node-1 is not empty: it was undrained before it was empty; \
                 node-1 drained false awaited []",
            ),
            (40, report(0, Report::Parked), "switched; restore job-0"),
            (50, report(0, Report::Running), "switched; turn of job-0"),
        ],
    );
}

#[test]
fn a_job_that_cannot_leave_a_drained_node_is_named() {
    let mut run = cluster(vec![]);
    story(
        &mut run,
        &[
            (0, submit(vec![submission(60)]), "submitted job-0; launch job-0; accepted job-0 job-0"),
            (10, report(0, Report::Running), "switched; turn of job-0"),
            (20, asked(Request::Drain(NodeId(1))), "park job-0"),
            (
                30,
                report(0, Report::StillRunning { cause: full() }),
                "misplaced job-0 running, no room; refused: node-1 is not empty: job-0 could not leave \
                 memory and runs on; the log of the cluster says why. The node takes no other jobs; `drain` \
                 tries it again; turn of job-0",
            ),
        ],
    );
}
