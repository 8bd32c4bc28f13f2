//! The run core, pure: reports, samples and timers in; orders, journal lines and the end of the run out.
//!
//! ```text
//!   Input ──▶ Run::on(now, input) ──▶ SchedulerEvent ──▶ Scheduler ──▶ Decision ──▶ Switching ──▶ Output
//! ```
//! The core asks no clock and touches no socket or file; [`super::shell`] does both. All journal lines of one
//! call bear its `now`, the very time at which the scheduler was asked, so that a journal can be replayed.

mod admission;
mod adoption;
mod checkpoints;
mod copies;
mod drain;
mod lost;
mod memory;
mod parking;
mod records;
mod reports;
mod requests;
mod status;
mod strobes;
mod switches;
#[cfg(test)]
mod tests;
mod upgrade;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context;
use coswitch_dispatcher::protocol::{AppOutcome, LaunchSpec, NodeEvent, Order, Park, Report, Wait};
use coswitch_policies::{
    Allowance, Decision, JobId, NodeId, Scheduler, SchedulerEvent, SimTime, SwitchId, TimerId, Turn,
    local::{
        Technique,
        explicit::{Console, Slices},
    },
    strobe::Rows,
    timeshare::{memory_monitor::MemoryMonitor, short_quantum::QuantumWatch},
};
use coswitch_report::journal::{Event, JobOutcome, RunEvent, RunOutcome, VERSION};

use super::communication::CommunicationMeter;
use crate::{
    api::{Accepted, NodeMemory, Reply, Request, User},
    config::{ClusterConfig, Job, JobSet, ParkMethod, TimeLimits},
};
use admission::Admission;
use adoption::Adoption;
pub(super) use adoption::Takeover;
use drain::Drained;
use lost::Down;
use parking::Parking;
use records::Ending;
pub(crate) use records::Record;
use switches::SwitchUnderWay;
use upgrade::Upgrade;

/// A question that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(pub(super) u64);

/// A user's question.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) ticket: Ticket,
    pub(super) user: User,
    pub(super) request: Request,
}

/// What the core hears.
#[derive(Clone, Debug)]
pub(super) enum Input {
    /// The time that [`Run::due`] named has come.
    Due,
    Report(JobId, Report),
    Node(NodeEvent),
    Asked(Asked),
    /// A job could not be written down.
    NotKept(JobId),
    /// The nodes will be taken away.
    Warned,
    /// The run is to end now: its limit has passed, or it was interrupted.
    Stop(RunOutcome),
}

/// What the core wants done.
#[derive(Clone, Debug)]
pub(super) enum Output {
    /// Write this line to the journal.
    Tell(RunEvent),
    /// Start a dispatcher for the job and order the launch.
    Launch(JobId, Box<LaunchSpec>),
    /// Start a dispatcher that finds out where the job is; how it has ended, where some node knows.
    Adopt(JobId, Box<LaunchSpec>, Option<AppOutcome>),
    /// Have the node remove what it has of a job that has ended, or was launched elsewhere since.
    Release(NodeId, JobId),
    /// Have the node remove its copies of snapshots of a job that has ended.
    DropCopies(NodeId, JobId),
    /// Have the part of a lost node move to another one; answered by [`Report::Moved`] or
    /// [`Report::NotMoved`].
    Move(JobId, NodeId, NodeId),
    /// Write the job down, before its user is answered.
    Keep(Box<Accepted>),
    /// Give the job's dispatcher an order.
    Order(JobId, Order),
    /// Give the node another daemon; answered by [`NodeEvent::Back`] or [`NodeEvent::NotBack`].
    Restart(NodeId),
    /// Have the node's daemon replaced by the installed program; answered by [`NodeEvent::Replaced`] or
    /// [`NodeEvent::NotReplaced`].
    Replace(NodeId),
    /// The jobs of the node may hold so much together; `None`: as much as there is.
    Allow(NodeId, Option<Allowance>),
    /// Tell all nodes which jobs have which slices from now on.
    Strobe(Rows),
    /// Set the slices of ranks and local tasks on all nodes.
    SetSlices(Slices),
    /// Answer a question.
    Answer(Ticket, Reply),
    /// The run is over.
    Over(RunOutcome),
}

/// What a run is told besides its jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct RunSettings {
    /// The name of the run.
    pub(super) run: String,
    /// The directory below which each job has one for its output.
    pub(super) out: PathBuf,
    /// The environment of this process, which each rank inherits.
    pub(super) environment: BTreeMap<String, String>,
    /// The umask of each rank.
    pub(super) umask: u32,
    /// The run goes on when all its jobs have ended: users bring more.
    pub(super) standing: bool,
    /// The nodes are taken away then: all jobs have to be parked by then.
    pub(super) ends: Option<SimTime>,
    /// When time 0 was, since 1970, by the clock of this machine.
    pub(super) time_0: Option<Duration>,
}

