//! How many nodes of a row that take one more job have how much left, roughly: without any order among them, so that to keep it costs next
//! to nothing.

use crate::{Bytes, rooted::rough};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    /// By level, up to the highest that anybody ever was on.
    nodes: Vec<u32>,
}

/// Sixty-four to each doubling: of what is [roughly](rough) so much.
const fn level(roughly: u16) -> usize {
    (roughly >> 4) as usize
}

/// Nobody on this level has more.
const fn most(level: usize) -> Bytes {
    let (high, behind) = (level >> 6, level & 0x3f);
    let most = (65 + behind as u128) << high >> 6;
    Bytes(if most > u64::MAX as u128 { u64::MAX } else { most as u64 })
}

impl Levels {
    /// A node has so much left, [roughly](rough).
    pub(crate) fn enter(&mut self, roughly: u16) {
        let level = level(roughly);
        if self.nodes.len() <= level {
            self.nodes.resize(level + 1, 0);
        }
        self.nodes[level] += 1;
    }

    /// It has not any more.
    pub(crate) fn leave(&mut self, roughly: u16) {
        self.nodes[level(roughly)] -= 1;
    }

    /// What so many nodes each have left at most, the most first, down to those that may have `least`.
    pub(crate) fn falling(&self, least: Bytes) -> impl Iterator<Item = (Bytes, u32)> + '_ {
        let levels = (level(rough(least))..self.nodes.len()).rev();
        levels.filter(|level| self.nodes[*level] > 0).map(|level| (most(level), self.nodes[level]))
    }
}
