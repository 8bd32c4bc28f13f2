//! Every example program verifies on 1, 2 and 4 ranks over 1, 2 and 4 nodes, undisturbed and switched.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coswitch_examples::Program;
use coswitch_tests::{
    act::Act,
    seed::seed,
    stage::{Actor, RUN_LIMIT, Stage, play},
    turns::Turns,
};

/// Ranks and nodes.
const SHAPES: [(u32, u32); 6] = [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)];

/// All programs at their smallest.
fn small() -> Vec<Act> {
    vec![
        Act::program(Program::Cg, &["--class", "S"]),
        Act::program(Program::Ep, &["--class", "S"]),
        Act::program(Program::Is, &["--class", "S"]),
        Act::program(Program::Heat, &["--memory", "8MiB", "--steps", "20"]),
        Act::program(Program::RingCheck, &["--rounds", "40", "--max-bytes", "1MiB"]),
        Act::program(Program::Null, &[]),
        Act::python(&["--rounds", "3", "--intervals", "20000"]),
    ]
}

/// The same, but long enough to be taken out of memory at least once.
fn longer() -> Vec<Act> {
    vec![
        Act::program(Program::Cg, &["--class", "W", "--repeat", "6"]),
        Act::program(Program::Ep, &["--class", "W", "--repeat", "3"]),
        Act::program(Program::Is, &["--class", "W", "--repeat", "24"]),
        Act::program(Program::Heat, &["--memory", "16MiB", "--steps", "1500"]),
        Act::program(Program::RingCheck, &["--rounds", "800", "--max-bytes", "1MiB"]),
        Act::program(Program::Null, &[]),
        Act::python(&["--rounds", "20"]),
    ]
}

/// Plays in which each program must have been switched.
const ROUNDS: u32 = 12;

/// The programs that verified their results in one go, each time they were played.
fn never_switched(stage: &Stage) -> Vec<Act> {
    let name = |actor: &Actor| actor.act.name.clone();
    let switched: BTreeSet<String> =
        stage.actors.values().filter(|actor| actor.parked > 0).map(name).collect();
    let missing =
        stage.actors.values().filter(|actor| actor.act.says.is_some() && !switched.contains(&actor.act.name));
    let by_name: BTreeMap<String, Act> = missing.map(|actor| (name(actor), actor.act.clone())).collect();
    by_name.into_values().collect()
}

#[test]
fn every_program_verifies_on_every_shape() {
    for (ranks, nodes) in SHAPES {
        play(nodes, |stage| {
            for act in small() {
                let job = stage.launch(act.on(ranks, nodes));
                stage.verify(job, RUN_LIMIT);
            }
        });
    }
}

#[test]
fn every_program_verifies_on_every_shape_while_it_is_switched() {
    let mut seed = seed();
    for (ranks, nodes) in SHAPES {
        play(nodes, |stage| {
            // How long a program takes depends on the machine: one that was over before it could be parked plays again.
            let mut acts: Vec<Act> = longer().into_iter().map(|act| act.on(ranks, nodes)).collect();
            for _ in 0..ROUNDS {
                Turns::new(stage, &mut seed, Duration::from_millis(350)).play_all(acts);
                acts = never_switched(stage);
            }
            assert!(acts.is_empty(), "never switched: {acts:?}");
        });
    }
}
