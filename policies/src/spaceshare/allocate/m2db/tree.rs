//! Tree of blocks: finds free blocks by size and by distance.
//!
//! A block is free, taken, or broken into buddies; the free and taken ones cover the mesh. A broken block
//! always has a taken block below it, except between [`BlockTree::split`] and [`BlockTree::join`].

use std::collections::BTreeSet;

use super::split::buddies;
use crate::spaceshare::allocate::Rect;

/// A block; valid while the block exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockId(u32);

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Free,
    Taken,
    Broken(Vec<BlockId>),
}

#[derive(Clone, Debug)]
struct Block {
    rect: Rect,
    parent: Option<BlockId>,
    state: State,
    /// Free nodes in it and below.
    free: u32,
}

#[derive(Clone, Debug)]
pub(super) struct BlockTree {
    blocks: Vec<Block>,
    /// Indices in `blocks` that are free for reuse.
    spare: Vec<BlockId>,
    /// The free blocks by size, then place.
    by_size: BTreeSet<(u32, u32, u32, BlockId)>,
}

const ROOT: BlockId = BlockId(0);

impl BlockTree {
    pub(super) fn new(whole: Rect) -> Self {
        let mut tree = Self { blocks: Vec::new(), spare: Vec::new(), by_size: BTreeSet::new() };
        tree.add(whole, None);
        if whole.area() == 0 {
            tree.by_size.clear();
        }
        tree
    }

    pub(super) fn rect(&self, block: BlockId) -> Rect {
        self.at(block).rect
    }

    pub(super) fn free(&self) -> u32 {
        self.at(ROOT).free
    }

    /// The free blocks, smallest first.
    pub(super) fn free_blocks(&self) -> impl Iterator<Item = Rect> + '_ {
        self.by_size.iter().map(|(.., block)| self.rect(*block))
    }

    /// The smallest free block of at least `nodes`; of equal ones the uppermost, then the leftmost.
    pub(super) fn smallest(&self, nodes: u32) -> Option<BlockId> {
        self.by_size.range((nodes, 0, 0, ROOT)..).next().map(|(.., block)| *block)
    }

    /// The largest free block; of equal ones the uppermost, then the leftmost.
    pub(super) fn largest(&self) -> Option<BlockId> {
        let (area, ..) = self.by_size.last()?;
        self.smallest(*area)
    }

    /// The free block closest to `anchor`; of equal ones the uppermost, then the leftmost.
    ///
    /// Branch and bound: no block lies closer than the nearest place inside its parent.
    pub(super) fn closest(&self, anchor: Rect) -> Option<BlockId> {
        let mut best: Option<(u64, u32, u32, BlockId)> = None;
        let mut open = vec![(0, ROOT)];
        while let Some((bound, id)) = open.pop() {
            let block = self.at(id);
            if block.free == 0 || best.is_some_and(|(distance, ..)| bound > distance) {
                continue;
            }
            match &block.state {
                State::Taken => {}
                State::Free => {
                    let found = (distance(anchor, block.rect), block.rect.y, block.rect.x, id);
                    best = Some(best.map_or(found, |best| best.min(found)));
                }
                State::Broken(parts) => {
                    let from = open.len();
                    open.extend(parts.iter().map(|part| (nearest(anchor, self.rect(*part)), *part)));
                    open[from..].sort_unstable_by_key(|(bound, _)| std::cmp::Reverse(*bound));
                }
            }
        }
        best.map(|(.., block)| block)
    }

    /// The free block that holds this unit.
    pub(super) fn around(&self, unit: Rect) -> Option<BlockId> {
        let found = self.by_size.iter().find(|(.., block)| self.rect(*block).contains(&unit));
        found.map(|(.., block)| *block)
    }

    /// Breaks a free block into its buddies, clockwise from the upper left.
    pub(super) fn split(&mut self, block: BlockId) -> Vec<BlockId> {
        assert_eq!(self.at(block).state, State::Free, "only free blocks are broken");
        let rect = self.rect(block);
        self.by_size.remove(&key(rect, block));
        let parts: Vec<BlockId> = buddies(rect).into_iter().map(|part| self.add(part, Some(block))).collect();
        self.at_mut(block).state = State::Broken(parts.clone());
        parts
    }

    pub(super) fn take(&mut self, block: BlockId) {
        let rect = self.rect(block);
        assert!(self.by_size.remove(&key(rect, block)), "only free blocks are taken");
        self.at_mut(block).state = State::Taken;
        self.each_above(block, |above| above.free -= rect.area());
    }

    /// Frees a taken block and joins every block whose buddies are all free again.
    pub(super) fn give(&mut self, block: BlockId) {
        assert_eq!(self.at(block).state, State::Taken, "only taken blocks come back");
        let rect = self.rect(block);
        self.at_mut(block).state = State::Free;
        self.by_size.insert(key(rect, block));
        self.each_above(block, |above| above.free += rect.area());
        let mut below = block;
        while let Some(parent) = self.at(below).parent {
            self.join(parent);
            if self.at(parent).state != State::Free {
                return;
            }
            below = parent;
        }
    }

    /// Makes a broken block whole if all of its buddies are free.
    pub(super) fn join(&mut self, block: BlockId) {
        let State::Broken(parts) = &self.at(block).state else { return };
        if parts.iter().any(|part| self.at(*part).state != State::Free) {
            return;
        }
        let parts = parts.clone();
        for part in parts {
            self.by_size.remove(&key(self.rect(part), part));
            self.spare.push(part);
        }
        self.at_mut(block).state = State::Free;
        self.by_size.insert(key(self.rect(block), block));
    }

    fn add(&mut self, rect: Rect, parent: Option<BlockId>) -> BlockId {
        let block = Block { rect, parent, state: State::Free, free: rect.area() };
        let id = self.spare.pop().unwrap_or_else(|| {
            BlockId(u32::try_from(self.blocks.len()).expect("fewer blocks than nodes, fewer nodes than u32"))
        });
        match self.blocks.get_mut(id.0 as usize) {
            Some(place) => *place = block,
            None => self.blocks.push(block),
        }
        self.by_size.insert(key(rect, id));
        id
    }

    fn each_above(&mut self, block: BlockId, act: impl Fn(&mut Block)) {
        let mut at = Some(block);
        while let Some(block) = at {
            act(self.at_mut(block));
            at = self.at(block).parent;
        }
    }

    fn at(&self, block: BlockId) -> &Block {
        &self.blocks[block.0 as usize]
    }

    fn at_mut(&mut self, block: BlockId) -> &mut Block {
        &mut self.blocks[block.0 as usize]
    }
}

