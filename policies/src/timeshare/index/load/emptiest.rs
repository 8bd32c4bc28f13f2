//! The nodes of a row by how empty they are: fewest jobs first, then most memory left, then by number.
//!
//! Only the nodes where anybody who was looked at so far might fit have entries: most others come and go below that.
//! Of 64 neighbours, those that are equally empty are one entry, a bit each. A job lies on neighbours where it can, so it is few
//! entries wherever it goes, and the whole is small: on many nodes the wait for memory is what an event costs.

use crate::{
    Bytes, Limits, NodeId,
    timeshare::index::bits::{Bits, ones},
};

const NEIGHBOURS: u32 = u64::BITS;

/// How empty a node is, and its page of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    jobs: u32,
    page: u32,
    free: Bytes,
}

impl Place {
    /// Of a node with so many jobs and so much memory left.
    pub(crate) const fn new(jobs: u32, free: Bytes, node: NodeId) -> Self {
        Self { jobs, page: node.0 / NEIGHBOURS, free }
    }

    const fn node(self, bit: u32) -> NodeId {
        NodeId(self.page * NEIGHBOURS + bit)
    }
}

/// What is left of a node's memory, the most first, then its page of neighbours: in one word, for it is compared more than anything else.
/// On a million nodes, more than a pebibyte counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Room(u64);

/// How a [`Room`] is made and read: how many of its bits are the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split(u32);

impl Split {
    const fn most(self) -> u64 {
        u64::MAX >> self.0
    }

    fn room(self, free: Bytes, page: u32) -> Room {
        Room((self.most() - free.0.min(self.most())) << self.0 | u64::from(page))
    }

    #[allow(clippy::cast_possible_truncation, reason = "the part is taken")]
    const fn place(self, jobs: u32, Room(room): Room) -> Place {
        let page = room & !(u64::MAX << self.0);
        Place { jobs, page: page as u32, free: Bytes(self.most() - (room >> self.0)) }
    }
}

/// The bit of a node among its neighbours.
const fn bit(node: NodeId) -> u64 {
    1 << (node.0 % NEIGHBOURS)
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Emptiest {
    split: Split,
    /// Nodes with less left are counted, and have no entry: nobody asked for so little.
    floor: Bytes,
    /// By the number of their jobs, from none on; the last of these is not empty. By itself each: to look through one from its begin on is
    /// all that is asked most often.
    classes: Vec<Class>,
}

/// The nodes with so many jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Class {
    rooms: Bits<Room>,
    count: u32,
}

impl Emptiest {
    /// Of so many nodes.
    fn of(nodes: u32, floor: Bytes, place: impl Fn(NodeId) -> Place) -> Self {
        let last = nodes.saturating_sub(1) / NEIGHBOURS;
        let mut index = Self { split: Split(u32::BITS - last.leading_zeros()), floor, classes: Vec::new() };
        (0..nodes).map(NodeId).for_each(|node| index.enter(place(node), bit(node)));
        index
    }

    /// These neighbours have come to `place`.
    fn enter(&mut self, place: Place, bits: u64) {
        let jobs = place.jobs as usize;
        if self.classes.len() <= jobs {
            self.classes.resize_with(jobs + 1, Class::default);
        }
        let class = &mut self.classes[jobs];
        class.count += bits.count_ones();
        if place.free >= self.floor {
            class.rooms.set(self.split.room(place.free, place.page), bits);
        }
    }

    /// These neighbours go from one place to another.
    fn shift(&mut self, from: Place, to: Place, bits: u64) {
        if from != to && bits != 0 {
            self.leave(from, bits);
            self.enter(to, bits);
        }
    }

    fn leave(&mut self, place: Place, bits: u64) {
        let class = &mut self.classes[place.jobs as usize];
        class.count -= bits.count_ones();
        if place.free >= self.floor {
            let there = class.rooms.clear(self.split.room(place.free, place.page), bits);
            assert_eq!(there & bits, bits, "they are there");
        }
        while self.classes.pop_if(|class| class.count == 0).is_some() {}
    }

