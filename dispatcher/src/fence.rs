//! Fences of the PMI exchange: gathers the puts of all nodes and answers all of them.
//!
//! Ranks restored from an older snapshot may reach a fence a second time: they get the answer of the first
//! time.

use std::collections::{BTreeMap, BTreeSet};

use coswitch_daemon::protocol::{AppRequest, Puts};
use coswitch_policies::NodeId;

#[derive(Clone, Debug)]
pub(crate) struct Fences {
    nodes: BTreeSet<NodeId>,
    gathering: BTreeMap<u64, BTreeMap<NodeId, Puts>>,
    done: BTreeMap<u64, Puts>,
}

impl Fences {
    #[must_use]
    pub(crate) fn new(nodes: BTreeSet<NodeId>) -> Self {
        Self { nodes, gathering: BTreeMap::new(), done: BTreeMap::new() }
    }

    /// A node takes the place of another one.
    pub(crate) fn rename(&mut self, from: NodeId, to: NodeId) {
        let renamed = |puts: &mut BTreeMap<NodeId, Puts>| {
            if let Some(own) = puts.remove(&from) {
                puts.insert(to, own);
            }
        };
        self.gathering.values_mut().for_each(renamed);
        if self.nodes.remove(&from) {
            self.nodes.insert(to);
        }
    }

    /// Takes over what an earlier master has answered.
    pub(crate) fn learn(&mut self, done: &[(u64, Puts)]) {
        self.done.extend(done.iter().cloned());
    }

    /// A node has reached a fence; returns the answers that this makes possible.
    pub(crate) fn on_fence(&mut self, node: NodeId, sequence: u64, puts: Puts) -> Vec<(NodeId, AppRequest)> {
        if let Some(puts) = self.done.get(&sequence) {
            return vec![(node, AppRequest::FenceDone { sequence, puts: puts.clone() })];
        }
        let reached = self.gathering.entry(sequence).or_default();
        reached.insert(node, puts);
        if reached.len() < self.nodes.len() {
            return Vec::new();
        }
        let all: Puts =
            self.gathering.remove(&sequence).into_iter().flatten().flat_map(|(_, puts)| puts).collect();
        self.done.insert(sequence, all.clone());
        let answer = |node: &NodeId| (*node, AppRequest::FenceDone { sequence, puts: all.clone() });
        self.nodes.iter().map(answer).collect()
    }

    /// Repeats the last answer, for launchers that wait for it in an older snapshot. Others ignore it.
    pub(crate) fn repeat(&self) -> impl Iterator<Item = (NodeId, AppRequest)> {
        let last = self.done.last_key_value();
        last.into_iter().flat_map(|(sequence, puts)| {
            let answer = AppRequest::FenceDone { sequence: *sequence, puts: puts.clone() };
            self.nodes.iter().map(move |node| (*node, answer.clone()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_answered_when_all_nodes_have_reached_it_and_again_when_asked_again() {
        let mut fences = Fences::new([NodeId(0), NodeId(1)].into());
        assert!(fences.on_fence(NodeId(0), 0, vec![("a".into(), "1".into())]).is_empty());
        let answers = fences.on_fence(NodeId(1), 0, vec![("b".into(), "2".into())]);
        assert_eq!(answers.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [NodeId(0), NodeId(1)]);
        let AppRequest::FenceDone { puts, .. } = &answers[0].1 else {
            panic!("a fence is answered by FenceDone")
        };
        assert_eq!(puts.len(), 2);
        assert_eq!(fences.on_fence(NodeId(1), 0, Vec::new()).len(), 1);
        assert_eq!(fences.repeat().count(), 2);
    }
}
