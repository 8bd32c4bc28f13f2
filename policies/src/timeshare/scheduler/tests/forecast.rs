//! What jobs may expect, and that it is what then happens.

use std::fmt::Write;

use super::*;
use crate::{Start, SwitchPlan, timeshare::scheduler::forecast::Present};

/// What the exchange of two sets takes. Where jobs only come, a MiB takes a millisecond.
const EXCHANGE: Duration = Duration::from_secs(2);

/// A cluster on which switches always take the same, and which knows how long each job runs.
struct Steady {
    scheduler: Scheduler,
    now: SimTime,
    timers: BTreeSet<(SimTime, TimerId)>,
    switch: Option<(SimTime, SwitchPlan)>,
    left: BTreeMap<JobId, Duration>,
    running: BTreeSet<JobId>,
    /// When each job began to run, and when it ended.
    begun: Vec<(SimTime, JobId)>,
    ended: BTreeMap<JobId, SimTime>,
}

impl Steady {
    /// Jobs of `(MiB of each node, seconds of running)`, all submitted at the start.
    fn new(config: SchedulerConfig, jobs: &[(u64, u64)]) -> Self {
        let scheduler = Scheduler::new(Cluster::uniform(2, Bytes::mib(1000)), config).unwrap();
        let mut steady = Self {
            scheduler,
            now: SimTime(0),
            timers: BTreeSet::new(),
            switch: None,
            left: BTreeMap::new(),
            running: BTreeSet::new(),
            begun: Vec::new(),
            ended: BTreeMap::new(),
        };
        let spec = |(id, &(mib, seconds)): (u32, &(u64, u64))| {
            let id = JobId(id);
            steady.left.insert(id, Duration::from_secs(seconds));
            let name = format!("j{}", id.0).into();
            JobSpec { id, name, ranks: 2, memory_per_rank: Bytes::mib(mib), arrival: SimTime(0) }
        };
        let jobs = (0..).zip(jobs).map(spec).collect();
        steady.tell(SchedulerEvent::Submitted { jobs });
        steady
    }

    fn tell(&mut self, event: SchedulerEvent) {
        for decision in self.scheduler.on_event(self.now, event) {
            match decision {
                Decision::SetTimer { timer, at } => drop(self.timers.insert((at, timer))),
                Decision::Switch(plan) => {
                    for outgoing in &plan.outgoing {
                        self.running.remove(&outgoing.job);
                    }
                    self.switch = Some((self.now.after(self.cost(&plan)), plan));
                }
                _ => {}
            }
        }
    }

    fn cost(&self, plan: &SwitchPlan) -> Duration {
        if !plan.is_activation() {
            return EXCHANGE;
        }
        let restored = plan.incoming.iter().filter(|incoming| incoming.start == Start::Restore);
        let bytes = restored.map(|incoming| self.scheduler.job(incoming.job).unwrap().spec.memory_per_rank.0);
        Duration::from_millis(bytes.sum::<u64>() >> 20)
    }

    /// Passes the time to the next event; whether there was one.
    fn step(&mut self) -> bool {
        let end = self.running.iter().map(|job| (self.now.after(self.left[job]), *job)).min();
        let over = self.switch.as_ref().map(|(over, _)| *over);
        let timer = self.timers.first().map(|(at, _)| *at);
        let Some(at) = [end.map(|(at, _)| at), over, timer].into_iter().flatten().min() else { return false };
        let passed = at.since(self.now);
        for job in &self.running {
            *self.left.get_mut(job).unwrap() -= passed;
        }
        self.now = at;
        if let Some((_, job)) = end.filter(|(end, _)| *end == at) {
            self.running.remove(&job);
            self.ended.insert(job, at);
            self.tell(SchedulerEvent::Finished { job });
        } else if over == Some(at) {
            let (_, plan) = self.switch.take().unwrap();
            for incoming in plan.incoming.iter().filter(|incoming| !self.ended.contains_key(&incoming.job)) {
                self.running.insert(incoming.job);
                self.begun.push((at, incoming.job));
            }
            let (switch, exposed) = (plan.switch, self.cost(&plan));
            self.tell(SchedulerEvent::SwitchTimed { switch, restore: None, exposed });
            self.tell(SchedulerEvent::SwitchDone { switch });
        } else {
            let (_, timer) = self.timers.pop_first().unwrap();
            self.tell(SchedulerEvent::TimerFired { timer });
        }
        true
    }

    fn forecast(&self, left: BTreeMap<JobId, Duration>) -> BTreeMap<JobId, Outlook> {
        self.scheduler.forecast(Present {
            now: self.now,
            timers: self.timers.clone(),
            switch_began: self.switch.as_ref().map(|(over, plan)| over.before(self.cost(plan))),
            left,
            events_max: 1000,
        })
    }

