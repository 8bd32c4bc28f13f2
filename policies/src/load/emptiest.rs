//! The nodes of a row by how empty they are: fewest jobs first, then most memory left, then by number.
//!
//! Of 64 neighbours, those that are equally empty are one entry, a bit each. A job lies on neighbours where it can, so it is few
//! entries wherever it goes, and the whole is small: on many nodes the wait for memory is what an event costs.

use crate::{
    Bytes, Limits, NodeId,
    bits::{Bits, ones},
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
pub(crate) const fn bit(node: NodeId) -> u64 {
    1 << (node.0 % NEIGHBOURS)
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Emptiest {
    split: Split,
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
    /// Of so many nodes, which are still to come.
    pub(crate) fn new(nodes: usize) -> Self {
        let last = nodes.saturating_sub(1) / NEIGHBOURS as usize;
        Self { split: Split(usize::BITS - last.leading_zeros()), classes: Vec::new() }
    }

    /// These neighbours have come to `place`.
    pub(crate) fn enter(&mut self, place: Place, bits: u64) {
        let (jobs, room) = (place.jobs as usize, self.split.room(place.free, place.page));
        if self.classes.len() <= jobs {
            self.classes.resize_with(jobs + 1, Class::default);
        }
        let class = &mut self.classes[jobs];
        class.rooms.set(room, bits);
        class.count += bits.count_ones();
    }

    /// These neighbours go from one place to another.
    fn shift(&mut self, from: Place, to: Place, bits: u64) {
        if from != to && bits != 0 {
            self.leave(from, bits);
            self.enter(to, bits);
        }
    }

    fn leave(&mut self, place: Place, bits: u64) {
        let room = self.split.room(place.free, place.page);
        let class = &mut self.classes[place.jobs as usize];
        let there = class.rooms.clear(room, bits);
        assert_eq!(there & bits, bits, "they are there");
        class.count -= bits.count_ones();
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

    /// The nodes with so many jobs and the memory left of each, the emptiest first.
    pub(crate) fn class(&self, jobs: u32) -> impl Iterator<Item = (NodeId, Bytes)> + '_ {
        self.of(jobs).flat_map(|(place, bits)| ones(bits).map(move |bit| (place.node(bit), place.free)))
    }

    /// Of the nodes with so many jobs the one with the least memory left, the first of equals.
    pub(crate) fn fullest(&self, jobs: u32) -> Option<(Bytes, NodeId)> {
        let mut places = self.of(jobs).rev().peekable();
        let (last, _) = *places.peek()?;
        let (first, bits) = places.take_while(|(place, _)| place.free == last.free).last()?;
        Some((first.free, first.node(bits.trailing_zeros())))
    }

    fn of(&self, jobs: u32) -> impl DoubleEndedIterator<Item = (Place, u64)> + '_ {
        let rooms = self.classes.get(jobs as usize).into_iter().flat_map(|class| class.rooms.iter());
        rooms.map(move |(room, bits)| (self.split.place(jobs, room), bits))
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
            self.is_gone[from.page as usize] &= !bits;
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
