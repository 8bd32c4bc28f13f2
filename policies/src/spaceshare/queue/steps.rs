//! Step function of time in blocks: range additions and searches that skip whole blocks.
//!
//! A sorted list of steps, cut into blocks of some dozens. A block knows its lowest and its highest value and
//! a sum that was added to all of its steps, so an addition touches the steps of at most two blocks, and a
//! search for a value reads only blocks that may hold it. With tens of thousands of steps both cost less than
//! in a tree of single steps, whose nodes lie scattered in memory, and an insertion moves a few bytes.

use std::collections::VecDeque;

use crate::SimTime;

/// A block of twice as many steps is cut in two.
const BLOCK: usize = 64;

#[derive(Clone, Debug)]
struct Block {
    /// Begin and value of each step, without `added`; never empty.
    steps: Vec<(SimTime, i64)>,
    added: i64,
    lowest: i64,
    highest: i64,
}

impl Block {
    fn new(steps: Vec<(SimTime, i64)>) -> Self {
        let mut block = Self { steps, added: 0, lowest: 0, highest: 0 };
        block.measure();
        block
    }

    fn begin(&self) -> SimTime {
        self.steps[0].0
    }

    fn measure(&mut self) {
        let (lowest, highest) =
            self.steps.iter().fold((i64::MAX, i64::MIN), |(lowest, highest), (_, value)| {
                (lowest.min(*value), highest.max(*value))
            });
        (self.lowest, self.highest) = (lowest + self.added, highest + self.added);
    }

    /// Adds `value` to the steps that begin from `from` on and before `to`.
    fn add(&mut self, from: SimTime, to: SimTime, value: i64) {
        if from <= self.begin() && self.steps[self.steps.len() - 1].0 < to {
            self.added += value;
            self.lowest += value;
            self.highest += value;
            return;
        }
        let first = self.steps.partition_point(|(at, _)| *at < from);
        let behind = self.steps.partition_point(|(at, _)| *at < to);
        self.steps[first..behind].iter_mut().for_each(|(_, of)| *of += value);
        self.measure();
    }
}

/// The place of a step; any change to the steps makes it stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    block: usize,
    step: usize,
}

/// A value from each step until the next; the last has no end.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    /// Never empty.
    blocks: VecDeque<Block>,
}

impl Steps {
    /// The same value at all times.
    pub(super) fn new(value: i64) -> Self {
        Self { blocks: VecDeque::from([Block::new(vec![(SimTime(0), value)])]) }
    }

    /// May drop steps that end before `now`.
    pub(super) fn forget_before(&mut self, now: SimTime) {
        while self.blocks.get(1).is_some_and(|next| next.begin() <= now) {
            self.blocks.pop_front();
        }
    }

    /// Adds `value` from `from` to `to`.
    pub(super) fn add(&mut self, from: SimTime, to: SimTime, value: i64) {
        if from >= to || value == 0 {
            return;
        }
        self.split_at(from);
        self.split_at(to);
        for block in self.block_of(from)..self.blocks.len() {
            if self.blocks[block].begin() >= to {
                break;
            }
            self.blocks[block].add(from, to, value);
        }
        // Between the two ends the differences are as before.
        self.merge_at(to);
        self.merge_at(from);
    }

    /// The step that holds at `at`.
    pub(super) fn find(&self, at: SimTime) -> Place {
        let block = self.block_of(at);
        let step = self.blocks[block].steps.partition_point(|(begin, _)| *begin <= at).saturating_sub(1);
        Place { block, step }
    }

    /// Begin and value of a step.
    pub(super) fn at(&self, place: Place) -> (SimTime, i64) {
        let block = &self.blocks[place.block];
        let (begin, value) = block.steps[place.step];
        (begin, value + block.added)
    }

    pub(super) fn next(&self, place: Place) -> Option<Place> {
        let Place { block, step } = place;
        if step + 1 < self.blocks[block].steps.len() {
            return Some(Place { block, step: step + 1 });
        }
        (block + 1 < self.blocks.len()).then_some(Place { block: block + 1, step: 0 })
    }

    /// The first step from `from` on whose value is at least `value`.
    pub(super) fn first_at_least(&self, from: Place, value: i64) -> Option<Place> {
        self.first(from, |block| block.highest >= value, |of| of >= value)
    }

    /// The first step from `from` on whose value is below `value`.
    pub(super) fn first_below(&self, from: Place, value: i64) -> Option<Place> {
        self.first(from, |block| block.lowest < value, |of| of < value)
    }

    /// The lowest value from `from` to `to`.
    pub(super) fn lowest(&self, from: SimTime, to: SimTime) -> i64 {
        let first = self.find(from);
        let of_block = |block: usize| {
            let Block { steps, added, lowest, .. } = &self.blocks[block];
            let whole = block > first.block && steps[steps.len() - 1].0 < to;
            if whole {
                return *lowest;
            }
            let skip = if block == first.block { first.step } else { 0 };
            let steps = steps[skip..].iter().take_while(|(at, _)| *at < to || *at <= from);
            steps.map(|(_, value)| value + added).min().unwrap_or(i64::MAX)
        };
        let blocks = (first.block..self.blocks.len())
            .take_while(|block| *block == first.block || self.blocks[*block].begin() < to);
        blocks.map(of_block).min().expect("the first block holds a step")
    }

