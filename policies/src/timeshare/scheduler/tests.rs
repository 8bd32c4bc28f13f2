//! Stories of the scheduler: a hand-driven executor, and its decisions line by line.

mod adopt;
mod checkpoint;
mod correct;
mod down;
mod drain;
mod footprints;
mod forecast;
mod hold;
mod priority;
mod short_of_memory;
mod space;
mod switches;

use std::{fmt::Write, time::Duration};

use insta::assert_snapshot;

use super::*;
use crate::{Bytes, Cause, Decision, Misplaced, NodeId, Policy, Residence, SwitchId, Wanted};

/// Plays the executor by hand: one virtual cluster of two nodes of 1000 MiB, quantum 10 s.
struct Desk {
    scheduler: Scheduler,
    now: SimTime,
    jobs: u32,
    timer: Option<TimerId>,
    timers: BTreeSet<(SimTime, TimerId)>,
    switch: Option<SwitchId>,
}

impl Desk {
    fn new(policy: Policy) -> Self {
        Self::with(SchedulerConfig::new(policy, Duration::from_secs(10)))
    }

    fn with(config: SchedulerConfig) -> Self {
        let scheduler = Scheduler::new(Cluster::uniform(2, Bytes::mib(1000)), config).unwrap();
        let (now, timers) = (SimTime::default(), BTreeSet::new());
        Self { scheduler, now, jobs: 0, timer: None, timers, switch: None }
    }

    fn at(&mut self, seconds: u64) -> &mut Self {
        self.now = Duration::from_secs(seconds).into();
        self
    }

    /// Submits jobs of `(ranks, MiB of a rank)` together.
    fn submit(&mut self, jobs: &[(u32, u64)]) -> String {
        let spec = |&(ranks, mib): &(u32, u64)| {
            self.jobs += 1;
            let (id, memory_per_rank) = (JobId(self.jobs - 1), Bytes::mib(mib));
            JobSpec { id, name: format!("j{}", id.0).into(), ranks, memory_per_rank, arrival: self.now }
        };
        let jobs = jobs.iter().map(spec).collect();
        self.tell(SchedulerEvent::Submitted { jobs })
    }

    fn finish(&mut self, job: u32) -> String {
        self.tell(SchedulerEvent::Finished { job: JobId(job) })
    }

    fn measure(&mut self, job: u32, thousandths: u16) -> String {
        let communication = crate::Communication::per_mille(thousandths);
        self.tell(SchedulerEvent::Measured { job: JobId(job), communication })
    }

    fn hold(&mut self, job: u32, node: u32, mib: u64) -> String {
        self.tell(SchedulerEvent::Resident { job: JobId(job), node: NodeId(node), resident: Bytes::mib(mib) })
    }

    /// Job `job`, which runs, is measured to hold so much on both nodes, and does not grow.
    fn know(&mut self, job: u32, mib: u64) -> String {
        self.grow(job, mib, Some(0))
    }

    fn grow(&mut self, job: u32, mib: u64, growth: Option<u64>) -> String {
        self.footprint(job, mib, growth, false)
    }

    /// Job `job`, which is stopped, is measured to hold so much on both nodes.
    fn rest(&mut self, job: u32, mib: u64) -> String {
        self.footprint(job, mib, Some(0), true)
    }

    fn footprint(&mut self, job: u32, mib: u64, growth: Option<u64>, exact: bool) -> String {
        let footprint = |node| SchedulerEvent::Footprint {
            job: JobId(job),
            node: NodeId(node),
            resident: Bytes::mib(mib),
            growth: growth.map(Bytes::mib),
            exact,
        };
        self.tell(footprint(0)) + &self.tell(footprint(1))
    }

    fn fire(&mut self) -> String {
        let timer = self.timer.take().expect("a timer was set");
        self.tell(SchedulerEvent::TimerFired { timer })
    }

    /// Lets time pass until the first timer fires.
    fn wait(&mut self) -> String {
        let (at, timer) = self.timers.pop_first().expect("a timer was set");
        self.now = at;
        self.tell(SchedulerEvent::TimerFired { timer })
    }

    fn done(&mut self) -> String {
        let switch = self.switch.take().expect("a switch is under way");
        self.tell(SchedulerEvent::SwitchDone { switch })
    }

