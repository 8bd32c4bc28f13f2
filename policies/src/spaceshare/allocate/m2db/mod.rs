//! M2DB: the modified 2-D buddy system of the Paragon's batch scheduler (paper 002 §2.4). Jobs get rectangles
//! of any form, as close together as possible, and exactly as many nodes as requested.
//!
//! The smallest free block that holds the request is broken into [buddies](split) until the size matches or
//! no buddy holds the request. Then the largest buddy is the *anchor block*, and the free blocks *closest* to
//! it supply the rest, broken in turn where they are too large. A request is refused only where too few nodes
//! are free: there is no external and no internal fragmentation, only scatter.
//!
//! One step differs from the text of §2.4.1. When no buddy of the broken block holds the request, step 1
//! would go on to the next larger block anywhere and break that too, and so on, until the whole machine lies
//! in pieces smaller than the request. The intent must be to stop at the block just broken, which is done
//! here. Pieces that remain free are joined again at once.
//!
//! | file | what |
//! | --- | --- |
//! | `split` | how a block breaks into buddies |
//! | `tree` | the tree of free, taken and broken blocks |

mod split;
mod tree;

use std::collections::BTreeMap;

use super::{Allocation, Allocator, Mesh, Rect, Request, claimed, ledger::Ledger};
use crate::JobId;
use tree::{BlockId, BlockTree};

#[derive(Clone, Debug)]
pub struct M2db {
    mesh: Mesh,
    tree: BlockTree,
    blocks: BTreeMap<JobId, Vec<BlockId>>,
    held: Ledger,
}

impl M2db {
    #[must_use]
    pub fn new(mesh: Mesh) -> Self {
        let tree = BlockTree::new(mesh.whole());
        Self { mesh, tree, blocks: BTreeMap::new(), held: Ledger::default() }
    }

    /// The free blocks of the buddy tree, in the order of size.
    pub fn free_blocks(&self) -> impl Iterator<Item = Rect> + '_ {
        self.tree.free_blocks()
    }

    /// Steps 1 to 4: takes the anchor block.
    fn take_anchor(&mut self, wanted: u32, broken: &mut Vec<BlockId>) -> BlockId {
        let found = self.tree.smallest(wanted).or_else(|| self.tree.largest());
        let mut chosen = found.expect("enough nodes are free");
        while self.tree.rect(chosen).area() > wanted {
            broken.push(chosen);
            let parts = self.tree.split(chosen);
            let area = |part: &&BlockId| self.tree.rect(**part).area();
            let holds = parts.iter().filter(|part| area(part) >= wanted).min_by_key(area);
            let Some(next) = holds else {
                // `max_by_key` would return the last of equal blocks.
                chosen = *parts.iter().rev().max_by_key(area).expect("a block has parts");
                break;
            };
            chosen = *next;
        }
        self.tree.take(chosen);
        chosen
    }

    /// Takes a free unit out of its block, whose other parts stay free.
    fn take_one(&mut self, unit: Rect) -> BlockId {
        let mut block = self.tree.around(unit).expect("the unit is free");
        while self.tree.rect(block).area() > 1 {
            let parts = self.tree.split(block);
            let own = parts.into_iter().find(|part| self.tree.rect(*part).contains(&unit));
            block = own.expect("buddies cover their block");
        }
        self.tree.take(block);
        block
    }

    /// Steps 5 to 7: takes the rest, as close to the anchor as possible.
    fn take_rest(&mut self, anchor: Rect, mut left: u32, broken: &mut Vec<BlockId>) -> Vec<BlockId> {
        let mut taken = Vec::new();
        while left > 0 {
            let closest = self.tree.closest(anchor).expect("enough nodes are free");
            let area = self.tree.rect(closest).area();
            if area > left {
                self.tree.split(closest);
                broken.push(closest);
            } else {
                self.tree.take(closest);
                taken.push(closest);
                left -= area;
            }
        }
        taken
    }
}