    fn first(
        &self,
        from: Place,
        may_hold: impl Fn(&Block) -> bool,
        is_it: impl Fn(i64) -> bool,
    ) -> Option<Place> {
        let mut skip = from.step;
        for block in from.block..self.blocks.len() {
            let Block { steps, added, .. } = &self.blocks[block];
            if may_hold(&self.blocks[block])
                && let Some(found) = steps[skip..].iter().position(|(_, value)| is_it(value + added))
            {
                return Some(Place { block, step: skip + found });
            }
            skip = 0;
        }
        None
    }

    /// The block with the step that holds at `at`.
    fn block_of(&self, at: SimTime) -> usize {
        self.blocks.partition_point(|block| block.begin() <= at).saturating_sub(1)
    }

    /// Makes a step begin at `at`.
    fn split_at(&mut self, at: SimTime) {
        let Place { block, step } = self.find(at);
        let steps = &mut self.blocks[block].steps;
        if steps[step].0 >= at {
            return;
        }
        let value = steps[step].1;
        steps.insert(step + 1, (at, value));
        if steps.len() > 2 * BLOCK {
            let behind = steps.split_off(BLOCK);
            let mut behind = Block::new(behind);
            let added = self.blocks[block].added;
            behind.added = added;
            behind.measure();
            self.blocks[block].measure();
            self.blocks.insert(block + 1, behind);
        }
    }

    /// Removes the step that begins at `at` if it changes nothing.
    fn merge_at(&mut self, at: SimTime) {
        let Place { block, step } = self.find(at);
        let before = match (block, step) {
            (0, 0) => return,
            (_, 0) => Place { block: block - 1, step: self.blocks[block - 1].steps.len() - 1 },
            (_, _) => Place { block, step: step - 1 },
        };
        let (begin, value) = self.at(Place { block, step });
        if begin != at || self.at(before).1 != value {
            return;
        }
        // The value remains in the step before; where that is of another block, bounds become narrower.
        self.blocks[block].steps.remove(step);
        if self.blocks[block].steps.is_empty() {
            self.blocks.remove(block);
            return;
        }
        if step == 0 {
            self.blocks[block].measure();
        }
        self.join_small(block);
    }

    /// Joins a block of few steps with the next, so that there are not many blocks of few steps.
    fn join_small(&mut self, block: usize) {
        let Some(next) = self.blocks.get(block + 1) else { return };
        if self.blocks[block].steps.len() + next.steps.len() > BLOCK / 2 {
            return;
        }
        let next = self.blocks.remove(block + 1).expect("just seen");
        let of = &mut self.blocks[block];
        let shift = next.added - of.added;
        of.steps.extend(next.steps.into_iter().map(|(at, value)| (at, value + shift)));
        of.measure();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(steps: &Steps) -> Vec<(u64, i64)> {
        let mut place = Some(steps.find(SimTime(0)));
        let mut all = Vec::new();
        while let Some(at) = place {
            let (begin, value) = steps.at(at);
            all.push((begin.0, value));
            place = steps.next(at);
        }
        all
    }

    /// Compares with an array of one value for each moment.
    #[test]
    fn blocks_hold_what_an_array_of_moments_holds() {
        const END: usize = 4000;
        let (mut steps, mut plain) = (Steps::new(3), vec![3i64; END]);
        // A shuffled order of ranges; the numbers have no factor in common with the length.
        for round in 0..3000usize {
            let (from, length) = (round * 1237 % END, 1 + round * 31 % 97);
            let to = (from + length).min(END);
            let value = [1, -1, 5, -5][round / 2 % 4];
            steps.add(SimTime(from as u64), SimTime(to as u64), value);
            plain[from..to].iter_mut().for_each(|of| *of += value);
            if round % 100 > 0 {
                continue;
            }
            let value_at = |at: usize| steps.at(steps.find(SimTime(at as u64))).1;
            assert!((0..END).all(|at| value_at(at) == plain[at]), "after {round} additions");
            assert!(all(&steps).is_sorted_by(|a, b| a.0 < b.0 && a.1 != b.1), "neighbours differ");
            for at in (0..END).step_by(83) {
                let place = steps.find(SimTime(at as u64));
                let begin = |found: Option<Place>| found.map(|found| steps.at(found).0.0.max(at as u64));
                let first =
                    |is_it: &dyn Fn(i64) -> bool| (at..END).find(|at| is_it(plain[*at])).map(|at| at as u64);
                for value in -3..9 {
                    let within = |found: Option<u64>| found.filter(|at| *at < END as u64);
                    let high = begin(steps.first_at_least(place, value));
                    assert_eq!(within(high), first(&|of| of >= value), "{at} {value}");
                    let low = begin(steps.first_below(place, value));
                    assert_eq!(within(low), first(&|of| of < value), "{at} {value}");
                }
                let to = (at + 500).min(END);
                let lowest = plain[at..to].iter().min().copied();
                assert_eq!(Some(steps.lowest(SimTime(at as u64), SimTime(to as u64))), lowest);
            }
        }
        assert!(steps.blocks.len() > 4, "there are several blocks");
    }

    #[test]
    fn what_is_taken_back_leaves_one_step() {
        let mut steps = Steps::new(0);
        let ranges: Vec<(u64, u64)> = (0..500).map(|n| (n * 7919 % 1009, 1010 + n)).collect();
        ranges.iter().for_each(|(from, to)| steps.add(SimTime(*from), SimTime(*to), 2));
        assert!(all(&steps).len() > 500);
        ranges.iter().for_each(|(from, to)| steps.add(SimTime(*from), SimTime(*to), -2));
        assert_eq!(all(&steps), [(0, 0)]);
        assert_eq!(steps.blocks.len(), 1);
    }
}
