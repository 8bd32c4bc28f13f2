//! The jobs on each node of a row, and what those that keep their nodes take there, roughly: most that cannot go elsewhere are known by
//! that alone.

use smallvec::SmallVec;

use crate::{Bytes, JobId, NodeId};

/// How many jobs of a node are known one by one.
const KNOWN: usize = 4;

/// More than any node has: of jobs that may be placed anew.
const NEVER: u16 = u16::MAX;

/// Half a line of the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cell {
    jobs: SmallVec<[JobId; KNOWN]>,
    /// What the first of them take; 0 where unknown.
    takes: [u16; KNOWN],
}

impl Cell {
    fn set(&mut self, at: usize, takes: u16) {
        if let Some(known) = self.takes.get_mut(at) {
            *known = takes;
        }
    }

    fn find(&self, job: JobId) -> usize {
        self.jobs.iter().position(|there| *there == job).expect("it is there")
    }

    /// No job takes less; where not all are known, nobody does but whoever is still to be counted.
    fn least(&self, before: u16) -> u16 {
        let known = self.takes.get(..self.jobs.len());
        known.map_or(before, |known| known.iter().copied().min().unwrap_or(NEVER))
    }
}

/// By node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cells {
    cells: Vec<Cell>,
    /// No job takes less. A table of its own, and small: most questions end here.
    least: Vec<u16>,
}

impl Cells {
    /// Of so many nodes without jobs.
    pub(crate) fn empty(nodes: usize) -> Self {
        Self { cells: vec![Cell::default(); nodes], least: vec![NEVER; nodes] }
    }

    pub(crate) fn jobs(&self, node: NodeId) -> &[JobId] {
        &self.cells[node.0 as usize].jobs
    }

    /// A job came that keeps its place and takes so much, or may be placed anew.
    pub(crate) fn push(&mut self, node: NodeId, job: JobId, takes: Option<Bytes>) {
        let cell = &mut self.cells[node.0 as usize];
        cell.jobs.push(job);
        let at = cell.jobs.len() - 1;
        self.set_at(node, at, takes);
    }

    /// The same of a job that is there.
    pub(crate) fn set(&mut self, node: NodeId, job: JobId, takes: Option<Bytes>) {
        self.set_at(node, self.cells[node.0 as usize].find(job), takes);
    }

    fn set_at(&mut self, node: NodeId, at: usize, takes: Option<Bytes>) {
        let takes = takes.map_or(NEVER, rough);
        let (cell, least) = (&mut self.cells[node.0 as usize], &mut self.least[node.0 as usize]);
        cell.set(at, takes);
        *least = cell.least((*least).min(takes));
    }

    /// The job left; the last one took its place.
    pub(crate) fn remove(&mut self, node: NodeId, job: JobId) {
        let (cell, least) = (&mut self.cells[node.0 as usize], &mut self.least[node.0 as usize]);
        let at = cell.find(job);
        let last = cell.takes.get_mut(cell.jobs.len() - 1).map_or(0, std::mem::take);
        cell.jobs.swap_remove(at);
        if at < cell.jobs.len() {
            cell.set(at, last);
        }
        *least = cell.least(*least);
    }

    /// Those that may do with so much on these nodes; each once.
    pub(crate) fn might_go(&self, rooms: &[(NodeId, u16)]) -> Vec<JobId> {
        let (mut found, mut before): (Vec<JobId>, &[JobId]) = (Vec::new(), &[]);
        for (node, free) in rooms {
            if self.least[node.0 as usize] <= *free {
                let Cell { jobs, takes } = &self.cells[node.0 as usize];
                let takes = takes.iter().chain(std::iter::repeat(&0));
                // A job lies on neighbours most often, and was looked at on the first of them.
                let new =
                    jobs.iter().zip(takes).filter(|(job, takes)| *takes <= free && !before.contains(job));
                found.extend(new.map(|(job, _)| *job));
                before = jobs;
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// No less for more: the place of the highest bit, and the ten bits behind it.
#[allow(clippy::cast_possible_truncation, reason = "six bits and ten")]
pub(crate) const fn rough(Bytes(bytes): Bytes) -> u16 {
    let high = (bytes | 1).ilog2();
    let behind = if high < 10 { bytes << (10 - high) } else { bytes >> (high - 10) };
    (high << 10) as u16 | (behind as u16 & 0x3ff)
}
