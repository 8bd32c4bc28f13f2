//! Requests that reach many nodes: how one message is divided on its way down the tree of daemons, and how a
//! daemon brings what reaches it by several ways into order. Pure.
//!
//! The master numbers its requests to each node, whichever way they go. A daemon carries them out in that
//! order, each once, and says with every heartbeat how far it has come; so the master may send again, by the
//! session with the node, whatever may have been lost on the way.

use std::collections::{BTreeMap, BTreeSet};

use coswitch_policies::{
    JobId, NodeId,
    control_tree::{ControlTree, Place},
    local::explicit::CommonSlices,
    primitives,
    strobe::Strobe,
};
use serde::{Deserialize, Serialize};

use crate::{
    protocol::AppRequest,
    tag::{Digest, Tag, TagKey, Word},
};

/// The most nodes of a tree with radix 1, which is a chain. Finding a node in a chain takes as many steps as
/// the chain has nodes, so a request that names a longer one is dropped. No master sends such a request.
const CHAIN_MAX: u32 = 1024;
/// Items with numbers this far above the next one are dropped. An honest sender repeats the missing item long
/// before it sends so many others.
const AHEAD_MAX: u64 = 1 << 16;

/// What a daemon is asked in the order of its master's numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Asked {
    /// Of the part of an application.
    App { job: JobId, request: AppRequest },
    /// Of the global memory.
    Primitive(primitives::Message),
    /// From its beginning on, by the master's clock, jobs have these slices. There is no answer.
    Strobe(Strobe),
    /// DTS in balanced mode: from their beginning on, by the master's clock, the nodes have these slices.
    /// There is no answer.
    Slices(CommonSlices),
}

/// What a request and its answer are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Job(JobId),
    GlobalMemory,
    Slices,
    /// The ends of all its ranks.
    End(JobId),
}

impl Asked {
    #[must_use]
    pub const fn subject(&self) -> Subject {
        match self {
            Self::App { job, .. } => Subject::Job(*job),
            Self::Primitive(_) => Subject::GlobalMemory,
            Self::Strobe(_) | Self::Slices(_) => Subject::Slices,
        }
    }

    /// All that is going to be said because of it.
    pub fn subjects(&self) -> impl Iterator<Item = Subject> {
        let end = match self {
            Self::App { job, request: AppRequest::Launch(_) } => Some(Subject::End(*job)),
            _ => None,
        };
        std::iter::once(self.subject()).chain(end)
    }
}

/// A request on its way to many nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Multicast {
    /// Of the master that asks. A daemon minds only what comes from the master that it follows.
    pub generation: u64,
    pub radix: u32,
    /// How many nodes the cluster has, and which of these pass nothing on.
    pub nodes: u32,
    pub failed: BTreeSet<NodeId>,
    /// Those at and below the receiver.
    pub to: BTreeMap<NodeId, Target>,
    pub asked: Asked,
}

/// A daemon that has to carry the request out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// A later daemon of the node drops the request.
    pub incarnation: u64,
    pub number: u64,
    tag: Tag,
}

/// A request that the master has not sent, or that goes through a tree which no master uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

impl Target {
    /// A daemon that has this key with its master.
    #[must_use]
    pub fn new(key: &TagKey, incarnation: u64, number: u64, asked: Digest) -> Self {
        let tag = key.tag(&Word::Down { incarnation, number, asked });
        Self { incarnation, number, tag }
    }
}

impl Multicast {
    /// To which children in the tree `place` passes the request on, and the receivers at and below each.
    #[must_use]
    pub fn shares_below(&self, place: Place) -> BTreeMap<NodeId, BTreeSet<NodeId>> {
        let tree = ControlTree::new(self.radix, self.nodes, self.failed.clone());
        tree.hand_on(place, &self.to.keys().copied().collect())
    }

    /// The request as one of the children gets it.
    #[must_use]
    pub fn part_for(&self, nodes: &BTreeSet<NodeId>) -> Self {
        let to = nodes.iter().filter_map(|node| Some((*node, *self.to.get(node)?))).collect();
        let Self { generation, radix, nodes, .. } = *self;
        Self { generation, radix, nodes, failed: self.failed.clone(), to, asked: self.asked.clone() }
    }

    /// The messages that `place` sends to its children in the tree, each with the number of the child's node.
    #[must_use]
    pub fn parts_below(&self, place: Place) -> Vec<(NodeId, Self)> {
        self.shares_below(place).into_iter().map(|(next, nodes)| (next, self.part_for(&nodes))).collect()
    }

    /// The number that the request has for this daemon, if it is for it. `key`: see [`TagKey`].
    ///
    /// # Errors
    /// Where the request is not the master's.
    pub fn number_for(&self, node: NodeId, incarnation: u64, key: &TagKey) -> Result<Option<u64>, Forged> {
        if self.radix < 2 && self.nodes > CHAIN_MAX {
            return Err(Forged);
        }
        let target = self.to.get(&node).filter(|target| target.incarnation == incarnation);
        let Some(Target { number, tag, .. }) = target else { return Ok(None) };
        let word = Word::Down { incarnation, number: *number, asked: Digest::of(&self.asked) };
        if key.confirms(&word, tag) { Ok(Some(*number)) } else { Err(Forged) }
    }
}

