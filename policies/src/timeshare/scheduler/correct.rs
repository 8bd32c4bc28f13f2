//! Correction of memory estimates: a row that no longer fits its nodes is split before they swap.
//!
//! The estimate of a rank is what the node that needs most was measured to need, with a margin; where no node
//! was measured, the declared working set; and never more than a node offers, so that a job that alone
//! outgrows a node still has a row.
//!
//! ```text
//!   measured ≠ estimate ──▶ fits where it is ──▶ new estimate; jobs that wait in memory may have to leave
//!                      └──▶ does not fit ──▶ row with the turn: wait for its end or for memory pressure
//!                                       └──▶ split: the smallest job that makes room leaves, or it
//! ```

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Scheduler,
    oracle::Oracle,
    residency::{Known, reach},
    state::Measurements,
};
use crate::{
    Assignment, Bytes, Decision, JobId, Landing, MemoryRule, Move, NodeId, RejectionCause, SlotId, Split,
    timeshare::memory_monitor::with_margin,
    timeshare::packing::{self, FreedNodes},
};

/// From a measurement to the first order that follows from it, and to stop and begin a dump.
const REACTION: Duration = Duration::from_millis(500);

/// Source of the memory estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Estimate {
    /// The declared working set, until a measurement says otherwise.
    #[default]
    Measured,
    /// The declared working set, whatever is measured.
    Declared,
}

/// Corrections that are still to take effect.
#[derive(Clone, Debug, Default)]
pub(super) struct Corrections {
    /// Jobs whose estimate differs from the measurement.
    misjudged: BTreeSet<JobId>,
    /// Nodes under memory pressure: their rows are split at once.
    under_pressure: BTreeSet<NodeId>,
    /// An estimate grew: jobs that wait in memory may have to leave.
    pub(super) relieve: bool,
    /// Some estimate or measurement has ever grown: jobs in memory may exceed a node.
    pub(super) grew: bool,
    /// Nodes whose jobs exceed their allowance: suspended ones leave until all that the running ones declare
    /// fits.
    pub(super) stopped: BTreeSet<NodeId>,
}

impl Corrections {
    pub(super) fn on_memory_pressure(&mut self, node: NodeId) {
        self.under_pressure.insert(node);
    }

    /// The next switch was planned with all that is known.
    pub(super) fn on_planned(&mut self) {
        self.relieve = false;
        self.stopped.clear();
    }
}

impl Scheduler {
    /// Whether measurements are looked at.
    fn looks(&self) -> bool {
        let must_fit = self.matrix.limits().memory == MemoryRule::MustFit;
        must_fit && self.config.estimate == Estimate::Measured
    }

    /// A job holds so much on a node, and has grown by so much a second where it ran for long enough to tell.
    pub(super) fn on_footprint(
        &mut self,
        job: JobId,
        node: NodeId,
        resident: Bytes,
        growth: Option<Bytes>,
        exact: bool,
    ) {
        if !self.looks() || self.jobs.get(&job).is_none_or(|entry| entry.observed.is_ended()) {
            return;
        }
        let reach = growth.map(|growth| reach(resident, growth, self.lead_of_eviction()));
        self.presence.on_measured(job, node, Known { resident, exact, reach });
        (self.corrections.relieve, self.corrections.grew) = (true, true);
    }

    /// How long it takes until a suspended job has left, from the moment at which one has to.
    fn lead_of_eviction(&self) -> Duration {
        let memory = self.presence.memory();
        let largest = self.presence.suspended().iter().map(|job| memory.most([*job])).max();
        REACTION + self.costs.lead(Oracle::Greedy, largest.unwrap_or_default())
    }

    /// The jobs of a node exceed their allowance, and the running ones were stopped.
    pub(super) fn on_stopped(&mut self, node: NodeId) {
        if self.looks() {
            self.corrections.stopped.insert(node);
        }
    }

    pub(super) fn on_resident(&mut self, job: JobId, node: NodeId, resident: Bytes) {
        let looked_at = self.looks();
        let Some(entry) = self.jobs.get_mut(&job).filter(|entry| looked_at && !entry.observed.is_ended())
        else {
            return;
        };
        entry.measured().resident.insert(node, resident);
        self.corrections.misjudged.insert(job);
    }

    /// Brings estimates in line with measurements, as far as that is urgent or disturbs no running job.
    pub(super) fn correct_needs(&mut self, decisions: &mut Vec<Decision>) {
        let under_pressure = std::mem::take(&mut self.corrections.under_pressure);
        for job in std::mem::take(&mut self.corrections.misjudged) {
            let Some(assignment) = self.assignment(job).cloned() else { continue };
            let need = self.need_of_rank(&assignment, decisions);
            if need == assignment.spec.memory_per_rank || self.resize(&assignment, need) {
                continue;
            }
            let at_once = assignment.placement.nodes().any(|node| under_pressure.contains(&node));
            let in_front = self.matrix.place_of(job) == Some(0);
            if in_front && !at_once {
                self.corrections.misjudged.insert(job);
            } else {
                self.split(assignment, need, in_front, decisions);
            }
        }
    }

    /// The estimate of each rank; decides once that the job outgrew a node.
    fn need_of_rank(&mut self, assignment: &Assignment, decisions: &mut Vec<Decision>) -> Bytes {
        let (job, cluster) = (assignment.spec.id, self.matrix.cluster());
        let Measurements { declared, resident: measured, outgrew } =
            self.jobs.get_mut(&job).expect("an assigned job is known").measured();
        let (mut need, mut most) = (Bytes(0), Bytes(u64::MAX));
        for block in assignment.placement.blocks() {
            let (ranks, capacity) = (u64::from(block.ranks), cluster.capacity(block.node));
            let resident = measured.get(&block.node).copied();
            need = need
                .max(resident.map_or(*declared, |resident| Bytes(with_margin(resident).0.div_ceil(ranks))));
            most = most.min(Bytes(capacity.0 / ranks));
            if let Some(resident) =
                resident.filter(|resident| !*outgrew && with_margin(*resident) >= capacity)
            {
                *outgrew = true;
                decisions.push(Decision::Outgrew { job, node: block.node, resident, capacity });
            }
        }
        need.min(most)
    }

