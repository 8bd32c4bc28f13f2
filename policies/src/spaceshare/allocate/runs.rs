//! Free nodes of a line, as runs of neighbours.
//!
//! The same runs are kept twice: in a map by first node, to join neighbours when nodes come back, and in a
//! tree of maxima over the first nodes, to find the leftmost run of a length. Every operation costs O(log
//! nodes).

use std::collections::BTreeMap;

/// Runs that neither overlap nor touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Runs {
    by_first: BTreeMap<u32, u32>,
    /// An implicit binary tree: leaf `leaves + i` holds the length of the run that begins at `i`, or 0; a
    /// parent holds the maximum of its children.
    longest: Vec<u32>,
    leaves: usize,
    free: u32,
}

impl Runs {
    /// One run of `nodes` nodes.
    pub(super) fn all(nodes: u32) -> Self {
        let leaves = (nodes.max(1) as usize).next_power_of_two();
        let mut runs = Self { by_first: BTreeMap::new(), longest: vec![0; 2 * leaves], leaves, free: 0 };
        if nodes > 0 {
            runs.give(0, nodes);
        }
        runs
    }

    pub(super) const fn free(&self) -> u32 {
        self.free
    }

    /// The length of the longest run.
    pub(super) fn longest(&self) -> u32 {
        self.longest[1]
    }

    pub(super) fn first(&self) -> Option<(u32, u32)> {
        self.by_first.first_key_value().map(|(first, count)| (*first, *count))
    }

    /// The first node of the leftmost run of at least `count` nodes.
    pub(super) fn leftmost(&self, count: u32) -> Option<u32> {
        if count == 0 || self.longest[1] < count {
            return None;
        }
        let mut at = 1;
        while at < self.leaves {
            at = if self.longest[2 * at] >= count { 2 * at } else { 2 * at + 1 };
        }
        u32::try_from(at - self.leaves).ok()
    }

    /// Takes `count` nodes from the front of the run that begins at `first`.
    pub(super) fn take(&mut self, first: u32, count: u32) {
        let had = self.by_first.remove(&first).expect("a run begins there");
        assert!(count <= had, "a run is not longer than it is");
        self.set(first, 0);
        if count < had {
            self.by_first.insert(first + count, had - count);
            self.set(first + count, had - count);
        }
        self.free -= count;
    }

    /// The run that holds `node`, as (first node, nodes).
    fn around(&self, node: u32) -> Option<(u32, u32)> {
        let (&first, &count) = self.by_first.range(..=node).next_back()?;
        (node < first + count).then_some((first, count))
    }

    pub(super) fn is_free(&self, node: u32) -> bool {
        self.around(node).is_some()
    }

    /// Takes a free node out of its run.
    pub(super) fn take_one(&mut self, node: u32) {
        let (first, count) = self.around(node).expect("the node is free");
        self.take(first, count);
        for (first, count) in [(first, node - first), (node + 1, first + count - node - 1)] {
            if count > 0 {
                self.give(first, count);
            }
        }
    }

    /// Returns `count` nodes from `first` on and joins them with their neighbours.
    pub(super) fn give(&mut self, first: u32, count: u32) {
        let (mut from, mut length) = (first, count);
        if let Some((&before, &had)) = self.by_first.range(..first).next_back() {
            assert!(before + had <= first, "nodes are freed once");
            if before + had == first {
                self.by_first.remove(&before);
                (from, length) = (before, length + had);
            }
        }
        if let Some(after) = self.by_first.remove(&(first + count)) {
            self.set(first + count, 0);
            length += after;
        }
        self.by_first.insert(from, length);
        self.set(from, length);
        self.free += count;
    }

    fn set(&mut self, first: u32, length: u32) {
        let mut at = self.leaves + first as usize;
        self.longest[at] = length;
        while at > 1 {
            at /= 2;
            let longer = self.longest[2 * at].max(self.longest[2 * at + 1]);
            if self.longest[at] == longer {
                return;
            }
            self.longest[at] = longer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_nodes_join_both_neighbours() {
        let mut runs = Runs::all(10);
        runs.take(0, 3);
        runs.take(3, 3);
        runs.take(6, 2);
        assert_eq!((runs.first(), runs.longest(), runs.free()), (Some((8, 2)), 2, 2));
        runs.give(0, 3);
        assert_eq!((runs.leftmost(3), runs.leftmost(4)), (Some(0), None));
        runs.give(3, 3);
        assert_eq!((runs.leftmost(6), runs.longest()), (Some(0), 6));
        runs.give(6, 2);
        assert_eq!(runs, Runs::all(10));
    }
}
