//! The loop over time of a [`Mix`]: tasks, messages, and what the schedulers decide.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroUsize,
    time::Duration,
};

use coswitch_policies::{
    JobId, NodeId, SimTime,
    local::{
        LocalScheduler, NodeDecision, NodeScheduler, Task as Seen, TaskEvent, TaskId, Technique,
        explicit::{Console, PowerWeight},
        linux::Linux,
    },
};

use super::{Mix, MixJob, MixReport, MixedJob, Pattern};
use crate::Seed;

/// Processor time of a task without end: beyond any limit.
const ENDLESS_WORK: Duration = Duration::from_secs(1 << 32);
/// The slice of the plain round robin that stands for the kernel's own scheduler.
const PLAIN_SLICE: Duration = Duration::from_millis(3);

enum Due {
    /// Of a rank or a local task, in this stay on the processor.
    Computed(usize, u64),
    SliceOver(usize, u64),
    SpinOver(usize, u64),
    Message {
        to: usize,
        step: u64,
    },
    Timer(usize, SimTime),
    Strobe(u32),
    /// Of messages, with those that follow it in the slot.
    Exchange(u32),
    Arrival(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Computing { since: SimTime },
    Spinning,
    Blocked,
    Ended,
}

struct Task {
    node: usize,
    job: Option<usize>,
    /// In its job.
    rank: usize,
    seed: Seed,
    state: State,
    /// Processor time until it communicates, or ends.
    work: Duration,
    /// It has computed the grain of this step, and lacks messages.
    lacks: bool,
    step: u64,
    /// Messages of this step, and of the next ones: the rank before may be ahead by as many steps as there
    /// are ranks.
    got: VecDeque<u32>,
    has_unread: bool,
    waits_since: SimTime,
    waited: Duration,
    arrived: SimTime,
    /// Of its stays on the processor.
    stay: u64,
}

struct Node {
    scheduler: Box<dyn NodeScheduler>,
    /// The last task on the processor.
    last: Option<TaskId>,
    timer: Option<SimTime>,
    arrivals: Seed,
}

pub(super) struct World<'a> {
    mix: &'a Mix,
    technique: Option<Technique>,
    /// Of DTS in balanced mode.
    console: Option<Console>,
    nodes: Vec<Node>,
    tasks: Vec<Task>,
    agenda: BTreeMap<(SimTime, u64), Due>,
    sequence: u64,
    now: SimTime,
    /// For the schedulers, in order.
    events: VecDeque<(usize, TaskEvent)>,
    /// Under BCS: messages since the last exchange.
    buffered: Vec<(usize, u64)>,
    jobs_left: usize,
    /// Local tasks that are there or will come: of those to come the next one of each node.
    local_left: usize,
    report: MixReport,
    responses: Duration,
}

impl<'a> World<'a> {
    pub(super) fn new(mix: &'a Mix, technique: Option<Technique>, seed: u64) -> Self {
        let mut seeds = Seed::new(seed);
        let scheduler = || -> Box<dyn NodeScheduler> {
            match technique {
                Some(technique) => technique.scheduler(NonZeroUsize::MIN, mix.context_switch),
                None => Box::new(LocalScheduler::new(Linux { slice: PLAIN_SLICE })),
            }
        };
        let nodes = (0..mix.nodes).map(|_| Node {
            scheduler: scheduler(),
            last: None,
            timer: None,
            arrivals: Seed::new(seeds.next_u64()),
        });
        let nodes: Vec<Node> = nodes.collect();
        let nodes_count = nodes.len();
        let mut tasks = Vec::new();
        for (job, work) in mix.jobs.iter().enumerate() {
            for rank in 0..work.ranks(mix.nodes) as usize {
                let mut task = Task::new(rank % nodes_count, Some(job), Seed::new(seeds.next_u64()));
                task.rank = rank;
                task.work = work.next_grain(&mut task.seed);
                tasks.push(task);
            }
        }
        for hog in 0..(mix.nodes * mix.hogs) as usize {
            let mut task = Task::new(hog % nodes_count, None, Seed::new(0));
            task.work = ENDLESS_WORK;
            tasks.push(task);
        }
        let equals = (0..mix.nodes).map(|node| (NodeId(node), PowerWeight::FASTEST));
        Self {
            mix,
            technique,
            console: technique.and_then(|technique| technique.console(equals)),
            nodes,
            tasks,
            agenda: BTreeMap::new(),
            sequence: 0,
            now: SimTime(0),
            events: VecDeque::new(),
            buffered: Vec::new(),
            jobs_left: mix.jobs.len(),
            local_left: 0,
            report: MixReport { jobs: vec![MixedJob::default(); mix.jobs.len()], ..MixReport::default() },
            responses: Duration::ZERO,
        }
    }

