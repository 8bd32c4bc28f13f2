//! Tests of the cut: every interleaving of small clusters, and random walks of larger clusters with faults.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    num::NonZeroUsize,
};

use coswitch_policies::{Epoch, NodeId};
use proptest::prelude::*;

use super::{
    Arrival, Cut, CutError, CutReport, Input, Output,
    model::{Rules, Step, World},
};

const E1: Epoch = Epoch(1);
const E2: Epoch = Epoch(2);
const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

/// Visits every reachable state once and returns their number.
fn explore(rules: &Rules) -> usize {
    let mut seen = HashSet::new();
    let mut ends = 0;
    let mut open = vec![World::new(rules)];
    let mut steps = Vec::new();
    while let Some(world) = open.pop() {
        world.steps(rules, &mut steps);
        if steps.is_empty() {
            world.check_end(rules);
            ends += 1;
        }
        for &step in &steps {
            let mut next = world.clone();
            next.take(rules, step);
            let mut hasher = DefaultHasher::new();
            next.hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                open.push(next);
            }
        }
    }
    assert!(ends > 0, "at least one walk ends");
    seen.len()
}

/// Traffic on the given channels only, `(from, to, messages)`.
fn rules(nodes: usize, traffic: &[(usize, usize, u8)]) -> Rules {
    let mut messages = vec![0; nodes * nodes];
    traffic.iter().for_each(|&(from, to, count)| messages[from * nodes + to] = count);
    Rules { nodes, messages, epochs: 1, slow_freeze: true, full_rings: false, faults: 0 }
}

#[test]
fn every_interleaving_on_two_nodes_gives_a_consistent_cut() {
    assert!(explore(&rules(2, &[(0, 1, 3), (1, 0, 2)])) > 1000);
}

#[test]
fn every_interleaving_of_successive_epochs_gives_consistent_cuts() {
    assert!(explore(&Rules { epochs: 3, ..rules(2, &[(0, 1, 2), (1, 0, 1)]) }) > 1000);
}

#[test]
fn every_interleaving_with_full_rings_gives_a_consistent_cut() {
    let rules = Rules { epochs: 2, full_rings: true, ..rules(2, &[(0, 1, 2), (1, 0, 1)]) };
    assert!(explore(&rules) > 1000);
}

#[test]
fn no_message_is_lost_in_any_interleaving_with_aborts_and_failed_freezes() {
    let rules = Rules { epochs: 2, faults: 1, ..rules(2, &[(0, 1, 2), (1, 0, 1)]) };
    assert!(explore(&rules) > 1000);
}

#[test]
fn every_interleaving_on_three_nodes_gives_a_consistent_cut() {
    let ring = [(0, 1, 1), (1, 2, 1), (2, 0, 1)];
    assert!(explore(&rules(3, &ring)) > 10_000);
}

#[test]
fn every_order_of_markers_on_four_nodes_gives_a_consistent_cut() {
    let rules = Rules { slow_freeze: false, ..rules(4, &[]) };
    assert!(explore(&rules) > 10_000);
}

/// Knuth's linear congruential generator.
fn random(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_walks_of_larger_clusters_stay_consistent(
        nodes in 2..7_usize,
        epochs in 1..6_u64,
        faults in 0..4_u8,
        slow_freeze: bool,
        full_rings: bool,
        counts in prop::collection::vec(0..6_u8, 36),
        mut seed: u64,
    ) {
        let mut messages = counts[..nodes * nodes].to_vec();
        (0..nodes).for_each(|node| messages[node * nodes + node] = 0);
        let rules = Rules { nodes, messages, epochs, slow_freeze, full_rings, faults };
        let mut world = World::new(&rules);
        let mut steps: Vec<Step> = Vec::new();
        // The walk ends: each step uses up a message, a marker, an order, a fault or an epoch.
        loop {
            world.steps(&rules, &mut steps);
            let Some(choices) = NonZeroUsize::new(steps.len()) else { break };
            world.take(&rules, steps[random(&mut seed) % choices]);
        }
        world.check_end(&rules);
    }
}

/// A part with the peers A and B that has been frozen for epoch 1 and has one marker, from A.
fn draining() -> Cut {
    let mut cut = Cut::new([A, B]);
    assert_eq!(cut.on(Input::Marker { from: A, epoch: E1 }), [Output::FreezeRanks { epoch: E1 }]);
    let markers = [Output::SendMarker { to: A, epoch: E1 }, Output::SendMarker { to: B, epoch: E1 }];
    assert_eq!(cut.on(Input::Frozen { epoch: E1 }), markers);
    cut
}

fn flushed() -> Cut {
    let mut cut = draining();
    assert_eq!(cut.on(Input::Begin { epoch: E1 }), []);
    assert_eq!(
        cut.on(Input::Marker { from: B, epoch: E1 }),
        [Output::Report(CutReport::Flushed { epoch: E1 })]
    );
    cut
}

#[test]
fn an_application_on_one_node_flushes_as_soon_as_it_is_frozen() {
    let mut cut = Cut::new([]);
    assert_eq!(cut.on(Input::Begin { epoch: E1 }), [Output::FreezeRanks { epoch: E1 }]);
    assert_eq!(cut.on(Input::Frozen { epoch: E1 }), [Output::Report(CutReport::Flushed { epoch: E1 })]);
    assert!(cut.is_flushed(E1) && !cut.is_flushed(E2));
}

#[test]
fn a_message_before_its_channels_marker_is_channel_state_and_one_after_it_is_held() {
    let cut = draining();
    assert_eq!(cut.arrival(B), Some(Arrival::Record));
    assert_eq!(cut.arrival(A), Some(Arrival::Hold));
    assert_eq!(cut.arrival(NodeId(9)), None);
}

