//! A new scheduler goes on with the jobs of one before it.

use super::*;
use crate::{Adopted, JobSpec, Placement, SimTime};

impl Desk {
    /// A new scheduler, which knows of the jobs only where they are; those without a place are submitted.
    fn replace(&mut self) -> String {
        let (cluster, config) = (self.scheduler.matrix().cluster().clone(), self.scheduler.config().clone());
        let old = std::mem::replace(&mut self.scheduler, Scheduler::new(cluster, config).unwrap());
        let living: Vec<_> = old.jobs().filter(|job| !job.observed.is_ended()).collect();
        let adopted = |job: &JobState| {
            let placement = old.matrix().assignment_of(job.spec.id)?.placement.clone();
            let has_begun = job.observed != Residence::Unlaunched;
            let held = false;
            has_begun.then(|| Adopted {
                job: job.spec.clone(),
                placement,
                at: job.observed,
                held,
                priority: 0,
            })
        };
        let jobs: Vec<Adopted> = living.iter().filter_map(adopted).collect();
        let others = living.iter().filter(|job| adopted(job).is_none()).map(|job| job.spec.clone()).collect();
        self.timers.clear();
        self.switch = None;
        let switches = 7;
        self.tell(SchedulerEvent::Adopted { switches, jobs })
            + &self.tell(SchedulerEvent::Submitted { jobs: others })
    }
}

#[test]
fn the_turn_of_the_jobs_that_run_begins_anew_and_no_job_is_touched() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600), (2, 600), (2, 600)]);
    desk.done();
    desk.wait();
    desk.done();
    // Job 0 is parked, job 1 runs, job 2 was never launched.
    assert_snapshot!(desk.at(13).replace(), @r"
    job-1 admitted to slot-0
    job-0 admitted to slot-1
    turn of slot-0 with job-1 until 23s
    timer-0 set for 23s
    job-2 admitted to slot-2
    ");
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB   | node-1 1000MiB
    > slot-0 | job-1*1 = 600MiB | job-1*1 = 600MiB
      slot-1 | job-0*1 = 600MiB | job-0*1 = 600MiB
      slot-2 | job-2*1 = 600MiB | job-2*1 = 600MiB
    ");
    assert_snapshot!(desk.wait(), @r"
    switch-7 to slot-1: out job-1, in job-0
    ");
}

#[test]
fn a_switch_that_was_under_way_is_planned_again() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600), (2, 600)]);
    desk.done();
    desk.wait();
    let leave = Misplaced::new(JobId(0), Residence::Parked);
    let late = Misplaced::new(JobId(1), Residence::Unlaunched);
    desk.fail_with(vec![leave, late]);
    // Nobody runs: job 0 has left, job 1 has not come.
    assert_snapshot!(desk.replace(), @r"
    job-0 admitted to slot-0
    switch-7 to slot-0: out none, in job-0
    job-1 admitted to slot-1
    ");
    assert_snapshot!(desk.done(), @r"
    turn of slot-0 with job-0 until 20s
    timer-0 set for 20s
    ");
}

#[test]
fn jobs_that_wait_in_memory_stay_there() {
    let config = SchedulerConfig {
        residency: Residency::Planned,
        ..SchedulerConfig::new(Policy::Gang, Duration::from_secs(10))
    };
    let mut desk = Desk::with(config);
    desk.submit(&[(2, 400), (2, 400)]);
    desk.done();
    desk.wait();
    desk.done();
    assert_snapshot!(desk.at(15).replace(), @r"
    job-1 admitted to slot-0
    job-0 admitted to slot-1
    turn of slot-0 with job-1 until 25s
    timer-0 set for 25s
    ");
    assert_snapshot!(desk.wait(), @r"
    switch-7 to slot-1: out job-1 (suspended), in job-0 (resumed)
    ");
}

/// Job 0 would fit beside job 1 on the other node, but its snapshot is where it ran.
#[test]
fn an_adopted_job_keeps_its_nodes() {
    let mut desk = Desk::new(Policy::Hybrid);
    let job = |id, ranks, mib| JobSpec {
        id: JobId(id),
        name: format!("job-{id}").into(),
        ranks,
        memory_per_rank: Bytes::mib(mib),
        arrival: SimTime(0),
    };
    let parked = |job, placement: &[u32]| Adopted {
        job,
        placement: Placement::from_shares(placement),
        at: Residence::Parked,
        held: false,
        priority: 0,
    };
    let running = Adopted { at: Residence::Running, ..parked(job(1, 1, 800), &[1, 0]) };
    let leaves = Adopted { held: true, ..parked(job(2, 2, 300), &[1, 1]) };
    let jobs = vec![running, leaves, parked(job(0, 1, 400), &[1, 0])];
    desk.tell(SchedulerEvent::Adopted { switches: 3, jobs });
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB   | node-1 1000MiB
    > slot-0 | job-1*1 = 800MiB | -
      slot-1 | job-0*1 = 400MiB | -
    ");
}