    fn fail(&mut self, misplaced: &[(u32, Residence)]) -> String {
        self.fail_with(misplaced.iter().map(|&(job, left)| Misplaced::new(JobId(job), left)).collect())
    }

    fn fail_with(&mut self, misplaced: Vec<Misplaced>) -> String {
        let switch = self.switch.take().expect("a switch is under way");
        self.tell(SchedulerEvent::SwitchFailed { switch, misplaced })
    }

    fn tell(&mut self, event: SchedulerEvent) -> String {
        let mut lines = String::new();
        for decision in self.scheduler.on_event(self.now, event) {
            match &decision {
                Decision::SlotChanged(_) => {
                    writeln!(lines, "turn goes on of {}", self.scheduler.turn().unwrap()).unwrap();
                }
                decision => writeln!(lines, "{decision}").unwrap(),
            }
            match decision {
                Decision::SetTimer { timer, at } => {
                    self.timer = Some(timer);
                    self.timers.insert((at, timer));
                }
                Decision::Switch(plan) => self.switch = Some(plan.switch),
                _ => {}
            }
        }
        lines
    }

    fn grid(&self) -> String {
        self.scheduler.matrix().to_string()
    }
}

#[test]
fn hybrid_packs_largest_first_into_as_few_rows_as_fit() {
    let mut desk = Desk::new(Policy::Hybrid);
    assert_snapshot!(desk.submit(&[(2, 300), (2, 600), (2, 400), (2, 700)]), @r"
    job-3 admitted to slot-0
    job-1 admitted to slot-1
    job-2 admitted to slot-1
    job-0 admitted to slot-0
    switch-0 to slot-0: out none, in job-0 (new) job-3 (new)
    ");
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB            | node-1 1000MiB
    > slot-0 | job-0*1 job-3*1 = 1000MiB | job-0*1 job-3*1 = 1000MiB
      slot-1 | job-1*1 job-2*1 = 1000MiB | job-1*1 job-2*1 = 1000MiB
    ");
}

#[test]
fn gang_gives_a_row_to_each_job_except_on_other_nodes() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 100), (1, 100), (1, 100), (2, 900)]);
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB   | node-1 1000MiB
    > slot-0 | job-3*1 = 900MiB | job-3*1 = 900MiB
      slot-1 | job-0*1 = 100MiB | job-0*1 = 100MiB
      slot-2 | job-1*1 = 100MiB | job-2*1 = 100MiB
    ");
}

#[test]
fn cosched_puts_all_in_one_row_whatever_their_memory() {
    let mut desk = Desk::new(Policy::Cosched);
    desk.submit(&[(2, 900), (2, 900), (4, 900)]);
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB                   | node-1 1000MiB
    > slot-0 | job-0*1 job-1*1 job-2*2 = 3.5GiB | job-0*1 job-1*1 job-2*2 = 3.5GiB
    ");
}