#[test]
fn repeated_and_late_markers_are_ignored() {
    let mut cut = flushed();
    assert_eq!(cut.on(Input::Marker { from: A, epoch: E1 }), []);
    assert_eq!(cut.on(Input::Begin { epoch: E1 }), []);
    assert_eq!(cut.on(Input::Resumed { epoch: E1 }), []);
    assert_eq!(cut.on(Input::Marker { from: B, epoch: E1 }), []);
    assert_eq!((cut.epoch(), cut.arrival(A)), (None, Some(Arrival::Deliver)));
}

#[test]
fn a_marker_of_the_next_epoch_waits_until_this_one_has_ended() {
    let mut cut = flushed();
    assert_eq!(cut.on(Input::Marker { from: A, epoch: E2 }), []);
    assert!(cut.is_flushed(E1), "a peer's marker does not end an epoch that may become a snapshot");
    assert_eq!(cut.on(Input::Resumed { epoch: E1 }), [Output::FreezeRanks { epoch: E2 }]);
}

#[test]
fn a_waiting_marker_begins_its_epoch_when_this_one_is_aborted() {
    let mut cut = flushed();
    assert_eq!(cut.on(Input::Marker { from: A, epoch: E2 }), []);
    let aborted = Output::Report(CutReport::Aborted { epoch: E1 });
    let expected = [Output::ThawRanks { epoch: E1 }, aborted, Output::FreezeRanks { epoch: E2 }];
    assert_eq!(cut.on(Input::Abort { epoch: E1 }), expected);
}

#[test]
fn a_marker_of_the_next_epoch_ends_one_that_cannot_have_been_completed() {
    let mut cut = draining();
    assert_eq!(cut.on(Input::Marker { from: B, epoch: E2 }), [Output::FreezeRanks { epoch: E2 }]);
    assert_eq!(cut.on(Input::Abort { epoch: E1 }), [Output::Report(CutReport::Aborted { epoch: E1 })]);
    assert_eq!(cut.epoch(), Some(E2));
}

#[test]
fn an_abort_thaws_once_and_is_answered_each_time() {
    let aborted = Output::Report(CutReport::Aborted { epoch: E1 });
    for mut cut in [draining(), flushed()] {
        assert_eq!(cut.on(Input::Abort { epoch: E1 }), [Output::ThawRanks { epoch: E1 }, aborted]);
        assert_eq!(cut.on(Input::Abort { epoch: E1 }), [aborted]);
        assert_eq!(cut.on(Input::Marker { from: B, epoch: E1 }), [], "late marker of an aborted epoch");
        assert_eq!(cut.on(Input::Begin { epoch: E2 }), [Output::FreezeRanks { epoch: E2 }]);
    }
}

#[test]
fn a_freeze_after_the_abort_is_ignored() {
    let mut cut = Cut::new([A]);
    assert_eq!(cut.on(Input::Begin { epoch: E1 }), [Output::FreezeRanks { epoch: E1 }]);
    assert_eq!(cut.on(Input::Abort { epoch: E1 }).first(), Some(&Output::ThawRanks { epoch: E1 }));
    assert_eq!(cut.on(Input::Frozen { epoch: E1 }), []);
    assert_eq!(cut.epoch(), None);
}

#[test]
fn a_failed_freeze_is_reported_and_the_ranks_run_on() {
    let mut cut = Cut::new([A]);
    assert_eq!(cut.on(Input::Begin { epoch: E1 }), [Output::FreezeRanks { epoch: E1 }]);
    let failed = Output::Report(CutReport::Failed { epoch: E1, reason: CutError::FreezeFailed });
    assert_eq!(cut.on(Input::FreezeFailed { epoch: E1 }), [Output::ThawRanks { epoch: E1 }, failed]);
}

#[test]
fn a_lost_peer_fails_this_epoch_and_every_later_one() {
    let mut cut = draining();
    let failed = |epoch| Output::Report(CutReport::Failed { epoch, reason: CutError::PeerLost(B) });
    assert_eq!(cut.on(Input::PeerLost { node: B }), [Output::ThawRanks { epoch: E1 }, failed(E1)]);
    assert_eq!(cut.on(Input::Begin { epoch: E2 }), [failed(E2)]);
}

#[test]
fn a_peer_lost_after_the_flush_does_not_spoil_the_snapshot() {
    let mut cut = flushed();
    assert_eq!(cut.on(Input::PeerLost { node: B }), []);
    assert!(cut.is_flushed(E1));
}

#[test]
fn a_resume_before_the_flush_is_complete_spoils_the_epoch() {
    let mut cut = draining();
    let failed = Output::Report(CutReport::Failed { epoch: E1, reason: CutError::ResumedEarly });
    assert_eq!(cut.on(Input::Resumed { epoch: E1 }), [Output::ThawRanks { epoch: E1 }, failed]);
}

#[test]
fn a_restored_part_holds_what_peers_send_that_were_resumed_earlier() {
    let mut cut = Cut::restored([A, B], Epoch(7));
    assert_eq!(cut.arrival(A), Some(Arrival::Hold));
    assert_eq!(cut.on(Input::Begin { epoch: Epoch(7) }), [], "no epoch is begun twice");
    assert_eq!(cut.on(Input::Resumed { epoch: Epoch(7) }), []);
    assert_eq!(cut.arrival(A), Some(Arrival::Deliver));
    assert_eq!(cut.on(Input::Begin { epoch: Epoch(8) }), [Output::FreezeRanks { epoch: Epoch(8) }]);
}