/// The state of a run.
pub(super) struct Run {
    settings: RunSettings,
    cluster: ClusterConfig,
    jobs: BTreeMap<JobId, Job>,
    records: BTreeMap<JobId, Record>,
    /// The last of the jobs of which nothing is known any more: earlier masters had them.
    forgotten: Option<JobId>,
    /// The highest number that a job of an earlier master has had, also one that is not written down.
    numbered: Option<JobId>,
    /// So many jobs that users have submitted may wait to begin.
    max_queued: Option<usize>,
    max_queued_per_user: usize,
    time_limits: TimeLimits,
    /// Jobs that are submitted when others have succeeded.
    followers: BTreeSet<JobId>,
    /// Since the followers were looked at.
    any_ended: bool,
    /// In this call.
    turn_began: bool,
    park: Park,
    /// How ranks wait, where their job does not say.
    wait: Wait,
    scheduler: Scheduler,
    /// Jobs that are still to be submitted.
    arrivals: BTreeMap<SimTime, Vec<JobId>>,
    timers: BTreeSet<(SimTime, TimerId)>,
    switch: Option<SwitchUnderWay>,
    /// The latest switch: steps such as sealing outlast theirs.
    last_switch: SwitchId,
    /// Jobs with a dispatcher.
    launched: BTreeSet<JobId>,
    running: BTreeSet<JobId>,
    /// Suspended jobs without an order: what they hold cannot change.
    resting: BTreeSet<JobId>,
    /// The allowances as last sent to the nodes, and how many of them a node has not answered yet.
    allowances: BTreeMap<NodeId, Allowance>,
    unanswered: BTreeMap<NodeId, u32>,
    /// For jobs that are in memory together, and as last told to the nodes.
    slice: Option<Duration>,
    rows: Option<Rows>,
    /// The scheduler of each node.
    local: Option<Technique>,
    /// Of DTS in balanced mode.
    console: Option<Console>,
    /// Lost nodes.
    down: BTreeMap<NodeId, Down>,
    /// Jobs of which a part is on its way to another node.
    moving: BTreeSet<JobId>,
    /// The nodes that hold the last copy of what a node has sealed of a job.
    partners: BTreeMap<(JobId, NodeId), Vec<NodeId>>,
    upgrade: Option<Upgrade>,
    drained: Drained,
    /// Nodes that were last seen without any job.
    empty_nodes: BTreeSet<NodeId>,
    /// As last seen.
    node_memory: BTreeMap<NodeId, NodeMemory>,
    /// Jobs that come when their nodes have room.
    admission: Option<Admission>,
    /// Jobs of an earlier master that are being found.
    adoption: Option<Adoption>,
    parking: Parking,
    communication: CommunicationMeter,
    memory: MemoryMonitor,
    /// `None` where coswitch chooses the quantum, and once the run was warned.
    quantum: Option<QuantumWatch>,
    any_failed: bool,
    /// All jobs submitted so far have ended.
    all_done: bool,
    now: SimTime,
    outputs: Vec<Output>,
}

impl Run {
    /// A run of `set` that begins at time 0: its first lines are among the first outputs.
    ///
    /// # Errors
    /// Where the scheduler refuses its settings.
    pub(super) fn new(set: JobSet, settings: RunSettings) -> anyhow::Result<Self> {
        let (name, warnings) = (set.name.clone(), set.warnings());
        let mut run = Self::before_first_event(set, settings)?;
        run.tell_start(name);
        run.tell_date();
        let jobs: Vec<JobId> = run.jobs.keys().copied().collect();
        jobs.into_iter().for_each(|job| run.tell_accepted(job));
        warnings.into_iter().for_each(|text| run.warn(text));
        if run.settings.ends.is_some() && !run.scheduler.can_hold() {
            run.warn(
                "under this policy, or with `park: suspend`, no job leaves memory before it ends: jobs that \
                 have not ended when the nodes are taken away are lost"
                    .into(),
            );
        }
        Ok(run)
    }

    fn tell_start(&mut self, name: String) {
        let config = self.scheduler.config().clone();
        self.tell(Event::RunStarted {
            version: VERSION,
            run: self.settings.run.clone(),
            name,
            policy: config.policy,
            nodes: self.cluster.nodes,
            capacity: self.cluster.memory.clone(),
            quantum: config.quantum,
            scheduler: Some(config),
            local: self.local,
        });
    }

    fn tell_date(&mut self) {
        if let Some(time_0) = self.settings.time_0 {
            self.tell(Event::DateKnown { time_0 });
        }
    }

