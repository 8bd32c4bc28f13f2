//! Tag matching: pairs messages with receives by MPI's rules. Pure code.
//!
//! A receive matches a message if the source agrees (or is any) and the tags agree in all bits that are not
//! ignored. A message goes to the *oldest posted* receive that matches; a receive takes the *oldest
//! unexpected* message that matches. The two queues never hold a matching pair.

use super::address::Address;
use std::collections::VecDeque;

/// Messages that a receive accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// `None`: any source.
    pub(crate) source: Option<Address>,
    pub(crate) tag: u64,
    /// Bits of the tag that are not compared.
    pub(crate) ignore: u64,
}

/// The attributes of a message that matching compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) source: Address,
    pub(crate) tag: u64,
}

impl Pattern {
    pub(crate) fn matches(&self, envelope: &Envelope) -> bool {
        (self.tag ^ envelope.tag) & !self.ignore == 0
            && self.source.is_none_or(|source| source == envelope.source)
    }
}

/// Posted receives `R` and unexpected messages `M` of one endpoint and kind.
#[derive(Debug)]
pub(crate) struct MatchQueue<R, M> {
    posted: VecDeque<(Pattern, R)>,
    unexpected: VecDeque<(Envelope, M)>,
}

impl<R, M> Default for MatchQueue<R, M> {
    fn default() -> Self {
        MatchQueue { posted: VecDeque::new(), unexpected: VecDeque::new() }
    }
}

impl<R, M> MatchQueue<R, M> {
    /// Queues a receive for which `take_unexpected` found nothing.
    pub(crate) fn post(&mut self, pattern: Pattern, receive: R) {
        self.posted.push_back((pattern, receive));
    }

    /// Queues a message for which `find_posted` found nothing.
    pub(crate) fn store(&mut self, envelope: Envelope, message: M) {
        self.unexpected.push_back((envelope, message));
    }

    /// Place of the receive that an arriving message goes to, valid until the queue changes.
    pub(crate) fn find_posted(&self, envelope: &Envelope) -> Option<usize> {
        self.posted.iter().position(|(pattern, _)| pattern.matches(envelope))
    }

    /// A receive found by `find_posted`, which stays posted (multi-receive buffers take several messages).
    pub(crate) fn posted(&self, place: usize) -> &R {
        &self.posted[place].1
    }

    /// Takes a receive found by `find_posted`.
    pub(crate) fn take_posted(&mut self, place: usize) -> R {
        self.posted.remove(place).expect("the place was found in this queue").1
    }

    /// Takes the message that a new receive gets.
    pub(crate) fn take_unexpected(&mut self, pattern: &Pattern) -> Option<(Envelope, M)> {
        let place = self.unexpected.iter().position(|(envelope, _)| pattern.matches(envelope))?;
        self.unexpected.remove(place)
    }

    /// The message that a new receive would get.
    pub(crate) fn peek_unexpected(&self, pattern: &Pattern) -> Option<(&Envelope, &M)> {
        self.unexpected.iter().find(|(envelope, _)| pattern.matches(envelope)).map(|(e, m)| (e, m))
    }

