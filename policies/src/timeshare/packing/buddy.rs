//! Packing by a buddy tree over all rows: the Distributed Hierarchical Control of Feitelson and Rudolph, by
//! which ParPar allocates (paper 000 §4.3.1).
//!
//! The blocks of the tree are runs of nodes, each of a power of two and aligned to it; the root is the whole
//! cluster, and no other block reaches past the last node. A job belongs to the blocks of the smallest size
//! that has enough nodes, and the *least loaded* of these takes it: the one in use in the fewest rows, then
//! the one with the least memory in use, then the leftmost. There it gets the first row that holds it on
//! nodes of the block, else a new one. Nodes of the block that it leaves over go to other jobs. It is pinned
//! from the beginning, so that slot unification moves it only to rows where its nodes are free.
//!
//! To pack a job takes time in proportion to nodes times rows. A job that no block holds, because of small
//! nodes, is packed first fit.

use std::ops::Range;

use super::{Landing, assign};
use crate::{
    JobSpec, Matrix, NodeId, Placement,
    placement::{FreeCapacity, Shape, plan_placement},
    timeshare::matrix::RejectionCause,
};

/// Puts `job` into the least loaded block; `None` where no block of an empty row holds it.
pub(super) fn pack(matrix: &mut Matrix, job: &JobSpec, shape: Shape, first: usize) -> Option<Landing> {
    let capacities: Vec<u64> = matrix.cluster().nodes().map(|(_, capacity)| capacity.0).collect();
    let empty: Vec<FreeCapacity> =
        matrix.cluster().nodes().map(|(_, free)| FreeCapacity { open: true, jobs: 0, free }).collect();
    let rows: Vec<Vec<FreeCapacity>> =
        (0..matrix.rows().len()).map(|row| matrix.free_capacities(row)).collect();
    let load = |block: &Range<usize>| {
        let used = rows.iter().filter(|row| row[block.clone()].iter().any(|cell| cell.jobs > 0)).count();
        let taken = |row: &Vec<FreeCapacity>| -> u64 {
            block
                .clone()
                .map(|node| capacities[node].saturating_sub(row[node].free.0))
                .fold(0, u64::saturating_add)
        };
        (used, rows.iter().map(taken).fold(0, u64::saturating_add), block.start)
    };
    let holds = |block: &Range<usize>| within(matrix, job, shape, &empty, block).is_some();
    let block = blocks(shape.width as usize, empty.len()).filter(holds).min_by_key(load)?;
    let mut refused_by = Vec::new();
    for index in (first.min(rows.len())..rows.len()).chain(0..first.min(rows.len())) {
        match within(matrix, job, shape, &rows[index], &block) {
            Some(placement) => return Some(assign(matrix, index, job, placement, refused_by)),
            None => {
                refused_by.push((matrix.row(index).slot, rejection_cause(job, shape, &rows[index], &block)))
            }
        }
    }
    let index = matrix.open_row();
    let placement = within(matrix, job, shape, &empty, &block).expect("the empty block holds it");
    Some(assign(matrix, index, job, placement, refused_by))
}

/// The blocks of the smallest size that has `width` nodes.
fn blocks(width: usize, nodes: usize) -> impl Iterator<Item = Range<usize>> {
    let size = width.next_power_of_two().min(nodes.max(1));
    (0..nodes / size).map(move |block| block * size..(block + 1) * size)
}

/// The placement of `job` in a row, on nodes of the block only.
fn within(
    matrix: &Matrix,
    job: &JobSpec,
    shape: Shape,
    row: &[FreeCapacity],
    block: &Range<usize>,
) -> Option<Placement> {
    let closed = |(node, cell): (usize, &FreeCapacity)| FreeCapacity {
        open: cell.open && block.contains(&node),
        ..*cell
    };
    let row: Vec<FreeCapacity> = row.iter().enumerate().map(closed).collect();
    plan_placement(job, shape, &row, matrix.limits().memory)
}

/// What the block lacks in a row.
fn rejection_cause(
    job: &JobSpec,
    shape: Shape,
    row: &[FreeCapacity],
    block: &Range<usize>,
) -> RejectionCause {
    let open =
        || (0..).map(NodeId).zip(row).skip(block.start).take(block.len()).filter(|(_, cell)| cell.open);
    match open().min_by_key(|(_, cell)| cell.free) {
        Some((node, cell)) if open().count() >= shape.width as usize => {
            RejectionCause::Memory { node, needs: job.memory_of(shape.most), free: cell.free }
        }
        _ => RejectionCause::Cells {
            needs: shape.width,
            open: u32::try_from(open().count()).unwrap_or(u32::MAX),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_end_with_the_nodes() {
        let of =
            |width, nodes| blocks(width, nodes).map(|block| (block.start, block.end)).collect::<Vec<_>>();
        assert_eq!(of(3, 11), [(0, 4), (4, 8)]);
        assert_eq!(of(8, 8), [(0, 8)]);
        assert_eq!(of(9, 11), [(0, 11)]);
        assert_eq!(of(1, 2), [(0, 1), (1, 2)]);
    }
}
