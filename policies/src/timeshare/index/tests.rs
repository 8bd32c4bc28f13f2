//! The indices against scans of all nodes and jobs: after any act on a matrix both give the same answers.

use std::cmp::Reverse;

use proptest::prelude::*;

use crate::{
    Assignment, Bytes, Cluster, JobId, JobSpec, Limits, Matrix, MemoryRule, NodeId, Placement,
    RejectionCause, Row, SimTime, SlotId,
    placement::{FreeCapacity, Shape, plan_placement},
    timeshare::matrix::SizeOrder,
};

/// The plain code: it looks at the assignments of the matrix and at nothing else.
struct Scan<'a>(&'a Matrix);

impl Scan<'_> {
    fn free_capacity(&self, row: Row<'_>, node: NodeId) -> FreeCapacity {
        let jobs = u32::try_from(row.jobs_on(node).count()).unwrap();
        let free = Bytes(self.0.cluster().capacity(node).0.saturating_sub(row.memory_on(node).0));
        FreeCapacity { open: self.0.limits().opens(jobs), jobs, free }
    }

    fn free_capacities(&self, row: Row<'_>) -> Vec<FreeCapacity> {
        self.0.cluster().nodes().map(|(node, _)| self.free_capacity(row, node)).collect()
    }

    fn try_placement(&self, row: Row<'_>, job: &JobSpec, shape: Shape) -> Result<Placement, RejectionCause> {
        let nodes = self.free_capacities(row);
        plan_placement(job, shape, &nodes, self.0.limits().memory).ok_or_else(|| {
            let open = (0..).map(NodeId).zip(&nodes).filter(|(_, left)| left.open);
            let count = u32::try_from(open.clone().count()).unwrap();
            if count < shape.width {
                return RejectionCause::Cells { needs: shape.width, open: count };
            }
            let (free, node) = open.map(|(node, left)| (left.free, node)).min().unwrap();
            RejectionCause::Memory { node, needs: job.memory_of(job.ranks.div_ceil(shape.width)), free }
        })
    }

    fn holds_in_place(&self, row: Row<'_>, assignment: &Assignment) -> bool {
        assignment.placement.nodes().all(|node| {
            let left = self.free_capacity(row, node);
            let fits = assignment.memory_on(node) <= left.free;
            left.open && (fits || self.0.limits().memory == MemoryRule::Ignored)
        })
    }

    fn pinned_for(&self, index: usize, placements: &[Placement]) -> Vec<(SizeOrder, SlotId)> {
        let mut found = Vec::new();
        for row in self.0.rows().skip(index + 1) {
            let is_freed = |node: NodeId| placements.iter().any(|freed| freed.count_on(node) > 0);
            let fits = |assignment: &&Assignment| {
                self.0.is_pinned(assignment.spec.id)
                    && assignment.placement.nodes().any(is_freed)
                    && self.holds_in_place(self.0.row(index), assignment)
            };
            let fitting = row.assignments().filter(fits);
            found.extend(fitting.map(|assignment| (self.0.size_order(&assignment.spec), row.slot)));
        }
        found.sort_unstable();
        found
    }

    /// The movable jobs of `from` that `to` has enough nodes for, each with memory for a rank.
    fn movable(&self, from: Row<'_>, to: Row<'_>) -> Vec<SizeOrder> {
        let open = self.free_capacities(to).into_iter().filter(|left| left.open);
        let fits = |job: &JobSpec| {
            let nodes = open.clone().filter(|left| job.memory_per_rank <= left.free);
            nodes.count() >= self.0.shape_of(job).unwrap().width as usize
        };
        let jobs = from.assignments().map(|assignment| &assignment.spec);
        let movable = jobs.filter(|job| !self.0.is_pinned(job.id) && fits(job));
        let mut movable: Vec<SizeOrder> = movable.map(|job| self.0.size_order(job)).collect();
        movable.sort_unstable();
        movable
    }

    fn might_be_one_row(&self) -> bool {
        let limits = self.0.limits();
        let all = || self.0.rows().flat_map(Row::assignments);
        let memory: u64 = all().map(|assignment| assignment.spec.memory().0).sum();
        let cells: usize = all().map(|assignment| assignment.placement.width()).sum();
        let offered: u64 = self.0.cluster().nodes().map(|(_, capacity)| capacity.0).sum();
        let open = limits.max_per_cell.is_none_or(|max| cells <= max as usize * self.0.cluster().len());
        open && (memory <= offered || limits.memory == MemoryRule::Ignored)
    }
}

