//! Groups that share no nodes have queues of their own: a job waits only for jobs that may get its nodes.
//!
//! RMS has a manager for each partition, which schedules the jobs there (paper 000, §3.1). Groups that share
//! a node set, also by way of a third group, are one *part* of the machine and have one queue.

use std::collections::{BTreeMap, BTreeSet};

use super::{QueueOrder, QueuedJob};
use crate::{
    JobId, SimTime,
    spaceshare::machine::{GroupId, Machine},
};

/// An order for each part of a machine.
#[derive(Clone, Debug)]
pub struct Apart {
    /// By group: its part, which is named by its first group.
    part_of: Vec<GroupId>,
    orders: BTreeMap<GroupId, Box<dyn QueueOrder>>,
}

impl Apart {
    /// A queue like `empty` for each part of `machine`.
    #[must_use]
    pub fn new(machine: &Machine, empty: Box<dyn QueueOrder>) -> Self {
        let part_of = parts(machine);
        let parts: BTreeSet<GroupId> = part_of.iter().copied().collect();
        let orders = parts.into_iter().zip(std::iter::repeat_n(empty, part_of.len())).collect();
        Self { part_of, orders }
    }
}

/// By group, the first group of its part.
fn parts(machine: &Machine) -> Vec<GroupId> {
    let groups: Vec<GroupId> = (0..).map(GroupId).take(machine.groups().len()).collect();
    let mut part_of = groups.clone();
    for (group, before) in groups.iter().flat_map(|group| groups.iter().map(move |before| (group, before))) {
        let [one, other] = [*before, *group].map(|group| part_of[usize::from(group.0)]);
        if machine.may_compete(*before, *group) {
            let whole = one.min(other);
            part_of.iter_mut().filter(|part| [one, other].contains(part)).for_each(|part| *part = whole);
        }
    }
    part_of
}

impl QueueOrder for Apart {
    fn submit(&mut self, job: QueuedJob) {
        let part = self.part_of.get(usize::from(job.group.0)).expect("the machine has its group");
        self.orders.get_mut(part).expect("each part has an order").submit(job);
    }

    /// A job that only keeps nodes from being used has no group: each part sees what it holds there.
    fn adopt(&mut self, now: SimTime, job: QueuedJob, end: SimTime, machine: &Machine) {
        self.orders.values_mut().for_each(|order| order.adopt(now, job, end, machine));
    }

    fn withdraw(&mut self, job: JobId) -> bool {
        self.orders.values_mut().any(|order| order.withdraw(job))
    }

    fn on_end(&mut self, now: SimTime, job: JobId) {
        self.orders.values_mut().for_each(|order| order.on_end(now, job));
    }

    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) {
        self.orders.values_mut().for_each(|order| order.start(now, machine, started));
    }

    fn next_wake(&self, now: SimTime, machine: &Machine) -> Option<SimTime> {
        self.orders.values().filter_map(|order| order.next_wake(now, machine)).min()
    }

    fn waiting(&self) -> usize {
        self.orders.values().map(|order| order.waiting()).sum()
    }

    fn promised(&self, now: SimTime, machine: &Machine, job: JobId) -> Option<SimTime> {
        self.orders.values().find_map(|order| order.promised(now, machine, job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spaceshare::{
        allocate::FirstFit,
        machine::{Calendar, NodeGroup, NodeSet, SetId},
        queue::{Easy, Fcfs, waiting_job},
    };

    /// Sets of two nodes; each group has these of them.
    fn machine(sets: u16, groups: &[&[u16]]) -> Machine {
        let set = |_| NodeSet { name: "s".into(), allocator: Box::new(FirstFit::new(2)) };
        let group = |sets: &&[u16]| {
            let sets: Vec<SetId> = sets.iter().copied().map(SetId).collect();
            NodeGroup { name: "g".into(), prime: sets.clone(), non_prime: sets }
        };
        let groups = groups.iter().map(group).collect();
        Machine::new((0..sets).map(set).collect(), groups, Calendar::never_prime()).unwrap()
    }

    fn started(order: &mut Apart, machine: &mut Machine) -> Vec<u32> {
        let mut started = Vec::new();
        order.start(SimTime(0), machine, &mut started);
        started.iter().map(|job| job.job.0).collect()
    }

    fn job_of(group: u16, id: u32, nodes: u32, limit_secs: u64) -> QueuedJob {
        QueuedJob { group: GroupId(group), ..waiting_job(id, nodes, limit_secs) }
    }

    #[test]
    fn groups_are_one_part_where_a_third_one_joins_them() {
        let joined = machine(5, &[&[0], &[2], &[4], &[1, 2], &[0, 1]]);
        assert_eq!(parts(&joined), [0, 0, 2, 0, 0].map(GroupId));
        assert_eq!(parts(&machine(2, &[&[0], &[1]])), [0, 1].map(GroupId));
    }

    #[test]
    fn a_job_that_waits_keeps_no_job_of_another_part_waiting() {
        let mut machine = machine(2, &[&[0], &[1]]);
        let mut order = Apart::new(&machine, Box::new(Fcfs::default()));
        [job_of(0, 0, 2, 9), job_of(0, 1, 2, 9), job_of(0, 2, 1, 9), job_of(1, 3, 1, 9)]
            .into_iter()
            .for_each(|job| order.submit(job));
        assert_eq!(started(&mut order, &mut machine), [0, 3]);
        assert!(machine.release(JobId(0)));
        order.on_end(SimTime(0), JobId(0));
        assert_eq!(started(&mut order, &mut machine), [1], "job 2 comes after it");
        assert_eq!((order.waiting(), order.withdraw(JobId(2)), order.waiting()), (1, true, 0));
    }

    #[test]
    fn the_first_job_of_each_part_has_a_reservation() {
        let mut machine = machine(2, &[&[0], &[1]]);
        let mut order = Apart::new(&machine, Box::new(Easy::default()));
        for group in [0, 1] {
            let first = 3 * u32::from(group);
            order.submit(job_of(group, first, 1, 10));
            order.submit(job_of(group, first + 1, 2, 10));
            // It would delay the one before.
            order.submit(job_of(group, first + 2, 1, 20));
        }
        assert_eq!(started(&mut order, &mut machine), [0, 3]);
    }
}