    pub(super) fn run(mut self) -> MixReport {
        self.begin();
        let limit = self.mix.limit.map(|limit| SimTime(0).after(limit));
        while self.jobs_left > 0 || self.local_left > 0 {
            let next = self.agenda.first_key_value().map(|((at, _), _)| *at);
            if limit.is_some_and(|limit| next.is_none_or(|next| next > limit)) {
                break;
            }
            let ((now, _), what) = self.agenda.pop_first().expect("tasks that have not ended do something");
            self.now = now;
            self.on_time(what);
        }
        self.report()
    }

    fn begin(&mut self) {
        let common = self.technique.and_then(Technique::common_slices);
        for node in 0..self.nodes.len() {
            if let Some(slices) = common {
                self.events.push_back((node, TaskEvent::SlicesSet(slices)));
            }
            self.expect_local_task(node);
        }
        for task in 0..self.tasks.len() {
            self.introduce(task);
        }
        if self.technique.and_then(Technique::slot).is_some() {
            self.schedule(Duration::ZERO, Due::Strobe(0));
        }
        self.settle();
    }

    fn introduce(&mut self, task: usize) {
        let Task { node, job, .. } = self.tasks[task];
        let application = job.map(|job| JobId(job as u32));
        self.events.push_back((node, TaskEvent::Arrived { task: TaskId(task as u32), application }));
    }

    fn schedule(&mut self, after: Duration, due: Due) {
        self.sequence += 1;
        self.agenda.insert((self.now.after(after), self.sequence), due);
    }

    fn expect_local_task(&mut self, node: usize) {
        let Some(load) = self.mix.local else { return };
        let after = exponential(&mut self.nodes[node].arrivals, load.every);
        if self.now.after(after) <= SimTime(0).after(load.lasts) {
            self.local_left += 1;
            self.schedule(after, Due::Arrival(node));
        }
    }

    fn on_time(&mut self, due: Due) {
        match due {
            Due::Computed(task, stay) if self.is_in(task, stay) => self.on_computed(task),
            Due::SliceOver(task, stay) if self.is_in(task, stay) => {
                self.leave(task, State::Ready);
                self.tell(task, |task| TaskEvent::QuantumEnd { task });
            }
            Due::SpinOver(task, stay)
                if self.is_in(task, stay) && self.tasks[task].state == State::Spinning =>
            {
                self.leave(task, State::Blocked);
                self.tell(task, |task| TaskEvent::SpinOver { task });
            }
            Due::Computed(..) | Due::SliceOver(..) | Due::SpinOver(..) => {}
            Due::Message { to, step } => self.on_message(to, step),
            Due::Timer(node, at) if self.nodes[node].timer == Some(at) => {
                self.nodes[node].timer = None;
                self.events.push_back((node, TaskEvent::TimerFired));
            }
            Due::Timer(..) => {}
            Due::Strobe(number) => self.on_strobe(number),
            Due::Exchange(following) => self.on_exchange(following),
            Due::Arrival(node) => self.on_arrival(node),
        }
        self.settle();
    }

    fn is_in(&self, task: usize, stay: u64) -> bool {
        let task = &self.tasks[task];
        task.stay == stay && matches!(task.state, State::Computing { .. } | State::Spinning)
    }

    fn tell(&mut self, task: usize, event: impl FnOnce(TaskId) -> TaskEvent) {
        self.events.push_back((self.tasks[task].node, event(TaskId(task as u32))));
    }

