//! The inbox: messages that have come in from peers and not yet gone to their rank.
//!
//! A message waits here because the ranks are frozen (channel state), because it lies after the cut, or only because
//! its rank has no room. Each is kept with the newest marker that came before it on its channel, so that one number
//! says of any cut, now or later, on which side of it the message lies.

use std::collections::{BTreeMap, VecDeque};

use coswitch_policies::Epoch;

use super::Cut;

/// Lanes of waiting messages; order is kept within a lane. A lane is one channel, or one channel and receiver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inbox<L: Ord, M> {
    lanes: BTreeMap<L, VecDeque<(Epoch, M)>>,
}

impl<L: Ord, M> Default for Inbox<L, M> {
    fn default() -> Self {
        Self { lanes: BTreeMap::new() }
    }
}

impl<L: Ord + Clone, M> Inbox<L, M> {
    /// Puts a message at the end of its lane; `sent_after` as [`Cut::sent_after`] says when it arrives.
    pub fn push(&mut self, lane: L, sent_after: Epoch, message: M) {
        let queue = self.lanes.entry(lane).or_default();
        debug_assert!(
            queue.back().is_none_or(|(last, _)| *last <= sent_after),
            "markers on a channel only rise"
        );
        queue.push_back((sent_after, message));
    }

    /// Whether a message that arrives now would be the first of its lane.
    pub fn is_clear(&self, lane: &L) -> bool {
        !self.lanes.contains_key(lane)
    }

    /// Whether nothing waits at all.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// The lanes in which something waits.
    pub fn lanes(&self) -> impl Iterator<Item = &L> {
        self.lanes.keys()
    }

    /// The first message of a lane, if the cut allows it to go to its rank now.
    pub fn front(&self, lane: &L, cut: &Cut) -> Option<&M> {
        let (sent_after, message) = self.lanes.get(lane)?.front()?;
        cut.may_deliver(*sent_after).then_some(message)
    }

    /// Takes the first message of a lane out, if the cut allows it to go to its rank now, with its place.
    pub fn take(&mut self, lane: &L, cut: &Cut) -> Option<(Epoch, M)> {
        let (sent_after, _) = self.lanes.get(lane)?.front()?;
        let sent_after = *sent_after;
        cut.may_deliver(sent_after).then(|| self.pop(lane)).flatten().map(|message| (sent_after, message))
    }

    /// Puts a message that its rank had no room for back to the front of its lane.
    pub fn put_back(&mut self, lane: L, sent_after: Epoch, message: M) {
        self.lanes.entry(lane).or_default().push_front((sent_after, message));
    }

    /// Takes the first message of a lane out, after it has gone to its rank.
    pub fn pop(&mut self, lane: &L) -> Option<M> {
        let queue = self.lanes.get_mut(lane)?;
        let (_, message) = queue.pop_front()?;
        if queue.is_empty() {
            self.lanes.remove(lane);
        }
        Some(message)
    }

    /// As [`Inbox::before`], to be changed in place.
    pub fn before_mut(&mut self, epoch: Epoch) -> impl Iterator<Item = (&L, &mut M)> {
        self.lanes.iter_mut().flat_map(move |(lane, queue)| {
            let older = queue.iter_mut().filter(move |(sent_after, _)| *sent_after < epoch);
            older.map(move |(_, message)| (lane, message))
        })
    }

    /// What belongs to the snapshot of `epoch`: sent before that cut and not in any ring. The rest lies after it.
    pub fn before(&self, epoch: Epoch) -> impl Iterator<Item = (&L, &M)> {
        self.lanes.iter().flat_map(move |(lane, queue)| {
            queue
                .iter()
                .filter(move |(sent_after, _)| *sent_after < epoch)
                .map(move |(_, message)| (lane, message))
        })
    }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::NodeId;

    use super::*;
    use crate::cut::Input;

    #[test]
    fn what_lies_after_the_cut_is_not_part_of_the_snapshot() {
        let mut inbox = Inbox::default();
        inbox.push(1, Epoch(0), "before");
        inbox.push(1, Epoch(1), "after");
        inbox.push(2, Epoch(0), "other lane");
        assert_eq!(inbox.before(Epoch(1)).collect::<Vec<_>>(), [(&1, &"before"), (&2, &"other lane")]);
        assert_eq!(inbox.before(Epoch(2)).count(), 3);
    }

    #[test]
    fn nothing_goes_to_frozen_ranks_and_all_of_it_afterwards_in_order() {
        let mut cut = Cut::restored([NodeId(1)], Epoch(3));
        let mut inbox = Inbox::default();
        inbox.push((), Epoch(2), 'a');
        inbox.push((), Epoch(3), 'b');
        assert_eq!(inbox.front(&(), &cut), None);
        assert_eq!(cut.on(Input::Resumed { epoch: Epoch(3) }), []);
        assert_eq!(inbox.front(&(), &cut), Some(&'a'));
        assert_eq!((inbox.pop(&()), inbox.pop(&()), inbox.pop(&())), (Some('a'), Some('b'), None));
        assert!(inbox.is_clear(&()) && inbox.is_empty());
    }
}
