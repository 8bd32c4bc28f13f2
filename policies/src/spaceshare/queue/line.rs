//! Waiting jobs in the order of arrival, with fast search for the first job that could fit.
//!
//! Jobs keep their places. A tree over the places holds the smallest request and the shortest limit of each
//! stretch, so stretches of jobs that are too large are skipped as a whole. Insertion, removal and search
//! cost O(log waiting).

use std::{collections::BTreeMap, time::Duration};

use super::QueuedJob;
use crate::JobId;

/// The smallest request and the shortest limit of the jobs of a stretch, each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Least {
    pub(super) units: u32,
    pub(super) limit: Duration,
}

impl Least {
    const NOBODY: Self = Self { units: u32::MAX, limit: Duration::MAX };

    pub(super) const fn of(job: &QueuedJob) -> Self {
        Self { units: job.request.units(), limit: job.limit }
    }

    fn or(self, other: Self) -> Self {
        Self { units: self.units.min(other.units), limit: self.limit.min(other.limit) }
    }
}

#[derive(Clone, Debug)]
pub(super) struct WaitingLine {
    jobs: Vec<Option<QueuedJob>>,
    places: BTreeMap<JobId, usize>,
    /// Leaf `leaves + place`; a parent holds the minimum of its children.
    least: Vec<Least>,
    leaves: usize,
    /// All places before this one are empty.
    head: usize,
}

impl Default for WaitingLine {
    fn default() -> Self {
        Self { jobs: Vec::new(), places: BTreeMap::new(), least: vec![Least::NOBODY; 2], leaves: 1, head: 0 }
    }
}

impl WaitingLine {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn push(&mut self, job: QueuedJob) {
        if self.jobs.len() == self.leaves {
            self.renumber();
        }
        let place = self.jobs.len();
        self.jobs.push(Some(job));
        let before = self.places.insert(job.job, place);
        assert!(before.is_none(), "{} waits once", job.job);
        self.set(place, Least::of(&job));
    }

    pub(super) fn remove(&mut self, job: JobId) -> Option<QueuedJob> {
        let place = self.places.remove(&job)?;
        self.set(place, Least::NOBODY);
        let job = self.jobs[place].take();
        while self.head < self.jobs.len() && self.jobs[self.head].is_none() {
            self.head += 1;
        }
        job
    }

    /// The job that has waited longest, and its place.
    pub(super) fn head(&self) -> Option<(usize, &QueuedJob)> {
        self.jobs.get(self.head)?.as_ref().map(|job| (self.head, job))
    }

    /// The first job from place `from` on for which `may` holds; `may` must hold for a stretch if it holds
    /// for a job in it.
    pub(super) fn find(&self, from: usize, may: impl Fn(Least) -> bool) -> Option<(usize, &QueuedJob)> {
        let place = self.search(1, 0, self.leaves, from, &may)?;
        self.jobs[place].as_ref().map(|job| (place, job))
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &QueuedJob> + '_ {
        self.jobs.iter().flatten()
    }

    fn search(
        &self,
        at: usize,
        first: usize,
        count: usize,
        from: usize,
        may: &impl Fn(Least) -> bool,
    ) -> Option<usize> {
        if first + count <= from || self.least[at] == Least::NOBODY || !may(self.least[at]) {
            return None;
        }
        if count == 1 {
            return Some(first);
        }
        let half = count / 2;
        self.search(2 * at, first, half, from, may)
            .or_else(|| self.search(2 * at + 1, first + half, half, from, may))
    }

    /// Removes empty places and doubles the capacity.
    fn renumber(&mut self) {
        self.jobs.retain(Option::is_some);
        self.head = 0;
        self.leaves = (2 * self.jobs.len()).next_power_of_two().max(8);
        self.least = vec![Least::NOBODY; 2 * self.leaves];
        for (place, job) in self.jobs.iter().flatten().enumerate() {
            self.places.insert(job.job, place);
            self.least[self.leaves + place] = Least::of(job);
        }
        for at in (1..self.leaves).rev() {
            self.least[at] = self.least[2 * at].or(self.least[2 * at + 1]);
        }
    }

    fn set(&mut self, place: usize, least: Least) {
        let mut at = self.leaves + place;
        self.least[at] = least;
        while at > 1 {
            at /= 2;
            self.least[at] = self.least[2 * at].or(self.least[2 * at + 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spaceshare::queue::waiting_job as job;

    #[test]
    fn the_first_that_fits_is_found_behind_a_thousand_that_do_not() {
        let mut line = WaitingLine::default();
        (0..1000).for_each(|id| line.push(job(id, 9, 9)));
        line.push(job(1000, 2, 9));
        line.push(job(1001, 1, 9));
        let fits = |least: Least| least.units <= 3;
        let found = |line: &WaitingLine| line.find(0, fits).map(|(_, job)| job.job.0);
        assert_eq!(found(&line), Some(1000));
        line.remove(JobId(1000));
        assert_eq!(found(&line), Some(1001));
        line.remove(JobId(1001));
        assert_eq!((found(&line), line.len()), (None, 1000));
    }

    #[test]
    fn places_outlive_comings_and_goings() {
        let mut line = WaitingLine::default();
        for id in 0..100 {
            line.push(job(id, 1, 1));
            if id % 3 != 0 {
                line.remove(JobId(id)).unwrap();
            }
        }
        assert_eq!(
            line.iter().map(|job| job.job.0).collect::<Vec<_>>(),
            (0..100).step_by(3).collect::<Vec<_>>()
        );
        assert_eq!(line.head().unwrap().1.job, JobId(0));
        line.remove(JobId(0));
        assert_eq!(line.head().unwrap().1.job, JobId(3));
        assert_eq!(line.remove(JobId(0)), None);
    }
}
