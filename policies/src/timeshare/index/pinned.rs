//! The jobs that keep their nodes: who of them might go where room appeared, without looking at most.
//!
//! Of sixteen neighbours, those where a job takes as much are one part of it. The parts on these neighbours lie together, those that take
//! least first, whatever the row: room is offered to all later rows at once. On many nodes the wait for memory is what an event costs.

use smallvec::SmallVec;

use crate::{
    Block, Bytes, JobId, NodeId, Placement, SlotId, timeshare::index::bits::ones,
    timeshare::index::job_map::JobSet, timeshare::matrix::Assignment,
};

const NEIGHBOURS: usize = u16::BITS as usize;
/// So many parts are looked at together, a bit each.
const TOGETHER: usize = u64::BITS as usize;

/// What a job takes of some of sixteen neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    /// On each of them, [size_class](size_class).
    takes: u16,
    /// A bit each.
    nodes: u16,
}

/// Whose part it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    job: JobId,
    /// Its row.
    slot: SlotId,
    /// Where it takes no less, of other neighbours if it can be: wide jobs mostly fail there.
    far: NodeId,
}

/// The jobs on sixteen neighbours, in the order of what they take there, then of their numbers. Two tables: most of them are passed over
/// for their part alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Page {
    parts: Vec<Part>,
    owners: Vec<Owner>,
}

impl Page {
    /// Where it is, or would be; it may have another row there.
    fn find(&self, part: Part, job: JobId) -> Result<usize, usize> {
        let first = self.parts.partition_point(|other| *other < part);
        let alike = self.parts[first..].partition_point(|other| *other == part);
        let found = self.owners[first..first + alike].binary_search_by_key(&job, |owner| owner.job);
        found.map(|at| first + at).map_err(|at| first + at)
    }

    fn insert(&mut self, part: Part, owner: Owner) {
        let (Ok(at) | Err(at)) = self.find(part, owner.job);
        self.parts.insert(at, part);
        self.owners.insert(at, owner);
    }

    fn remove(&mut self, part: Part, job: JobId) {
        let at = self.find(part, job).expect("it lies there");
        self.parts.remove(at);
        self.owners.remove(at);
    }
}

/// What a row has left on sixteen neighbours, and where it has more of it than before.
#[derive(Debug)]
struct Rooms {
    page: usize,
    freed: u16,
    left: [u16; NEIGHBOURS],
    /// In any of the freed.
    most: u16,
}

impl Rooms {
    /// Where the jobs were that had these places, of a row that has so much left on a node; it may be asked of one that is none.
    fn at(placements: &[Placement], left: impl Fn(usize) -> u16) -> impl Iterator<Item = Self> {
        let mut freed: SmallVec<[(usize, u16); 16]> = SmallVec::new();
        for node in placements.iter().flat_map(Placement::nodes) {
            let (page, bit) = place(node);
            match freed.last_mut() {
                Some((last, freed)) if *last == page => *freed |= bit,
                _ => freed.push((page, bit)),
            }
        }
        freed.sort_unstable();
        freed.dedup_by(|(more, bits), (page, freed)| {
            *freed |= if more == page { *bits } else { 0 };
            more == page
        });
        freed.into_iter().map(move |(page, freed)| {
            let left = std::array::from_fn(|at| left(page * NEIGHBOURS + at));
            let most = nodes(freed).map(|at| left[at]).max().unwrap_or_default();
            Self { page, freed, left, most }
        })
    }

    /// Which of these parts, [`TOGETHER`] at most, reach into a gap.
    fn reached_by(&self, parts: &[Part]) -> u64 {
        let reaches = |part: &Part| u64::from(part.nodes & self.freed != 0);
        parts.iter().rev().fold(0, |bits, part| bits << 1 | reaches(part))
    }

