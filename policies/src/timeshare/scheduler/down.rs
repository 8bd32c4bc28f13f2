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
    Assignment, Block, Bytes, JobId, JobSpec, MemoryRule, NodeId, Placement, Residence,
    placement::Shape,
    timeshare::packing::{DirtyRows, FreedNodes},
};

impl Scheduler {
    pub(super) fn on_node_down(&mut self, node: NodeId) {
        if (node.0 as usize) < self.matrix.cluster().len() {
            self.disturbed.extend(self.jobs_on(|other| other == node));
            self.lost.insert(node);
            self.matrix.set_down(node, true);
        }
    }

    pub(super) fn on_node_up(&mut self, node: NodeId) {
        self.lost.remove(&node);
        if !self.drained.contains(&node) {
            self.take_jobs_again(node);
        }
    }

    pub(super) fn take_jobs_again(&mut self, node: NodeId) {
        self.matrix.set_down(node, false);
        self.dirty = DirtyRows::All;
        self.capacity_freed = true;
        self.need_not_leave();
    }

    /// Whether no node of the placement is lost.
    pub(super) fn is_reachable(&self, placement: &Placement) -> bool {
        self.lost.is_empty() || placement.nodes().all(|node| !self.lost.contains(&node))
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
        let on_lost = self.jobs_on(|node| self.lost.contains(&node));
        on_lost.iter().any(|job| self.jobs[job].observed.is_in_memory())
    }

    /// Takes the jobs of nodes that are down out of the matrix. None of them is in memory, except on drained
    /// nodes.
    pub(super) fn settle_displaced(&mut self) {
        if self.matrix.down().is_empty() {
            return;
        }
        let down = self.matrix.down();
        let mut jobs = self.jobs_on(|node| down.contains(&node));
        jobs.retain(|job| !self.jobs[job].observed.is_in_memory());
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
            Some(Held::Unlaunched | Held::Leaving | Held::Evading) => Vec::new(),
            None if !self.queue.contains(&job) => Vec::new(),
            None => match self.missing_in_space(job) {
                Some(missing) => missing,
                None if self.matrix.shape_of(&self.jobs[&job].spec).is_some() => Vec::new(),
                None => down.collect(),
            },
        }
    }

    /// Parked jobs of which a part lies on this node, which is down.
    #[must_use]
    pub fn parts_on_lost(&self, node: NodeId) -> Vec<JobId> {
        let waits = |(job, held): (&JobId, &Held)| match held {
            Held::Returning(assignment) | Held::Parked(assignment) => {
                (self.lost.contains(&node) && assignment.placement.count_on(node) > 0).then_some(*job)
            }
            Held::Unlaunched | Held::Leaving | Held::Evading => None,
        };
        self.held.iter().filter_map(waits).collect()
    }

    /// The nodes that could take the part of a job that lies on a lost node, each with its free capacity for
    /// the comparison: it is up, has none of the job's parts, and holds this one when it is empty.
    #[must_use]
    pub fn may_take_part(&self, job: JobId, from: NodeId) -> Vec<(NodeId, u64)> {
        let Some(Held::Returning(assignment) | Held::Parked(assignment)) = self.held.get(&job) else {
            return Vec::new();
        };
        let can = |(node, _): &(NodeId, Bytes)| {
            !self.matrix.down().contains(node) && self.holds_part(assignment, from, *node)
        };
        let nodes = self.matrix.cluster().nodes().filter(can);
        // The fewer jobs it has, the better.
        nodes.map(|(node, _)| (node, u64::MAX - self.jobs_on(|other| other == node).len() as u64)).collect()
    }

    /// Whether the part of `from` fits on a node that has none, and no other job.
    fn holds_part(&self, assignment: &Assignment, from: NodeId, to: NodeId) -> bool {
        let ranks = assignment.placement.count_on(from);
        let ignores_memory = self.config.policy.memory_rule() == MemoryRule::Ignored;
        let capacity = self.matrix.cluster().nodes().find(|(node, _)| *node == to).map(|(_, bytes)| bytes);
        ranks > 0
            && assignment.placement.count_on(to) == 0
            && capacity.is_some_and(|most| ignores_memory || assignment.spec.memory_of(ranks) <= most)
    }

    pub(super) fn on_part_moved(&mut self, job: JobId, from: NodeId, to: NodeId) {
        let fits = match self.held.get(&job) {
            Some(Held::Returning(assignment) | Held::Parked(assignment)) => {
                self.holds_part(assignment, from, to)
            }
            _ => false,
        };
        let held = self.held.get_mut(&job).filter(|_| fits);
        let Some(Held::Returning(assignment) | Held::Parked(assignment)) = held else { return };
        let ranks = assignment.placement.count_on(from);
        let mut blocks: Vec<Block> =
            assignment.placement.blocks().filter(|block| block.node != from).collect();
        blocks.push(Block { node: to, ranks });
        blocks.sort_by_key(|block| block.node);
        assignment.placement = blocks.into();
        let measured = self.jobs.get_mut(&job).and_then(|entry| entry.measured.as_mut());
        if let Some(measured) = measured
            && let Some(resident) = measured.resident.remove(&from)
        {
            measured.resident.insert(to, resident);
        }
    }

    /// Whether jobs are left, and each of them waits for nodes that are down.
    #[must_use]
    pub fn only_waits_for_nodes(&self) -> bool {
        let mut living = self.jobs.iter().filter(|(_, entry)| !entry.observed.is_ended()).peekable();
        living.peek().is_some() && living.all(|(job, _)| !self.awaited_nodes(*job).is_empty())
    }
}
