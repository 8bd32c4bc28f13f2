//! The thread of the node scheduler: looks at the ranks, tells the scheduler, and sets their weights.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{
        Arc, PoisonError,
        mpsc::{Receiver, TryRecvError},
    },
    time::{Duration, Instant},
};

use coswitch_policies::{
    JobId, SimTime,
    local::{
        self, Excerpt, Moments, NodeDecision, NodeScheduler, Task, TaskEvent, TaskId, Technique, Waiting,
    },
};
use coswitch_ring::{Ask, Bell, Segment, WaitPolicy, wait_any};
use tracing::{debug, warn};

use super::{
    Command, Load,
    clock::{Clock, context_switch},
    counting::{Counting, Kind},
    job::{Job, Known, Place, processes_of},
    local_task::{BEGINS_WITHIN, COUNT_MAX, LocalTask, Look},
    measure::{MEASURE_EVERY, Meter},
    rank::{Rank, Sight},
    weight::{Group, Weight},
};
use crate::{
    cgroup::JobCgroup,
    processors::{TimeSlice, precede_ranks, set_time_slice},
    running::Running,
};

/// The time between two looks while ranks compete.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The same where each of them has a processor.
const LOOK_SELDOM: Duration = Duration::from_millis(50);
/// The same for ranks that begin to use MPI.
const FIND_EVERY: Duration = Duration::from_millis(10);
/// A rank that may spin as long as its slot lasts is not left without end.
const SPIN_ON: Duration = Duration::from_secs(1);
/// So many changes are remembered, for pictures: some seconds of a node on which much happens.
const MOMENTS: usize = 1 << 16;
/// Of a job that ends, so long a stretch is drawn.
const DRAWN: Duration = Duration::from_millis(200);
/// It is over so long before the job's end, when its ranks still had work.
const BEFORE_END: Duration = Duration::from_secs(1);
/// It is shorter where there were more changes.
const CHANGES_MAX: usize = 2000;
/// The process of a job's launcher, in the job's own namespace.
const LAUNCHER: u32 = 1;

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
    /// How long the ranks of a job spin follows the class of its tasks.
    sets_spin: bool,
    jobs: BTreeMap<JobId, Job>,
    /// Stops jobs that may not run at all.
    stopper: Arc<Running>,
    held: BTreeSet<JobId>,
    load: Load,
    next_task: u32,
    counting: Counting,
    moments: Moments,
    /// When the slice of each favoured task is over.
    slices: BTreeMap<TaskId, Instant>,
    timer: Option<Instant>,
    /// The time of the last event.
    told: SimTime,
    last_look: Instant,
    last_found: Instant,
    last_measured: Instant,
}