    /// Whether nothing speaks against it here: without a branch for each node, of which the processor would guess every other one wrong.
    fn might_take(&self, part: Part) -> bool {
        let lacks = (0..NEIGHBOURS).map(|at| if self.left[at] < part.takes { 1 << at } else { 0 });
        part.nodes & lacks.fold(0, |bits, bit| bits | bit) == 0
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PinnedJobs {
    jobs: JobSet,
    /// Of those that lie in a row.
    pages: Vec<Page>,
}

impl PinnedJobs {
    /// On so many nodes, no jobs.
    pub(crate) fn empty(nodes: usize) -> Self {
        Self { jobs: JobSet::default(), pages: vec![Page::default(); nodes.div_ceil(NEIGHBOURS)] }
    }

    /// Whether the job keeps its nodes.
    pub(crate) fn contains(&self, job: JobId) -> bool {
        self.jobs.contains(job)
    }

    /// Whether the job keeps its nodes from now on; tells whether that is new.
    pub(crate) fn set(&mut self, job: JobId, pinned: bool) -> bool {
        if pinned { self.jobs.insert(job) } else { self.jobs.remove(job) }
    }

    /// A job that keeps its nodes lies in this row from now on.
    pub(crate) fn insert(&mut self, assignment: &Assignment, slot: SlotId) {
        for (page, part, owner) in parts(assignment, slot) {
            self.pages[page].insert(part, owner);
        }
    }

    /// It lies in no row any more.
    pub(crate) fn remove(&mut self, assignment: &Assignment) {
        for (page, part, owner) in parts(assignment, SlotId(0)) {
            self.pages[page].remove(part, owner.job);
        }
    }

    /// It lies in this row from now on, where it lay.
    pub(crate) fn shift(&mut self, assignment: &Assignment, slot: SlotId) {
        for (page, part, owner) in parts(assignment, slot) {
            let at = self.pages[page].find(part, owner.job).expect("it lies there");
            self.pages[page].owners[at] = owner;
        }
    }

    /// Those of the rows asked for that might go where these jobs were: where so much is left, [size_class](size_class). In the order of their
    /// numbers.
    pub(crate) fn might_go(
        &self,
        placements: &[Placement],
        left: impl Fn(usize) -> u16,
        is_asked_for: impl Fn(SlotId) -> bool,
    ) -> Vec<JobId> {
        let mut found = Vec::new();
        for rooms in Rooms::at(placements, &left) {
            let Page { parts, owners } = &self.pages[rooms.page];
            let pieces = parts.chunks(TOGETHER).zip(owners.chunks(TOGETHER));
            for (parts, owners) in pieces.take_while(|(parts, _)| parts[0].takes <= rooms.most) {
                let reached = ones(rooms.reached_by(parts)).map(|at| at as usize);
                for at in reached.filter(|at| rooms.might_take(parts[*at])) {
                    let Owner { job, slot, far } = owners[at];
                    if parts[at].takes <= left(far.0 as usize) && is_asked_for(slot) {
                        found.push(job);
                    }
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Of a job in this row, each with its page.
fn parts(assignment: &Assignment, slot: SlotId) -> impl Iterator<Item = (usize, Part, Owner)> + '_ {
    let takes = |block: Block| size_class(assignment.spec.memory_of(block.ranks));
    let blocks = assignment.placement.blocks();
    let ends = [blocks.clone().next(), blocks.clone().next_back()];
    let ends = ends.map(|end| end.map(|end| (end.node, takes(end))));
    let mut singles = blocks.map(move |block| {
        let (page, nodes) = place(block.node);
        (page, Part { takes: takes(block), nodes }, block.node)
    });
    let mut next = singles.next();
    std::iter::from_fn(move || {
        let (page, mut part, node) = next?;
        next = singles.find(|(other, more, _)| {
            let same = *other == page && more.takes == part.takes;
            part.nodes |= if same { more.nodes } else { 0 };
            !same
        });
        let is_far = |(node, takes): &(NodeId, u16)| place(*node).0 != page && part.takes <= *takes;
        let far = ends.into_iter().flatten().find(is_far).map_or(node, |(far, _)| far);
        Some((page, part, Owner { job: assignment.spec.id, slot, far }))
    })
}

/// The places of these bits.
fn nodes(bits: u16) -> impl Iterator<Item = usize> {
    ones(bits.into()).map(|bit| bit as usize)
}

/// The page of a node, and its bit there.
const fn place(node: NodeId) -> (usize, u16) {
    let node = node.0 as usize;
    (node / NEIGHBOURS, 1 << (node % NEIGHBOURS))
}

/// No less for more: the place of the highest bit, and the ten bits behind it.
#[allow(clippy::cast_possible_truncation, reason = "six bits and ten")]
pub(crate) const fn size_class(Bytes(bytes): Bytes) -> u16 {
    let high = (bytes | 1).ilog2();
    let behind = if high < 10 { bytes << (10 - high) } else { bytes >> (high - 10) };
    (high << 10) as u16 | (behind as u16 & 0x3ff)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Cluster, JobSpec, Limits, MemoryRule, SimTime, placement::Shape, timeshare::index::load::Load,
    };

    const NODES: u32 = 50;

    /// A row with those of these jobs that it takes: ranks, and MiB of each.
    fn filled(limits: Limits, capacity: u64, wishes: Vec<(u32, u64)>) -> (Load, Vec<Assignment>) {
        let cluster = Cluster::uniform(NODES, Bytes::mib(capacity));
        let (mut load, mut assignments) = (Load::empty(&cluster, limits), Vec::new());
        for (id, (ranks, mib)) in (0..).zip(wishes) {
            let memory_per_rank = Bytes::mib(mib);
            let spec =
                JobSpec { id: JobId(id), name: "j".into(), ranks, memory_per_rank, arrival: SimTime(0) };
            let shape = Shape::on_empty(&spec, &cluster, limits.memory);
            let Some(placement) = shape.and_then(|shape| load.plan(&spec, shape)) else { continue };
            let assignment = Assignment { spec, placement };
            load.add(&assignment, (mib, 0), false);
            assignments.push(assignment);
        }
        (load, assignments)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn who_might_go_is_whoever_another_row_takes_where_it_has_room_now(
            capacity in 500u64..2000,
            here in prop::collection::vec((1u32..70, 1u64..400), 1..20),
            there in prop::collection::vec((1u32..70, 1u64..400), 0..20),
            gap in prop::collection::vec(any::<bool>(), NODES as usize),
            memory in prop_oneof![Just(MemoryRule::MustFit), Just(MemoryRule::Ignored)],
        ) {
            let limits = Limits { max_rows: None, max_per_cell: Some(9), memory };
            let ((_, assignments), (to, _)) = (filled(limits, capacity, here), filled(limits, capacity, there));
            let (empty, slot) = (PinnedJobs::empty(NODES as usize), SlotId(7));
            let mut pinned = empty.clone();
            assignments.iter().for_each(|assignment| pinned.insert(assignment, SlotId(3)));
            assignments.iter().for_each(|assignment| pinned.shift(assignment, slot));
            let shares: Vec<u32> = gap.iter().map(|is_gap| u32::from(*is_gap)).collect();
            let freed = [Placement::from_shares(&shares)];
            let found = pinned.might_go(&freed, |node| to.left(node), |of| of == slot);
            for assignment in &assignments {
                let reaches = assignment.placement.nodes().any(|node| gap[node.0 as usize]);
                let is_found = found.contains(&assignment.spec.id);
                prop_assert!(!(reaches && to.holds_in_place(assignment)) || is_found, "whoever goes is found");
                prop_assert!(reaches || !is_found, "nobody is looked at in vain without room there");
            }
            prop_assert_eq!(pinned.might_go(&freed, |node| to.left(node), |_| false), []);
            assignments.iter().for_each(|assignment| pinned.remove(assignment));
            prop_assert_eq!(pinned, empty);
        }
    }
}
