//! The inbox: messages that have arrived from peers and have not yet gone to their rank.
//!
//! A message waits here because the ranks are frozen (channel state), because it lies after the cut, or
//! because its rank's ring is full. The inbox keeps it with the newest marker that came before it on its
//! channel: this one number tells, for any cut now or later, on which side of the cut the message lies.

use std::collections::{BTreeMap, VecDeque};

use coswitch_policies::Epoch;

use super::machine::Cut;

/// Queues of waiting messages, one per lane. A lane is one channel, or one channel and receiver.
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
    /// Appends a message to its lane; `sent_after` is [`Cut::sent_after`] at its arrival.
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

    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// The lanes with waiting messages.
    pub fn lanes(&self) -> impl Iterator<Item = &L> {
        self.lanes.keys()
    }

    /// How many messages at the front of a lane are of this kind.
    pub fn leading(&self, lane: &L, is_of_kind: impl Fn(&M) -> bool) -> usize {
        let queue = self.lanes.get(lane).into_iter().flatten();
        queue.take_while(|(_, message)| is_of_kind(message)).count()
    }

    /// The first message of a lane, if the cut allows its delivery now.
    pub fn front(&self, lane: &L, cut: &Cut) -> Option<&M> {
        let (sent_after, message) = self.lanes.get(lane)?.front()?;
        cut.may_deliver(*sent_after).then_some(message)
    }

    /// Removes the first message of a lane, if the cut allows its delivery now.
    pub fn take(&mut self, lane: &L, cut: &Cut) -> Option<(Epoch, M)> {
        let (sent_after, _) = self.lanes.get(lane)?.front()?;
        let sent_after = *sent_after;
        cut.may_deliver(sent_after).then(|| self.pop(lane)).flatten().map(|message| (sent_after, message))
    }

    /// Returns a message to the front of its lane, because its rank's ring is full.
    pub fn put_back(&mut self, lane: L, sent_after: Epoch, message: M) {
        self.lanes.entry(lane).or_default().push_front((sent_after, message));
    }

    /// Removes the first message of a lane, which has gone to its rank.
    pub fn pop(&mut self, lane: &L) -> Option<M> {
        let queue = self.lanes.get_mut(lane)?;
        let (_, message) = queue.pop_front()?;
        if queue.is_empty() {
            self.lanes.remove(lane);
        }
        Some(message)
    }

    /// The messages that belong to the snapshot of `epoch`: sent before that cut and not in any ring.
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
    use crate::cut::events::Input;

    #[test]
    fn messages_after_the_cut_are_not_part_of_the_snapshot() {
        let mut inbox = Inbox::default();
        inbox.push(1, Epoch(0), "before");
        inbox.push(1, Epoch(1), "after");
        inbox.push(2, Epoch(0), "other lane");
        assert_eq!(inbox.before(Epoch(1)).collect::<Vec<_>>(), [(&1, &"before"), (&2, &"other lane")]);
        assert_eq!(inbox.before(Epoch(2)).count(), 3);
    }

    #[test]
    fn messages_go_to_their_ranks_in_order_after_the_freeze() {
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
