//! Sets and tables of jobs, in the order of their numbers: 64 neighbours a page.
//!
//! Who lives at the same time has numbers near each other. So a set of thousands stays in the near cache, where a tree of single numbers
//! does not, and an entry of a table is found without a search; numbers that lie far apart cost a page each.

use std::ops::Index;

use crate::{
    JobId,
    timeshare::index::bits::{Bits, ones},
};

const PAGE: u32 = u64::BITS;
/// Pages.
const SHELF: u32 = 512;

const fn page_of(job: JobId) -> u32 {
    job.0 / PAGE
}

const fn bit_of(job: JobId) -> u64 {
    1 << (job.0 % PAGE)
}

/// A set of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobSet {
    pages: Bits<u32>,
}

impl JobSet {
    pub(crate) fn contains(&self, job: JobId) -> bool {
        self.pages.get(page_of(job)) & bit_of(job) != 0
    }

    /// Whether it was not there.
    pub(crate) fn insert(&mut self, job: JobId) -> bool {
        self.pages.set(page_of(job), bit_of(job)) & bit_of(job) == 0
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, job: JobId) -> bool {
        self.pages.clear(page_of(job), bit_of(job)) & bit_of(job) != 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = JobId> + Clone + '_ {
        self.pages.iter().flat_map(|(page, bits)| ones(bits).map(move |bit| JobId(page * PAGE + bit)))
    }
}

impl FromIterator<JobId> for JobSet {
    fn from_iter<I: IntoIterator<Item = JobId>>(jobs: I) -> Self {
        let mut set = Self::default();
        for job in jobs {
            set.insert(job);
        }
        set
    }
}

/// A table of jobs.
#[derive(Clone, Debug)]
pub struct JobMap<T> {
    shelves: Vec<Option<Box<Shelf<T>>>>,
}

/// Pages, none of them empty.
type Shelf<T> = [Option<Box<Page<T>>>; SHELF as usize];

#[derive(Clone, Debug)]
struct Page<T> {
    used: u64,
    entries: [Option<T>; PAGE as usize],
}

impl<T> Page<T> {
    fn empty() -> Self {
        Self { used: 0, entries: std::array::from_fn(|_| None) }
    }
}

impl<T> Default for JobMap<T> {
    fn default() -> Self {
        Self { shelves: Vec::new() }
    }
}

impl<T: PartialEq> PartialEq for JobMap<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Eq> Eq for JobMap<T> {}

/// The shelf of a job, the page on the shelf, and the entry on the page.
const fn place(job: JobId) -> (usize, usize, usize) {
    let (page, entry) = (page_of(job), job.0 % PAGE);
    ((page / SHELF) as usize, (page % SHELF) as usize, entry as usize)
}

impl<T> JobMap<T> {
    /// What is kept of a job.
    #[must_use]
    pub fn get(&self, job: JobId) -> Option<&T> {
        let (shelf, page, entry) = place(job);
        self.shelves.get(shelf)?.as_ref()?[page].as_ref()?.entries[entry].as_ref()
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, job: JobId) -> Option<&mut T> {
        let (shelf, page, entry) = place(job);
        self.shelves.get_mut(shelf)?.as_mut()?[page].as_mut()?.entries[entry].as_mut()
    }

    /// Whether anything is kept of it.
    #[must_use]
    pub fn contains(&self, job: JobId) -> bool {
        let (shelf, page, _) = place(job);
        let page = self.shelves.get(shelf).and_then(|shelf| shelf.as_ref()?[page].as_ref());
        page.is_some_and(|page| page.used & bit_of(job) != 0)
    }

    /// Keeps it; what was kept before.
    pub fn insert(&mut self, job: JobId, entry: T) -> Option<T> {
        let (shelf, page, at) = place(job);
        if self.shelves.len() <= shelf {
            self.shelves.resize_with(shelf + 1, || None);
        }
        let shelf = self.shelves[shelf].get_or_insert_with(|| Box::new(std::array::from_fn(|_| None)));
        let page = shelf[page].get_or_insert_with(|| Box::new(Page::empty()));
        page.used |= bit_of(job);
        page.entries[at].replace(entry)
    }

    /// Forgets it; what was kept.
    pub fn remove(&mut self, job: JobId) -> Option<T> {
        let (shelf, page, at) = place(job);
        let slot = &mut self.shelves.get_mut(shelf)?.as_mut()?[page];
        let page = slot.as_mut()?;
        let entry = page.entries[at].take()?;
        page.used &= !bit_of(job);
        if page.used == 0 {
            *slot = None;
        }
        Some(entry)
    }

    /// All of them, by their numbers.
    pub fn values(&self) -> impl Iterator<Item = &T> + '_ {
        self.iter().map(|(_, entry)| entry)
    }

    fn iter(&self) -> impl Iterator<Item = (JobId, &T)> + '_ {
        let shelves = (0..).zip(&self.shelves).filter_map(|(at, shelf)| Some((at, shelf.as_ref()?)));
        let pages = shelves.flat_map(|(shelf, pages)| (shelf * SHELF..).zip(pages.iter()));
        pages.filter_map(|(at, page)| Some((at, page.as_ref()?))).flat_map(|(at, page)| {
            let entry = move |bit| Some((JobId(at * PAGE + bit), page.entries[bit as usize].as_ref()?));
            ones(page.used).filter_map(entry)
        })
    }
}

impl<T> Index<JobId> for JobMap<T> {
    type Output = T;

    fn index(&self, job: JobId) -> &T {
        self.get(job).expect("the job is in the table")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_set_and_a_table_are_what_trees_of_single_numbers_are(
            acts in prop::collection::vec((prop_oneof![0u32..200, any::<u32>()], any::<bool>()), 0..400),
        ) {
            let (mut tree, mut set) = (BTreeSet::new(), JobSet::default());
            let (mut map, mut table) = (BTreeMap::new(), JobMap::default());
            for (job, comes) in acts {
                let id = JobId(job);
                if comes {
                    prop_assert_eq!(set.insert(id), tree.insert(id));
                    prop_assert_eq!(table.insert(id, job), map.insert(id, job));
                } else {
                    prop_assert_eq!(set.remove(id), tree.remove(&id));
                    prop_assert_eq!(table.remove(id), map.remove(&id));
                }
                prop_assert_eq!(set.contains(id), comes);
                prop_assert_eq!((table.contains(id), table.get(id)), (comes, map.get(&id)));
            }
            prop_assert!(set.iter().eq(tree.iter().copied()));
            prop_assert!(table.iter().eq(map.iter().map(|(job, entry)| (*job, entry))));
            prop_assert_eq!(set.is_empty(), tree.is_empty());
            prop_assert_eq!(tree.into_iter().collect::<JobSet>(), set);
            for job in map.into_keys() {
                table.remove(job);
            }
            prop_assert_eq!(table, JobMap::default());
        }
    }
}