#[test]
fn batch_runs_one_after_the_other_as_they_came() {
    let mut desk = Desk::new(Policy::Batch);
    assert_snapshot!(desk.submit(&[(2, 100), (2, 900), (1, 50)]), @r"
    job-0 admitted to slot-0
    job-1 queued behind 0
    job-2 queued behind 1
    switch-0 to slot-0: out none, in job-0 (new)
    ");
    assert_snapshot!(desk.done(), @r"
    turn of slot-0 with job-0
    ");
    assert_snapshot!(desk.at(5).finish(0), @r"
    job-1 admitted to slot-1
    switch-1 to slot-1: out none, in job-1 (new)
    ");
    assert_snapshot!(desk.done() + &desk.at(9).finish(1) + &desk.done() + &desk.at(12).finish(2), @r"
    turn of slot-1 with job-1
    job-2 admitted to slot-2
    switch-2 to slot-2: out none, in job-2 (new)
    turn of slot-2 with job-2
    all done
    ");
}

#[test]
fn rows_take_turns_by_quantum() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 500), (2, 600)]);
    assert_snapshot!(desk.at(1).done(), @r"
    turn of slot-0 with job-1 until 11s
    timer-0 set for 11s
    ");
    assert_snapshot!(desk.at(11).fire(), @r"
    switch-1 to slot-1: out job-1, in job-0 (new)
    ");
    assert_snapshot!(desk.at(13).done(), @r"
    turn of slot-1 with job-0 until 23s
    timer-1 set for 23s
    ");
    assert_snapshot!(desk.at(23).fire(), @r"
    switch-2 to slot-0: out job-0, in job-1
    ");
}

#[test]
fn a_job_that_could_not_leave_and_has_ended_since_stays_nowhere() {
    let config = SchedulerConfig {
        rotation: Rotation::Job,
        ..SchedulerConfig::new(Policy::Hybrid, Duration::from_secs(10))
    };
    let mut desk = Desk::with(config);
    desk.submit(&[(2, 600), (2, 600)]);
    desk.done();
    assert_snapshot!(desk.wait(), @r"
    job-1 moved from slot-1 to slot-0
    job-0 moved from slot-0 to slot-1
    switch-1 to slot-0: out job-0, in job-1 (new)
    ");
    desk.tell(SchedulerEvent::Finished { job: JobId(0) });
    desk.tell(SchedulerEvent::Failed { job: JobId(1) });
    assert_snapshot!(desk.fail(&[(0, Residence::Running), (1, Residence::Unlaunched)]), @r"
    all done
    ");
}

#[test]
fn with_one_row_there_is_no_timer_until_another_waits() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 500)]);
    assert_snapshot!(desk.at(1).done(), @r"
    turn of slot-0 with job-0
    ");
    assert_snapshot!(desk.at(4).submit(&[(2, 500)]), @r"
    job-1 admitted to slot-1
    turn goes on of slot-0 with job-0 until 11s
    timer-0 set for 11s
    ");
}

#[test]
fn when_the_other_row_goes_away_the_turn_has_no_end() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 600), (2, 500)]);
    desk.at(1).done();
    assert_eq!(
        desk.at(4).tell(SchedulerEvent::Failed { job: JobId(1) }),
        "turn goes on of slot-0 with job-0\n"
    );
    // The old timer means nothing; when another row waits again, the turn is long over.
    assert_eq!(desk.at(11).fire(), "");
    assert_snapshot!(desk.at(15).submit(&[(2, 500)]), @r"
    job-2 admitted to slot-2
    turn goes on of slot-0 with job-0 until 15s
    timer-1 set for 15s
    ");
}

#[test]
fn a_job_that_is_cancelled_while_it_queues_is_never_launched() {
    let mut desk = Desk::new(Policy::Batch);
    desk.submit(&[(2, 100), (2, 100), (2, 100)]);
    desk.at(1).done();
    assert_eq!(desk.at(2).tell(SchedulerEvent::Failed { job: JobId(1) }), "");
    assert_snapshot!(desk.at(3).finish(0), @r"
    job-2 admitted to slot-1
    switch-1 to slot-1: out none, in job-2 (new)
    ");
}

#[test]
fn a_job_that_arrives_is_activated_at_once_where_the_active_row_has_room() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(2, 600), (2, 600)]);
    desk.at(1).done();
    assert_snapshot!(desk.at(3).submit(&[(2, 400)]), @r"
    job-2 admitted to slot-0
    switch-1 to slot-0: out none, in job-2 (new)
    ");
    assert_snapshot!(desk.at(4).done(), @r"
    turn goes on of slot-0 with job-0 job-2 until 11s
    ");
}

#[test]
fn a_job_that_arrives_late_in_a_turn_prefers_a_row_that_is_still_to_come() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(2, 600), (2, 600)]);
    desk.at(1).done();
    assert_snapshot!(desk.at(8).submit(&[(2, 400)]), @r"
    job-2 admitted to slot-1
    ");
}

#[test]
fn when_the_active_row_empties_the_next_comes_early() {
    let mut desk = Desk::new(Policy::Gang);
    desk.submit(&[(2, 500), (2, 600)]);
    desk.at(1).done();
    assert_snapshot!(desk.at(3).finish(1), @r"
    switch-1 to slot-1: out none, in job-0 (new)
    ");
    // The timer of the turn that ended early means nothing any more.
    assert_eq!(desk.at(11).fire(), "");
    assert_snapshot!(desk.at(12).done(), @r"
    turn of slot-1 with job-0
    ");
}

#[test]
fn room_that_appears_is_filled_from_the_next_row_without_a_dump() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(2, 600), (2, 400), (2, 500), (2, 400)]);
    desk.at(1).done();
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB            | node-1 1000MiB
    > slot-0 | job-0*1 job-1*1 = 1000MiB | job-0*1 job-1*1 = 1000MiB
      slot-1 | job-2*1 job-3*1 = 900MiB  | job-2*1 job-3*1 = 900MiB
    ");
    assert_snapshot!(desk.at(3).finish(1), @r"
    job-3 moved from slot-1 to slot-0
    switch-1 to slot-0: out none, in job-3 (new)
    turn goes on of slot-0 with job-0 until 11s
    ");
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB            | node-1 1000MiB
    > slot-0 | job-0*1 job-3*1 = 1000MiB | job-0*1 job-3*1 = 1000MiB
      slot-1 | job-2*1 = 500MiB          | job-2*1 = 500MiB
    ");
}

