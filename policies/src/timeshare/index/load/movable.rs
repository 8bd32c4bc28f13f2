//! The jobs of a row that never ran and may be placed anew: who of them fits elsewhere, without looking at most.

use std::{cmp::Reverse, collections::BTreeSet};

use super::Rank;
use crate::{Bytes, JobId, JobSpec, placement::Shape};

/// A job among those of its shape: the memory of a rank, its ranks, its number.
type Alike = (Reverse<Bytes>, Reverse<u32>, JobId);

/// What is free on the nodes of a row that take one more job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Free {
    /// So many nodes have so much at least, the most first.
    nodes: Vec<(u32, Bytes)>,
}

impl Free {
    /// So much on so many nodes each, the most first, up to so many in all.
    pub(crate) fn fill(&mut self, falling: impl Iterator<Item = (Bytes, u32)>, up_to: u32) {
        self.nodes.clear();
        let mut sum = 0;
        for (free, nodes) in falling {
            sum += nodes;
            self.nodes.push((sum, free));
            if sum >= up_to {
                break;
            }
        }
    }

    /// To ask for numbers of nodes that do not fall.
    pub(super) fn rising(&self) -> Rising<'_> {
        Rising(&self.nodes)
    }
}

/// The rest of it.
pub(super) struct Rising<'a>(&'a [(u32, Bytes)]);

impl Rising<'_> {
    /// What as many nodes have at least; most often it is near.
    pub(super) fn on(&mut self, nodes: u32) -> Option<Bytes> {
        let near = self.0.iter().take(4).position(|(sum, _)| *sum >= nodes);
        let at = near.unwrap_or_else(|| self.0.partition_point(|(sum, _)| *sum < nodes));
        self.0 = &self.0[at..];
        self.0.first().map(|(_, free)| *free)
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MovableJobs {
    /// In the order of shapes.
    shapes: Vec<OfShape>,
    /// Widths, rising, and what a rank takes, falling: if anybody fits somewhere, one of these does.
    easiest: Vec<(u32, Bytes)>,
}

/// The jobs of a shape, the largest first; never none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OfShape {
    shape: Shape,
    /// The first and the last of them, for most often these are all that is asked for.
    ends: [Alike; 2],
    jobs: BTreeSet<Alike>,
}

impl OfShape {
    /// What a rank of the smallest of them takes.
    const fn least(&self) -> Bytes {
        let [_, (Reverse(memory), ..)] = self.ends;
        memory
    }

    /// Finds the ends again; `None` where there are no jobs.
    fn find_ends(&mut self) -> Option<()> {
        self.ends = [*self.jobs.first()?, *self.jobs.last()?];
        Some(())
    }
}

impl MovableJobs {
    /// Of this shape, and not there yet.
    pub(crate) fn insert(&mut self, job: &JobSpec, shape: Shape) {
        let (key, memory) = (alike(job), job.memory_per_rank);
        match self.find(shape) {
            Ok(at) => {
                let OfShape { ends: [first, last], jobs, .. } = &mut self.shapes[at];
                jobs.insert(key);
                (*first, *last) = (key.min(*first), key.max(*last));
            }
            Err(at) => {
                let jobs = BTreeSet::from([key]);
                self.shapes.insert(at, OfShape { shape, ends: [key; 2], jobs });
            }
        }
        if !self.easiest.iter().any(|(width, least)| *width <= shape.width && *least <= memory) {
            self.easiest.retain(|(width, least)| *width < shape.width || *least < memory);
            let at = self.easiest.partition_point(|(width, _)| *width < shape.width);
            self.easiest.insert(at, (shape.width, memory));
        }
    }

    /// If it is there.
    pub(crate) fn remove(&mut self, job: &JobSpec, shape: Shape) {
        let Ok(at) = self.find(shape) else { return };
        let (known, key) = (&mut self.shapes[at], alike(job));
        if !known.jobs.remove(&key) {
            return;
        }
        if known.ends.contains(&key) && known.find_ends().is_none() {
            self.shapes.remove(at);
        }
        if self.easiest.contains(&(shape.width, job.memory_per_rank)) {
            self.easiest.clear();
            for of in &self.shapes {
                let (width, least) = (of.shape.width, of.least());
                if self.easiest.last().is_none_or(|(_, before)| least < *before) {
                    self.easiest.pop_if(|(before, _)| *before == width);
                    self.easiest.push((width, least));
                }
            }
        }
    }

    /// The width of the widest, and the least that a rank of any takes.
    pub(crate) fn bounds(&self) -> Option<(u32, Bytes)> {
        Some((self.shapes.last()?.shape.width, self.easiest.last()?.1))
    }

    /// Of those whose ranks fit where so much is free, the largest behind `last`.
    pub(crate) fn next(&self, free: &Free, last: Option<Rank>) -> Option<Rank> {
        let mut room = free.rising();
        if !self.easiest.iter().any(|(width, memory)| room.on(*width).is_some_and(|room| *memory <= room)) {
            return None;
        }
        let mut room = free.rising();
        let (mut next, mut at_most): (Option<Rank>, _) = (None, Bytes(u64::MAX));
        for OfShape { shape, ends: [first, (Reverse(least), ..)], jobs } in &self.shapes {
            let (most, Reverse(largest)) = (u64::from(shape.most), first.0);
            let is_vain = |from: Bytes| {
                let beaten = |(Reverse(size), _): Rank| size.0 > from.min(largest).0.saturating_mul(most);
                from < *least || next.is_some_and(beaten)
            };
            // What follows costs more the farther it is.
            if is_vain(at_most) {
                continue;
            }
            let Some(room) = room.on(shape.width) else { break };
            at_most = room;
            if is_vain(room) {
                continue;
            }
            let from = last.map_or(room, |(Reverse(size), _)| room.min(Bytes(size.0 / most.max(1))));
            if is_vain(from) {
                continue;
            }
            let rank = |(Reverse(memory), Reverse(ranks), job): &Alike| {
                let times = |ranks: u64| memory.0.saturating_mul(ranks);
                (Reverse((times(most), times(u64::from(*ranks)))), *job)
            };
            let is_behind = |rank: &Rank| last.is_none_or(|last| *rank > last);
            let found = Some(rank(first)).filter(|rank| largest <= from && is_behind(rank)).or_else(|| {
                let mut jobs = jobs.range((Reverse(from), Reverse(u32::MAX), JobId(0))..).map(rank);
                jobs.find(is_behind)
            });
            next = next.into_iter().chain(found).min();
        }
        next
    }

    fn find(&self, shape: Shape) -> Result<usize, usize> {
        self.shapes.binary_search_by_key(&shape, |of| of.shape)
    }
}

const fn alike(job: &JobSpec) -> Alike {
    (Reverse(job.memory_per_rank), Reverse(job.ranks), job.id)
}
