//! Unmodified MPI programs over the driver.

mod support;

use support::{Job, programs, run};

#[test]
fn ring_of_ranks_on_one_node_says_hello() {
    let program = programs::compiled("hello");
    for ranks in [1, 2, 4] {
        run(&Job::new(ranks, 1, &program, &[])).assert_success();
    }
}

#[test]
fn ring_of_ranks_on_two_nodes_says_hello() {
    let program = programs::compiled("hello");
    for ranks in [2, 4] {
        run(&Job::new(ranks, 2, &program, &[])).assert_success();
    }
}