#[test]
fn room_is_offered_once_and_jobs_do_not_hop_from_turn_to_turn() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(2, 600), (2, 300), (2, 500), (2, 100)]);
    desk.at(1).done();
    // Nobody of the other row fits where job-3 was.
    assert_eq!(desk.at(2).finish(3), "turn goes on of slot-0 with job-0 job-1 until 11s\n");
    // Job-1 would fit in the row whose turn comes now, but nothing became free there.
    assert_eq!(desk.at(11).fire(), "switch-1 to slot-1: out job-0 job-1, in job-2 (new)\n");
}

#[test]
fn room_that_appears_late_in_a_turn_is_used_when_the_turn_passes() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(2, 800), (2, 700), (2, 600), (2, 200), (2, 150)]);
    desk.at(1).done();
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB            | node-1 1000MiB
    > slot-0 | job-0*1 job-3*1 = 1000MiB | job-0*1 job-3*1 = 1000MiB
      slot-1 | job-1*1 job-4*1 = 850MiB  | job-1*1 job-4*1 = 850MiB
      slot-2 | job-2*1 = 600MiB          | job-2*1 = 600MiB
    ");
    assert_eq!(desk.at(9).finish(0), "turn goes on of slot-0 with job-3 until 11s\n");
    assert_snapshot!(desk.at(11).fire(), @r"
    job-3 moved from slot-0 to slot-2
    switch-1 to slot-1: out job-3, in job-1 (new) job-4 (new)
    ");
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB           | node-1 1000MiB
    > slot-1 | job-1*1 job-4*1 = 850MiB | job-1*1 job-4*1 = 850MiB
      slot-2 | job-2*1 job-3*1 = 800MiB | job-2*1 job-3*1 = 800MiB
    ");
}

