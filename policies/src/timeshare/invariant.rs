//! Check of the invariants of a matrix, made by tests and debug builds.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::{Bytes, JobId, Matrix, MemoryRule, NodeId, Row, SlotId};

/// An invariant that does not hold: a bug in this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A job lies in one row only.
    #[error("{job} lies in two rows")]
    InTwoRows { job: JobId },
    /// A gang is never split.
    #[error("{job} has not all of its ranks in {slot}")]
    NotWhole { job: JobId, slot: SlotId },
    /// The working sets of a cell fit its node.
    #[error("{slot} holds {used} on {node}, which offers {capacity}")]
    OverCapacity { slot: SlotId, node: NodeId, used: Bytes, capacity: Bytes },
    /// A cell holds at most `max_per_cell` jobs.
    #[error("{slot} holds {jobs} jobs on {node}")]
    CellOverfull { slot: SlotId, node: NodeId, jobs: usize },
    /// There are at most `max_rows` rows.
    #[error("there are {rows} rows")]
    TooManyRows { rows: usize },
}

impl Matrix {
    /// Whether every invariant holds.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check(&self) -> Result<(), Violation> {
        let mut seen = BTreeSet::new();
        for row in self.rows() {
            if let Some(job) = row.jobs().find(|job| !seen.insert(*job)) {
                return Err(Violation::InTwoRows { job });
            }
            self.check_row(row)?;
        }
        match self.limits().max_rows {
            Some(max) if self.rows().len() > max as usize => {
                Err(Violation::TooManyRows { rows: self.rows().len() })
            }
            _ => Ok(()),
        }
    }

    fn check_row(&self, row: Row<'_>) -> Result<(), Violation> {
        let (slot, limits) = (row.slot, self.limits());
        if let Some(assignment) =
            row.assignments().find(|assignment| assignment.placement.ranks() != assignment.spec.ranks)
        {
            return Err(Violation::NotWhole { job: assignment.spec.id, slot });
        }
        for (node, capacity) in self.cluster().nodes() {
            let (used, jobs) = (row.memory_on(node), row.jobs_on(node).count());
            if limits.memory == MemoryRule::MustFit && used > capacity {
                return Err(Violation::OverCapacity { slot, node, used, capacity });
            }
            if limits.max_per_cell.is_some_and(|max| jobs > max as usize) {
                return Err(Violation::CellOverfull { slot, node, jobs });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Assignment, Cluster, JobSpec, Limits, Placement, Policy, SimTime};

    fn matrix_with(limits: Limits, jobs: &[(u32, u64, &[u32])]) -> Matrix {
        let assignment = |(id, (ranks, mib, shares)): (u32, &(u32, u64, &[u32]))| {
            let spec = JobSpec {
                id: JobId(id),
                name: "j".into(),
                ranks: *ranks,
                memory_per_rank: Bytes::mib(*mib),
                arrival: SimTime(0),
            };
            Assignment { spec, placement: Placement::from_shares(shares) }
        };
        let assignments = (0..).zip(jobs).map(assignment).collect();
        Matrix::from_rows(Cluster::uniform(2, Bytes::mib(100)), limits, [(SlotId(0), assignments)])
    }

    #[test]
    fn each_broken_invariant_is_named() {
        let (slot, node) = (SlotId(0), NodeId(1));
        let check = |policy, jobs: &[(u32, u64, &[u32])]| matrix_with(Limits::of(policy, None), jobs).check();
        assert_eq!(check(Policy::Hybrid, &[(2, 50, &[1, 1]), (2, 50, &[1, 1])]), Ok(()));
        assert_eq!(check(Policy::Hybrid, &[(2, 50, &[1])]), Err(Violation::NotWhole { job: JobId(0), slot }));
        let (used, capacity) = (Bytes::mib(120), Bytes::mib(100));
        let over = Err(Violation::OverCapacity { slot, node, used, capacity });
        assert_eq!(check(Policy::Hybrid, &[(3, 60, &[1, 2])]), over);
        assert_eq!(check(Policy::Cosched, &[(3, 60, &[1, 2])]), Ok(()));
        let overfull = Err(Violation::CellOverfull { slot, node, jobs: 2 });
        assert_eq!(check(Policy::Gang, &[(2, 10, &[1, 1]), (1, 10, &[0, 1])]), overfull);
    }

    #[test]
    fn a_job_in_two_rows_and_a_row_too_many_are_named() {
        let one = matrix_with(Limits::of(Policy::Batch, None), &[(2, 50, &[1, 1])]);
        let twice = [0, 1].map(|slot| (SlotId(slot), one.row(0).assignments().cloned().collect()));
        let cluster = || Cluster::uniform(2, Bytes::mib(100));
        let broken = Matrix::from_rows(cluster(), Limits::of(Policy::Gang, None), twice);
        assert_eq!(broken.check(), Err(Violation::InTwoRows { job: JobId(0) }));
        let empty = [0, 1].map(|slot| (SlotId(slot), Vec::new()));
        let many = Matrix::from_rows(cluster(), Limits::of(Policy::Batch, None), empty);
        assert_eq!(many.check(), Err(Violation::TooManyRows { rows: 2 }));
    }
}