    /// Tells the schedulers all that has happened, and does what they decide.
    fn settle(&mut self) {
        while let Some((node, event)) = self.events.pop_front() {
            let mut decisions = Vec::new();
            let told = self.nodes[node].scheduler.on_event(self.now, event, &mut decisions);
            told.unwrap_or_else(|error| panic!("simulation and scheduler disagree: {error}: {event:?}"));
            let waits = match event {
                TaskEvent::Waits { task } => Some(task.0 as usize),
                _ => None,
            };
            let spins = decisions.iter().any(|decision| matches!(decision, NodeDecision::Spin { .. }));
            if let Some(task) = waits.filter(|_| !spins) {
                self.leave(task, State::Blocked);
            }
            for decision in decisions {
                self.obey(node, decision);
            }
        }
    }

    fn obey(&mut self, node: usize, decision: NodeDecision) {
        match decision {
            NodeDecision::Run { task, slice } => self.give_processor(task.0 as usize, slice),
            NodeDecision::Preempt { task } => {
                let task = task.0 as usize;
                if !matches!(self.tasks[task].state, State::Blocked | State::Ended) {
                    self.leave(task, State::Ready);
                }
            }
            NodeDecision::Spin { task, at_most } => {
                let task = task.0 as usize;
                if let (Some(at_most), State::Spinning) = (at_most, self.tasks[task].state) {
                    self.schedule(at_most, Due::SpinOver(task, self.tasks[task].stay));
                }
            }
            NodeDecision::SetTimer { at } => {
                self.nodes[node].timer = Some(at);
                self.schedule(at.since(self.now), Due::Timer(node, at));
            }
            NodeDecision::ReportLoad { index } => {
                let console = self.console.as_mut().expect("only balanced nodes report their load");
                let reported = console.on_load(NodeId(node as u32), index);
                if let Some(slices) = reported.expect("the console knows all nodes") {
                    self.report.slices_set += 1;
                    let set = |node| (node, TaskEvent::SlicesSet(slices));
                    self.events.extend((0..self.nodes.len()).map(set));
                }
            }
            NodeDecision::Left { application, used, .. } => {
                if let Some(JobId(job)) = application {
                    self.report.jobs[job as usize].used += used;
                }
            }
        }
    }

    fn give_processor(&mut self, id: usize, slice: Duration) {
        // Its last message has called it, and ended it: the scheduler hears that next.
        if self.tasks[id].state == State::Ended {
            return;
        }
        let node = self.tasks[id].node;
        let name = Some(TaskId(id as u32));
        let is_other = std::mem::replace(&mut self.nodes[node].last, name) != name;
        let cost = if is_other { self.mix.context_switch } else { Duration::ZERO };
        let (now, task) = (self.now, &mut self.tasks[id]);
        task.stay += 1;
        let (stay, work, lacks) = (task.stay, task.work, task.lacks);
        let unread = std::mem::take(&mut task.has_unread);
        task.state = if lacks { State::Spinning } else { State::Computing { since: now.after(cost) } };
        if unread {
            self.tell(id, |task| TaskEvent::MessagesTaken { task });
        }
        self.schedule(slice + cost, Due::SliceOver(id, stay));
        if lacks {
            self.tell(id, |task| TaskEvent::Waits { task });
        } else {
            self.schedule(work + cost, Due::Computed(id, stay));
        }
    }

    /// The task has no processor any more.
    fn leave(&mut self, id: usize, state: State) {
        let now = self.now;
        let task = &mut self.tasks[id];
        if let State::Computing { since } = task.state {
            task.work = task.work.saturating_sub(now.since(since.min(now)));
        }
        task.state = state;
    }

    fn on_computed(&mut self, id: usize) {
        let now = self.now;
        let Some(job) = self.tasks[id].job else { return self.on_local_end(id) };
        self.tasks[id].work = Duration::ZERO;
        let step = self.tasks[id].step;
        for to in self.peers(id) {
            self.tell(id, |task| TaskEvent::MessageSent { task });
            match self.is_buffered() {
                true => self.buffered.push((to, step)),
                false => self.schedule(self.mix.latency, Due::Message { to, step }),
            }
        }
        let task = &mut self.tasks[id];
        if task.got.front().copied().unwrap_or(0) < self.mix.jobs[job].awaited(self.mix.nodes) {
            (task.lacks, task.waits_since, task.state) = (true, now, State::Spinning);
            return self.tell(id, |task| TaskEvent::Waits { task });
        }
        self.next_step(id);
    }