impl Allocator for M2db {
    fn allocate(&mut self, job: JobId, request: Request) -> Option<&Allocation> {
        if request.cpus != 1 || request.nodes == 0 || request.nodes > self.tree.free() {
            return None;
        }
        let mut broken = Vec::new();
        let anchor = self.take_anchor(request.nodes, &mut broken);
        let rect = self.tree.rect(anchor);
        let mut blocks = vec![anchor];
        blocks.extend(self.take_rest(rect, request.nodes - rect.area(), &mut broken));
        broken.into_iter().rev().for_each(|block| self.tree.join(block));
        let rects = blocks.iter().map(|block| self.tree.rect(*block)).collect();
        self.blocks.insert(job, blocks);
        Some(self.held.enter(job, request, rects))
    }

    fn claim(&mut self, job: JobId, units: &[u32]) -> bool {
        let (request, rects) = claimed(self.mesh, units);
        if !rects.iter().all(|unit| self.tree.around(*unit).is_some()) {
            return false;
        }
        let blocks = rects.iter().map(|unit| self.take_one(*unit)).collect();
        self.blocks.insert(job, blocks);
        self.held.enter(job, request, rects);
        true
    }

    fn mesh(&self) -> Mesh {
        self.mesh
    }

    fn release(&mut self, job: JobId) -> Option<Allocation> {
        let allocation = self.held.strike(job)?;
        let blocks = self.blocks.remove(&job).expect("an allocation has blocks");
        blocks.into_iter().for_each(|block| self.tree.give(block));
        Some(allocation)
    }

    fn allocation(&self, job: JobId) -> Option<&Allocation> {
        self.held.get(job)
    }

    fn total(&self) -> u32 {
        self.mesh.units()
    }

    fn free(&self) -> u32 {
        self.tree.free()
    }

    fn can_ever_hold(&self, request: Request) -> bool {
        request.cpus == 1 && (1..=self.mesh.units()).contains(&request.nodes)
    }

    fn largest_request(&self) -> u32 {
        self.tree.free()
    }

    fn largest_block(&self) -> u32 {
        self.tree.largest().map_or(0, |block| self.tree.rect(block).area())
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    /// The mesh as text: a letter for each job, in the order of numbers; `.` is free.
    fn picture(m2db: &M2db) -> String {
        let Mesh { width, height } = m2db.mesh;
        let mut cells = vec!['.'; (width * height) as usize];
        for (job, letter) in m2db.blocks.keys().zip('a'..) {
            for block in &m2db.allocation(*job).unwrap().blocks {
                m2db.mesh.numbers(*block).for_each(|unit| cells[unit as usize] = letter);
            }
        }
        cells.chunks(width as usize).map(|row| row.iter().collect::<String>() + "\n").collect()
    }

    fn filled(width: u32, height: u32, requests: &[u32]) -> M2db {
        let mut m2db = M2db::new(Mesh { width, height });
        for (job, nodes) in (0..).zip(requests) {
            m2db.allocate(JobId(job), Request::nodes(*nodes)).unwrap();
        }
        m2db
    }

    #[test]
    fn powers_of_two_get_whole_blocks() {
        assert_snapshot!(picture(&filled(8, 8, &[16, 4, 8, 1, 32])), @r"
        aaaabbd.
        aaaabbee
        aaaaeeee
        aaaaeeee
        cccceeee
        cccceeee
        .eeeeeee
        .eeeeeee
        ");
    }

    #[test]
    fn missing_nodes_are_taken_next_to_the_anchor() {
        assert_snapshot!(picture(&filled(7, 6, &[5, 7, 11])), @r"
        ....ccc
        ....ccc
        ....ccc
        ....cc.
        bbbbaaa
        bbb.aa.
        ");
    }

    #[test]
    fn a_job_takes_what_is_left_however_scattered_and_the_blocks_join_again() {
        let mut m2db = filled(6, 4, &[4, 4, 4, 4, 4, 4]);
        [1, 3].iter().for_each(|job| drop(m2db.release(JobId(*job)).unwrap()));
        let cut = m2db.fragmentation();
        assert_eq!((cut.free, cut.largest_block, cut.largest_request), (8, 4, 8));
        assert_eq!(m2db.allocate(JobId(7), Request::nodes(8)).unwrap().blocks.len(), 2);
        [0, 2, 4, 5, 7].iter().for_each(|job| drop(m2db.release(JobId(*job)).unwrap()));
        assert_eq!(m2db.free_blocks().collect::<Vec<_>>(), [m2db.mesh.whole()]);
    }
}
