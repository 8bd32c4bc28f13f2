//! Fences of the PMI exchange: gathers the puts of all nodes and answers all of them.
//!
//! Ranks restored from an older snapshot may reach a fence a second time: they get the answer of the first
//! time. All answers are kept, and a new master gets them in one frame of each daemon: so their number and
//! their size are bounded.

use std::collections::{BTreeMap, BTreeSet};

use coswitch_daemon::protocol::{AppRequest, FENCES_MAX, PUTS_BYTES_MAX, Puts, put_bytes};
use coswitch_policies::NodeId;
use thiserror::Error;

/// Why an application cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum FenceError {
    #[error("its ranks have put more than {PUTS_BYTES_MAX} bytes of keys and values")]
    Bytes,
    #[error("its ranks are at fence {0}, and a run has {FENCES_MAX} at most")]
    Number(u64),
}

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
    ///
    /// # Errors
    /// Where it is too much for an application.
    pub(crate) fn on_fence(
        &mut self,
        node: NodeId,
        sequence: u64,
        puts: Puts,
    ) -> Result<Vec<(NodeId, AppRequest)>, FenceError> {
        if let Some(puts) = self.done.get(&sequence) {
            return Ok(vec![(node, answer(sequence, puts))]);
        }
        if sequence > FENCES_MAX {
            return Err(FenceError::Number(sequence));
        }
        if self.bytes() + bytes(&puts) > PUTS_BYTES_MAX {
            return Err(FenceError::Bytes);
        }
        let reached = self.gathering.entry(sequence).or_default();
        reached.insert(node, puts);
        if reached.len() < self.nodes.len() {
            return Ok(Vec::new());
        }
        let all: Puts =
            self.gathering.remove(&sequence).into_iter().flatten().flat_map(|(_, puts)| puts).collect();
        self.done.insert(sequence, all.clone());
        Ok(self.nodes.iter().map(|node| (*node, answer(sequence, &all))).collect())
    }

    fn bytes(&self) -> usize {
        let gathering = self.gathering.values().flat_map(BTreeMap::values);
        self.done.values().chain(gathering).map(bytes).sum()
    }

    /// Repeats the last answer, for launchers that wait for it in an older snapshot. Others ignore it.
    pub(crate) fn repeat(&self) -> impl Iterator<Item = (NodeId, AppRequest)> {
        let last = self.done.last_key_value();
        last.into_iter()
            .flat_map(|(sequence, puts)| self.nodes.iter().map(|node| (*node, answer(*sequence, puts))))
    }
}

/// Its time is set when it is sent.
fn answer(sequence: u64, puts: &Puts) -> AppRequest {
    AppRequest::FenceDone { sequence, puts: puts.clone(), begin: 0 }
}

fn bytes(puts: &Puts) -> usize {
    puts.iter().map(|(key, value)| put_bytes(key, value)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_answered_when_all_nodes_have_reached_it_and_again_when_asked_again() {
        let mut fences = Fences::new([NodeId(0), NodeId(1)].into());
        assert_eq!(fences.on_fence(NodeId(0), 0, vec![("a".into(), "1".into())]), Ok(Vec::new()));
        let answers = fences.on_fence(NodeId(1), 0, vec![("b".into(), "2".into())]).unwrap();
        assert_eq!(answers.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [NodeId(0), NodeId(1)]);
        let AppRequest::FenceDone { puts, .. } = &answers[0].1 else {
            panic!("a fence is answered by FenceDone")
        };
        assert_eq!(puts.len(), 2);
        assert_eq!(fences.on_fence(NodeId(1), 0, Vec::new()).unwrap().len(), 1);
        assert_eq!(fences.repeat().count(), 2);
    }

    #[test]
    fn more_than_a_frame_holds_is_refused_whatever_way_it_is_spread() {
        let put = |bytes: usize| vec![(String::new(), "v".repeat(bytes - 8))];
        let half = PUTS_BYTES_MAX / 2;
        let mut fences = Fences::new([NodeId(0), NodeId(1)].into());
        assert_eq!(fences.on_fence(NodeId(0), 1, put(half)), Ok(Vec::new()));
        assert_eq!(fences.on_fence(NodeId(1), 1, put(half + 1)), Err(FenceError::Bytes));
        assert_eq!(fences.on_fence(NodeId(1), 1, put(half)).unwrap().len(), 2);
        assert_eq!(fences.on_fence(NodeId(0), 2, put(8)), Err(FenceError::Bytes));
        assert_eq!(fences.on_fence(NodeId(0), 2, Vec::new()), Ok(Vec::new()));
        assert_eq!(
            fences.on_fence(NodeId(0), FENCES_MAX + 1, Vec::new()),
            Err(FenceError::Number(FENCES_MAX + 1))
        );
        assert_eq!(fences.on_fence(NodeId(1), 1, put(half)).unwrap().len(), 1, "once more, after a restore");
    }
}
