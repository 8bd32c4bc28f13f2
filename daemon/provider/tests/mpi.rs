//! Tests that run unmodified MPI programs over the driver.

#[path = "support/programs.rs"]
mod programs;
#[allow(dead_code, reason = "other tests use more of this module")]
mod support;

use std::time::Duration;
use support::{Job, Outcome, run};

/// Panics with the output of the ranks unless all of them succeeded.
fn assert_success(outcome: &Outcome) {
    let Outcome { statuses, outputs, timed_out, .. } = outcome;
    assert!(outcome.is_success(), "timed out: {timed_out}\n{statuses:?}\n{}", outputs.join("\n---\n"));
}

#[test]
fn hello_program_runs_on_one_node() {
    let program = programs::compiled("hello");
    for ranks in [1, 2, 4] {
        let outcome = run(&Job::new(ranks, 1, &program, &[]));
        assert_success(&outcome);
        // The program used this driver and no other one.
        assert!(ranks == 1 || outcome.counters.iter().all(|counters| counters.messages_sent > 10));
    }
}

#[test]
fn hello_program_runs_on_two_nodes() {
    let program = programs::compiled("hello");
    for ranks in [2, 4] {
        assert_success(&run(&Job::new(ranks, 2, &program, &[])));
    }
}

/// Runs a test program on every given combination of ranks and nodes.
fn passes_on(name: &str, shapes: &[(u32, u32)], env: &[(&str, &str)]) {
    let program = programs::compiled(name);
    for &(ranks, nodes) in shapes {
        let outcome = run(&Job { env, ..Job::new(ranks, nodes, &program, &[]) });
        assert_success(&outcome);
        assert!(outcome.outputs.iter().all(|output| output.ends_with("all passed\n")));
    }
}

#[test]
fn point_to_point_semantics_hold_on_one_node() {
    passes_on("p2p", &[(1, 1), (2, 1), (3, 1), (4, 1)], &[]);
}

#[test]
fn point_to_point_semantics_hold_across_nodes() {
    passes_on("p2p", &[(2, 2), (3, 2), (4, 2), (4, 4)], &[]);
}

#[test]
fn programs_run_on_after_segments_are_refilled_at_random_instants() {
    let mut freezes = 0;
    for name in ["p2p", "collectives", "onesided"] {
        let program = programs::compiled(name);
        for (ranks, nodes) in [(2, 1), (2, 2), (4, 2)] {
            let freeze_every = Some(Duration::from_millis(7));
            let outcome = run(&Job { freeze_every, ..Job::new(ranks, nodes, &program, &[]) });
            assert_success(&outcome);
            freezes += outcome.freezes;
        }
    }
    assert!(freezes >= 50, "frozen only {freezes} times");
}

#[test]
fn collectives_give_the_right_results() {
    passes_on("collectives", &[(1, 1), (2, 1), (4, 1), (3, 3), (4, 2)], &[]);
}

#[test]
fn one_sided_operations_give_the_right_results() {
    passes_on("onesided", &[(1, 1), (2, 1), (3, 1), (2, 2), (4, 2)], &[]);
}

#[test]
fn threads_of_a_rank_communicate_independently() {
    passes_on("threads", &[(1, 1), (2, 1), (4, 1), (2, 2)], &[]);
    passes_on("threads", &[(2, 1), (2, 2)], &[("MPIR_CVAR_CH4_NUM_VCIS", "4")]);
}
