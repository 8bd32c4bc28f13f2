//! Head and tail arithmetic of a ring: pure functions, which can be tested exhaustively.
//!
//! Indexes are byte positions that only grow; a position modulo the capacity is the offset in memory. A
//! record never wraps: if it does not fit before the end, a pad fills the rest and the record begins at
//! offset 0.

/// Records begin at multiples of a cache line, so that the header of a pad always fits.
pub(crate) const ALIGN: u64 = 64;

/// Positions of a record to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Pad to be written first.
    pub(crate) pad: Option<u64>,
    pub(crate) start: u64,
    /// The tail after the record.
    pub(crate) end: u64,
}

/// Bytes that a record with `inline` payload bytes takes in a ring.
pub(crate) fn extent(inline: u32) -> u64 {
    ALIGN + u64::from(inline).next_multiple_of(ALIGN)
}

/// Places a record of `extent` bytes at `tail`; `None` if the space between `tail` and `head` is too small.
pub(crate) fn place(head: u64, tail: u64, capacity: u64, extent: u64) -> Option<Placement> {
    let to_end = capacity - tail % capacity;
    let (pad, start) = if extent <= to_end { (None, tail) } else { (Some(tail), tail + to_end) };
    let end = start + extent;
    (end - head <= capacity).then_some(Placement { pad, start, end })
}

/// Whether a pair of indexes read from shared memory is possible. Indexes near overflow are rejected, so that
/// the arithmetic above cannot overflow; no ring reaches them in the lifetime of a cluster.
pub(crate) fn plausible(head: u64, tail: u64, capacity: u64) -> bool {
    tail < 1 << 62
        && tail.wrapping_sub(head) <= capacity
        && head.is_multiple_of(ALIGN)
        && tail.is_multiple_of(ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn record_that_would_wrap_begins_at_the_start_after_a_pad() {
        assert_eq!(place(0, 0, 256, 128), Some(Placement { pad: None, start: 0, end: 128 }));
        assert_eq!(place(192, 192, 256, 128), Some(Placement { pad: Some(192), start: 256, end: 384 }));
    }

    #[test]
    fn full_ring_places_nothing() {
        assert_eq!(place(0, 256, 256, 64), None);
        assert_eq!(place(0, 192, 256, 128), None, "the pad counts too");
    }

    #[test]
    fn impossible_indexes_are_rejected() {
        assert!(plausible(64, 320, 256));
        assert!(!plausible(64, 384, 256), "more than full");
        assert!(!plausible(128, 64, 256), "head before tail");
        assert!(!plausible(0, 65, 256), "not at a cache line");
        assert!(!plausible(u64::MAX - 63, u64::MAX - 63, 256), "about to overflow");
    }

    proptest! {
        /// Compares with a model that keeps the placed records: no overlap, no wrap, and an empty ring takes
        /// any record.
        #[test]
        fn placements_never_overlap_nor_wrap(
            ops in prop::collection::vec((any::<bool>(), 0u32..=960), 1..300)
        ) {
            let capacity = 2048u64;
            let (mut head, mut tail) = (0u64, 0u64);
            let mut live: VecDeque<Placement> = VecDeque::new();
            for (push, len) in ops {
                if push {
                    if let Some(p) = place(head, tail, capacity, extent(len)) {
                        prop_assert_eq!(p.end - p.start, extent(len));
                        prop_assert_eq!(p.start / capacity, (p.end - 1) / capacity, "wraps");
                        prop_assert!(p.end - head <= capacity, "overwrites unread bytes");
                        prop_assert!(plausible(head, p.end, capacity));
                        tail = p.end;
                        live.push_back(p);
                    } else {
                        prop_assert!(!live.is_empty(), "an empty ring takes any record up to half its size");
                    }
                } else if let Some(p) = live.pop_front() {
                    head = p.end;
                }
            }
        }
    }
}
