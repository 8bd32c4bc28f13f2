//! The thread of the node scheduler: looks at the ranks, tells the scheduler, and sets their weights.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    sync::{
        Arc,
        mpsc::{Receiver, TryRecvError},
    },
    time::{Duration, Instant},
};

use coswitch_ckpt::processes;
use coswitch_policies::{
    JobId,
    local::{NodeDecision, NodeScheduler, TaskEvent, TaskId, Technique, Waiting},
};
use coswitch_ring::{Bell, Segment, WaitPolicy, wait_any};
use nix::unistd::Pid;
use tracing::{debug, warn};

use super::{
    Command,
    clock::{Clock, context_switch},
    rank::{Rank, Sight},
    weight::{Group, Weight},
};
use crate::{
    cgroup::JobCgroup,
    processors::{TimeSlice, precede_ranks, set_time_slice},
};

/// The time between two looks while ranks compete.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The same where each of them has a processor.
const LOOK_SELDOM: Duration = Duration::from_millis(50);
/// The same for ranks that begin to use MPI.
const FIND_EVERY: Duration = Duration::from_millis(10);

pub(super) struct Shell {
    commands: Receiver<Command>,
    bell: Arc<Bell>,
    clock: Clock,
    scheduler: Box<dyn NodeScheduler + Send>,
    processors: usize,
    /// How long a rank spins that may sleep afterwards.
    spin: Duration,
    /// Under this technique a rank that waits may keep its processor. Otherwise it is ready while it polls.
    lets_spin: bool,
    jobs: BTreeMap<JobId, Job>,
    next_task: u32,
    /// When the slice of each favoured task is over.
    slices: BTreeMap<TaskId, Instant>,
    timer: Option<Instant>,
    last_look: Instant,
    last_found: Instant,
}

struct Job {
    segment: Arc<Segment>,
    cgroup: JobCgroup,
    /// By local index.
    ranks: Vec<Place>,
    runs: bool,
}

/// A place for a rank.
enum Place {
    /// It does not use MPI yet.
    Empty,
    Taken(Known),
    /// Its processes have ended.
    Left,
}

/// A rank that uses MPI.
struct Known {
    task: TaskId,
    rank: Rank,
    group: Group,
    /// As it was set last.
    weight: Option<Weight>,
}

impl Shell {
    pub(super) fn new(
        technique: Technique,
        processors: NonZeroUsize,
        commands: Receiver<Command>,
        bell: Arc<Bell>,
    ) -> Self {
        let context_switch = context_switch();
        Self {
            commands,
            bell,
            clock: Clock::start(),
            scheduler: technique.scheduler(processors, context_switch),
            processors: processors.get(),
            spin: technique.spin(context_switch),
            lets_spin: technique.wait() != Waiting::Blocks,
            jobs: BTreeMap::new(),
            next_task: 0,
            slices: BTreeMap::new(),
            timer: None,
            last_look: Instant::now(),
            last_found: Instant::now(),
        }
    }

    pub(super) fn run(mut self) {
        if let Err(error) = precede_ranks() {
            warn!(%error, "the node scheduler cannot run before the ranks");
        }
        set_time_slice(TimeSlice::Short);
        loop {
            // Held beside the loop's state, which changes while the tickets are there.
            let segments: Vec<Arc<Segment>> = self.running().map(|job| Arc::clone(&job.segment)).collect();
            let own = Arc::clone(&self.bell);
            let bells = segments.iter().map(|segment| segment.scheduler_bell()).chain([&*own]);
            let tickets: Vec<(&Bell, u32)> = bells.map(|bell| (bell, bell.ticket())).collect();
            if !self.obey() {
                return;
            }
            self.look();
            wait_any(&tickets, self.rest());
        }
    }

    fn running(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter(|job| job.runs)
    }

