//! Jobs of higher priority, and what happens to the others.

use super::*;
use crate::SwitchOrder;

impl Desk {
    /// Submits jobs of `(priority, MiB of each node)` together.
    fn submit_with(&mut self, jobs: &[(i32, u64)]) -> String {
        let priorities = (self.jobs..).zip(jobs).map(|(id, (priority, _))| (JobId(id), *priority)).collect();
        self.tell(SchedulerEvent::Prioritized { priorities });
        self.submit(&jobs.iter().map(|(_, mib)| (2, *mib)).collect::<Vec<_>>())
    }

    /// Ends the switch under way, and those that follow at once.
    fn settle(&mut self) {
        while self.switch.is_some() {
            self.done();
        }
    }

    fn running(&self) -> Vec<u32> {
        self.scheduler.turn().map(|turn| turn.jobs.iter().map(|job| job.0).collect()).unwrap_or_default()
    }
}

#[test]
fn a_job_of_higher_priority_ends_the_turn_of_others_which_lose_nothing() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(2, 600), (2, 600)]);
    desk.settle();
    assert_eq!(desk.running(), [0]);
    assert_snapshot!(desk.at(3).submit_with(&[(5, 700)]), @r"
    job-2 admitted to slot-2
    switch-1 to slot-2: out job-0, in job-2 (new)
    ");
    desk.settle();
    assert_eq!(desk.running(), [2]);
    assert_eq!(desk.scheduler.turn().unwrap().ends, None, "its turn ends with it");
    assert_eq!(desk.scheduler.outranked(JobId(0)), Some(5));
    assert_eq!(desk.scheduler.outranked(JobId(2)), None);
    // The displaced row has had a turn: the other one comes first.
    desk.at(60).finish(2);
    desk.settle();
    assert_eq!(desk.running(), [1]);
    // The first timer is that of the turn that was ended.
    for _ in 0..2 {
        desk.wait();
        desk.settle();
    }
    assert_eq!(desk.running(), [0], "and goes on from where it was");
}

#[test]
fn jobs_of_one_priority_take_turns_and_lower_ones_run_beside_them_where_they_fit() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit_with(&[(1, 600), (1, 700), (0, 300), (-3, 900)]);
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB            | node-1 1000MiB
    > slot-0 | job-1*1 job-2*1 = 1000MiB | job-1*1 job-2*1 = 1000MiB
      slot-1 | job-0*1 = 600MiB          | job-0*1 = 600MiB
      slot-2 | job-3*1 = 900MiB          | job-3*1 = 900MiB
    ");
    desk.settle();
    let mut turns = Vec::new();
    for _ in 0..5 {
        turns.push(desk.running());
        desk.wait();
        desk.settle();
    }
    assert_eq!(turns, [vec![1, 2], vec![0], vec![1, 2], vec![0], vec![1, 2]]);
    desk.finish(0);
    desk.settle();
    assert_eq!(desk.running(), [1, 2]);
    desk.finish(1);
    desk.settle();
    assert_eq!(desk.running(), [2]);
    desk.finish(2);
    desk.settle();
    assert_eq!(desk.running(), [3], "nothing keeps the lowest one out any more");
}

#[test]
fn lower_jobs_make_room_in_the_row_of_a_higher_one() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit_with(&[(2, 500), (0, 400)]);
    desk.settle();
    assert_eq!(desk.running(), [0, 1]);
    desk.at(2).submit_with(&[(2, 300)]);
    desk.settle();
    assert_eq!(desk.running(), [0, 2], "the two fit together, without the lower one");
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB           | node-1 1000MiB
    > slot-0 | job-0*1 job-2*1 = 800MiB | job-0*1 job-2*1 = 800MiB
      slot-1 | job-1*1 = 400MiB         | job-1*1 = 400MiB
    ");
}

#[test]
fn a_priority_that_is_set_later_counts_at_once() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600), (2, 600), (2, 600)]);
    desk.settle();
    assert_eq!(desk.running(), [0]);
    desk.at(2).tell(SchedulerEvent::Prioritized { priorities: vec![(JobId(2), 1)] });
    desk.settle();
    assert_eq!(desk.running(), [2]);
    desk.at(4).tell(SchedulerEvent::Prioritized { priorities: vec![(JobId(2), 0)] });
    desk.settle();
    // The first timer is that of the turn that was ended.
    for _ in 0..2 {
        desk.wait();
        desk.settle();
    }
    assert_ne!(desk.running(), [2], "it takes turns with the others again");
}

#[test]
fn under_batch_the_highest_is_next_and_nothing_is_displaced() {
    let mut desk = Desk::new(Policy::Batch);
    desk.submit(&[(2, 600), (2, 600)]);
    desk.settle();
    assert_snapshot!(desk.at(1).submit_with(&[(1, 600), (9, 600)]), @r"
    job-3 queued behind 0
    job-2 queued behind 1
    ");
    assert_eq!(desk.running(), [0]);
    let mut order = Vec::new();
    for _ in 0..4 {
        let job = desk.running()[0];
        order.push(job);
        desk.finish(job);
        desk.settle();
    }
    assert_eq!(order, [0, 3, 2, 1]);
}

#[test]
fn a_job_that_cannot_leave_keeps_its_turn_until_the_strobe() {
    let mut config = SchedulerConfig::new(Policy::Gang, Duration::from_secs(10));
    (config.residency, config.switching) = (Residency::None, SwitchOrder::Sequential);
    let mut desk = Desk::with(config);
    desk.submit(&[(2, 600)]);
    desk.settle();
    desk.at(1).submit_with(&[(1, 600)]);
    desk.fail(&[(0, Residence::Running), (1, Residence::Unlaunched)]);
    assert_eq!((desk.running(), desk.switch), (vec![0], None), "it is not tried again at once");
    desk.wait();
    desk.settle();
    assert_eq!(desk.running(), [1]);
}
