//! The cluster of the thesis under all models: determinism, conservation, and agreement with queueing theory.

use std::{num::NonZeroUsize, time::Duration};

use coswitch_policies::local::{
    explicit::{Filling, LoadRule, Slices},
    flexible::{FlexibleRule, Thresholds},
};
use coswitch_policies::{Bytes, Rate};
use coswitch_sim::local::{
    Crowding, LocalModel, LocalReport, NodeMemory, Peers, Shape, UNIT,
    models::Column,
    simulate_local,
    table_4_1::{TableOptions, table_4_1},
};
use proptest::prelude::*;

fn every_model(shape: &Shape) -> Vec<LocalModel> {
    let slot = 5 * UNIT;
    let thresholds = Thresholds { rare: 2, long_wait: UNIT, high_ratio: 2.0 };
    let rule = FlexibleRule {
        slice: UNIT,
        trial_slots: 1,
        forget_after: Some(8),
        thresholds,
        context_switch: UNIT / 20,
    };
    let stopped = LocalModel::Explicit {
        slices: Slices { parallel: 20 * UNIT, local: 20 * UNIT },
        filling: Filling::DistributedStopped,
    };
    let (period, filling) = (20 * UNIT, Filling::Both);
    let load = LoadRule { sample_every: UNIT, ..LoadRule::over_a_minute() };
    let others = [
        stopped,
        LocalModel::ExplicitBalanced { period, rule: load, filling },
        LocalModel::ExplicitDistributed { period, rule: load, filling },
        LocalModel::Implicit { spin: UNIT / 2, first: true },
        LocalModel::Demand { share: UNIT / 4 },
        LocalModel::Flexible { rule, slot },
        LocalModel::Buffered { slot, message: Bytes(1000), rate: Rate(100_000_000) },
    ];
    Column::ALL.map(|column| LocalModel::of_thesis(column, shape, 0)).into_iter().chain(others).collect()
}

fn small(served: u32) -> Shape {
    Shape { served, ..Shape::default() }
}

fn run(shape: &Shape, model: &LocalModel, seed: u64) -> LocalReport {
    simulate_local(shape, model, seed).expect("the shape is valid")
}

/// The life of a task consists of run, wait and blocked time, and no processor time is charged twice.
fn check_conservation(report: &LocalReport, processors: NonZeroUsize) {
    for task in &report.tasks {
        assert_eq!(task.returned, task.account.executed + task.waited + task.blocked, "{task:?}");
        assert!(task.account.coscheduled <= task.account.executed);
        assert!(task.account.thrashed <= task.waited, "{task:?}");
        assert!(task.account.delayed <= task.waited, "{task:?}");
        let is_local = task.application.is_none();
        assert!(!is_local || task.account.degrees().is_none() && task.blocked.is_zero());
    }
    let end = Duration::from_nanos(report.end.0);
    let most = end * u32::try_from(processors.get()).unwrap();
    assert!(report.nodes.iter().all(|node| node.executed <= most));
}

