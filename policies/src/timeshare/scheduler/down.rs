//! Nodes that are down: they take no jobs, and jobs whose snapshots lie there wait for them.
//!
//! ```text
//!   in memory ─(executor: Displaced, or the outcome of a switch)─▶ parked ────▶ out of the matrix, until all
//!                                                                  │            of its nodes are up
//!                                                                  └ unlaunched ▶ first in the queue
//! ```
//! Until the executor has reported all jobs that were in memory on such a node, nothing is planned.

use super::{Scheduler, hold::Held};
use crate::{
    Assignment, JobId, JobSpec, NodeId, Residence,
    placement::Shape,
    timeshare::packing::{DirtyRows, FreedNodes},
};

impl Scheduler {
    pub(super) fn on_node_down(&mut self, node: NodeId) {
        if (node.0 as usize) < self.matrix.cluster().len() {
            let rows = self.matrix.rows().flat_map(|row| row.assignments());
            let on_it = rows.filter(|assignment| assignment.placement.count_on(node) > 0);
            let on_it: Vec<JobId> = on_it.map(|assignment| assignment.spec.id).collect();
            self.disturbed.extend(on_it);
            self.matrix.set_down(node, true);
        }
    }

    pub(super) fn on_node_up(&mut self, node: NodeId) {
        self.matrix.set_down(node, false);
        self.dirty = DirtyRows::All;
        self.capacity_freed = true;
    }

    /// A job that is part of a switch comes with the outcome of that.
    pub(super) fn on_displaced(&mut self, job: JobId, at: Residence) {
        self.presence.on_went_back(job);
        let moves = |plan: &crate::SwitchPlan| {
            plan.outgoing.iter().any(|outgoing| outgoing.job == job)
                || plan.incoming.iter().any(|incoming| incoming.job == job)
        };
        if at.is_in_memory() || at.is_ended() || self.under_way.as_ref().is_some_and(moves) {
            return;
        }
        let Some(entry) = self.jobs.get_mut(&job).filter(|entry| !entry.observed.is_ended()) else { return };
        entry.observed = at;
        if at == Residence::Unlaunched {
            self.matrix.set_pinned(job, false);
            if let Some(Held::Returning(_) | Held::Parked(_)) = self.held.get(&job) {
                self.forget_snapshot(job);
            }
        }
        if self.assignment(job).is_some() {
            self.presence.on_observed(&self.matrix, job, at);
        }
    }

    /// The job is not parked any more: nothing of it is on any node.
    fn forget_snapshot(&mut self, job: JobId) {
        match self.held.remove(&job) {
            Some(Held::Parked(_)) => drop(self.held.insert(job, Held::Unlaunched)),
            _ => self.queue.push_front(job),
        }
    }

    /// Whether a job is in memory on a node that is down: the executor is about to report where it is then.
    pub(super) fn is_being_displaced(&self) -> bool {
        !self.matrix.down().is_empty()
            && self.matrix.rows().any(|row| {
                row.assignments().any(|assignment| {
                    !self.matrix.is_up(&assignment.placement)
                        && self.jobs[&assignment.spec.id].observed.is_in_memory()
                })
            })
    }

    /// Takes the jobs of nodes that are down out of the matrix. None of them is in memory.
    pub(super) fn settle_displaced(&mut self) {
        if self.matrix.down().is_empty() {
            return;
        }
        let rows = self.matrix.rows().flat_map(|row| row.assignments());
        let touched = rows.filter(|assignment| !self.matrix.is_up(&assignment.placement));
        let mut jobs: Vec<JobId> = touched.map(|assignment| assignment.spec.id).collect();
        // The first of them is the first in the queue.
        jobs.sort_by_key(|job| std::cmp::Reverse(*job));
        for job in jobs {
            let slot = self.matrix.slot_of(job);
            let assignment = self.matrix.unassign(job);
            if let Some((slot, assignment)) = slot.zip(assignment.as_ref()) {
                self.dirty.add(slot, FreedNodes::at(&assignment.placement));
                self.capacity_freed = true;
            }
            self.presence.on_moved(&self.matrix, job);
            let entry = self.jobs.get_mut(&job).expect("an assigned job is known");
            entry.landing = None;
            let observed = entry.observed;
            self.await_nodes(job, observed, assignment, false);
        }
        if self.matrix.drop_empty_rows() {
            self.running = None;
        }
        self.presence.follow(&self.matrix);
    }

    /// A job without a row: a parked one waits for its nodes, any other for room on those that are up.
    pub(super) fn await_nodes(
        &mut self,
        job: JobId,
        observed: Residence,
        assignment: Option<Assignment>,
        is_held: bool,
    ) {
        match (assignment, is_held) {
            (Some(assignment), false) if observed == Residence::Parked => {
                self.held.insert(job, Held::Returning(Box::new(assignment)));
            }
            (Some(assignment), true) if observed == Residence::Parked => {
                self.held.insert(job, Held::Parked(Box::new(assignment)));
            }
            (_, true) => drop(self.held.insert(job, Held::Unlaunched)),
            (_, false) => {
                self.matrix.set_pinned(job, false);
                self.done = false;
                self.queue.push_front(job);
            }
        }
    }

    /// The first queued job that the nodes that are up hold when they are empty.
    pub(super) fn next_queued(&self) -> Option<(usize, JobId, Shape)> {
        let mut queued = (0..).zip(&self.queue);
        queued.find_map(|(at, job)| Some((at, *job, self.matrix.shape_of(&self.jobs[job].spec)?)))
    }

    /// Takes those jobs from the queue.
    pub(super) fn take_placeable(&mut self) -> Vec<JobSpec> {
        let specs = self.queue.iter().map(|job| &self.jobs[job].spec);
        let can_run = |job: &&JobSpec| self.matrix.down().is_empty() || self.matrix.shape_of(job).is_some();
        let jobs: Vec<JobSpec> = specs.filter(can_run).cloned().collect();
        if jobs.len() == self.queue.len() {
            self.queue.clear();
        } else {
            self.queue.retain(|queued| jobs.iter().all(|job| job.id != *queued));
        }
        jobs
    }

    /// The nodes that are down and that the job waits for.
    #[must_use]
    pub fn awaited_nodes(&self, job: JobId) -> Vec<NodeId> {
        let down = self.matrix.down().iter().copied();
        match self.held.get(&job) {
            Some(Held::Returning(assignment) | Held::Parked(assignment)) => {
                down.filter(|node| assignment.placement.count_on(*node) > 0).collect()
            }
            Some(Held::Unlaunched | Held::Leaving) => Vec::new(),
            None if !self.queue.contains(&job) => Vec::new(),
            None if self.matrix.shape_of(&self.jobs[&job].spec).is_some() => Vec::new(),
            None => down.collect(),
        }
    }

    /// Whether jobs are left, and each of them waits for nodes that are down.
    #[must_use]
    pub fn only_waits_for_nodes(&self) -> bool {
        let mut living = self.jobs.iter().filter(|(_, entry)| !entry.observed.is_ended()).peekable();
        living.peek().is_some() && living.all(|(job, _)| !self.awaited_nodes(*job).is_empty())
    }
}
