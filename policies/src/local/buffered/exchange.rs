//! Communication phase of BCS: total exchange, scheduling, communication (testbed §4.5.2.1-4.5.2.3).

use std::{collections::BTreeMap, time::Duration};

use super::odd_even_rounds;
use crate::{Bytes, NodeId, Rate};

/// The bytes that each node has for each other, which all nodes know after the total exchange (the paper's `N
/// × N` matrix, without its zeros).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    bytes: BTreeMap<(NodeId, NodeId), Bytes>,
}

impl Pending {
    /// Adds bytes from `from` to `to`. A message to the same node needs no network and is not kept.
    pub fn add(&mut self, from: NodeId, to: NodeId, bytes: Bytes) {
        if from != to && bytes.0 > 0 {
            let sum = self.bytes.entry((from, to)).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }

    #[must_use]
    pub fn between(&self, from: NodeId, to: NodeId) -> Bytes {
        self.bytes.get(&(from, to)).copied().unwrap_or_default()
    }

    #[must_use]
    pub fn total(&self) -> Bytes {
        self.bytes.values().copied().sum()
    }
}

/// The messages of one pair of nodes that go in one communication phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageTrain {
    pub from: NodeId,
    pub to: NodeId,
    /// The part of the pending bytes that goes now.
    pub bytes: Bytes,
    /// Time since the start of the phase.
    pub begins: Duration,
    /// Time since the start of the phase.
    pub ends: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PhasePlan {
    /// In the order of their rounds; all end within the phase.
    pub transfers: Vec<MessageTrain>,
    /// The bytes that did not fit, for the next phase.
    pub left_over: Pending,
}

/// Plans a phase of `length` over links of `rate` each way: the odd-even rounds one after the other, each as
/// long as its longest transfer. Every node has the same matrix and so makes the same plan without asking
/// another.
///
/// Rounds begin at number `first_round` and wrap. The next phase must begin where this one was cut off, or
/// the late pairs would starve under overload; with `first_round` 0 the odd nodes send first.
#[must_use]
pub fn plan_phase(
    nodes: u32,
    pending: &Pending,
    rate: Rate,
    length: Duration,
    first_round: usize,
) -> PhasePlan {
    let mut rounds = odd_even_rounds(nodes);
    let count = rounds.len().max(1);
    rounds.rotate_left(first_round % count);
    let mut plan = PhasePlan { left_over: pending.clone(), ..PhasePlan::default() };
    let mut begins = Duration::ZERO;
    for round in rounds {
        let capacity = capacity(rate, length.saturating_sub(begins));
        let mut ends = begins;
        for (from, to) in round {
            let bytes = pending.between(from, to).min(capacity);
            if bytes.0 > 0 {
                let over = begins + time_of(bytes, rate).min(length - begins);
                plan.take(MessageTrain { from, to, bytes, begins, ends: over });
                ends = ends.max(over);
            }
        }
        begins = ends;
    }
    plan
}

impl PhasePlan {
    fn take(&mut self, transfer: MessageTrain) {
        let key = (transfer.from, transfer.to);
        let rest = self.left_over.between(transfer.from, transfer.to).0 - transfer.bytes.0;
        if rest > 0 {
            self.left_over.bytes.insert(key, Bytes(rest));
        } else {
            self.left_over.bytes.remove(&key);
        }
        self.transfers.push(transfer);
    }
}

const BITS_AND_NANOS: u128 = 8 * 1_000_000_000;

fn capacity(rate: Rate, span: Duration) -> Bytes {
    Bytes(u64::try_from(u128::from(rate.0) * span.as_nanos() / BITS_AND_NANOS).unwrap_or(u64::MAX))
}

fn time_of(bytes: Bytes, rate: Rate) -> Duration {
    let nanos = (u128::from(bytes.0) * BITS_AND_NANOS).div_ceil(u128::from(rate.0.max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One byte a microsecond.
    const RATE: Rate = Rate(8_000_000);

    fn all_to_all(nodes: u32, bytes: u64) -> Pending {
        let mut pending = Pending::default();
        for from in 0..nodes {
            for to in 0..nodes {
                pending.add(NodeId(from), NodeId(to), Bytes(bytes));
            }
        }
        pending
    }

    #[test]
    fn a_phase_that_is_long_enough_sends_everything() {
        let pending = all_to_all(5, 100);
        let plan = plan_phase(5, &pending, RATE, Duration::from_millis(10), 0);
        assert_eq!(plan.left_over, Pending::default());
        assert_eq!(plan.transfers.iter().map(|transfer| transfer.bytes).sum::<Bytes>(), pending.total());
    }

    #[test]
    fn bytes_that_do_not_fit_go_in_the_next_phase_and_none_is_lost() {
        let length = Duration::from_micros(250);
        let (mut pending, mut sent, mut phases) = (all_to_all(4, 100), 0, 0);
        while pending.total().0 > 0 {
            let plan = plan_phase(4, &pending, RATE, length, phases);
            assert!(plan.transfers.iter().all(|transfer| transfer.ends <= length));
            sent += plan.transfers.iter().map(|transfer| transfer.bytes.0).sum::<u64>();
            pending = plan.left_over;
            phases += 1;
        }
        assert_eq!(sent, 12 * 100);
        assert!(phases > 1);
    }

    #[test]
    fn rounds_that_have_nothing_to_send_take_no_time() {
        let mut pending = Pending::default();
        pending.add(NodeId(2), NodeId(0), Bytes(10));
        let plan = plan_phase(3, &pending, RATE, Duration::from_millis(1), 0);
        assert_eq!(plan.transfers[0].begins, Duration::ZERO);
        assert_eq!(plan.transfers[0].ends, Duration::from_micros(10));
    }
}
