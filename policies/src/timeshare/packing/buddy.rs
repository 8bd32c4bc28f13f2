//! The buddy tree over all rows: Distributed Hierarchical Control of Feitelson and Rudolph, by which ParPar allocates (paper 000 §4.3.1).
//!
//! The blocks of the tree are runs of nodes, each of a power of two and aligned to it; one that would reach past the last node does
//! not exist, and the root is the whole cluster. A job belongs to the blocks of the smallest size that has its nodes, and of these
//! the *least loaded* one takes it: the one in use in the fewest rows, then the one with the least memory in use, then the leftmost.
//! There it gets the first row that holds it on nodes of the block, else a new one. Nodes of the block that it leaves over go to
//! others. It keeps its nodes also before it ran, so that slot unification moves it only to rows where these are free.
//!
//! A job costs the nodes times the rows. Where small nodes keep it out of every block, it is packed first fit.

use std::ops::Range;

use super::{Landing, land};
use crate::{
    JobSpec, Matrix, NodeId, Placement,
    placement::{Room, Shape, plan_placement},
    timeshare::matrix::RejectionCause,
};

/// Puts `job` into the least loaded block; `None` where no block of an empty row holds it.
pub(super) fn pack(matrix: &mut Matrix, job: &JobSpec, shape: Shape, first: usize) -> Option<Landing> {
    let capacities: Vec<u64> = matrix.cluster().nodes().map(|(_, capacity)| capacity.0).collect();
    let empty: Vec<Room> =
        matrix.cluster().nodes().map(|(_, free)| Room { open: true, jobs: 0, free }).collect();
    let rows: Vec<Vec<Room>> = (0..matrix.rows().len()).map(|row| matrix.rooms_of(row)).collect();
    let load = |block: &Range<usize>| {
        let used = rows.iter().filter(|rooms| rooms[block.clone()].iter().any(|room| room.jobs > 0)).count();
        let taken = |rooms: &Vec<Room>| -> u64 {
            block
                .clone()
                .map(|node| capacities[node].saturating_sub(rooms[node].free.0))
                .fold(0, u64::saturating_add)
        };
        (used, rows.iter().map(taken).fold(0, u64::saturating_add), block.start)
    };
    let holds = |block: &Range<usize>| within(matrix, job, shape, &empty, block).is_some();
    let block = blocks(shape.width as usize, empty.len()).filter(holds).min_by_key(load)?;
    let mut refused_by = Vec::new();
    for index in (first.min(rows.len())..rows.len()).chain(0..first.min(rows.len())) {
        match within(matrix, job, shape, &rows[index], &block) {
            Some(placement) => return Some(land(matrix, index, job, placement, refused_by)),
            None => {
                refused_by.push((matrix.row(index).slot, rejection_cause(job, shape, &rows[index], &block)))
            }
        }
    }
    let index = matrix.open_row();
    let placement = within(matrix, job, shape, &empty, &block).expect("the empty block holds it");
    Some(land(matrix, index, job, placement, refused_by))
}

/// The blocks of the smallest size that has `width` of the `nodes`.
fn blocks(width: usize, nodes: usize) -> impl Iterator<Item = Range<usize>> {
    let size = width.next_power_of_two().min(nodes.max(1));
    (0..nodes / size).map(move |block| block * size..(block + 1) * size)
}

/// Where `job` would run in a row, on nodes of the block only.
fn within(
    matrix: &Matrix,
    job: &JobSpec,
    shape: Shape,
    rooms: &[Room],
    block: &Range<usize>,
) -> Option<Placement> {
    let closed = |(node, room): (usize, &Room)| Room { open: room.open && block.contains(&node), ..*room };
    let rooms: Vec<Room> = rooms.iter().enumerate().map(closed).collect();
    plan_placement(job, shape, &rooms, matrix.limits().memory)
}

/// What the block of a row lacks.
fn rejection_cause(job: &JobSpec, shape: Shape, rooms: &[Room], block: &Range<usize>) -> RejectionCause {
    let open =
        || (0..).map(NodeId).zip(rooms).skip(block.start).take(block.len()).filter(|(_, room)| room.open);
    match open().min_by_key(|(_, room)| room.free) {
        Some((node, room)) if open().count() >= shape.width as usize => {
            RejectionCause::Memory { node, needs: job.memory_of(shape.most), free: room.free }
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