    /// False where the thread is to end.
    fn obey(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Run(job, segment, cgroup)) => self.on_run(job, segment, cgroup),
                Ok(Command::Rest(job)) => self.on_rest(job),
                Ok(Command::Leave(job)) => self.on_leave(job),
                Err(TryRecvError::Empty) => return true,
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                    self.jobs.values_mut().for_each(Job::forget_weights);
                    return false;
                }
            }
        }
    }

    fn on_run(&mut self, job: JobId, segment: Arc<Segment>, cgroup: JobCgroup) {
        self.on_leave(job);
        segment.set_wait_policy(segment.wait_policy().0, self.spin);
        let ranks = (0..segment.local_ranks()).map(|_| Place::Empty).collect();
        self.jobs.insert(job, Job { segment, cgroup, ranks, runs: true });
    }

    fn on_rest(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.runs = false;
        job.forget_weights();
        self.forget_tasks(id);
    }

    fn on_leave(&mut self, job: JobId) {
        self.on_rest(job);
        self.jobs.remove(&job);
    }

    /// The tasks of a job are none of the scheduler's any more; those of other jobs get their processors.
    fn forget_tasks(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let tasks: Vec<TaskId> = job.known().map(|(_, known)| known.task).collect();
        job.ranks.iter_mut().for_each(|place| *place = Place::Left);
        tasks.into_iter().for_each(|task| self.tell(TaskEvent::Finished { task }));
    }

    /// Tells the scheduler one thing, and keeps its slices and timers.
    fn tell(&mut self, event: TaskEvent) {
        let mut decisions = Vec::new();
        if let Err(error) = self.scheduler.on_event(self.clock.now(), event, &mut decisions) {
            return warn!(%error, ?event, "the node scheduler does not understand its ranks");
        }
        let now = Instant::now();
        for decision in decisions {
            match decision {
                NodeDecision::Run { task, slice } => drop(self.slices.insert(task, now + slice)),
                NodeDecision::Preempt { task } | NodeDecision::Left { task, .. } => {
                    self.slices.remove(&task);
                }
                NodeDecision::SetTimer { at } => self.timer = Some(self.clock.at(at)),
                // A rank ends its spinning by its wait policy.
                NodeDecision::Spin { .. } | NodeDecision::ReportLoad { .. } => {}
            }
        }
        let running = self.scheduler.running();
        self.slices.retain(|task, _| running.iter().any(|its| its.id == *task));
    }

    fn look(&mut self) {
        let now = Instant::now();
        let is_due = now.duration_since(self.last_look) >= LOOK_EVERY;
        if is_due {
            self.last_look = now;
        }
        if now.duration_since(self.last_found) >= FIND_EVERY {
            self.last_found = now;
            self.find_ranks();
        }
        let favoured = self.favoured();
        let mut events = Vec::new();
        for job in self.jobs.values_mut().filter(|job| job.runs) {
            let may_spin = self.lets_spin && job.segment.wait_policy().0 != WaitPolicy::Block;
            let segment = Arc::clone(&job.segment);
            for (local, known) in job.known() {
                let sight = Sight::of(&segment, local);
                events.extend(known.rank.look(sight, favoured.contains(&known.task), may_spin));
            }
        }
        events.into_iter().for_each(|event| self.tell(event));
        let over: Vec<TaskId> =
            self.slices.iter().filter(|(_, end)| **end <= now).map(|(task, _)| *task).collect();
        over.into_iter().for_each(|task| self.tell(TaskEvent::QuantumEnd { task }));
        if self.timer.is_some_and(|at| at <= now) {
            self.timer = None;
            self.tell(TaskEvent::TimerFired);
        }
        self.set_weights(is_due && self.compete());
    }

    fn favoured(&self) -> Vec<TaskId> {
        self.scheduler.running().iter().map(|task| task.id).collect()
    }

    /// Ranks that use MPI since the last look.
    fn find_ranks(&mut self) {
        let mut found = Vec::new();
        for (id, job) in self.jobs.iter_mut().filter(|(_, job)| job.runs) {
            let mut processes = None;
            for (local, place) in (0..).zip(&mut job.ranks) {
                let is_empty = matches!(place, Place::Empty);
                let Some(own) = job.segment.activity(local).process().filter(|_| is_empty) else { continue };
                let processes = processes.get_or_insert_with(|| processes_of(&job.cgroup));
                let Some(group) = processes.get(&own).and_then(|pid| Group::of(*pid).ok()) else { continue };
                let task = TaskId(self.next_task);
                self.next_task += 1;
                let rank = Rank::new(task, Sight::of(&job.segment, local));
                *place = Place::Taken(Known { task, rank, group, weight: None });
                found.push((task, *id));
            }
        }
        for (task, application) in found {
            debug!(%task, %application, "the node scheduler knows a rank");
            self.tell(TaskEvent::Arrived { task, application: Some(application) });
        }
    }

    /// Favours the ranks that have a processor, and those that would get one if they were woken: the kernel
    /// then wakes them at once. `asks`: ranks may ring again.
    fn set_weights(&mut self, asks: bool) {
        let favoured = self.favoured();
        let mut ended = Vec::new();
        for job in self.jobs.values_mut().filter(|job| job.runs) {
            let segment = Arc::clone(&job.segment);
            for (local, known) in job.known() {
                let is_favoured = favoured.contains(&known.task);
                let is_usual = is_favoured || self.scheduler.precedes_when_woken(known.task);
                if !known.set(if is_usual { Weight::Usual } else { Weight::Least }) {
                    ended.push(known.task);
                }
                let activity = segment.activity(local);
                if is_favoured {
                    activity.stop_asking();
                }
                match is_favoured {
                    true if asks => activity.watch_for_sleep(),
                    false if asks => activity.ask_for_arrival(),
                    _ => {}
                }
            }
            job.forget(&ended);
        }
        ended.into_iter().for_each(|task| self.tell(TaskEvent::Finished { task }));
    }

    /// Until the next look, unless a bell rings.
    fn rest(&self) -> Duration {
        if !self.compete() {
            let mut places = self.running().flat_map(|job| &job.ranks);
            let is_complete = !places.any(|place| matches!(place, Place::Empty));
            return if is_complete { LOOK_SELDOM } else { FIND_EVERY };
        }
        let next = self.slices.values().copied().chain(self.timer).min();
        let now = Instant::now();
        next.map_or(LOOK_EVERY, |next| LOOK_EVERY.min(next.saturating_duration_since(now)))
    }

    /// There are more ranks than processors.
    fn compete(&self) -> bool {
        let places = self.running().flat_map(|job| &job.ranks);
        places.filter(|place| matches!(place, Place::Taken(_))).count() > self.processors
    }
}

