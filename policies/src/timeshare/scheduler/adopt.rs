//! Adoption: a new scheduler takes up the jobs that one before it has placed.

use std::sync::Arc;

use super::{Scheduler, state::Entry};
use crate::{Adopted, Assignment, Decision, JobId, Landing, Residence, timeshare::packing};

impl Scheduler {
    /// Gives each job the first row that holds it where it is. Running jobs come first: their row has the
    /// turn, which begins anew.
    pub(super) fn on_adopted(&mut self, switches: u32, jobs: Vec<Adopted>, decisions: &mut Vec<Decision>) {
        self.switches = self.switches.max(switches);
        self.done &= jobs.is_empty();
        self.mixing.on_set_changed();
        let (running, others): (Vec<Adopted>, Vec<Adopted>) =
            jobs.into_iter().partition(|job| job.at == Residence::Running);
        for adopted in running.into_iter().chain(others) {
            match self.refuse(&adopted.job) {
                Some(reason) => decisions.push(Decision::Rejected { job: adopted.job.id, reason }),
                None => self.adopt(adopted, decisions),
            }
        }
        self.capacity_freed = true;
        self.presence.refresh(&self.matrix);
    }

    fn adopt(&mut self, adopted: Adopted, decisions: &mut Vec<Decision>) {
        let Adopted { job: spec, placement, at, held, priority } = adopted;
        let job = spec.id;
        self.prioritize(vec![(job, priority)]);
        let mut entry = Entry::new(spec.clone());
        entry.observed = at;
        self.jobs.insert(job, entry);
        // Its processes or its snapshot are on these nodes.
        self.matrix.set_pinned(job, at != Residence::Unlaunched);
        let assignment = Assignment { spec, placement };
        let must_wait = at == Residence::Parked && !self.may_come_back(&assignment);
        if must_wait || !self.is_reachable(&assignment.placement) {
            return self.await_nodes(job, at, Some(assignment), held);
        }
        self.place_back(assignment, decisions);
        if at.is_in_memory() {
            self.presence.on_observed(&self.matrix, job, at);
        }
        if held {
            self.hold(job);
        }
    }

    /// Gives a job the first row, in the order of turns, that holds it where it was, or a new one.
    pub(super) fn place_back(&mut self, assignment: Assignment, decisions: &mut Vec<Decision>) {
        let job: JobId = assignment.spec.id;
        let row = self.matrix.row_in_place(0, &assignment);
        let placement = assignment.placement.clone();
        self.matrix.assign(row, assignment);
        let slot = self.matrix.row(row).slot;
        let beside = packing::beside(&self.matrix, job);
        let landing = Arc::new(Landing { slot, placement, beside, refused_by: Vec::new() });
        self.jobs.get_mut(&job).expect("it was submitted").landing = Some(Arc::clone(&landing));
        self.presence.on_moved(&self.matrix, job);
        self.dirty.add_back(slot);
        self.mixing.on_set_changed();
        decisions.push(Decision::Admitted { job, landing });
    }
}
