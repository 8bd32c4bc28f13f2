//! Bits by key, 64 to a word, in the order of the keys: what sets of jobs and of nodes are made of.
//!
//! Two levels of sorted vectors. A search takes the same few steps whatever it finds, where in a tree of small nodes the processor guesses
//! wrong at most of them, and the words of neighbours lie side by side.

use smallvec::SmallVec;

/// So many words lie in one piece at most: to make room for one moves no more.
const PIECE: usize = 32;

/// Which bits are set, from the lowest on.
pub(crate) fn ones(mut bits: u64) -> impl Iterator<Item = u32> + Clone {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(lowest)
    })
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Bits<K> {
    /// Rising, none of them empty.
    pieces: SmallVec<[Piece<K>; 1]>,
}

/// Words, none of them 0, by rising keys.
#[derive(Clone, Debug)]
struct Piece<K> {
    /// The lowest key that was ever here.
    first: K,
    words: Vec<(K, u64)>,
}

impl<K: Copy + Ord> Piece<K> {
    fn find(&self, key: K) -> Result<usize, usize> {
        self.words.binary_search_by_key(&key, |(key, _)| *key)
    }
}

impl<K> Default for Bits<K> {
    fn default() -> Self {
        Self { pieces: SmallVec::new() }
    }
}

impl<K: Copy + Ord> PartialEq for Bits<K> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<K: Copy + Ord> Eq for Bits<K> {}

impl<K: Copy + Ord> Bits<K> {
    /// The bits of this key.
    pub(crate) fn get(&self, key: K) -> u64 {
        let piece = self.pieces.get(self.piece_of(key));
        piece.and_then(|piece| Some(piece.words[piece.find(key).ok()?].1)).unwrap_or_default()
    }

    /// Sets bits of this key; what it had before.
    pub(crate) fn set(&mut self, key: K, bits: u64) -> u64 {
        let at = self.piece_of(key);
        let Some(piece) = self.pieces.get_mut(at) else {
            self.pieces.push(Piece { first: key, words: vec![(key, bits)] });
            return 0;
        };
        match piece.find(key) {
            Ok(word) => {
                let (_, known) = &mut piece.words[word];
                std::mem::replace(known, *known | bits)
            }
            Err(word) => {
                piece.first = piece.first.min(key);
                piece.words.insert(word, (key, bits));
                if piece.words.len() == PIECE {
                    let words = piece.words.split_off(PIECE / 2);
                    self.pieces.insert(at + 1, Piece { first: words[0].0, words });
                }
                0
            }
        }
    }

    /// Clears bits of this key; what it had before.
    pub(crate) fn clear(&mut self, key: K, bits: u64) -> u64 {
        let at = self.piece_of(key);
        let Some(piece) = self.pieces.get_mut(at) else { return 0 };
        let Ok(word) = piece.find(key) else { return 0 };
        let (_, known) = &mut piece.words[word];
        let before = std::mem::replace(known, *known & !bits);
        if before & !bits == 0 {
            piece.words.remove(word);
            self.close_up(at);
        }
        before
    }

    /// A piece has lost a word: with what follows it may be one piece, or it is empty.
    fn close_up(&mut self, at: usize) {
        let words = |piece: &Piece<K>| piece.words.len();
        let here = words(&self.pieces[at]);
        if here == 0 {
            self.pieces.remove(at);
        } else if self.pieces.get(at + 1).is_some_and(|next| here + words(next) <= PIECE / 2) {
            let next = self.pieces.remove(at + 1);
            self.pieces[at].words.extend(next.words);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The words that are not 0, by rising keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, u64)> + Clone + '_ {
        self.pieces.iter().flat_map(|piece| piece.words.iter().copied())
    }

    /// Where the key is, or would be.
    fn piece_of(&self, key: K) -> usize {
        self.pieces.partition_point(|piece| piece.first <= key).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn bits_by_key_are_what_a_tree_of_words_is(
            acts in prop::collection::vec((prop_oneof![0u32..300, any::<u32>()], 1u64..8, 0..3), 0..900),
        ) {
            let (mut tree, mut bits) = (BTreeMap::<u32, u64>::new(), Bits::default());
            for (key, some, act) in acts {
                let before = tree.get(&key).copied().unwrap_or_default();
                prop_assert_eq!(bits.get(key), before);
                if act > 0 {
                    prop_assert_eq!(bits.set(key, some), before);
                    tree.insert(key, before | some);
                } else {
                    prop_assert_eq!(bits.clear(key, some), before);
                    tree.insert(key, before & !some);
                    tree.retain(|_, word| *word != 0);
                }
                prop_assert_eq!(bits.is_empty(), tree.is_empty());
            }
            prop_assert!(bits.iter().eq(tree.iter().map(|(key, word)| (*key, *word))));
            for key in tree.into_keys() {
                bits.clear(key, u64::MAX);
            }
            prop_assert!(bits.is_empty() && bits == Bits::default());
        }
    }
}
