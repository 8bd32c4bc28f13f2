//! How the master finds nodes that do not answer. Pure; `sessions` and the simulation of the control plane
//! carry it out.
//!
//! Each session with a node has heartbeats, and what a session has not heard for five of them is silent
//! (`coswitch_daemon::session::rules`). Where a run asks for [`Heartbeats::Tree`] and the nodes are many, the
//! master asks all of them one question in each period, by COMPARE-AND-WRITE (paper 004, Table 2: fault
//! detection): whether all nodes follow it. The question goes down the tree of daemons, and the answers are
//! combined on their way up. While a node answers, both ends of its session send one in [`REST`] heartbeats.
//!
//! ```text
//!   period ─▶ all are asked ─all follow───────────────────────▶ their sessions rest
//!               └─some refuse, or do not answer in ANSWER_LIMIT─▶ these are asked singly, by their
//!                                                                 sessions, which rest no longer
//! ```
//! The question writes nothing, so it costs one round. An operation waits for a node until that is lost, so
//! none can be what finds the loss: the question is given up after [`ANSWER_LIMIT`]. While another operation
//! waits for a node, the question behind it is not asked, and no session rests.
//!
//! **A session is judged by its own messages alone.** Requests and events need it, whatever the tree says: a
//! node whose session is cut off may still answer by its neighbours. So a loss is found as soon as without
//! the question, and an answer proves no more than that the daemon's control loop and its way in the tree
//! work. What a rest costs is patience: a session that rests counts as silent after a pause of two seconds
//! at least, and of four otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use coswitch_policies::{
    NodeId,
    primitives::{Number, Outcome},
};
use serde::{Deserialize, Serialize};

/// One in so many heartbeats is sent by a session that rests. A peer counts as silent after five.
pub const REST: u32 = 3;
/// The time that all nodes have for their answers.
pub const ANSWER_LIMIT: Duration = Duration::from_millis(500);

/// By which way the master hears that its nodes live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Heartbeats {
    /// Each session has all of its heartbeats.
    #[default]
    Sessions,
    /// Where the nodes are many, one question to all of them by the tree, in each period; the heartbeats of
    /// the sessions are few.
    Tree,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Watch {
    question: Option<Question>,
    /// Nodes that have answered the last question, each with the heartbeats that its session has left out
    /// since its last one.
    resting: BTreeMap<NodeId, u32>,
}

#[derive(Debug)]
struct Question {
    number: Number,
    asked: Instant,
    nodes: BTreeSet<NodeId>,
}

/// What the answers to a question have shown.
#[derive(Debug, PartialEq, Eq)]
pub struct Answered {
    /// These nodes lived when they were asked, or later.
    pub by: BTreeSet<NodeId>,
    pub asked: Instant,
    /// These are to be asked singly.
    pub singly: BTreeSet<NodeId>,
}

impl Watch {
    /// A period begins, in which these nodes are going to be asked. Returns others whose sessions rest no
    /// longer: they are to be asked singly.
    #[must_use]
    pub fn on_period(&mut self, nodes: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let is_over = |node: &NodeId| !nodes.contains(node);
        let singly: BTreeSet<NodeId> = self.resting.keys().copied().filter(is_over).collect();
        self.resting.retain(|node, _| nodes.contains(node));
        singly
    }

    /// The nodes are asked.
    pub fn on_asked(&mut self, now: Instant, number: Number, nodes: BTreeSet<NodeId>) {
        self.question = Some(Question { number, asked: now, nodes });
    }

    /// The question that is not answered yet.
    #[must_use]
    pub fn question(&self) -> Option<Number> {
        self.question.as_ref().map(|question| question.number)
    }

    /// The question is over, or was given up.
    #[must_use]
    pub fn on_outcome(&mut self, outcome: &Outcome) -> Option<Answered> {
        let Question { asked, nodes, .. } = self.question.take()?;
        let none = BTreeSet::new();
        let others: BTreeSet<NodeId> = match outcome {
            Outcome::CarriedOut { .. } => none,
            Outcome::Dropped { refused, lost, late } => {
                refused.iter().chain(lost).chain(late).copied().collect()
            }
        };
        let by: BTreeSet<NodeId> = nodes.difference(&others).copied().collect();
        let singly = others.into_iter().filter(|node| self.resting.remove(node).is_some()).collect();
        for node in &by {
            // Not all sessions have their heartbeats in the same period.
            self.resting.entry(*node).or_insert(node.0 % REST);
        }
        Some(Answered { by, asked, singly })
    }