    /// Applies the estimate where the job is, if its cells hold it.
    fn resize(&mut self, assignment: &Assignment, need: Bytes) -> bool {
        let job = assignment.spec.id;
        let fits = self.matrix.resize(job, need);
        if fits {
            self.assume(job, need);
            let slot = self.matrix.slot_of(job).expect("it lies in a row");
            if need < assignment.spec.memory_per_rank {
                self.offer(slot, FreedNodes::at(&assignment.placement));
            }
        }
        fits
    }

    fn assume(&mut self, job: JobId, need: Bytes) {
        let entry = self.jobs.get_mut(&job).expect("an assigned job is known");
        let grew = need > entry.spec.memory_per_rank;
        self.corrections.relieve |= grew;
        self.corrections.grew |= grew;
        entry.spec.memory_per_rank = need;
        let assignment = self.matrix.assignment_of(job);
        self.presence.on_resized(assignment.expect("it lies in a row"));
    }

    fn offer(&mut self, slot: SlotId, freed: FreedNodes) {
        self.dirty.add(slot, freed);
        self.capacity_freed = true;
    }

    /// Splits the row of `assignment`, which does not hold the new estimate.
    fn split(&mut self, assignment: Assignment, need: Bytes, in_front: bool, decisions: &mut Vec<Decision>) {
        let job = assignment.spec.id;
        let index = self.matrix.place_of(job).expect("it lies in a row");
        let from = self.matrix.row(index).slot;
        let mut grown = assignment;
        grown.spec.memory_per_rank = need;
        self.matrix.unassign(job);
        let leaver = self.leaver(index, &grown);
        let leaving = match leaver {
            Some(other) => {
                let leaving = self.matrix.unassign(other).expect("it lies in the row");
                self.matrix.assign(index, grown.clone());
                leaving
            }
            None => grown.clone(),
        };
        let (refused, moved) = self.assign_elsewhere(leaving, index);
        self.assume(job, need);
        let (leaving, to) = (moved.job, moved.to);
        let later = self.matrix.place_of(leaving) > Some(index);
        let beside = packing::beside(&self.matrix, leaving);
        let entry = self.jobs.get_mut(&leaving).expect("an assigned job is known");
        entry.put_back = later;
        let (slot, placement) = (to, moved.placement.clone());
        let landing = Landing { slot, placement, beside, refused_by: vec![(from, refused)] };
        entry.landing = Some(Arc::new(landing));
        self.presence.on_moved(&self.matrix, leaving);
        self.offer(from, FreedNodes::Any);
        self.dirty.add_back(to);
        let (node, resident) = self.most_resident(job);
        let capacity = self.matrix.cluster().capacity(node);
        decisions.push(Decision::Split(Split { job, node, resident, capacity, at_once: in_front, moved }));
    }

    /// Which job leaves the row so that it holds `grown`, which was taken out of it: the smallest job that
    /// makes enough room, or `None` for `grown` itself.
    fn leaver(&self, index: usize, grown: &Assignment) -> Option<JobId> {
        let makes_room = |other: &&Assignment| {
            grown.placement.blocks().all(|block| {
                let room = self.matrix.free_capacity(index, block.node);
                let on_leaving = other.memory_on(block.node);
                room.free.saturating_add(on_leaving) >= grown.spec.memory_of(block.ranks)
            })
        };
        let others = self.matrix.row(index).assignments().filter(makes_room);
        let smallest = others.min_by_key(|other| (other.spec.memory(), other.spec.id))?;
        (smallest.spec.memory() < grown.spec.memory()).then_some(smallest.spec.id)
    }

    /// Gives a job the first other row, in the order of turns, that holds it, or a new one; and says why the
    /// row at `index` did not.
    fn assign_elsewhere(&mut self, leaving: Assignment, index: usize) -> (RejectionCause, Move) {
        let (job, from) = (leaving.spec.id, self.matrix.row(index).slot);
        let rooms = leaving.placement.nodes().map(|node| {
            let free = self.matrix.free_capacity(index, node).free;
            RejectionCause::Memory { node, needs: leaving.memory_on(node), free }
        });
        let lacks = |rejection_cause: &RejectionCause| match rejection_cause {
            RejectionCause::Memory { needs, free, .. } => needs.0.saturating_sub(free.0),
            RejectionCause::Cells { .. } => 0,
        };
        let refused = rooms.max_by_key(lacks).expect("a job has nodes");
        let others = (0..self.matrix.rows().len()).filter(|row| *row != index);
        let fits = others.filter(|row| self.matrix.holds_in_place(*row, &leaving)).min();
        let row = fits.unwrap_or_else(|| self.matrix.open_row());
        let placement = leaving.placement.clone();
        self.matrix.assign(row, leaving);
        (refused, Move { job, from, to: self.matrix.row(row).slot, placement })
    }

    /// The node where the job was measured to hold most.
    fn most_resident(&self, job: JobId) -> (NodeId, Bytes) {
        let resident = self.jobs[&job].measured.iter().flat_map(|measured| &measured.resident);
        resident
            .max_by_key(|(_, resident)| **resident)
            .map(|(node, resident)| (*node, *resident))
            .expect("it was measured")
    }
}