impl Job {
    /// Whatever becomes of its ranks, they have the usual weight.
    fn forget_weights(&mut self) {
        let segment = Arc::clone(&self.segment);
        for (local, known) in self.known() {
            known.set(Weight::Usual);
            segment.activity(local).stop_asking();
        }
    }

    /// The ranks that use MPI, with their local indexes.
    fn known(&mut self) -> impl Iterator<Item = (u32, &mut Known)> {
        (0..).zip(&mut self.ranks).filter_map(|(local, place)| match place {
            Place::Taken(known) => Some((local, known)),
            Place::Empty | Place::Left => None,
        })
    }

    /// These tasks have ended.
    fn forget(&mut self, ended: &[TaskId]) {
        for place in &mut self.ranks {
            if matches!(place, Place::Taken(known) if ended.contains(&known.task)) {
                *place = Place::Left;
            }
        }
    }
}

impl Known {
    /// False where its processes have ended.
    fn set(&mut self, weight: Weight) -> bool {
        if self.weight.replace(weight) == Some(weight) {
            return true;
        }
        self.group.set(weight).unwrap_or_else(|error| {
            warn!(%error, task = %self.task, "the weight of a rank cannot be set");
            true
        })
    }
}

/// The processes of a job, by their ids in their own namespace. None where they are just ending.
fn processes_of(cgroup: &JobCgroup) -> BTreeMap<u32, Pid> {
    let pids: Vec<Pid> = cgroup.pids().unwrap_or_default().into_iter().map(Pid::from_raw).collect();
    processes::by_own_id(&pids)
}