    /// The nodes whose sessions rest.
    #[must_use]
    pub fn resting(&self) -> BTreeSet<NodeId> {
        self.resting.keys().copied().collect()
    }

    /// The session with a node begins, or the node is lost.
    pub fn forget(&mut self, node: NodeId) {
        self.resting.remove(&node);
    }

    /// The time for a heartbeat of the session with a node has come. `None`: it is left out; otherwise one in
    /// so many is going to be sent.
    #[must_use]
    pub fn on_beat(&mut self, node: NodeId) -> Option<u32> {
        let Some(left_out) = self.resting.get_mut(&node) else { return Some(1) };
        *left_out = (*left_out + 1) % REST;
        (*left_out == 0).then_some(REST)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nodes(numbers: impl IntoIterator<Item = u32>) -> BTreeSet<NodeId> {
        numbers.into_iter().map(NodeId).collect()
    }

    fn late(numbers: impl IntoIterator<Item = u32>) -> Outcome {
        Outcome::Dropped { refused: BTreeSet::new(), lost: BTreeSet::new(), late: nodes(numbers) }
    }

    fn all() -> Outcome {
        Outcome::CarriedOut { lost: BTreeSet::new() }
    }

    fn ask(watch: &mut Watch, numbers: impl IntoIterator<Item = u32>) -> Instant {
        let (asked, nodes) = (Instant::now(), nodes(numbers));
        let _ = watch.on_period(&nodes);
        watch.on_asked(asked, Number { generation: 1, sequence: 1 }, nodes);
        asked
    }

    #[test]
    fn sessions_of_nodes_that_answer_rest_and_the_others_do_not() {
        let mut watch = Watch::default();
        assert_eq!(watch.on_beat(NodeId(0)), Some(1), "nothing was asked yet");
        let asked = ask(&mut watch, 0..4);
        let answered = watch.on_outcome(&late([3])).unwrap();
        assert_eq!(answered, Answered { by: nodes(0..3), asked, singly: nodes([]) }, "3 has never rested");
        assert_eq!((watch.question(), watch.on_outcome(&all())), (None, None));
        let beats = |watch: &mut Watch, node| [(); 6].map(|()| watch.on_beat(NodeId(node)));
        assert_eq!(beats(&mut watch, 0), [None, None, Some(3), None, None, Some(3)]);
        assert_eq!(beats(&mut watch, 1), [None, Some(3), None, None, Some(3), None]);
        assert_eq!(beats(&mut watch, 3), [Some(1); 6]);
    }

    #[test]
    fn a_node_that_stops_to_answer_or_is_not_asked_any_more_is_asked_singly_once() {
        let mut watch = Watch::default();
        ask(&mut watch, 0..4);
        let _ = watch.on_outcome(&all());
        ask(&mut watch, 0..4);
        assert_eq!(watch.on_outcome(&late([1, 2])).unwrap().singly, nodes([1, 2]));
        assert_eq!(watch.on_beat(NodeId(1)), Some(1));
        ask(&mut watch, 0..4);
        assert_eq!(watch.on_outcome(&late([1])).unwrap().singly, nodes([]));
        watch.forget(NodeId(0));
        assert_eq!(watch.on_period(&nodes([1, 2])), nodes([3]), "0 is lost, or has another session");
        assert_eq!(watch.on_period(&nodes([])), nodes([2]), "too few are left for the tree");
    }

    proptest! {
        /// Whatever is answered: a session leaves out at most two heartbeats in a row, and none while its
        /// node has not answered the last question.
        #[test]
        fn no_session_is_quiet_for_long(periods in prop::collection::vec(any::<[bool; 5]>(), 1..60)) {
            let mut watch = Watch::default();
            let mut left_out = [0; 5];
            for answers in periods {
                ask(&mut watch, 0..5);
                let outcome = late((0..5).filter(|node| !answers[*node as usize]));
                let singly = watch.on_outcome(&outcome).unwrap().singly;
                for (node, has_answered) in (0..).zip(answers) {
                    let since = &mut left_out[node as usize];
                    *since = if singly.contains(&NodeId(node)) { 0 } else { *since };
                    let beat = watch.on_beat(NodeId(node));
                    prop_assert!(has_answered || beat == Some(1));
                    *since = if beat.is_some() { 0 } else { *since + 1 };
                    prop_assert!(*since < REST);
                }
            }
        }
    }
}