const fn key(rect: Rect, block: BlockId) -> (u32, u32, u32, BlockId) {
    (rect.area(), rect.y, rect.x, block)
}

/// Closeness (paper 002 §2.4.1, step 5): the sum over the four corners of the squared distance between the
/// two blocks.
fn distance(anchor: Rect, block: Rect) -> u64 {
    let square = |((x, y), (u, v)): ((u32, u32), (u32, u32))| {
        let (dx, dy) = (u64::from(x.abs_diff(u)), u64::from(y.abs_diff(v)));
        dx * dx + dy * dy
    };
    anchor.corners().into_iter().zip(block.corners()).map(square).sum()
}

/// A lower bound of [`distance`] to any block inside `around`.
fn nearest(anchor: Rect, around: Rect) -> u64 {
    let [(left, top), _, (right, low), _] = around.corners();
    let square = |(x, y): (u32, u32)| {
        let (dx, dy) = (x.abs_diff(x.clamp(left, right)), y.abs_diff(y.clamp(top, low)));
        u64::from(dx) * u64::from(dx) + u64::from(dy) * u64::from(dy)
    };
    anchor.corners().into_iter().map(square).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_block_is_the_one_a_search_of_all_would_find() {
        let mut tree = BlockTree::new(Rect { x: 0, y: 0, width: 23, height: 16 });
        let mut taken = Vec::new();
        for turn in 0..120 {
            let Some(widest) = tree.largest() else { break };
            let parts = if tree.rect(widest).area() > 1 { tree.split(widest) } else { vec![widest] };
            tree.take(parts[turn % parts.len()]);
            taken.push(parts[turn % parts.len()]);
            let anchor = tree.rect(taken[turn / 2]);
            let all = tree
                .by_size
                .iter()
                .map(|(_, y, x, block)| (distance(anchor, tree.rect(*block)), *y, *x, *block));
            assert_eq!(tree.closest(anchor), all.min().map(|(.., block)| block));
        }
    }

    #[test]
    fn closeness_compares_all_four_corners() {
        let rect = |x, y, width, height| Rect { x, y, width, height };
        assert_eq!(distance(rect(0, 0, 2, 2), rect(2, 0, 2, 2)), 16);
        assert_eq!(distance(rect(0, 0, 2, 2), rect(2, 0, 1, 2)), 2 * 4 + 2);
        assert_eq!(nearest(rect(0, 0, 2, 2), rect(2, 0, 2, 2)), 2 * 4 + 2);
    }
}
