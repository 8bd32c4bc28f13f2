//! The nodes of a row by how empty they are: fewest jobs first, then most memory left, then by number.
//!
//! Of 64 neighbours, those that are equally empty are one entry, a bit each. A job lies on neighbours where it can, so it is few
//! entries wherever it goes, and the whole is small: on many nodes the wait for memory is what an event costs.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::RangeInclusive,
};

use crate::{Bytes, Limits, NodeId, job_map::ones};

const NEIGHBOURS: u32 = u64::BITS;

/// How empty a node is, and the first of its neighbours; in one word, for it is compared more than anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u128);

impl Place {
    /// Of a node with so many jobs and so much memory left.
    pub(crate) const fn new(jobs: u32, free: Bytes, node: NodeId) -> Self {
        Self((jobs as u128) << 96 | (!free.0 as u128) << 32 | (node.0 / NEIGHBOURS) as u128)
    }

    /// All nodes with so many jobs and at least so much memory left.
    const fn class(jobs: u32, least: Bytes) -> RangeInclusive<Self> {
        Self::new(jobs, Bytes(u64::MAX), NodeId(0))..=Self::new(jobs, least, NodeId(u32::MAX))
    }

    const fn jobs(self) -> u32 {
        (self.0 >> 96) as u32
    }

    #[allow(clippy::cast_possible_truncation, reason = "the part is taken")]
    const fn free(self) -> Bytes {
        Bytes(!((self.0 >> 32) as u64))
    }

    const fn page(self) -> usize {
        (self.0 & u32::MAX as u128) as usize
    }

    #[allow(clippy::cast_possible_truncation, reason = "the part is taken")]
    const fn node(self, bit: u32) -> NodeId {
        NodeId(self.0 as u32 * NEIGHBOURS + bit)
    }
}

/// The bit of a node among its neighbours.
pub(crate) const fn bit(node: NodeId) -> u64 {
    1 << (node.0 % NEIGHBOURS)
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Emptiest {
    nodes: BTreeMap<Place, u64>,
    /// How many nodes hold so many jobs, from none on; the last of these is not 0.
    by_jobs: Vec<u32>,
}

impl Emptiest {
    /// These neighbours have come to `place`.
    pub(crate) fn enter(&mut self, place: Place, bits: u64) {
        *self.nodes.entry(place).or_default() |= bits;
        let jobs = place.jobs() as usize;
        if self.by_jobs.len() <= jobs {
            self.by_jobs.resize(jobs + 1, 0);
        }
        self.by_jobs[jobs] += bits.count_ones();
    }

    /// These neighbours go from one place to another.
    fn shift(&mut self, from: Place, to: Place, bits: u64) {
        if from != to && bits != 0 {
            self.leave(from, bits);
            self.enter(to, bits);
        }
    }

    fn leave(&mut self, place: Place, bits: u64) {
        let Entry::Occupied(mut there) = self.nodes.entry(place) else { panic!("they are there") };
        debug_assert_eq!(*there.get() & bits, bits, "they are there");
        *there.get_mut() &= !bits;
        if *there.get() == 0 {
            there.remove();
        }
        self.by_jobs[place.jobs() as usize] -= bits.count_ones();
        while self.by_jobs.pop_if(|nodes| *nodes == 0).is_some() {}
    }

    /// The numbers of jobs of cells that take one more, rising.
    pub(crate) fn open_classes(&self, limits: Limits) -> impl Iterator<Item = u32> + '_ {
        let open = move |(jobs, _): &(u32, &u32)| limits.max_per_cell.is_none_or(|max| *jobs < max);
        (0..).zip(&self.by_jobs).take_while(open).filter(|(_, nodes)| **nodes > 0).map(|(jobs, _)| jobs)
    }

    /// How many nodes hold so many jobs.
    pub(crate) fn count(&self, jobs: u32) -> u32 {
        self.by_jobs.get(jobs as usize).copied().unwrap_or_default()
    }

    /// The memory left of those with so many jobs and at least so much, the most first, and on how many nodes each.
    pub(crate) fn rooms(&self, jobs: u32, least: Bytes) -> impl Iterator<Item = (Bytes, u32)> + '_ {
        let nodes = self.nodes.range(Place::class(jobs, least));
        nodes.map(|(place, bits)| (place.free(), bits.count_ones()))
    }

    /// The nodes with so many jobs and at least so much memory left, the emptiest first.
    pub(crate) fn class(&self, jobs: u32, least: Bytes) -> impl Iterator<Item = (NodeId, Bytes)> + '_ {
        self.nodes
            .range(Place::class(jobs, least))
            .flat_map(|(place, bits)| ones(*bits).map(|bit| (place.node(bit), place.free())))
    }

    /// Of the nodes with so many jobs the one with the least memory left, the first of equals.
    pub(crate) fn fullest(&self, jobs: u32) -> Option<(Bytes, NodeId)> {
        let (last, _) = self.nodes.range(Place::class(jobs, Bytes(0))).next_back()?;
        let (first, bits) = self.nodes.range(Place::new(jobs, last.free(), NodeId(0))..).next()?;
        Some((first.free(), first.node(bits.trailing_zeros())))
    }
}

/// The index, and who has gone elsewhere since it was asked: jobs that end one after the other on a node are one change.
#[derive(Clone, Debug)]
pub(crate) struct Lagging {
    index: Emptiest,
    /// Neighbours, and where the index has them.
    gone: Vec<(Place, u64)>,
    /// All of these, by the page of neighbours.
    is_gone: Vec<u64>,
}

/// It follows from what the nodes hold; two of them may lag behind the same differently.
impl PartialEq for Lagging {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Lagging {}

impl Lagging {
    /// Of so many nodes.
    pub(crate) fn new(index: Emptiest, nodes: usize) -> Self {
        Self { index, gone: Vec::new(), is_gone: vec![0; nodes.div_ceil(NEIGHBOURS as usize)] }
    }

    /// The node, which is at this place still, is about to leave it.
    pub(crate) fn note(&mut self, node: NodeId, place: Place) {
        let (bit, is_gone) = (bit(node), &mut self.is_gone[(node.0 / NEIGHBOURS) as usize]);
        if *is_gone & bit == 0 {
            *is_gone |= bit;
            match self.gone.last_mut() {
                Some((last, bits)) if *last == place => *bits |= bit,
                _ => self.gone.push((place, bit)),
            }
        }
    }

    /// Puts those that have gone where they are now.
    pub(crate) fn catch_up(&mut self, place: impl Fn(NodeId) -> Place) {
        for (from, bits) in self.gone.drain(..) {
            self.is_gone[from.page()] &= !bits;
            let (mut to, mut alike) = (from, 0);
            for bit in ones(bits) {
                let there = place(from.node(bit));
                if there != to {
                    self.index.shift(from, to, alike);
                    (to, alike) = (there, 0);
                }
                alike |= 1 << bit;
            }
            self.index.shift(from, to, alike);
        }
    }

    /// The index as it was left.
    pub(crate) const fn get(&self) -> &Emptiest {
        &self.index
    }
}
