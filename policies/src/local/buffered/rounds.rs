//! Odd-even schedule: which node sends to which in each round, so that no receiver has two senders.
//!
//! The testbed's first algorithm (§4.5.2.2) has two parts: all odd-numbered NICs send to even-numbered ones,
//! then the reverse. Alone it never connects two odd or two even nodes. Here the two parts repeat for each
//! further bit of the node number, among nodes that agree in all lower bits. Two nodes differ in exactly one
//! lowest bit, so each ordered pair is served in exactly one part.
//!
//! Inside a part the senders rotate over their receivers, one step a round, so in a round each node sends to
//! at most one node and receives from at most one. The whole takes fewer than `2·n + 2·log2 n` rounds.

use crate::NodeId;

/// The rounds for `nodes` nodes, in order; each is a list of (sender, receiver).
#[must_use]
pub fn odd_even_rounds(nodes: u32) -> Vec<Vec<(NodeId, NodeId)>> {
    let levels = u32::BITS - nodes.saturating_sub(1).leading_zeros();
    (0..levels).flat_map(|level| level_rounds(nodes, level)).collect()
}

/// Both parts of one level, all groups of nodes with the same lower bits at once.
fn level_rounds(nodes: u32, level: u32) -> Vec<Vec<(NodeId, NodeId)>> {
    let groups: Vec<_> = (0..1 << level).map(|low| split(nodes, level, low)).collect();
    let steps = groups.iter().map(|(even, odd)| even.len().max(odd.len())).max().unwrap_or(0);
    let part = |from_odd: bool, step: usize| {
        groups.iter().flat_map(move |(even, odd)| {
            let (senders, receivers) = if from_odd { (odd, even) } else { (even, odd) };
            one_step(senders, receivers, step)
        })
    };
    let rounds = [true, false].map(|from_odd| (0..steps).map(move |step| part(from_odd, step).collect()));
    rounds.into_iter().flatten().filter(|round: &Vec<_>| !round.is_empty()).collect()
}

/// The nodes whose lower `level` bits are `low`, by the next bit.
fn split(nodes: u32, level: u32, low: u32) -> (Vec<u32>, Vec<u32>) {
    (low..nodes).step_by(1 << level).partition(|node| (node >> level) & 1 == 0)
}

/// Sender `i` serves receiver `i + step`, modulo the length of the longer side; empty after one full turn.
fn one_step(senders: &[u32], receivers: &[u32], step: usize) -> Vec<(NodeId, NodeId)> {
    let circle = senders.len().max(receivers.len());
    let pair = |(i, sender): (usize, &u32)| {
        receivers.get((i + step) % circle).map(|receiver| (NodeId(*sender), NodeId(*receiver)))
    };
    if step < circle { senders.iter().enumerate().filter_map(pair).collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_pair_is_served_exactly_once_each_way() {
        for nodes in 0..40 {
            let served: Vec<_> = odd_even_rounds(nodes).into_iter().flatten().collect();
            let distinct: BTreeSet<_> = served.iter().copied().collect();
            assert_eq!(served.len(), distinct.len(), "{nodes} nodes: no pair twice");
            assert_eq!(served.len() as u32, nodes * nodes.saturating_sub(1), "{nodes} nodes: every pair");
            assert!(served.iter().all(|(from, to)| from != to));
        }
    }

    #[test]
    fn in_a_round_no_node_sends_twice_or_receives_twice() {
        for nodes in 2..40 {
            let rounds = odd_even_rounds(nodes);
            for round in &rounds {
                let senders: BTreeSet<_> = round.iter().map(|(from, _)| from).collect();
                let receivers: BTreeSet<_> = round.iter().map(|(_, to)| to).collect();
                assert_eq!((senders.len(), receivers.len()), (round.len(), round.len()));
            }
            let most = 2 * nodes + 2 * nodes.ilog2() + 2;
            assert!(rounds.len() as u32 <= most, "{} rounds for {nodes} nodes", rounds.len());
        }
    }

    #[test]
    fn the_first_part_is_odd_to_even_and_the_second_the_reverse() {
        let rounds = odd_even_rounds(4);
        let is_odd = |node: NodeId| node.0 % 2 == 1;
        assert!(rounds[..2].iter().flatten().all(|(from, to)| is_odd(*from) && !is_odd(*to)));
        assert!(rounds[2..4].iter().flatten().all(|(from, to)| !is_odd(*from) && is_odd(*to)));
    }
}