    /// Tells the journal of a job and its user, for accounts.
    fn tell_accepted(&mut self, id: JobId) {
        let (Job { name, ranks, .. }, record) = (self.jobs[&id].clone(), &self.records[&id]);
        let (User(user), submitted) = (record.user, record.submitted);
        let (group, queue) = (self.group_of(id), self.queue_of(id));
        self.tell(Event::JobAccepted { job: id, name, user, ranks, group, queue, submitted });
    }

    fn before_first_event(set: JobSet, settings: RunSettings) -> anyhow::Result<Self> {
        let (cluster, config) = (set.cluster(), set.scheduler_config());
        let mut arrivals: BTreeMap<SimTime, Vec<JobId>> = BTreeMap::new();
        for job in &set.jobs {
            arrivals.entry(job.arrival).or_default().push(job.id);
        }
        let pages_out = set.scheduler.park == ParkMethod::PageOut;
        Ok(Self {
            max_queued: set.scheduler.max_queued.map(|most| most as usize),
            max_queued_per_user: set.scheduler.most_queued_per_user() as usize,
            time_limits: set.scheduler.time_limits,
            park: if pages_out { Park::PageOut } else { Park::Criu },
            wait: set.scheduler.wait,
            memory: MemoryMonitor::new(cluster.clone()),
            quantum: set.scheduler.quantum_watch(),
            scheduler: Scheduler::new(cluster, config).context("failed to set up the scheduler")?,
            arrivals,
            timers: BTreeSet::new(),
            switch: None,
            last_switch: SwitchId(0),
            launched: BTreeSet::new(),
            running: BTreeSet::new(),
            resting: BTreeSet::new(),
            allowances: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            slice: set.scheduler.slice,
            rows: None,
            local: set.scheduler.local,
            console: set.scheduler.local.and_then(|technique| technique.console(set.cluster.powers())),
            down: BTreeMap::new(),
            moving: BTreeSet::new(),
            partners: BTreeMap::new(),
            upgrade: None,
            drained: Drained::new(),
            empty_nodes: BTreeSet::new(),
            node_memory: BTreeMap::new(),
            admission: None,
            adoption: None,
            parking: Parking::before(settings.ends),
            communication: CommunicationMeter::default(),
            any_failed: false,
            all_done: true,
            now: SimTime(0),
            outputs: Vec::new(),
            records: set
                .jobs
                .iter()
                .map(|job| (job.id, Record::of_accepted(&Accepted::of_file(job))))
                .collect(),
            forgotten: None,
            numbered: None,
            followers: BTreeSet::new(),
            any_ended: false,
            turn_began: false,
            jobs: set.jobs.into_iter().map(|job| (job.id, job)).collect(),
            cluster: set.cluster.clone(),
            settings,
        })
    }

    /// Takes what happened and says what to do about it.
    pub(super) fn on(&mut self, now: SimTime, input: Input) -> Vec<Output> {
        self.now = now;
        self.park_in_time();
        match input {
            Input::Due => self.on_due(),
            Input::Report(job, report) => self.on_report(job, report),
            Input::Node(event) => self.on_node(event),
            Input::Asked(asked) => self.on_asked(asked),
            Input::NotKept(job) => self.end_early(job, Ending::NotKept),
            Input::Warned => self.on_warned(),
            Input::Stop(outcome) => self.outputs.push(Output::Over(outcome)),
        }
        self.finish_adoption();
        self.release_followers();
        self.answer_drained();
        self.foresee_turns();
        self.allow();
        self.strobe();
        self.balance();
        self.end_without_nodes();
        let is_done = match self.parking.is_under_way() {
            // The scheduler has nothing to do then, though jobs are left.
            true => self.records.values().all(|record| record.ended.is_some()),
            false => {
                let has_come = self.arrivals.is_empty() && self.followers.is_empty();
                self.all_done && has_come && self.launched.is_empty()
            }
        };
        if is_done && !self.settings.standing {
            let outcome = if self.any_failed { RunOutcome::JobsFailed } else { RunOutcome::Done };
            self.outputs.push(Output::Over(outcome));
        }
        self.finish_parking();
        std::mem::take(&mut self.outputs)
    }

    /// When the next timer fires, job arrives, time limit is reached, or the jobs have to leave.
    pub(super) fn due(&self) -> Option<SimTime> {
        let arrival = self.arrivals.keys().next().copied();
        let timer = self.timers.first().map(|(at, _)| *at);
        let (limit, restart, park) = (self.limit_due(), self.restart_due(), self.park_due());
        [arrival, timer, limit, restart, park].into_iter().flatten().min()
    }

    fn tell(&mut self, kind: Event) {
        self.outputs.push(Output::Tell(RunEvent { at: self.now, kind }));
    }

    fn warn(&mut self, text: String) {
        self.tell(Event::Warning { text });
    }