/// Brings the requests of one session into order.
#[derive(Clone, Debug)]
pub struct InOrder<T> {
    /// `None` until the master has said its first number.
    next: Option<u64>,
    waiting: BTreeMap<u64, T>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self { next: None, waiting: BTreeMap::new() }
    }
}

impl<T> InOrder<T> {
    /// See [`crate::protocol::Request::NumbersFrom`].
    pub fn begin(&mut self, number: u64) {
        let next = self.next.map_or(number, |next| next.max(number));
        self.next = Some(next);
        self.waiting = self.waiting.split_off(&next);
    }

    /// Takes an item, unless it has come before, or too early.
    pub fn push(&mut self, number: u64, item: T) {
        let is_near = match self.next {
            Some(next) => (next..next.saturating_add(AHEAD_MAX)).contains(&number),
            None => (self.waiting.len() as u64) < AHEAD_MAX,
        };
        if is_near {
            self.waiting.entry(number).or_insert(item);
        }
    }

    /// The next item, if it is there.
    pub fn pop(&mut self) -> Option<T> {
        let next = self.next.as_mut()?;
        let item = self.waiting.remove(next)?;
        *next += 1;
        Some(item)
    }

    /// The number of the last item that was taken out; 0 where nothing is known yet.
    #[must_use]
    pub fn heard(&self) -> u64 {
        self.next.map_or(0, |next| next.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_twice_early_or_late_is_taken_once_and_in_order() {
        let mut order = InOrder::default();
        let take = |order: &mut InOrder<char>| std::iter::from_fn(|| order.pop()).collect::<String>();
        order.push(6, 'b');
        order.push(3, 'x');
        assert_eq!((take(&mut order), order.heard()), (String::new(), 0), "nothing before the beginning");
        order.begin(5);
        assert_eq!(take(&mut order), "", "the first is missing, and an older one is void");
        order.push(5, 'a');
        order.push(6, 'c');
        assert_eq!((take(&mut order), order.heard()), ("ab".into(), 6));
        order.push(5, 'a');
        order.begin(7);
        assert_eq!(take(&mut order), "");
        order.push(7, 'd');
        assert_eq!((take(&mut order), order.heard()), ("d".into(), 7));
    }

    #[test]
    fn items_that_are_far_ahead_fill_no_memory() {
        let mut order = InOrder::default();
        (0..2 * AHEAD_MAX).for_each(|number| order.push(2 * number, 'x'));
        assert_eq!(order.waiting.len() as u64, AHEAD_MAX, "before the beginning");
        order.begin(1);
        (1..=2 * AHEAD_MAX).rev().for_each(|number| order.push(number, 'x'));
        let taken = std::iter::from_fn(|| order.pop()).count() as u64;
        assert_eq!(taken, AHEAD_MAX);
        assert_eq!(order.heard(), AHEAD_MAX, "the rest is said again");
    }

    #[test]
    fn a_part_names_its_own_subtree_alone() {
        let key = TagKey::from([1; 32]);
        let asked = Asked::App { job: JobId(0), request: AppRequest::Discard };
        let digest = Digest::of(&asked);
        let target = |node| (NodeId(node), Target::new(&key, 9, u64::from(node), digest));
        let whole = Multicast {
            generation: 1,
            radix: 2,
            nodes: 7,
            failed: BTreeSet::new(),
            to: [1, 2, 6].map(target).into(),
            asked,
        };
        let parts = whole.parts_below(Place::Master);
        let named = parts.iter().map(|(next, part)| (next.0, part.to.keys().map(|node| node.0).collect()));
        assert_eq!(named.collect::<Vec<(u32, Vec<u32>)>>(), [(0, vec![2, 6]), (1, vec![1])]);
        assert_eq!(parts[0].1.parts_below(Place::Node(NodeId(0)))[0].0, NodeId(2));
        let (_, part) = &parts[1];
        assert_eq!(part.number_for(NodeId(1), 9, &key), Ok(Some(1)));
        assert_eq!(part.number_for(NodeId(1), 8, &key), Ok(None), "another daemon");
        assert_eq!(part.number_for(NodeId(1), 9, &TagKey::from([2; 32])), Err(Forged), "another master");
        let asked = Asked::App { job: JobId(1), request: AppRequest::Discard };
        let changed = Multicast { asked, ..part.clone() };
        assert_eq!(changed.number_for(NodeId(1), 9, &key), Err(Forged), "a daemon on the way has changed it");
        let chain = Multicast { radix: 1, nodes: u32::MAX, ..part.clone() };
        assert_eq!(chain.number_for(NodeId(1), 9, &key), Err(Forged), "no master sends on such a way");
    }
}