fn compare(matrix: &Matrix, job: &JobSpec, freed: &[Placement]) -> Result<(), TestCaseError> {
    let scan = Scan(matrix);
    prop_assert_eq!(matrix.might_be_one_row(), scan.might_be_one_row());
    for (index, row) in matrix.rows().enumerate() {
        prop_assert_eq!(matrix.free_capacities(index), scan.free_capacities(row));
        if let Some(shape) = matrix.shape_of(job) {
            prop_assert_eq!(matrix.try_placement(index, job, shape), scan.try_placement(row, job, shape));
        }
        for assignment in matrix.rows().flat_map(Row::assignments) {
            let holds = scan.holds_in_place(row, assignment);
            prop_assert_eq!(matrix.holds_in_place(index, assignment), holds);
        }
        prop_assert_eq!(matrix.pinned_for(index, freed), scan.pinned_for(index, freed));
        let freest = matrix.freest(index);
        let mut open = scan.free_capacities(row);
        open.retain(|left| left.open);
        open.sort_by_key(|left| Reverse(left.free));
        prop_assert!(freest.iter().eq(open.iter().take(freest.len()).map(|left| &left.free)));
        for from in index + 1..matrix.rows().len() {
            let (mut found, mut after) = (Vec::new(), None);
            while let Some(next) = matrix.next_movable(from, &freest, after) {
                found.push(next);
                after = Some(next);
            }
            prop_assert_eq!(found, scan.movable(matrix.row(from), row));
        }
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum Act {
    /// The job enters the row, or a new one.
    Enter {
        row: usize,
        ranks: u32,
        mib: u64,
    },
    End {
        at: usize,
    },
    /// The job goes to the row, if that takes it.
    Move {
        at: usize,
        to: usize,
    },
    Pin {
        at: usize,
        pinned: bool,
    },
    Resize {
        at: usize,
        mib: u64,
    },
    Rotate,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let at = 0usize..100;
    let act = prop_oneof![
        4 => (0usize..5, 1u32..10, 0u64..400).prop_map(|(row, ranks, mib)| Act::Enter { row, ranks, mib }),
        1 => at.clone().prop_map(|at| Act::End { at }),
        1 => (at.clone(), 0usize..5).prop_map(|(at, to)| Act::Move { at, to }),
        1 => (at.clone(), any::<bool>()).prop_map(|(at, pinned)| Act::Pin { at, pinned }),
        1 => (at, 0u64..400).prop_map(|(at, mib)| Act::Resize { at, mib }),
        1 => Just(Act::Rotate),
    ];
    prop::collection::vec(act, 1..30)
}

/// Carries out the act; returns the placement that a job gave up.
fn play(matrix: &mut Matrix, act: &Act, job: &JobSpec) -> Option<Placement> {
    let jobs: Vec<JobId> = matrix.rows().flat_map(Row::jobs).collect();
    let job_at = |at: usize| jobs.get(at % jobs.len().max(1)).copied();
    match *act {
        Act::Enter { row, .. } => {
            let shape = matrix.shape_of(job)?;
            let row = if row < matrix.rows().len() { row } else { matrix.open_row() };
            let placement = matrix.placement(row, job, shape)?;
            matrix.assign(row, Assignment { spec: job.clone(), placement });
            None
        }
        Act::End { at } => Some(matrix.end(job_at(at)?)?.1.placement),
        Act::Move { at, to } => {
            let (job, to) = (job_at(at)?, to % matrix.rows().len());
            let assignment = matrix.assignment_of(job)?;
            if matrix.place_of(job)? == to {
                return None;
            }
            let placement = if matrix.is_pinned(job) {
                matrix.holds_in_place(to, assignment).then(|| assignment.placement.clone())?
            } else {
                matrix.placement(to, &assignment.spec, matrix.shape_of(&assignment.spec)?)?
            };
            matrix.shift(job, to, placement)
        }
        Act::Pin { at, pinned } => {
            matrix.set_pinned(job_at(at)?, pinned);
            None
        }
        Act::Resize { at, mib } => {
            let job = job_at(at)?;
            matrix.resize(job, Bytes::mib(mib));
            Some(matrix.assignment_of(job)?.placement.clone())
        }
        Act::Rotate => {
            matrix.drop_empty_rows();
            let rows = matrix.rows().len();
            matrix.rotate(rows);
            None
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_index_answers_what_a_scan_answers(
        capacities in prop::collection::vec(prop_oneof![Just(400u64), Just(900), 100u64..1000], 1..9),
        acts in acts(),
        max_per_cell in prop::option::of(1u32..4),
        memory in prop_oneof![Just(MemoryRule::MustFit), Just(MemoryRule::Ignored)],
    ) {
        let cluster = Cluster::new(capacities.into_iter().map(Bytes::mib).collect());
        let mut matrix = Matrix::new(cluster, Limits { max_rows: None, max_per_cell, memory });
        let mut freed = Vec::new();
        for (id, act) in (0..).map(JobId).zip(&acts) {
            let (ranks, mib) = match act {
                Act::Enter { ranks, mib, .. } => (*ranks, *mib),
                _ => (2, 150),
            };
            let memory_per_rank = Bytes::mib(mib);
            let job = JobSpec { id, name: "j".into(), ranks, memory_per_rank, arrival: SimTime(0) };
            freed.extend(play(&mut matrix, act, &job));
            compare(&matrix, &job, &freed)?;
        }
    }
}