#[test]
fn a_job_that_changes_to_the_next_row_stays_in_memory() {
    let mut desk = Desk::new(Policy::Hybrid);
    desk.submit(&[(2, 600), (2, 500), (2, 400), (2, 450)]);
    desk.at(1).done();
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB            | node-1 1000MiB
    > slot-0 | job-0*1 job-2*1 = 1000MiB | job-0*1 job-2*1 = 1000MiB
      slot-1 | job-1*1 job-3*1 = 950MiB  | job-1*1 job-3*1 = 950MiB
    ");
    // Late, so that no job joins the active row any more; then the turn passes, and job-2 fits beside job-1.
    desk.at(8).finish(3);
    desk.at(9).submit(&[(2, 950)]);
    assert_snapshot!(desk.at(11).fire(), @r"
    job-2 moved from slot-0 to slot-1
    switch-1 to slot-1: out job-0, in job-1 (new)
    ");
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB           | node-1 1000MiB
    > slot-1 | job-1*1 job-2*1 = 900MiB | job-1*1 job-2*1 = 900MiB
      slot-2 | job-4*1 = 950MiB         | job-4*1 = 950MiB
      slot-0 | job-0*1 = 600MiB         | job-0*1 = 600MiB
    ");
}

#[test]
fn a_job_goes_on_in_a_row_that_leaves_its_node_idle_and_makes_way_for_one_that_comes() {
    let mut desk = Desk::new(Policy::Gang);
    desk.scheduler.config.alternate = crate::Alternate::Whole;
    // Slots: job-0 on both nodes; job-1 on node-0 and job-2 on node-1; job-3 on node-0.
    desk.submit(&[(2, 900), (1, 500), (1, 400), (1, 300)]);
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB   | node-1 1000MiB
    > slot-0 | job-0*1 = 900MiB | job-0*1 = 900MiB
      slot-1 | job-1*1 = 500MiB | job-2*1 = 400MiB
      slot-2 | job-3*1 = 300MiB | -
    ");
    desk.at(1).done();
    desk.at(11).fire();
    desk.at(12).done();
    assert_snapshot!(desk.at(22).fire(), @r"
    switch-2 to slot-2: out job-1, in job-3 (new)
    ");
    assert_snapshot!(desk.at(23).done(), @r"
    turn of slot-2 with job-3 job-2 until 33s
    timer-2 set for 33s
    ");
    assert_snapshot!(desk.at(24).submit(&[(1, 100)]), @r"
    job-4 admitted to slot-2
    switch-3 to slot-2: out job-2, in job-4 (new)
    turn goes on of slot-2 with job-3 until 33s
    ");
}

#[test]
fn what_is_learnt_of_communication_mixes_the_rows_at_the_end_of_the_turn() {
    let mut desk = Desk::new(Policy::Paired);
    desk.submit(&[(2, 500), (2, 500), (2, 500), (2, 500)]);
    desk.at(1).done();
    assert_eq!(desk.at(9).measure(0, 100) + &desk.measure(1, 100) + &desk.measure(2, 900), "");
    // Job 0 runs on in the other row; job 2 waits for one turn more.
    assert_snapshot!(desk.at(11).fire(), @r"
    job-0 moved from slot-0 to slot-1
    job-2 moved from slot-1 to slot-0
    switch-1 to slot-1: out job-1, in job-3 (new)
    ");
    desk.at(12).done();
    // The fourth turns out to compute, too: no exchange is better.
    desk.at(13).measure(3, 120);
    assert_snapshot!(desk.at(22).fire(), @r"
    switch-2 to slot-0: out job-0 job-3, in job-1 job-2 (new)
    ");
    assert_snapshot!(desk.grid(), @r"
             | node-0 1000MiB            | node-1 1000MiB
    > slot-0 | job-1*1 job-2*1 = 1000MiB | job-1*1 job-2*1 = 1000MiB
      slot-1 | job-0*1 job-3*1 = 1000MiB | job-0*1 job-3*1 = 1000MiB
    ");
}

#[test]
fn what_can_never_run_is_rejected_with_the_reason() {
    let mut desk = Desk::new(Policy::Hybrid);
    assert_snapshot!(desk.submit(&[(3, 600), (0, 10), (2, 1000)]), @r"
    job-0 rejected: needs 1.2GiB on one node for 2 of its ranks, the largest node has 1000MiB
    job-1 rejected: it has no ranks
    job-2 admitted to slot-0
    switch-0 to slot-0: out none, in job-2 (new)
    ");
}

#[test]
fn events_and_decisions_survive_the_journal() {
    let mut scheduler = Desk::new(Policy::Hybrid).scheduler;
    let spec = JobSpec {
        id: JobId(7),
        name: "cg".into(),
        ranks: 2,
        memory_per_rank: Bytes::mib(300),
        arrival: SimTime(5),
    };
    let event = SchedulerEvent::Submitted { jobs: vec![spec] };
    let json = serde_json::to_string(&event).unwrap();
    assert_eq!(serde_json::from_str::<SchedulerEvent>(&json).unwrap(), event);
    let decisions = scheduler.on_event(SimTime(5), event);
    let json = serde_json::to_string(&decisions).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Decision>>(&json).unwrap(), decisions);
    assert!(json.contains(r#""kind":"switch""#), "{json}");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let config = |quantum| SchedulerConfig::new(Policy::Gang, Duration::from_secs(quantum));
    let cluster = || Cluster::uniform(1, Bytes::mib(1));
    let refused = |cluster, config| Scheduler::new(cluster, config).map(|_| ()).unwrap_err();
    assert_eq!(refused(Cluster::uniform(0, Bytes::mib(1)), config(1)), ConfigError::NoNodes);
    assert_eq!(refused(cluster(), config(0)), ConfigError::ZeroQuantum);
    let none = SchedulerConfig { max_per_cell: Some(0), ..config(1) };
    assert_eq!(refused(cluster(), none), ConfigError::ZeroPerCell);
    let partial = SchedulerConfig { alternate: crate::Alternate::Partial, ..config(1) };
    assert_eq!(refused(cluster(), partial), ConfigError::SplitGang);
}