    /// The ranks to which this one sends in each step.
    fn peers(&self, id: usize) -> Vec<usize> {
        let Task { rank, job: Some(job), .. } = self.tasks[id] else { return Vec::new() };
        let work = &self.mix.jobs[job];
        let (count, first) = (work.ranks(self.mix.nodes) as usize, id - rank);
        match work.pattern {
            Pattern::None => Vec::new(),
            _ if count == 1 => Vec::new(),
            Pattern::Neighbour => vec![first + (rank + 1) % count],
            Pattern::All => (0..count).filter(|other| *other != rank).map(|other| first + other).collect(),
        }
    }

    /// A rank has all messages of its step; it has a processor.
    fn next_step(&mut self, id: usize) {
        let now = self.now;
        self.take_step(id);
        let task = &mut self.tasks[id];
        let job = task.job.expect("a rank has steps");
        if task.step == self.mix.jobs[job].steps {
            task.state = State::Ended;
            self.tell(id, |task| TaskEvent::Finished { task });
            return self.on_rank_end(job);
        }
        task.state = State::Computing { since: now };
        let (work, stay) = (task.work, task.stay);
        self.schedule(work, Due::Computed(id, stay));
    }

    fn take_step(&mut self, id: usize) {
        let now = self.now;
        let task = &mut self.tasks[id];
        let job = task.job.expect("a rank has steps");
        if std::mem::take(&mut task.lacks) {
            task.waited += now.since(task.waits_since);
        }
        task.step += 1;
        task.got.pop_front();
        task.work = self.mix.jobs[job].next_grain(&mut task.seed);
    }

    fn on_message(&mut self, id: usize, step: u64) {
        let task = &mut self.tasks[id];
        if task.state == State::Ended {
            return;
        }
        let ahead = step.saturating_sub(task.step) as usize;
        if task.got.len() <= ahead {
            task.got.resize(ahead + 1, 0);
        }
        task.got[ahead] += 1;
        let job = task.job.expect("only ranks get messages");
        let got = task.got.front().copied().unwrap_or(0);
        let has_all = task.lacks && got >= self.mix.jobs[job].awaited(self.mix.nodes);
        let state = task.state;
        task.has_unread = true;
        self.tell(id, |task| TaskEvent::MessageArrived { task });
        if matches!(state, State::Computing { .. } | State::Spinning) {
            self.tasks[id].has_unread = false;
            self.tell(id, |task| TaskEvent::MessagesTaken { task });
        }
        if !has_all {
            return;
        }
        self.tell(id, |task| TaskEvent::WaitOver { task });
        if state == State::Spinning {
            return self.next_step(id);
        }
        // Otherwise it is blocked, or has spun until its slice was over.
        self.take_step(id);
        if self.tasks[id].step == self.mix.jobs[job].steps {
            // After its last messages it has nothing to do.
            self.tasks[id].state = State::Ended;
            self.tell(id, |task| TaskEvent::Finished { task });
            return self.on_rank_end(job);
        }
        if state == State::Blocked {
            self.tasks[id].state = State::Ready;
            self.tell(id, |task| TaskEvent::Unblocked { task });
        }
    }

    fn on_rank_end(&mut self, job: usize) {
        let ranks = || self.tasks.iter().filter(|task| task.job == Some(job));
        if ranks().all(|task| task.state == State::Ended) {
            let waited: Duration = ranks().map(|task| task.waited).sum();
            let ended = self.now.since(SimTime(0));
            let waited = waited / self.mix.jobs[job].ranks(self.mix.nodes).max(1);
            let MixedJob { used, .. } = self.report.jobs[job];
            self.report.jobs[job] = MixedJob { ended, waited, used };
            self.jobs_left -= 1;
        }
    }