    /// Removes the oldest posted receive for which `is_it` holds.
    pub(crate) fn cancel(&mut self, is_it: impl Fn(&R) -> bool) -> Option<R> {
        let place = self.posted.iter().position(|(_, receive)| is_it(receive))?;
        self.posted.remove(place).map(|(_, receive)| receive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANY: u64 = u64::MAX;

    fn take<M>(queue: &mut MatchQueue<u32, M>, envelope: Envelope) -> Option<u32> {
        queue.find_posted(&envelope).map(|place| queue.take_posted(place))
    }

    fn from(rank: u32) -> Address {
        Address { rank, endpoint: 0 }
    }

    fn pattern(source: Option<u32>, tag: u64, ignore: u64) -> Pattern {
        Pattern { source: source.map(from), tag, ignore }
    }

    fn envelope(rank: u32, tag: u64) -> Envelope {
        Envelope { source: from(rank), tag }
    }

    #[test]
    fn message_goes_to_the_oldest_matching_receive() {
        let mut queue = MatchQueue::<u32, ()>::default();
        queue.post(pattern(Some(1), 5, 0), 10);
        queue.post(pattern(None, 0, ANY), 11);
        queue.post(pattern(Some(1), 5, 0), 12);
        assert_eq!(take(&mut queue, envelope(1, 5)), Some(10));
        assert_eq!(take(&mut queue, envelope(1, 5)), Some(11));
        assert_eq!(take(&mut queue, envelope(2, 5)), None);
        assert_eq!(take(&mut queue, envelope(1, 5)), Some(12));
    }

    #[test]
    fn receive_takes_the_oldest_matching_message() {
        let mut queue = MatchQueue::<(), u32>::default();
        queue.store(envelope(1, 5), 20);
        queue.store(envelope(2, 5), 21);
        queue.store(envelope(1, 5), 22);
        assert_eq!(queue.peek_unexpected(&pattern(Some(2), 5, 0)).map(|(_, m)| *m), Some(21));
        assert_eq!(queue.take_unexpected(&pattern(None, 5, 0)).map(|(_, m)| m), Some(20));
        assert_eq!(queue.take_unexpected(&pattern(Some(1), 0, ANY)).map(|(_, m)| m), Some(22));
        assert_eq!(queue.take_unexpected(&pattern(Some(1), 0, ANY)).map(|(_, m)| m), None);
    }

    #[test]
    fn multi_receive_stays_posted_until_it_is_cancelled() {
        let mut queue = MatchQueue::<u32, ()>::default();
        queue.post(pattern(None, 0, ANY), 7);
        for message in [envelope(1, 1), envelope(2, 2)] {
            let place = queue.find_posted(&message).unwrap();
            assert_eq!(*queue.posted(place), 7);
        }
        assert_eq!(queue.cancel(|&receive| receive == 7), Some(7));
        assert_eq!(queue.find_posted(&envelope(1, 1)), None);
    }

    #[test]
    fn only_bits_that_are_not_ignored_are_compared() {
        assert!(pattern(None, 0x10, 0x0f).matches(&envelope(0, 0x1a)));
        assert!(!pattern(None, 0x10, 0x0f).matches(&envelope(0, 0x2a)));
        assert!(!pattern(Some(3), 0, ANY).matches(&envelope(4, 0)));
        let other_endpoint = Envelope { source: Address { rank: 3, endpoint: 1 }, tag: 0 };
        assert!(!pattern(Some(3), 0, ANY).matches(&other_endpoint));
    }

    #[derive(Debug, Clone)]
    enum Op {
        Receive(Pattern),
        Message(Envelope),
    }

    fn op() -> impl Strategy<Value = Op> {
        let source = prop_oneof![Just(None), (0..3u32).prop_map(Some)];
        let receive = (source, 0..4u64, prop_oneof![Just(0), Just(1), Just(ANY)])
            .prop_map(|(source, tag, ignore)| Op::Receive(pattern(source, tag, ignore)));
        let message = (0..3u32, 0..4u64).prop_map(|(rank, tag)| Op::Message(envelope(rank, tag)));
        prop_oneof![receive, message]
    }

    proptest! {
        /// Compares with the definition: each message and each receive is paired with its oldest unpaired
        /// match.
        #[test]
        fn pairs_agree_with_the_definition(ops in prop::collection::vec(op(), 1..200)) {
            let mut queue = MatchQueue::<usize, usize>::default();
            let mut waiting: Vec<(usize, Op)> = Vec::new();
            for (number, op) in ops.into_iter().enumerate() {
                let partner = waiting.iter().position(|(_, other)| match (&op, other) {
                    (Op::Receive(p), Op::Message(e)) | (Op::Message(e), Op::Receive(p)) => p.matches(e),
                    _ => false,
                });
                let expected = partner.map(|place| waiting.remove(place).0);
                let found = match &op {
                    Op::Receive(p) => queue.take_unexpected(p).map(|(_, message)| message),
                    Op::Message(e) => queue.find_posted(e).map(|place| queue.take_posted(place)),
                };
                prop_assert_eq!(found, expected);
                if found.is_none() {
                    match &op {
                        Op::Receive(p) => queue.post(*p, number),
                        Op::Message(e) => queue.store(*e, number),
                    }
                    waiting.push((number, op));
                }
            }
        }
    }
}