    fn on_due(&mut self) {
        while let Some(entry) = self.arrivals.first_entry().filter(|entry| *entry.key() <= self.now) {
            let jobs = entry.remove();
            self.release(&jobs);
        }
        while let Some((_, timer)) = self.timers.first().copied().filter(|(at, _)| *at <= self.now) {
            self.timers.pop_first();
            self.tell(Event::TimerFired { timer });
            self.schedule(SchedulerEvent::TimerFired { timer });
        }
        self.end_late_jobs();
        self.restart_due_nodes();
    }

    /// Hands jobs to the scheduler, together.
    fn submit_now(&mut self, jobs: Vec<JobId>) {
        if jobs.is_empty() {
            return;
        }
        if let Some(adoption) = &mut self.adoption {
            return adoption.submit_later(jobs);
        }
        self.all_done = false;
        let jobs: Vec<Job> = jobs.iter().map(|id| self.jobs[id].clone()).collect();
        let priorities = jobs.iter().map(|job| (job.id, job.priority)).filter(|(_, priority)| *priority != 0);
        let priorities: Vec<(JobId, i32)> = priorities.collect();
        if !priorities.is_empty() {
            self.tell(Event::JobsPrioritized { priorities: priorities.clone() });
            self.schedule(SchedulerEvent::Prioritized { priorities });
        }
        self.tell_limits(jobs.iter().map(|job| job.id).collect());
        self.tell_queues(&jobs.iter().map(|job| job.id).collect::<Vec<_>>());
        for Job { id, name, ranks, memory, alone, .. } in jobs.iter().cloned() {
            self.tell(Event::JobSubmitted { job: id, name, ranks, memory, alone });
        }
        self.schedule(SchedulerEvent::Submitted { jobs: jobs.iter().map(Job::spec).collect() });
    }

    /// Asks the scheduler about what the journal has just told.
    fn schedule(&mut self, event: SchedulerEvent) {
        self.watch_quantum(&event);
        for decision in self.scheduler.on_event(self.now, event) {
            if let Some(watch) = &mut self.quantum {
                watch.on_decision(&decision);
            }
            self.carry_out(decision);
        }
    }

    /// Warns once where the quantum is short for what the switches cost so far.
    fn watch_quantum(&mut self, event: &SchedulerEvent) {
        let Some(watch) = &mut self.quantum else { return };
        watch.on_event(event);
        if let Some(short) = watch.judge_early() {
            self.quantum = None;
            self.warn(short.to_string());
        }
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            // A queue of jobs with nodes of their own foresees a start for each; there are no turns.
            Decision::Queued { .. } => self.turn_began |= self.scheduler.config().space.is_some(),
            Decision::Admitted { .. } | Decision::Moved(_) => {}
            Decision::Split(split) => self.tell(Event::SetSplit(split)),
            Decision::Outgrew { job, node, resident, capacity } => {
                self.tell(Event::JobOutgrew { job, node, resident, capacity });
            }
            Decision::Rejected { job, reason } => {
                self.tell_end(job, JobOutcome::Failed(reason.to_string()), String::new());
            }
            Decision::Switch(plan) => self.begin_switch(plan),
            Decision::Narrowed { rows, needed } => self.warn(format!(
                "switching all sets would need slices of {:.0} s to stay within its share: only {rows} \
                 take turns until jobs end",
                needed.as_secs_f64()
            )),
            Decision::Widened => self.warn("all sets take turns again".into()),
            Decision::Held { job } => self.answer_parked(job),
            Decision::NotHeld { job } => self.on_not_held(job),
            Decision::SetTimer { timer, at } => drop(self.timers.insert((at, timer))),
            Decision::Checkpoint { job } => self.checkpoint(job),
            Decision::Abandon { job, failures } => {
                self.warn(format!("{job} is given up: {failures} switches in a row failed because of it"));
                self.order(job, Order::End);
            }
            Decision::SlotStarted(_) | Decision::SlotChanged(_) => {
                self.turn_began |= matches!(decision, Decision::SlotStarted(_));
                if let Some(Turn { slot, jobs, ends }) = self.scheduler.turn() {
                    self.tell(Event::SlotStarted { slot, jobs, ends });
                }
            }
            Decision::AllDone => self.all_done = true,
        }
    }

    /// Writes a job down for a later master.
    fn keep(&mut self, job: JobId) {
        let (job, Record { user, submitted, after, time_limit, .. }) =
            (&self.jobs[&job], &self.records[&job]);
        let (job, after) = (job.clone(), after.clone());
        let accepted = Accepted { user: *user, submitted: *submitted, job, after, time_limit: *time_limit };
        self.outputs.push(Output::Keep(Box::new(accepted)));
    }

    fn order(&mut self, job: JobId, order: Order) {
        self.resting.remove(&job);
        if self.launched.contains(&job) {
            self.outputs.push(Output::Order(job, order));
        }
    }
}
