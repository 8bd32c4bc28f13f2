//! Checkpoints of running jobs: when they are due, and what makes them needless.

use super::*;

/// Each of the two nodes fails so often: a checkpoint that costs 1 s is worth while every 100 s.
const MTBF: Duration = Duration::from_secs(10_000);

fn desk(policy: Policy) -> Desk {
    let config = SchedulerConfig::new(policy, Duration::from_secs(10));
    Desk::with(SchedulerConfig { mean_time_between_failures: Some(MTBF), ..config })
}

impl Desk {
    fn checkpointed(&mut self, job: u32, millis: u64) -> String {
        let stood_still = Duration::from_millis(millis);
        self.tell(SchedulerEvent::Checkpointed { job: JobId(job), stood_still })
    }

    fn not_checkpointed(&mut self, job: u32) -> String {
        self.tell(SchedulerEvent::NotCheckpointed { job: JobId(job) })
    }

    /// When it looks again, in seconds.
    fn looks(&self) -> u64 {
        self.timers.last().expect("a timer was set").0.0 / 1_000_000_000
    }

    fn passes(&mut self, job: u32) -> bool {
        self.timers = self.timers.split_off(&(self.now, TimerId(0)));
        self.wait().contains(&format!("job-{job} checkpointed"))
    }
}

#[test]
fn a_job_that_stays_is_checkpointed_at_the_interval_of_its_measured_cost() {
    let mut desk = desk(Policy::Hybrid);
    desk.submit(&[(2, 180)]);
    desk.done();
    // 180 MiB at 200 MiB a second, and 100 ms: 1 s.
    assert_eq!(desk.looks(), 99);
    assert!(desk.passes(0));
    assert_eq!(desk.now.0 / 1_000_000_000, 99);
    // It is the only one under way, and nothing else is due.
    assert!(desk.timers.is_empty());
    desk.at(101).checkpointed(0, 250);
    assert_eq!(desk.looks(), 101 + 49, "a quarter of the cost, half of the interval");
    // The median of three.
    assert!(desk.passes(0));
    desk.at(151).checkpointed(0, 4000);
    assert!(desk.passes(0));
    let now = desk.now.0 / 1_000_000_000;
    desk.checkpointed(0, 250);
    assert!((49..=50).contains(&(desk.looks() - now)));
}

#[test]
fn where_a_checkpoint_fails_the_next_attempt_comes_later_each_time() {
    let mut desk = desk(Policy::Hybrid);
    desk.submit(&[(2, 180)]);
    desk.done();
    let mut last = 0;
    for doubled in [1, 2, 4, 8] {
        assert!(desk.passes(0));
        let now = desk.now.0 / 1_000_000_000;
        desk.not_checkpointed(0);
        assert!(now - last >= 99 * doubled, "{now} {last} {doubled}");
        last = now;
    }
}

#[test]
fn a_job_that_parks_each_turn_is_never_checkpointed() {
    let mut desk = desk(Policy::Gang);
    desk.submit(&[(2, 180)]);
    desk.done();
    desk.submit(&[(2, 180)]);
    for _ in 0..20 {
        let said = desk.wait();
        assert!(!said.contains("checkpointed"), "{said}");
        if desk.switch.is_some() {
            let said = desk.done();
            assert!(!said.contains("checkpointed"), "{said}");
        }
    }
}

#[test]
fn jobs_that_share_a_node_are_checkpointed_one_after_the_other() {
    let mut desk = desk(Policy::Hybrid);
    desk.submit(&[(2, 180), (2, 180)]);
    desk.done();
    let said = desk.wait();
    assert!(said.contains("job-0 checkpointed") && !said.contains("job-1"), "{said}");
    let said = desk.checkpointed(0, 1000);
    assert!(said.contains("job-1 checkpointed") && !said.contains("job-0"), "{said}");
    // One that ends keeps no other waiting.
    let mut desk = self::desk(Policy::Hybrid);
    desk.submit(&[(2, 180), (2, 180)]);
    desk.done();
    desk.wait();
    assert!(desk.finish(0).contains("job-1 checkpointed"));
}

#[test]
fn without_a_mean_time_between_failures_there_are_no_checkpoints_and_no_timers() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(2, 180)]);
    desk.done();
    assert!(desk.timers.is_empty());
}

#[test]
fn a_job_that_comes_back_from_its_snapshot_has_nothing_at_risk() {
    let mut desk = desk(Policy::Hybrid);
    desk.submit(&[(2, 180)]);
    desk.done();
    desk.at(90).tell(SchedulerEvent::NodeDown { node: NodeId(1) });
    desk.tell(SchedulerEvent::Displaced { job: JobId(0), at: Residence::Parked });
    desk.tell(SchedulerEvent::NodeUp { node: NodeId(1) });
    desk.done();
    assert!(!desk.passes(0), "its first timer");
    assert_eq!(desk.looks(), 90 + 99);
    assert!(desk.passes(0));
}
