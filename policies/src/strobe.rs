//! Warm gang switching (paper 004, §3.2): jobs that all stay in memory take slices, on all nodes at once and
//! without a cut.
//!
//! ```text
//!   slice    0      1      2      3         a strobe says, once for many slices: these rows, slices of this
//!   row    ┌──────┬──────┬──────┬──────┐    length, the first one then. Each node goes by its own clock
//!          │ A  B │ C    │ A  B │ C    │    from there on, until another strobe comes.
//!          └──────┴──────┴──────┴──────┘
//! ```
//! Messages for a rank whose slice is over wait in the network, as those for a rank that computes do.

use std::{collections::BTreeSet, ops::Range, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{JobId, NodeId, Placement};

/// Which jobs have which slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    pub slice: Duration,
    /// In the order of their slices. The jobs of one row share no node.
    pub rows: Vec<BTreeSet<JobId>>,
}

impl Rows {
    /// Gives each job, in this order, a place in the first row where all of its nodes are free.
    #[must_use]
    pub fn of<'a>(slice: Duration, jobs: impl IntoIterator<Item = (JobId, &'a Placement)>) -> Self {
        let mut rows: Vec<(BTreeSet<JobId>, BTreeSet<NodeId>)> = Vec::new();
        for (job, placement) in jobs {
            let is_free = |(_, taken): &&mut (_, BTreeSet<NodeId>)| {
                placement.nodes().all(|node| !taken.contains(&node))
            };
            match rows.iter_mut().find(is_free) {
                Some((jobs, taken)) => {
                    jobs.insert(job);
                    taken.extend(placement.nodes());
                }
                None => rows.push(([job].into(), placement.nodes().collect())),
            }
        }
        Self { slice, rows: rows.into_iter().map(|(jobs, _)| jobs).collect() }
    }

    /// The jobs that stand still in the slice of this row. One in no row runs in every slice.
    #[must_use]
    pub fn others(&self, row: usize) -> BTreeSet<JobId> {
        let others = self.rows.iter().enumerate().filter(|(at, _)| *at != row);
        others.flat_map(|(_, jobs)| jobs).copied().collect()
    }
}

/// Rows, and when the first of them begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strobe {
    pub rows: Rows,
    /// By the clock of whoever holds the strobe, as nanoseconds.
    pub begin: i64,
}

/// The slice at some instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Whose it is; `None`: all jobs run.
    pub row: Option<usize>,
    /// When the next one begins, as nanoseconds; `None` where that changes nothing.
    pub until: Option<i64>,
}

impl Slice {
    const ALWAYS: Self = Self { row: None, until: None };
}

impl Strobe {
    /// The slice at `now`, as nanoseconds of the same clock; before the strobe begins there is none.
    #[must_use]
    pub fn at(&self, now: i64) -> Option<Slice> {
        let slice = self.turn(now, self.rows.rows.len())?;
        Some(if self.rows.rows.len() < 2 { Slice::ALWAYS } else { slice })
    }

    /// The same for a node scheduler: a single row has its slots too, and the last slot of each round is of
    /// no row, for all that is in none.
    #[must_use]
    pub fn slot(&self, now: i64) -> Option<Slice> {
        let count = self.rows.rows.len();
        let slot = self.turn(now, count + 1)?;
        Some(Slice { row: slot.row.filter(|row| *row < count), ..slot })
    }

    /// When the present exchange of a slot has begun and the next one does, `count` of which share the slot
    /// evenly (BCS; paper 000, §2.3.2).
    #[must_use]
    pub fn exchange(&self, now: i64, count: u32) -> Option<Range<i64>> {
        let since = now.checked_sub(self.begin).filter(|since| *since >= 0)?;
        let slice = i64::try_from(self.rows.slice.as_nanos()).ok().filter(|slice| *slice > 0)?;
        let (slot, within, count) = (since / slice, since % slice, i64::from(count.max(1)));
        let present = within.checked_mul(count)? / slice;
        let slot = self.begin + slot * slice;
        // The first instant that counts to an exchange.
        let begin = |exchange: i64| Some(slot + exchange.checked_mul(slice)?.checked_add(count - 1)? / count);
        Some(begin(present)?..begin(present + 1)?)
    }

    /// Less than a quarter of the present slice is left: too late to begin it.
    #[must_use]
    pub fn is_nearly_over(&self, now: i64) -> bool {
        let left = self.at(now).and_then(|slice| slice.until).map(|until| until - now);
        left.is_some_and(|left| u128::from(left.unsigned_abs()) * 4 < self.rows.slice.as_nanos())
    }

