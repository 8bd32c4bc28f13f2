//! What the jobs of a row that keep their nodes take of them, roughly: most that cannot go elsewhere are known by that alone.

use crate::Bytes;

/// How many jobs of a node are known one by one.
const KNOWN: usize = 4;

/// Of jobs that may be placed anew.
pub(crate) const NEVER: u16 = u16::MAX;

/// By node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Takes {
    /// No job takes less. A table of its own, and small: most questions end here.
    least: Vec<u16>,
    /// What the first jobs take; 0 where unknown.
    each: Vec<[u16; KNOWN]>,
}

impl Takes {
    /// Of so many nodes without jobs.
    pub(crate) fn nothing(nodes: usize) -> Self {
        Self { least: vec![NEVER; nodes], each: vec![[0; KNOWN]; nodes] }
    }

    /// Of so many jobs, the one at this place takes that.
    pub(crate) fn set(&mut self, node: usize, jobs: usize, at: usize, takes: u16) {
        if let Some(known) = self.each[node].get_mut(at) {
            *known = takes;
        }
        self.least[node] = self.least_of(node, jobs).unwrap_or(self.least[node].min(takes));
    }

    /// The last of so many jobs took the place of one that left.
    pub(crate) fn swap_remove(&mut self, node: usize, jobs: usize, left: usize) {
        let each = &mut self.each[node];
        let last = each.get_mut(jobs - 1).map_or(0, std::mem::take);
        if left < jobs - 1
            && let Some(known) = each.get_mut(left)
        {
            *known = last;
        }
        self.least[node] = self.least_of(node, jobs - 1).unwrap_or(self.least[node]);
    }

    /// Where all are known.
    fn least_of(&self, node: usize, jobs: usize) -> Option<u16> {
        let known = self.each[node].get(..jobs)?;
        Some(known.iter().copied().min().unwrap_or(NEVER))
    }

    /// Whether one of the jobs might take no more than that.
    pub(crate) fn might_fit(&self, node: usize, free: u16) -> bool {
        self.least[node] <= free
    }

    /// What each takes at least.
    pub(crate) fn each(&self, node: usize) -> impl Iterator<Item = u16> {
        self.each[node].into_iter().chain(std::iter::repeat(0))
    }
}

/// No less for more: the place of the highest bit, and the ten bits behind it.
#[allow(clippy::cast_possible_truncation, reason = "six bits and ten")]
pub(crate) const fn rough(Bytes(bytes): Bytes) -> u16 {
    let high = (bytes | 1).ilog2();
    let behind = if high < 10 { bytes << (10 - high) } else { bytes >> (high - 10) };
    (high << 10) as u16 | (behind as u16 & 0x3ff)
}
