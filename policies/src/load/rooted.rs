//! The jobs of a row that keep their nodes: who of them might go where room appeared, without looking at most.
//!
//! Of eight neighbours, those where a job takes as much are one entry, and all entries of these neighbours are a line of the cache most
//! often: on many nodes the wait for memory is what an event costs.

use smallvec::SmallVec;

use crate::{Bytes, JobId, NodeId, Placement, matrix::Seat};

const NEIGHBOURS: usize = 8;

/// With their count, a line of the cache.
const AT_HAND: usize = 7;

/// A job on some of eight neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    job: JobId,
    /// On each of them, [roughly](rough).
    takes: u16,
    /// A bit each.
    nodes: u8,
}

/// What a row has left on eight neighbours, [roughly](rough), and where it has more of it than before.
#[derive(Debug)]
pub(crate) struct Rooms {
    page: usize,
    gaps: u8,
    left: [u16; NEIGHBOURS],
}

impl Rooms {
    /// Where the jobs were that had these places; nothing is left there yet.
    pub(super) fn at(placements: &[Placement]) -> Vec<Self> {
        let mut rooms: Vec<Self> = Vec::new();
        for node in placements.iter().flat_map(Placement::nodes) {
            let (page, bit) = place(node);
            match rooms.last_mut() {
                Some(last) if last.page == page => last.gaps |= bit,
                _ => rooms.push(Self { page, gaps: bit, left: [0; NEIGHBOURS] }),
            }
        }
        rooms.sort_unstable_by_key(|rooms| rooms.page);
        rooms.dedup_by(|more, rooms| {
            let same = more.page == rooms.page;
            rooms.gaps |= if same { more.gaps } else { 0 };
            same
        });
        rooms
    }

    /// So much is left on the nodes from this one on, which may be none of the cluster.
    pub(super) fn fill(mut self, left: impl Fn(usize) -> u16) -> Self {
        self.left = std::array::from_fn(|at| left(self.page * NEIGHBOURS + at));
        self
    }

    /// Whether it reaches into a gap and nothing speaks against it here.
    fn might_take(&self, entry: Entry) -> bool {
        let holds = (0..).zip(&self.left).map(|(bit, left)| u8::from(*left >= entry.takes) << bit);
        entry.nodes & self.gaps != 0 && entry.nodes & !holds.fold(0, |all, bit| all | bit) == 0
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rooted {
    pages: Vec<SmallVec<[Entry; AT_HAND]>>,
}

impl Rooted {
    /// On so many nodes, no jobs.
    pub(super) fn empty(nodes: usize) -> Self {
        Self { pages: vec![SmallVec::new(); nodes.div_ceil(NEIGHBOURS)] }
    }

    /// It is not there yet.
    pub(super) fn insert(&mut self, seat: &Seat) {
        let job = seat.spec.id;
        for block in seat.placement.blocks() {
            let ((page, bit), takes) = (place(block.node), rough(seat.spec.memory_of(block.ranks)));
            let entries = &mut self.pages[page];
            match entries.last_mut() {
                Some(last) if last.job == job && last.takes == takes => last.nodes |= bit,
                _ => entries.push(Entry { job, takes, nodes: bit }),
            }
        }
    }

    /// If it is there.
    pub(super) fn remove(&mut self, seat: &Seat) {
        let mut before = None;
        for node in seat.placement.nodes() {
            let (page, _) = place(node);
            if before.replace(page) != Some(page) {
                let entries = &mut self.pages[page];
                entries.retain(|entry| entry.job != seat.spec.id);
                if entries.spilled() && entries.len() <= AT_HAND {
                    entries.shrink_to_fit();
                }
            }
        }
    }

    /// Those that might go where so much is left, each once.
    pub(super) fn might_go(&self, rooms: &[Rooms]) -> Vec<JobId> {
        let mut found = Vec::new();
        for rooms in rooms {
            let entries = self.pages[rooms.page].iter().filter(|entry| rooms.might_take(**entry));
            found.extend(entries.map(|entry| entry.job));
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The page of a node, and its bit there.
const fn place(node: NodeId) -> (usize, u8) {
    let node = node.0 as usize;
    (node / NEIGHBOURS, 1 << (node % NEIGHBOURS))
}

/// No less for more: the place of the highest bit, and the ten bits behind it.
#[allow(clippy::cast_possible_truncation, reason = "six bits and ten")]
pub(super) const fn rough(Bytes(bytes): Bytes) -> u16 {
    let high = (bytes | 1).ilog2();
    let behind = if high < 10 { bytes << (10 - high) } else { bytes >> (high - 10) };
    (high << 10) as u16 | (behind as u16 & 0x3ff)
}