    /// The numbers of jobs of cells that take one more, rising.
    pub(crate) fn open_classes(&self, limits: Limits) -> impl Iterator<Item = u32> + '_ {
        let open = move |(jobs, _): &(u32, &Class)| limits.opens(*jobs);
        let classes = (0..).zip(&self.classes).take_while(open);
        classes.filter(|(_, class)| class.count > 0).map(|(jobs, _)| jobs)
    }

    /// How many nodes hold so many jobs.
    pub(crate) fn count(&self, jobs: u32) -> u32 {
        self.classes.get(jobs as usize).map_or(0, |class| class.count)
    }

    /// The nodes with so many jobs, and the memory left of each, the emptiest first, as far as anybody is looked at.
    pub(crate) fn class(&self, jobs: u32) -> impl Iterator<Item = (NodeId, Bytes)> + '_ {
        let rooms = self.classes.get(jobs as usize).into_iter().flat_map(|class| class.rooms.iter());
        let places = rooms.map(move |(room, bits)| (self.split.place(jobs, room), bits));
        places.flat_map(|(place, bits)| ones(bits).map(move |bit| (place.node(bit), place.free)))
    }
}

/// The index, and who has gone elsewhere since it was asked: jobs that end one after the other on a node are one change.
#[derive(Clone, Debug)]
pub(crate) struct LazyIndex {
    index: Emptiest,
    /// Neighbours, and where the index has them.
    gone: Vec<(Place, u64)>,
    /// All of these, by the page of neighbours.
    is_gone: Vec<u64>,
    /// Of the nodes that take one more job the one with the least memory left, the first of equals; where it is known.
    fullest: Option<(Bytes, NodeId)>,
}

/// It follows from what the nodes hold; two of them may lag behind the same differently.
impl PartialEq for LazyIndex {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LazyIndex {}

impl LazyIndex {
    /// Of so many nodes.
    pub(crate) fn new(nodes: u32, place: impl Fn(NodeId) -> Place) -> Self {
        let index = Emptiest::of(nodes, Bytes(u64::MAX), place);
        Self { index, gone: Vec::new(), is_gone: vec![0; nodes.div_ceil(NEIGHBOURS) as usize], fullest: None }
    }

    /// The node, which is at this place still, is about to leave it.
    #[inline]
    pub(crate) fn note(&mut self, node: NodeId, place: Place) {
        if self.fullest.is_some_and(|(_, fullest)| fullest == node) {
            self.fullest = None;
        }
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
    pub(crate) fn refresh(&mut self, limits: Limits, place: impl Fn(NodeId) -> Place) {
        for (from, bits) in self.gone.drain(..) {
            self.is_gone[from.page as usize] &= !bits;
            let (mut to, mut alike) = (from, 0);
            for bit in ones(bits) {
                let (node, there) = (from.node(bit), place(from.node(bit)));
                if there != to {
                    self.index.shift(from, to, alike);
                    (to, alike) = (there, 0);
                }
                alike |= 1 << bit;
                if let Some(fullest) = &mut self.fullest
                    && limits.opens(there.jobs)
                {
                    *fullest = (*fullest).min((there.free, node));
                }
            }
            self.index.shift(from, to, alike);
        }
    }

    /// From now on nodes with so much left are looked at too, and a little below, lest this is asked for often.
    pub(crate) fn look_down_to(&mut self, least: Bytes, nodes: u32, place: impl Fn(NodeId) -> Place) {
        if least < self.index.floor {
            let floor = least.0.checked_ilog2().map_or(0, |high| 1 << high);
            self.index = Emptiest::of(nodes, Bytes(floor), place);
        }
    }

    /// Of all these nodes, which take one more job, that with the least memory left, the first of equals. They are looked at only if it is
    /// not known: once, until that very node changes.
    pub(crate) fn fullest(
        &mut self,
        nodes: impl Iterator<Item = (Bytes, NodeId)>,
    ) -> Option<(Bytes, NodeId)> {
        self.fullest = self.fullest.or_else(|| nodes.min());
        self.fullest
    }

    /// The index as it was left.
    pub(crate) const fn get(&self) -> &Emptiest {
        &self.index
    }
}
