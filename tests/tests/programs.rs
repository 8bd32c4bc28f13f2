//! Example programs: each verifies on 1, 2 and 4 ranks over 1, 2 and 4 nodes, with and without switches.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coswitch_examples::Program;
use coswitch_tests::{
    cluster::{LaunchedJob, RUN_LIMIT, TestCluster, run_on},
    job::TestJob,
    seed::seed,
    turns::Turns,
};

/// Ranks and nodes.
const SHAPES: [(u32, u32); 6] = [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)];

/// All programs at small sizes.
fn small() -> Vec<TestJob> {
    vec![
        TestJob::program(Program::Bt, &["--class", "S"]),
        TestJob::program(Program::Cg, &["--class", "S"]),
        TestJob::program(Program::Ep, &["--class", "S"]),
        TestJob::program(Program::Is, &["--class", "S"]),
        TestJob::program(Program::Heat, &["--memory", "8MiB", "--steps", "20"]),
        TestJob::program(Program::RingCheck, &["--rounds", "40", "--max-bytes", "1MiB"]),
        TestJob::program(Program::Null, &[]),
        TestJob::python(&["--rounds", "3", "--intervals", "20000"]),
    ]
}

/// All programs, running long enough to be parked at least once.
fn longer() -> Vec<TestJob> {
    vec![
        TestJob::program(Program::Bt, &["--class", "W", "--seconds", "1"]),
        TestJob::program(Program::Cg, &["--class", "W", "--seconds", "1"]),
        TestJob::program(Program::Ep, &["--class", "W", "--seconds", "1"]),
        TestJob::program(Program::Is, &["--class", "W", "--seconds", "1"]),
        TestJob::program(Program::Heat, &["--memory", "16MiB", "--seconds", "1"]),
        TestJob::program(Program::RingCheck, &["--seconds", "1", "--max-bytes", "1MiB"]),
        TestJob::program(Program::Null, &[]),
        TestJob::python(&["--seconds", "1"]),
    ]
}

/// Number of rounds in which each program must have been switched at least once.
const ROUNDS: u32 = 12;

/// The programs that were never parked in their runs.
fn never_switched(cluster: &TestCluster) -> Vec<TestJob> {
    let name = |launched: &LaunchedJob| launched.spec.name.clone();
    let switched: BTreeSet<String> =
        cluster.jobs.values().filter(|launched| launched.parked > 0).map(name).collect();
    let missing = cluster
        .jobs
        .values()
        .filter(|launched| launched.spec.says.is_some() && !switched.contains(&launched.spec.name));
    let by_name: BTreeMap<String, TestJob> =
        missing.map(|launched| (name(launched), launched.spec.clone())).collect();
    by_name.into_values().collect()
}

#[test]
fn every_program_verifies_on_every_shape() {
    for (ranks, nodes) in SHAPES {
        run_on(nodes, |cluster| {
            for spec in small() {
                let job = cluster.launch(spec.on(ranks, nodes));
                cluster.verify(job, RUN_LIMIT);
            }
        });
    }
}

fn switch_on(nodes: u32, ranks: &[u32]) {
    let mut seed = seed();
    for ranks in ranks {
        run_on(nodes, |cluster| {
            // The run time depends on the machine: a program that ended before it could be parked runs again.
            let mut specs: Vec<TestJob> = longer().into_iter().map(|spec| spec.on(*ranks, nodes)).collect();
            for _ in 0..ROUNDS {
                Turns::new(cluster, &mut seed, Duration::from_millis(700)).run_all(specs);
                specs = never_switched(cluster);
            }
            assert!(specs.is_empty(), "never switched: {specs:?}");
        });
    }
}

#[test]
fn every_program_verifies_on_one_node_while_it_is_switched() {
    switch_on(1, &[1, 2, 4]);
}

#[test]
fn every_program_verifies_on_two_nodes_while_it_is_switched() {
    switch_on(2, &[2, 4]);
}

#[test]
fn every_program_verifies_on_four_nodes_while_it_is_switched() {
    switch_on(4, &[4]);
}
