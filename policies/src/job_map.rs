//! Sets and tables of jobs, in the order of their numbers: 64 neighbours a page.
//!
//! Who lives at the same time has numbers near each other. So a set of thousands stays in the near cache, where a tree of single numbers
//! does not, and an entry of a table is one step from a tree that does; numbers that lie far apart cost a page each.

use std::{collections::BTreeMap, ops::Index};

use crate::JobId;

const PAGE: u32 = u64::BITS;

const fn page_of(job: JobId) -> u32 {
    job.0 / PAGE
}

const fn bit_of(job: JobId) -> u64 {
    1 << (job.0 % PAGE)
}

/// Which bits are set, from the lowest on.
pub(crate) fn ones(mut bits: u64) -> impl Iterator<Item = u32> + Clone {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(lowest)
    })
}

/// A set of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobSet {
    /// None of them empty.
    pages: BTreeMap<u32, u64>,
}

impl JobSet {
    pub(crate) fn contains(&self, job: JobId) -> bool {
        self.pages.get(&page_of(job)).is_some_and(|bits| bits & bit_of(job) != 0)
    }

    /// Whether it was not there.
    pub(crate) fn insert(&mut self, job: JobId) -> bool {
        let bits = self.pages.entry(page_of(job)).or_default();
        let new = *bits & bit_of(job) == 0;
        *bits |= bit_of(job);
        new
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, job: JobId) -> bool {
        let Some(bits) = self.pages.get_mut(&page_of(job)).filter(|bits| **bits & bit_of(job) != 0) else {
            return false;
        };
        *bits &= !bit_of(job);
        if *bits == 0 {
            self.pages.remove(&page_of(job));
        }
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = JobId> + Clone + '_ {
        self.pages.iter().flat_map(|(page, bits)| ones(*bits).map(move |bit| JobId(page * PAGE + bit)))
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobMap<T> {
    /// None of them empty.
    pages: BTreeMap<u32, Page<T>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Page<T> {
    used: u64,
    entries: Box<[Option<T>; PAGE as usize]>,
}

impl<T> Default for JobMap<T> {
    fn default() -> Self {
        Self { pages: BTreeMap::new() }
    }
}

impl<T> JobMap<T> {
    /// What is kept of a job.
    #[must_use]
    pub fn get(&self, job: JobId) -> Option<&T> {
        self.pages.get(&page_of(job))?.entries[(job.0 % PAGE) as usize].as_ref()
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, job: JobId) -> Option<&mut T> {
        self.pages.get_mut(&page_of(job))?.entries[(job.0 % PAGE) as usize].as_mut()
    }

    /// Whether anything is kept of it.
    #[must_use]
    pub fn contains(&self, job: JobId) -> bool {
        self.pages.get(&page_of(job)).is_some_and(|page| page.used & bit_of(job) != 0)
    }

    /// Keeps it; what was kept before.
    pub fn insert(&mut self, job: JobId, entry: T) -> Option<T> {
        let empty = || Page { used: 0, entries: Box::new(std::array::from_fn(|_| None)) };
        let page = self.pages.entry(page_of(job)).or_insert_with(empty);
        page.used |= bit_of(job);
        page.entries[(job.0 % PAGE) as usize].replace(entry)
    }

    /// Forgets it; what was kept.
    pub fn remove(&mut self, job: JobId) -> Option<T> {
        let page = self.pages.get_mut(&page_of(job))?;
        let entry = page.entries[(job.0 % PAGE) as usize].take()?;
        page.used &= !bit_of(job);
        if page.used == 0 {
            self.pages.remove(&page_of(job));
        }
        Some(entry)
    }

    /// All of them, by their numbers.
    pub fn values(&self) -> impl Iterator<Item = &T> + '_ {
        self.pages.values().flat_map(|page| page.entries.iter().flatten())
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
    use std::collections::BTreeSet;

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
            prop_assert!(table.values().eq(map.values()));
            prop_assert_eq!(set.is_empty(), tree.is_empty());
            prop_assert_eq!(tree.into_iter().collect::<JobSet>(), set);
        }
    }
}