    fn on_strobe(&mut self, number: u32) {
        let Some(slot) = self.technique.and_then(Technique::slot) else { return };
        if let Some(buffering) = self.technique.and_then(Technique::buffering) {
            self.on_exchange(buffering.exchanges - 1);
        }
        // As on live nodes: those of the jobs that have not ended, and one without a job.
        let jobs: Vec<usize> = self.alive().collect();
        let turn = number as usize % (jobs.len() + 1);
        let application = jobs.get(turn).map(|job| JobId(*job as u32));
        for node in 0..self.nodes.len() {
            self.events.push_back((node, TaskEvent::Strobe { application }));
        }
        self.schedule(slot, Due::Strobe(number.wrapping_add(1)));
    }

    fn alive(&self) -> impl Iterator<Item = usize> {
        let alive =
            |job: &usize| self.tasks.iter().any(|task| task.job == Some(*job) && task.state != State::Ended);
        (0..self.mix.jobs.len()).filter(alive)
    }

    /// Messages wait for exchanges.
    fn is_buffered(&self) -> bool {
        let buffering = self.technique.and_then(Technique::buffering);
        buffering.is_some_and(|buffering| !buffering.dedicated || self.alive().count() > 1)
    }

    fn on_exchange(&mut self, following: u32) {
        let technique = self.technique.expect("only techniques have exchanges");
        let (slot, buffering) = technique.slot().zip(technique.buffering()).expect("only BCS has exchanges");
        let each = slot / buffering.exchanges;
        let after = if self.is_buffered() { each } else { self.mix.latency };
        for (to, step) in std::mem::take(&mut self.buffered) {
            self.schedule(after, Due::Message { to, step });
        }
        if following > 0 {
            self.schedule(each, Due::Exchange(following - 1));
        }
    }

    fn on_arrival(&mut self, node: usize) {
        let Some(load) = self.mix.local else { return };
        let work = exponential(&mut self.nodes[node].arrivals, load.work);
        let mut task = Task::new(node, None, Seed::new(0));
        (task.work, task.arrived) = (work, self.now);
        self.tasks.push(task);
        self.introduce(self.tasks.len() - 1);
        self.expect_local_task(node);
    }

    fn on_local_end(&mut self, id: usize) {
        self.tasks[id].state = State::Ended;
        self.local_left -= 1;
        self.report.local_tasks += 1;
        self.responses += self.now.since(self.tasks[id].arrived);
        self.tell(id, |task| TaskEvent::Finished { task });
    }

    fn report(mut self) -> MixReport {
        for (id, task) in self.tasks.iter().enumerate() {
            let seen = self.nodes[task.node].scheduler.task(TaskId(id as u32)).map(Seen::used);
            if let (Some(job), Some(used)) = (task.job, seen) {
                self.report.jobs[job].used += used;
            }
        }
        let count = u32::try_from(self.report.local_tasks).unwrap_or(u32::MAX);
        let local_response = self.responses.checked_div(count).unwrap_or_default();
        MixReport { local_response, ..self.report }
    }
}

impl Task {
    const fn new(node: usize, job: Option<usize>, seed: Seed) -> Self {
        Self {
            node,
            job,
            rank: 0,
            seed,
            state: State::Ready,
            work: Duration::ZERO,
            lacks: false,
            step: 0,
            got: VecDeque::new(),
            has_unread: false,
            waits_since: SimTime(0),
            waited: Duration::ZERO,
            arrived: SimTime(0),
            stay: 0,
        }
    }
}

impl MixJob {
    fn next_grain(&self, seed: &mut Seed) -> Duration {
        self.grain.mul_f64(1.0 + self.imbalance * (2.0 * seed.unit() - 1.0))
    }

    /// On so many nodes.
    const fn ranks(&self, nodes: u32) -> u32 {
        nodes * self.on_each
    }

    /// Messages that a rank needs in each step.
    const fn awaited(&self, nodes: u32) -> u32 {
        match self.pattern {
            Pattern::None => 0,
            _ if self.ranks(nodes) <= 1 => 0,
            Pattern::Neighbour => 1,
            Pattern::All => self.ranks(nodes) - 1,
        }
    }
}

/// At least a nanosecond, so that time advances.
fn exponential(seed: &mut Seed, mean: Duration) -> Duration {
    Duration::from_secs_f64(seed.exponential(mean.as_secs_f64())).max(Duration::from_nanos(1))
}