    /// One line a turn of the next minute.
    fn timetable(&self) -> String {
        let present = Present {
            now: self.now,
            timers: self.timers.clone(),
            switch_began: self.switch.as_ref().map(|(over, plan)| over.before(self.cost(plan))),
            left: self.left.clone(),
            events_max: 1000,
        };
        let mut text = String::new();
        let second = |at: SimTime| at.since(SimTime(0)).as_secs();
        for turn in self.scheduler.timetable(present, self.now.after(Duration::from_secs(60))) {
            let until = turn.until.map_or("?".into(), |until| second(until).to_string());
            let jobs =
                turn.jobs.iter().map(|(job, placement)| format!("{job} on {} nodes", placement.width()));
            let jobs = jobs.collect::<Vec<_>>().join(", ");
            writeln!(text, "{} {} to {until}: {jobs}", turn.slot, second(turn.from)).unwrap();
        }
        text
    }

    fn shown(&self, left: BTreeMap<JobId, Duration>) -> String {
        let mut text = String::new();
        let shown =
            |at: Option<SimTime>| at.map_or("?".into(), |at| at.since(SimTime(0)).as_secs().to_string());
        for (job, Outlook { runs_from, runs_until, done }) in self.forecast(left) {
            let (from, until, done) = (shown(runs_from), shown(runs_until), shown(done));
            writeln!(text, "{job} runs {from} to {until}, done {done}").unwrap();
        }
        text
    }
}

fn quantum() -> Duration {
    Duration::from_secs(10)
}

#[test]
fn each_waiting_job_has_its_next_turn() {
    let mut steady =
        Steady::new(SchedulerConfig::new(Policy::Gang, quantum()), &[(600, 99), (600, 25), (600, 99)]);
    // Until all have had a turn, and the first has its second one.
    while steady.begun.len() < 4 {
        steady.step();
    }
    assert_eq!(steady.now, Duration::from_secs(36).into());
    assert_snapshot!(steady.shown(BTreeMap::new()), @r"
    job-0 runs 36 to 46, done ?
    job-1 runs 48 to 58, done ?
    job-2 runs 60 to 70, done ?
    ");
    assert_snapshot!(steady.shown(steady.left.clone()), @r"
    job-0 runs 36 to 46, done 254
    job-1 runs 48 to 58, done 89
    job-2 runs 60 to 70, done 264
    ");
}

#[test]
fn what_was_foreseen_happens() {
    for policy in [Policy::Gang, Policy::Hybrid, Policy::Batch] {
        let config = SchedulerConfig::new(policy, quantum());
        let jobs = [(600, 44), (300, 17), (500, 61), (900, 33), (200, 70)];
        let mut steady = Steady::new(config, &jobs);
        // Costs are known once two sets were exchanged.
        while steady.begun.len() < 8 && steady.ended.is_empty() {
            steady.step();
        }
        let (foreseen, seen) = (steady.forecast(steady.left.clone()), steady.begun.len());
        let waiting: Vec<JobId> =
            foreseen.keys().copied().filter(|job| !steady.running.contains(job)).collect();
        assert!(!waiting.is_empty());
        while steady.step() {}
        for job in waiting {
            let next = steady.begun[seen..].iter().find(|(_, begun)| *begun == job).map(|(at, _)| *at);
            assert_eq!(foreseen[&job].runs_from, next, "{job} under {policy}");
        }
        for (job, outlook) in foreseen {
            assert_eq!(outlook.done, Some(steady.ended[&job]), "{job} under {policy}");
        }
    }
}

#[test]
fn the_timetable_has_the_turns_of_the_next_minute() {
    let jobs = [(600, 99), (600, 25), (300, 12), (300, 99)];
    let mut steady = Steady::new(SchedulerConfig::new(Policy::Hybrid, quantum()), &jobs);
    while steady.begun.len() < 5 {
        steady.step();
    }
    assert_snapshot!(steady.timetable(), @r"
    slot-0 24 to 34: job-0 on 2 nodes, job-2 on 2 nodes, job-3 on 2 nodes
    slot-1 36 to 46: job-1 on 2 nodes
    slot-0 48 to 58: job-0 on 2 nodes, job-3 on 2 nodes
    slot-1 60 to 65: job-1 on 2 nodes
    slot-0 65 to ?: job-0 on 2 nodes, job-3 on 2 nodes
    ");
    // In the middle of a switch no turn is the present one.
    while steady.scheduler.turn().is_some() {
        steady.step();
    }
    assert_snapshot!(steady.timetable(), @r"
    slot-1 36 to 46: job-1 on 2 nodes
    slot-0 48 to 58: job-0 on 2 nodes, job-3 on 2 nodes
    slot-1 60 to 65: job-1 on 2 nodes
    slot-0 65 to ?: job-0 on 2 nodes, job-3 on 2 nodes
    ");
}