    /// Of so many turns.
    fn turn(&self, now: i64, count: usize) -> Option<Slice> {
        let since = now.checked_sub(self.begin).filter(|since| *since >= 0)?;
        let slice = i64::try_from(self.rows.slice.as_nanos()).unwrap_or(i64::MAX);
        if count == 0 || slice == 0 {
            return Some(Slice::ALWAYS);
        }
        let number = since / slice;
        let row = usize::try_from(number % i64::try_from(count).unwrap_or(1)).ok();
        Some(Slice { row, until: Some(self.begin + (number + 1) * slice) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SLICE: Duration = Duration::from_nanos(10);

    fn placed(shares: &[u32]) -> Placement {
        Placement::from_shares(shares)
    }

    fn jobs(ids: &[u32]) -> BTreeSet<JobId> {
        ids.iter().map(|id| JobId(*id)).collect()
    }

    #[test]
    fn jobs_on_other_nodes_share_a_slice() {
        let placements = [placed(&[1, 1, 0]), placed(&[1, 0, 0]), placed(&[0, 0, 2]), placed(&[0, 1, 1])];
        let all = (0..).map(JobId).zip(&placements);
        let rows = Rows::of(SLICE, all);
        assert_eq!(rows.rows, [jobs(&[0, 2]), jobs(&[1, 3])]);
        assert_eq!((rows.others(0), rows.others(1)), (jobs(&[1, 3]), jobs(&[0, 2])));
        let strobe = Strobe { rows, begin: 100 };
        let slice = |row, until| Some(Slice { row: Some(row), until: Some(until) });
        assert_eq!(strobe.at(99), None);
        assert_eq!(strobe.at(100), slice(0, 110));
        assert_eq!(strobe.at(119), slice(1, 120));
        assert_eq!(strobe.at(120), slice(0, 130));
    }

    #[test]
    fn a_single_row_runs_all_the_time() {
        let rows = Rows::of(SLICE, [(JobId(3), &placed(&[1]))]);
        assert_eq!(Strobe { rows, begin: 5 }.at(7), Some(Slice { row: None, until: None }));
        let none = Rows::of(SLICE, []);
        assert_eq!(Strobe { rows: none, begin: 5 }.at(7), Some(Slice { row: None, until: None }));
    }

    #[test]
    fn exchanges_share_a_slot_evenly() {
        let strobe = Strobe { rows: Rows::of(SLICE, []), begin: 100 };
        let all = |count| {
            let next = |now: &i64| Some(strobe.exchange(*now, count)?.end);
            std::iter::successors(Some(100), next).take_while(|at| *at <= 120).collect::<Vec<_>>()
        };
        assert_eq!(all(1), [100, 110, 120]);
        assert_eq!(all(2), [100, 105, 110, 115, 120]);
        assert_eq!(all(3), [100, 104, 107, 110, 114, 117, 120], "slots begin on time");
        assert_eq!(strobe.exchange(106, 3), Some(104..107));
        assert_eq!(strobe.exchange(107, 3), Some(107..110));
        assert_eq!(strobe.exchange(99, 3), None, "the strobe has not begun");
    }

    #[test]
    fn the_last_quarter_of_a_slice_is_too_late_to_begin_it() {
        let rows = Rows::of(SLICE, [(JobId(0), &placed(&[1])), (JobId(1), &placed(&[1]))]);
        let strobe = Strobe { rows, begin: 100 };
        assert!(!strobe.is_nearly_over(107) && strobe.is_nearly_over(108) && !strobe.is_nearly_over(110));
    }

    proptest! {
        /// Never two jobs on a node in one slice, and each job has one slice of each round.
        #[test]
        fn each_job_has_a_slice_and_no_node_two_jobs(
            shares in prop::collection::vec(prop::collection::vec(0u32..3, 4), 1..12),
        ) {
            let placements = shares.iter().map(|shares| placed(shares));
            let placements: Vec<Placement> = placements.filter(|placed| placed.width() > 0).collect();
            let all: Vec<(JobId, &Placement)> = (0..).map(JobId).zip(&placements).collect();
            let rows = Rows::of(SLICE, all.iter().copied());
            for (job, _) in &all {
                prop_assert_eq!(rows.rows.iter().filter(|row| row.contains(job)).count(), 1);
            }
            for row in &rows.rows {
                let nodes: Vec<NodeId> =
                    all.iter().filter(|(job, _)| row.contains(job)).flat_map(|(_, at)| at.nodes()).collect();
                prop_assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), nodes.len());
            }
            let strobe = Strobe { rows: rows.clone(), begin: -7 };
            let mut now = -7;
            let count = rows.rows.len();
            for row in (0..count).cycle().take(3 * count).filter(|_| count > 1) {
                let slice = strobe.at(now).expect("it has begun");
                prop_assert_eq!(slice.row, Some(row));
                now = slice.until.expect("there are others");
            }
        }
    }
}