impl Shell {
    pub(super) fn new(
        technique: Technique,
        processors: NonZeroUsize,
        commands: Receiver<Command>,
        bell: Arc<Bell>,
        stopper: Arc<Running>,
        load: Load,
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
            sets_spin: technique.sets_spin(),
            jobs: BTreeMap::new(),
            stopper,
            held: BTreeSet::new(),
            load,
            next_task: 0,
            counting: Counting::default(),
            moments: Moments::new(MOMENTS),
            slices: BTreeMap::new(),
            timer: None,
            told: SimTime(0),
            last_look: Instant::now(),
            last_found: Instant::now(),
            last_measured: Instant::now(),
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
                Ok(Command::Strobe(row)) => {
                    let application = row.into_iter().find(|job| self.jobs.contains_key(job));
                    self.tell(TaskEvent::Strobe { application });
                }
                Ok(Command::Slices(slices)) => self.tell(TaskEvent::SlicesSet(slices)),
                // An answer for which nothing waits any more is none.
                Ok(Command::Count(job, answer)) => {
                    let scheduler = &self.scheduler;
                    let used = |task| scheduler.task(task).map(Task::used);
                    let _ = answer.send(self.counting.take(job, used));
                }
                Ok(Command::Draw(job, answer)) => drop(answer.send(self.excerpt(job))),
                Err(TryRecvError::Empty) => return true,
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                    self.jobs.values_mut().for_each(Job::forget_weights);
                    self.stopper.lock().hold(BTreeSet::new());
                    return false;
                }
            }
        }
    }

    fn on_run(&mut self, job: JobId, segment: Arc<Segment>, cgroup: JobCgroup) {
        self.on_leave(job);
        segment.set_wait_policy(segment.wait_policy().0, self.spin);
        let ranks = (0..segment.local_ranks()).map(|_| Place::Empty).collect();
        let since = Instant::now();
        self.jobs.insert(job, Job { segment, cgroup, ranks, locals: Vec::new(), runs: true, since });
    }

    fn on_rest(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.runs) else { return };
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
        let measured = job.measure();
        let locals = std::mem::take(&mut job.locals).into_iter().map(|local| local.task);
        let tasks: Vec<TaskId> = job.known().map(|(_, known)| known.task).chain(locals).collect();
        job.ranks.iter_mut().for_each(|place| *place = Place::Left);
        measured.into_iter().for_each(|event| self.tell(event));
        tasks.into_iter().for_each(|task| self.tell(TaskEvent::Finished { task }));
    }

    fn tell(&mut self, event: TaskEvent) {
        self.tell_of(self.clock.now(), event);
    }

    /// Tells the scheduler what has been the case since this time, and keeps its slices and timers.
    fn tell_of(&mut self, at: SimTime, event: TaskEvent) {
        // A rank that waits has left its processor already, unless it may spin.
        if let TaskEvent::Blocked { task } = event
            && !self.scheduler.ready().iter().any(|ready| ready.id == task)
        {
            return;
        }
        let mut decisions = Vec::new();
        // Its time never goes back.
        self.told = at.max(self.told);
        let at = self.told;
        if let Err(error) = self.scheduler.on_event(at, event, &mut decisions) {
            return warn!(%error, ?event, "the node scheduler does not understand its ranks");
        }
        self.moments.note(at, &event, &decisions);
        for decision in decisions {
            match decision {
                NodeDecision::Run { task, slice } => {
                    self.slices.insert(task, self.clock.at(at) + slice);
                }
                NodeDecision::Preempt { task } => drop(self.slices.remove(&task)),
                NodeDecision::Left { task, used, .. } => {
                    self.slices.remove(&task);
                    self.counting.on_left(task, used);
                }
                NodeDecision::SetTimer { at } => self.timer = Some(self.clock.at(at)),
                NodeDecision::ReportLoad { index } => {
                    *self.load.lock().unwrap_or_else(PoisonError::into_inner) = Some(index);
                }
                // A rank ends its spinning by its wait policy.
                NodeDecision::Spin { .. } => {}
            }
        }
        let running = self.scheduler.running();
        self.slices.retain(|task, _| running.iter().any(|its| its.id == *task));
    }

    /// The last part of a job's stay, by the time since 1970. All tasks of the node are in it.
    fn excerpt(&self, job: JobId) -> Excerpt {
        let now = self.clock.now();
        let since = self.jobs.get(&job).map_or(now, |job| self.clock.of(job.since));
        let is_short = now.since(since) < BEFORE_END + DRAWN;
        let to = if is_short { now } else { now.before(BEFORE_END) };
        let mut excerpt = self.moments.excerpt(to.before(DRAWN).max(since), to, CHANGES_MAX);
        for lane in &mut excerpt.lanes {
            lane.job = lane.job.or_else(|| self.counting.job_of(lane.task));
        }
        excerpt.later_by(self.clock.began())
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
            self.find_local_tasks();
        }
        if now.duration_since(self.last_measured) >= MEASURE_EVERY {
            self.last_measured = now;
            let running = self.jobs.values_mut().filter(|job| job.runs);
            let measured: Vec<TaskEvent> = running.flat_map(Job::measure).collect();
            measured.into_iter().for_each(|event| self.tell(event));
        }
        self.hear();
        let favoured = self.favoured();
        let mut events = Vec::new();
        for job in self.jobs.values_mut().filter(|job| job.runs) {
            let may_spin = self.lets_spin && job.segment.wait_policy().0 != WaitPolicy::Block;
            for (_, known) in job.known() {
                events.extend(known.rank.changes(favoured.contains(&known.task), may_spin));
            }
            if is_due {
                job.locals.retain_mut(|local| match local.look() {
                    Look::Stays(event) => {
                        events.extend(event);
                        true
                    }
                    Look::HasEnded => {
                        events.push(TaskEvent::Finished { task: local.task });
                        false
                    }
                });
            }
        }
        events.into_iter().for_each(|event| self.tell(event));
        self.note_left();
        let over: Vec<TaskId> =
            self.slices.iter().filter(|(_, end)| **end <= now).map(|(task, _)| *task).collect();
        over.into_iter().for_each(|task| self.end_slice(task));
        if self.timer.is_some_and(|at| at <= now) {
            self.timer = None;
            self.tell(TaskEvent::TimerFired);
        }
        self.hold();
        self.set_spins();
        self.set_weights(is_due && self.compete());
    }

    /// Looks at all ranks, and tells of messages that have arrived.
    fn hear(&mut self) {
        let now = self.clock.now();
        let mut heard = Vec::new();
        for job in self.jobs.values_mut().filter(|job| job.runs) {
            let segment = Arc::clone(&job.segment);
            for (local, known) in job.known() {
                let sight = Sight::of(&segment, local);
                let at = sight.arrival.map_or(now, |arrival| now.before(arrival.ago));
                heard.extend(known.rank.see(sight).into_iter().map(|event| (at, event)));
            }
        }
        heard.sort_by_key(|(at, _)| *at);
        heard.into_iter().for_each(|(at, event)| self.tell_of(at, event));
    }

    /// A rank that may not spin leaves, whatever it does.
    fn note_left(&mut self) {
        let ready = self.scheduler.ready();
        for (_, known) in self.jobs.values_mut().flat_map(Job::known) {
            if !ready.iter().any(|task| task.id == known.task) {
                known.rank.on_left();
            }
        }
    }

    fn end_slice(&mut self, task: TaskId) {
        let mut known = self.jobs.values_mut().flat_map(Job::known);
        let rank = known.find(|(_, known)| known.task == task).map(|(_, known)| &mut known.rank);
        let left_alone = rank.and_then(Rank::on_slice_over);
        drop(known);
        left_alone.into_iter().for_each(|event| self.tell(event));
        self.tell(TaskEvent::QuantumEnd { task });
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
                let Some(process) = processes.get(&own).copied() else { continue };
                let sent = job.segment.counters(local).bytes_sent;
                let (Ok(group), Ok(meter)) = (Group::of(process), Meter::start(process, sent)) else {
                    continue;
                };
                let task = TaskId(self.next_task);
                self.next_task += 1;
                let rank = Rank::new(task, Sight::of(&job.segment, local));
                let known = Known { task, rank, group, meter, weight: None };
                *place = Place::Taken(Box::new(known));
                found.push((task, *id));
            }
        }
        for (task, application) in found {
            debug!(%task, %application, "the node scheduler knows a rank");
            self.counting.on_arrived(task, application, Kind::Rank);
            self.tell(TaskEvent::Arrived { task, application: Some(application) });
        }
    }

    /// Processes of jobs without MPI, since the last look.
    fn find_local_tasks(&mut self) {
        let mut count = self.jobs.values().map(|job| job.locals.len()).sum::<usize>();
        let (mut arrived, mut left) = (Vec::new(), Vec::new());
        for (id, job) in self.jobs.iter_mut().filter(|(_, job)| job.runs) {
            if job.ranks.iter().any(|place| matches!(place, Place::Taken(_))) {
                left.extend(std::mem::take(&mut job.locals));
                continue;
            }
            if job.since.elapsed() < BEGINS_WITHIN {
                continue;
            }
            for (own, process) in processes_of(&job.cgroup) {
                let is_known = job.locals.iter().any(|local| local.process == process);
                if own == LAUNCHER || is_known || count == COUNT_MAX {
                    continue;
                }
                let task = TaskId(self.next_task);
                // Where it has just ended, it is none.
                if let Ok(local) = LocalTask::of(task, process) {
                    self.next_task += 1;
                    count += 1;
                    job.locals.push(local);
                    arrived.push((task, *id));
                }
            }
        }
        for mut local in left {
            // From now on it is a rank, or a child of one.
            let _ = local.set(Weight::Usual);
            self.tell(TaskEvent::Finished { task: local.task });
        }
        for (task, job) in arrived {
            self.counting.on_arrived(task, job, Kind::Local);
            self.tell(TaskEvent::Arrived { task, application: None });
        }
    }

    /// Stops the jobs none of whose ranks may run, and lets the others run.
    fn hold(&mut self) {
        let mut held = BTreeSet::new();
        for (id, job) in self.jobs.iter_mut().filter(|(_, job)| job.runs) {
            let mut tasks = job.known().map(|(_, known)| known.task).peekable();
            if tasks.peek().is_some() && !tasks.any(|task| self.scheduler.may_run(task)) {
                held.insert(*id);
            }
        }
        if held != self.held {
            self.stopper.lock().hold(held.clone());
            self.held = held;
        }
    }

    /// The ranks of a job spin as long as the one of them that may spin the shortest.
    fn set_spins(&mut self) {
        for job in self.jobs.values_mut().filter(|job| job.runs && self.sets_spin) {
            let waits = job.known().map(|(_, known)| self.scheduler.wait(known.task));
            let spin = waits.map(spin_of).min();
            let (policy, before) = job.segment.wait_policy();
            if let Some(spin) = spin.filter(|spin| *spin != before) {
                job.segment.set_wait_policy(policy, spin);
            }
        }
    }

    /// Favours the ranks that have a processor, and those that would get one if they were woken: the kernel
    /// then wakes them at once, and this thread, which would run before them, hears of it afterwards. `asks`:
    /// ranks may ring again.
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
                match (is_favoured, is_usual) {
                    _ if !asks => {}
                    (true, _) => activity.watch_for_sleep(),
                    (false, true) => activity.ask_for_arrival(Ask::Quietly),
                    (false, false) => activity.ask_for_arrival(Ask::AtOnce),
                }
            }
            job.forget(&ended);
            for local in &mut job.locals {
                let weight = if favoured.contains(&local.task) { Weight::Usual } else { Weight::Least };
                if let Err(error) = local.set(weight) {
                    warn!(%error, task = %local.task, "the weight of a local task cannot be set");
                }
            }
        }
        ended.into_iter().for_each(|task| self.tell(TaskEvent::Finished { task }));
    }

    /// Until the next look, unless a bell rings.
    fn rest(&self) -> Duration {
        let (most, slice) = if self.compete() {
            (LOOK_EVERY, self.slices.values().copied().min())
        } else {
            let mut places = self.running().flat_map(|job| &job.ranks);
            let is_complete = !places.any(|place| matches!(place, Place::Empty));
            // No other task waits for the end of a slice.
            (if is_complete { LOOK_SELDOM } else { FIND_EVERY }, None)
        };
        let next = slice.into_iter().chain(self.timer).min();
        next.map_or(most, |next| most.min(next.saturating_duration_since(Instant::now())))
    }

    /// There are more tasks than processors.
    fn compete(&self) -> bool {
        let taken = |job: &Job| job.ranks.iter().filter(|place| matches!(place, Place::Taken(_))).count();
        self.running().map(|job| taken(job) + job.locals.len()).sum::<usize>() > self.processors
    }
}

/// As the driver takes it.
fn spin_of(wait: local::WaitPolicy) -> Duration {
    match wait {
        local::WaitPolicy::Block => Duration::ZERO,
        local::WaitPolicy::Spin(spin) => spin,
        local::WaitPolicy::SpinOn => SPIN_ON,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use coswitch_policies::local::explicit::Slices;

    use super::*;

    #[test]
    fn a_timer_is_not_late_where_tasks_do_not_compete() {
        let (_commands, its) = mpsc::channel();
        let bell = Arc::new(Bell::new());
        let one = NonZeroUsize::MIN;
        let mut shell = Shell::new(Technique::DTS_STOP, one, its, bell, Arc::default(), Load::default());
        assert_eq!(shell.rest(), LOOK_SELDOM);
        let [parallel, local] = [20, 5].map(Duration::from_millis);
        shell.tell(TaskEvent::SlicesSet(Slices { parallel, local }));
        assert!(shell.rest() <= parallel);
        shell.tell(TaskEvent::SlicesSet(Slices { parallel: 10 * LOOK_SELDOM, local }));
        assert_eq!(shell.rest(), LOOK_SELDOM);
    }
}
