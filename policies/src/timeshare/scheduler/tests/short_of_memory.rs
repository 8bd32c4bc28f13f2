//! Switches where memory does not hold what their order needs.

use super::*;
use crate::SwitchOrder;

/// The switches of two jobs of 600 MiB that take turns on nodes of 1000, up to the third turn.
fn switches(switching: SwitchOrder, residency: Residency, short_of_memory: ShortOfMemory) -> Vec<String> {
    let mut desk = Desk::with(SchedulerConfig {
        switching,
        residency,
        short_of_memory,
        estimate: Estimate::Declared,
        ..SchedulerConfig::new(Policy::Gang, Duration::from_secs(10))
    });
    let mut told = desk.submit(&[(2, 600), (2, 600)]);
    loop {
        while desk.switch.is_some() {
            told += &desk.done();
        }
        let turns = told.matches("turn of").count();
        if turns == 3 {
            return told.lines().filter(|line| line.starts_with("switch")).map(str::to_owned).collect();
        }
        told += &desk.wait();
    }
}

#[test]
fn without_a_word_a_switch_beyond_memory_is_sequential() {
    for order in [SwitchOrder::Overlapped, SwitchOrder::Prefetch] {
        for residency in [Residency::None, Residency::Planned] {
            let expected = [
                "switch-0 to slot-0: out none, in job-0 (new)",
                "switch-1 to slot-1: out job-0, in job-1 (new)",
                "switch-2 to slot-0: out job-1, in job-0",
            ];
            assert_eq!(switches(order, residency, ShortOfMemory::default()), expected);
        }
    }
}

#[test]
fn an_overlapped_switch_keeps_its_order_beyond_memory() {
    for residency in [Residency::None, Residency::Planned] {
        let expected = [
            "switch-0 to slot-0: out none, in job-0 (new)",
            "switch-1 to slot-1, overlapped: out job-0, in job-1 (new)",
            "switch-2 to slot-0, overlapped: out job-1, in job-0",
        ];
        assert_eq!(switches(SwitchOrder::Overlapped, residency, ShortOfMemory::Swap), expected);
    }
}

#[test]
fn a_prefetch_comes_beyond_memory_and_the_last_set_leaves_beside_the_next() {
    for residency in [Residency::None, Residency::Planned] {
        let expected = [
            "switch-0 to slot-0: out none, in job-0 (new)",
            "switch-1 to slot-1, prefetched: out job-0 (suspended), in job-1 (new)",
            "switch-2 beside slot-1: out job-0, in none",
            "switch-3 beside slot-1: out none, in job-0",
            "switch-4 to slot-0, prefetched: out job-1 (suspended), in job-0 (resumed)",
            "switch-5 beside slot-0: out job-1, in none",
        ];
        assert_eq!(switches(SwitchOrder::Prefetch, residency, ShortOfMemory::Swap), expected);
    }
}

#[test]
fn measured_needs_would_stop_what_swaps() {
    let config = SchedulerConfig {
        short_of_memory: ShortOfMemory::Swap,
        ..SchedulerConfig::new(Policy::Gang, Duration::from_secs(10))
    };
    let refused = Scheduler::new(Cluster::uniform(2, Bytes::mib(1000)), config);
    assert_eq!(refused.unwrap_err(), ConfigError::GuardedSwap);
}
