//! How many nodes of a row that take one more job have how much left, size_class: without any order among them, so that to keep it costs next
//! to nothing.

use crate::{Bytes, timeshare::index::pinned::size_class};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Levels {
    /// By level, up to the highest that anybody ever was on.
    nodes: Vec<u32>,
    /// On which anybody is, 64 to a word.
    used: Vec<u64>,
}

/// 256 to each doubling: of what is [size_class](size_class) so much. With 64, four times as many jobs are tried in vain.
const fn level(size_class: u16) -> usize {
    (size_class >> 2) as usize
}

/// Nobody on this level has more.
const fn most(level: usize) -> Bytes {
    let (high, behind) = (level >> 8, level & 0xff);
    let most = (257 + behind as u128) << high >> 8;
    Bytes(if most > u64::MAX as u128 { u64::MAX } else { most as u64 })
}

/// The word of a level, and its bit there.
const fn place(level: usize) -> (usize, u64) {
    (level / u64::BITS as usize, 1 << (level % u64::BITS as usize))
}

impl Levels {
    /// A node has so much left, [size_class](size_class).
    #[inline]
    pub(crate) fn enter(&mut self, size_class: u16) {
        let level = level(size_class);
        let (word, bit) = place(level);
        if self.used.len() <= word {
            self.used.resize(word + 1, 0);
            self.nodes.resize(self.used.len() * u64::BITS as usize, 0);
        }
        self.nodes[level] += 1;
        self.used[word] |= bit;
    }

    /// It has not any more.
    pub(crate) fn leave(&mut self, size_class: u16) {
        let level = level(size_class);
        self.nodes[level] -= 1;
        if self.nodes[level] == 0 {
            let (word, bit) = place(level);
            self.used[word] &= !bit;
        }
    }

    /// What so many nodes each have left at most, the most first, down to those that may have `least`.
    pub(crate) fn falling(&self, least: Bytes) -> impl Iterator<Item = (Bytes, u32)> + '_ {
        let (last, lowest) = place(level(size_class(least)));
        let (mut word, mut bits) = (self.used.len(), 0_u64);
        std::iter::from_fn(move || {
            while bits == 0 {
                word = word.checked_sub(1).filter(|word| *word >= last)?;
                bits = self.used[word] & if word == last { lowest.wrapping_neg() } else { u64::MAX };
            }
            let highest = bits.ilog2();
            bits ^= 1 << highest;
            let level = word * u64::BITS as usize + highest as usize;
            Some((most(level), self.nodes[level]))
        })
    }
}