#[test]
fn every_model_serves_all_tasks_and_accounts_for_all_time() {
    for processors in [1, 2, 3].map(|count| NonZeroUsize::new(count).unwrap()) {
        let shape = Shape { processors, ..small(300) };
        for model in every_model(&shape) {
            let report = run(&shape, &model, 5);
            assert!(report.distributed().count >= 300, "{model:?}");
            let degree = report.degrees().expect("tasks communicate").coscheduling;
            assert!((0.0..=1.0).contains(&degree), "{model:?}: {degree}");
            check_conservation(&report, processors);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let shape = small(200);
    for model in every_model(&shape) {
        let report = run(&shape, &model, 1);
        assert_eq!(report, run(&shape, &model, 1), "{model:?}");
        assert_ne!(report.end, run(&shape, &model, 2).end, "{model:?}");
    }
}

#[test]
fn the_table_is_the_same_with_one_thread_and_with_two() {
    let table = |threads| table_4_1(&TableOptions { shape: small(40), seeds: vec![1, 2], threads }).unwrap();
    assert_eq!(table(1), table(2));
}

#[test]
fn a_node_alone_has_the_ready_queue_that_theory_says() {
    // One node has no peers, so no task waits for messages: an M/M/1 queue with processor sharing.
    for (queue_length, tolerance) in [(1.0, 0.1), (2.0, 0.3)] {
        let shape = Shape { stations: 1, queue_length, served: 20_000, ..Shape::default() };
        let report = run(&shape, &LocalModel::Linux, 3);
        assert!((report.ready - queue_length).abs() < tolerance, "{} for {queue_length}", report.ready);
        assert_eq!(report.messages, 0);
    }
}

#[test]
fn a_node_of_two_processors_has_the_ready_queue_that_theory_says() {
    // M/M/2 with processor sharing: 2 ρ / (1 - ρ²) tasks, where each processor is used for the part ρ.
    for (queue_length, expected) in [(1.0, 8.0 / 15.0), (2.0, 0.75), (9.0, 360.0 / 319.0)] {
        let processors = NonZeroUsize::new(2).unwrap();
        let shape = Shape { stations: 1, processors, queue_length, served: 20_000, ..Shape::default() };
        let report = run(&shape, &LocalModel::Linux, 3);
        assert!((report.ready - expected).abs() < 0.05, "{} for {queue_length}", report.ready);
    }
}

#[test]
fn plain_round_robin_treats_both_kinds_alike_without_communication() {
    let shape = Shape { stations: 1, served: 20_000, ..Shape::default() };
    let report = run(&shape, &LocalModel::Linux, 9);
    let (distributed, local) = (report.distributed().returned, report.local().returned);
    assert!(distributed.abs_diff(local) < local / 10, "{distributed:?} and {local:?}");
}

#[test]
fn priority_for_distributed_tasks_is_paid_by_local_ones() {
    let shape = small(3000);
    let lin = run(&shape, &LocalModel::Linux, 1);
    let hpdt = run(&shape, &LocalModel::HighPriority, 1);
    assert!(hpdt.distributed().returned < lin.distributed().returned);
    assert!(hpdt.local().returned > lin.local().returned);
    assert!(hpdt.system().delayed > Duration::ZERO);
    assert_eq!(lin.system().delayed, Duration::ZERO, "round robin never overtakes");
}

#[test]
fn implicit_without_spinning_is_plain_linux() {
    let shape = small(500);
    let blocking = LocalModel::Implicit { spin: Duration::ZERO, first: false };
    assert_eq!(run(&shape, &blocking, 4), run(&shape, &LocalModel::Linux, 4));
    let spinning = run(&shape, &LocalModel::of_thesis(Column::Imp, &shape, 0), 4);
    assert!(spinning.spun > Duration::ZERO);
}

#[test]
fn on_a_full_node_a_distributed_task_comes_as_a_local_one() {
    let shape = Shape { crowding: Crowding::TurnLocal, applications: 1, distributed: 1.0, ..small(500) };
    let report = run(&shape, &LocalModel::Linux, 2);
    assert!(report.local().count > 0, "all are meant to be distributed, but each node has one place");
    let shape = Shape { crowding: Crowding::Share, ..shape };
    assert_eq!(run(&shape, &LocalModel::Linux, 2).local().count, 0);
}

#[test]
fn tasks_that_do_not_fit_in_memory_slow_their_node_down() {
    let memory = |capacity| NodeMemory {
        capacity: Bytes::mib(capacity),
        task_min: Bytes::mib(100),
        task_max: Bytes::mib(400),
        penalty: 2.0,
    };
    let shape = |capacity| Shape { memory: Some(memory(capacity)), ..small(1000) };
    let roomy = run(&shape(1_000_000), &LocalModel::Linux, 1);
    let tight = run(&shape(1024), &LocalModel::Linux, 1);
    assert!(tight.local().returned > roomy.local().returned);
    let plain = run(&small(1000), &LocalModel::Linux, 1);
    let difference = plain.local().returned.abs_diff(roomy.local().returned);
    assert!(difference < plain.local().returned / 10, "enough memory costs nothing");
}

#[test]
fn a_message_that_is_longer_than_a_slot_arrives_after_several() {
    // 100 bytes go in a slot, a message has 250.
    let model = LocalModel::Buffered { slot: UNIT, message: Bytes(250), rate: Rate(800_000) };
    let report = run(&Shape { stations: 2, grain: 5.0, ..small(100) }, &model, 1);
    assert!(report.messages > 0);
    check_conservation(&report, NonZeroUsize::MIN);
}

#[test]
fn dts_by_load_gives_local_tasks_more_where_there_are_more_of_them() {
    let load = LoadRule { sample_every: UNIT, ..LoadRule::over_a_minute() };
    let (period, filling) = (20 * UNIT, Filling::DistributedStopped);
    for model in [
        LocalModel::ExplicitBalanced { period, rule: load, filling },
        LocalModel::ExplicitDistributed { period, rule: load, filling },
    ] {
        let idle_slices = LocalModel::Explicit {
            slices: Slices { parallel: 18 * UNIT, local: 2 * UNIT },
            filling: Filling::DistributedStopped,
        };
        let shape = Shape { distributed: 0.2, ..small(500) };
        let (by_load, fixed) = (run(&shape, &model, 1), run(&shape, &idle_slices, 1));
        assert!(by_load.local().returned < fixed.local().returned, "{model:?}");
        assert!(by_load.distributed().returned > fixed.distributed().returned, "{model:?}");
    }
}

#[test]
fn buffered_messages_wait_for_the_end_of_their_slot() {
    let shape = small(500);
    let buffered = |slot| LocalModel::Buffered { slot, message: Bytes(1000), rate: Rate(1_000_000_000) };
    let short = run(&shape, &buffered(UNIT), 1).distributed().blocked;
    let long = run(&shape, &buffered(10 * UNIT), 1).distributed().blocked;
    assert!(long > 2 * short, "{long:?} with slots of ten units, {short:?} with slots of one");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn accounts_hold_for_any_shape(
        stations in 1..6u32, queue in 1..5u8, applications in 1..6u32, distributed in 1..=10u8,
        turn_local in any::<bool>(),
        ring in any::<bool>(),
        grain in 1..20u8,
        seed in any::<u64>(),
        choice in 0..13usize,
    ) {
        let shape = Shape {
            stations,
            queue_length: f64::from(queue),
            served: 60,
            distributed: f64::from(distributed) / 10.0,
            applications,
            crowding: if turn_local { Crowding::TurnLocal } else { Crowding::Share },
            peers: if ring { Peers::Ring } else { Peers::Any },
            grain: f64::from(grain) / 10.0,
            ..Shape::default()
        };
        let models = every_model(&shape);
        check_conservation(&run(&shape, &models[choice % models.len()], seed), shape.processors);
    }
}
