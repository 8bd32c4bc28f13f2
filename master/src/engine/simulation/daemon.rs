//! A daemon of the simulation: it follows masters by the daemon's own rules, and gives what it hears to its
//! parts. As `daemon/src/control.rs` and `daemon/src/serve.rs` do, without processes.

use std::collections::{BTreeMap, VecDeque};

use coswitch_daemon::{
    following::Following,
    multicast::InOrder,
    protocol::{
        AppEvent, AppRequest, Asked, DaemonEvent, Failure, Holding, Inventory, JobMemory, MemoryUse,
        PartState, Request, Step,
    },
};
use coswitch_policies::{
    Allowance, Bytes, JobId, NodeId, local::explicit::Slices, primitives::Memory, strobe::Rows,
};

use super::{
    context::{Context, Event},
    machine::Machine,
    network::{Message, Wire},
    part::{Note, Part},
    plan::millis,
};

/// How often memory is measured: seldom, to save events.
const SAMPLE_MS: u64 = 500;

pub(super) struct Daemon {
    pub(super) node: NodeId,
    pub(super) is_alive: bool,
    pub(super) was_killed: bool,
    /// Which daemon of this node it is.
    pub(super) life: u64,
    pub(super) machine: Machine,
    pub(super) parts: BTreeMap<JobId, Part>,
    pub(super) following: Following,
    /// Of the last master followed.
    pub(super) generation: u64,
    /// What the master has asked.
    pub(super) asked: InOrder<Asked>,
    /// One in so many heartbeats of the session is sent; those since the last one.
    pub(super) every: u32,
    pub(super) beats: u32,
    pub(super) global: Memory,
    pub(super) released: VecDeque<(JobId, String)>,
    pub(super) allowance: Option<Allowance>,
    /// Of the last strobe.
    pub(super) rows: Option<Rows>,
    pub(super) common: Option<Slices>,
    /// As the master knows it.
    pub(super) load: Option<f64>,
}

impl Daemon {
    pub(super) fn new(ctx: &mut Context, node: NodeId, life: u64) -> Self {
        let following = Following::new(true, ctx.plan.stop_after, ctx.instant());
        let daemon = Self {
            node,
            is_alive: true,
            was_killed: false,
            life,
            machine: Machine::new(node, life),
            parts: BTreeMap::new(),
            following,
            generation: 0,
            asked: InOrder::default(),
            every: 1,
            beats: 0,
            global: Memory::default(),
            released: VecDeque::new(),
            allowance: None,
            rows: None,
            common: None,
            load: None,
        };
        daemon.mind_solitude(ctx);
        ctx.after(millis(SAMPLE_MS), Event::Sample(node, life));
        daemon
    }

    pub(super) fn on_message(&mut self, ctx: &mut Context, wire: Wire, message: Message) {
        match message {
            Message::ToDaemon(Request::Hello { generation, .. }) => self.on_hello(ctx, wire, generation),
            Message::ToDaemon(request) if self.machine.session == Some(wire.other()) => {
                if let Some(silence) = ctx.heard(wire) {
                    self.on_heard_again(ctx, silence);
                }
                self.on_request(ctx, request);
            }
            Message::PassedOn(multicast) => self.on_passed_on(ctx, *multicast),
            Message::PassedUp(answers) => self.on_passed_up(ctx, answers),
            Message::Closed => self.on_closed(ctx, wire),
            Message::Record(job, life, number) => {
                let from = self.sender(ctx, wire);
                let part = self.parts.get_mut(&job).filter(|part| part.frame_life == life);
                if let Some((from, part)) = from.zip(part) {
                    part.on_record(ctx, &mut self.machine, from, number);
                }
            }
            Message::Marker(job, life, epoch) => {
                let from = self.sender(ctx, wire);
                let part = self.parts.get_mut(&job).filter(|part| part.frame_life == life);
                if let Some((from, part)) = from.zip(part) {
                    part.on_cut(ctx, &mut self.machine, coswitch_daemon::cut::Input::Marker { from, epoch });
                }
            }
            // Of a master that is not followed any more.
            Message::ToDaemon(_) | Message::ToHead(_) => {}
        }
    }

    pub(super) fn note_all(&mut self, ctx: &mut Context, note: &Note) {
        for part in self.parts.values_mut() {
            part.note(ctx, &mut self.machine, note.clone());
        }
    }

    fn on_request(&mut self, ctx: &mut Context, request: Request) {
        match request {
            Request::Inventory => {
                let held = self.parts.values().map(Part::listed).collect();
                let released = self.released.iter().cloned().collect();
                self.machine
                    .tell(ctx, DaemonEvent::Inventory(Inventory { held, released, copies: Vec::new() }));
            }
            Request::Join { members } => self.on_join(ctx, &members),
            Request::NumbersFrom { number, key } => {
                self.machine.saying.set_key(key);
                self.asked.begin(number);
                self.carry_out(ctx);
            }
            Request::Ask { number, asked } => {
                self.asked.push(number, asked);
                self.carry_out(ctx);
            }
            Request::PassOn(multicast) => self.on_multicast(ctx, *multicast),
            Request::Allow { allowance } => {
                self.allowance = allowance;
                let exceeded = self.exceeds_allowance();
                self.machine.tell(ctx, DaemonEvent::Allowed { exceeded });
            }
            Request::Examine { .. } | Request::Replace(_) => {
                unreachable!("no daemon of the simulation is replaced")
            }
            Request::Shutdown | Request::Leave => self.end(ctx),
            Request::Alive { heard, every, .. } => {
                self.on_rate(ctx, every);
                let again = self.machine.saying.on_heard(ctx.instant(), heard);
                if !again.is_empty() {
                    ctx.say(|| format!("{} is not heard after {heard}", self.node));
                }
                self.machine.by_session(ctx, again);
            }
            Request::Hello { .. } => {}
        }
    }

    fn exceeds_allowance(&self) -> bool {
        let Some(Allowance { total, arriving }) = &self.allowance else { return false };
        let is_here = |job: &JobId| self.parts.get(job).is_some_and(|part| part.held() > Bytes(0));
        let arriving = arriving.iter().filter(|(job, _)| !is_here(job)).map(|(_, bytes)| *bytes);
        let held: Bytes = self.parts.values().map(Part::held).chain(arriving).sum();
        held > *total
    }

    /// Carries out the requests before which none is missing.
    pub(super) fn carry_out(&mut self, ctx: &mut Context) {
        while let Some(asked) = self.asked.pop() {
            match asked {
                Asked::App { job, request } => self.on_app_request(ctx, job, request),
                Asked::Primitive(message) => self.on_primitive(ctx, message),
                Asked::Strobe(strobe) => self.rows = Some(strobe.rows),
                Asked::Slices(common) => self.common = Some(common.slices),
            }
        }
    }

    fn on_app_request(&mut self, ctx: &mut Context, job: JobId, request: AppRequest) {
        ctx.say(|| format!("{} of {job} is asked to {}", self.node, words(&request)));
        if let AppRequest::Launch(launch) = &request {
            // A part from before, which the head node has given up, goes first.
            let mut before = self.parts.remove(&job);
            if let Some(before) = &mut before {
                before.note(ctx, &mut self.machine, Note::Release);
            }
            let mut part = Part::new(ctx, self.node, job, launch);
            part.before = before.map(Box::new);
            self.parts.insert(job, part);
        }
        let part = self.parts.get_mut(&job);
        let answer = match (part, request) {
            // Copies are not simulated: none is ever asked for.
            (_, AppRequest::DropCopies { .. }) => return,
            (part, AppRequest::Release { last_word }) => {
                self.released.extend(last_word.map(|word| (job, word)));
                match part {
                    Some(part) => return part.note(ctx, &mut self.machine, Note::Release),
                    None => AppEvent::Released,
                }
            }
            (Some(part), AppRequest::Describe { generation }) if part.is_released => {
                return part.asked.push(generation);
            }
            (Some(part), request) => return part.note(ctx, &mut self.machine, Note::Request(request)),
            (None, AppRequest::Describe { generation }) => nothing(generation),
            (None, AppRequest::GoBack { life, .. }) => AppEvent::WentBack { life, sealed: Vec::new() },
            (None, _) => {
                let failure = Failure::dead("there is no such application here");
                AppEvent::Failed { during: Step::Run, failure }
            }
        };
        self.machine.tell_of(ctx, job, answer);
    }

    pub(super) fn on_step(&mut self, ctx: &mut Context, job: JobId, step: u64) {
        let Some(part) = self.parts.get_mut(&job) else { return };
        if part.on_first_step(ctx, &mut self.machine, step)
            && let Some(part) = self.parts.remove(&job)
        {
            ctx.say(|| format!("{} of {job} is gone", self.node));
            for generation in part.asked {
                self.machine.tell_of(ctx, job, nothing(generation));
            }
        }
    }

    pub(super) fn on_sealed(
        &mut self,
        ctx: &mut Context,
        job: JobId,
        number: u64,
        epoch: coswitch_policies::Epoch,
    ) {
        if let Some(part) = self.parts.get_mut(&job).filter(|part| part.number == number) {
            part.on_sealed(ctx, &mut self.machine, epoch);
        }
    }

    pub(super) fn on_worked(&mut self, ctx: &mut Context, job: JobId, work: u64) {
        if let Some(part) = self.parts.get_mut(&job) {
            part.on_worked(ctx, &mut self.machine, work);
        }
    }

    pub(super) fn sample(&mut self, ctx: &mut Context) {
        ctx.after(millis(SAMPLE_MS), Event::Sample(self.node, self.life));
        if self.following.is_silent() {
            return;
        }
        let memory = |(job, part): (&JobId, &Part)| JobMemory {
            job: *job,
            used: part.held(),
            held: part.held(),
            swapped: Bytes(0),
            major_faults: 0,
        };
        let jobs: Vec<JobMemory> = self.parts.iter().map(memory).collect();
        let used = self.held();
        let memory =
            MemoryUse { used, stall: None, jobs, stopped: self.exceeds_allowance(), looks: 5, peak: used };
        self.machine.tell(ctx, DaemonEvent::Memory(memory));
        // Any number that changes now and then.
        let index = f64::from(u32::try_from(self.parts.len()).unwrap_or(u32::MAX));
        if self.load.replace(index) != Some(index) {
            self.machine.tell(ctx, DaemonEvent::Load { index });
        }
    }

    /// Memory of its jobs.
    pub(super) fn held(&self) -> Bytes {
        self.parts.values().map(Part::held).sum()
    }

    /// The process is killed, and its jobs with it.
    pub(super) fn kill(&mut self, ctx: &mut Context) {
        if let Some(session) = self.machine.session.take() {
            ctx.cut_off(session);
        }
        self.hang_up(ctx);
        std::mem::take(&mut self.parts).values().for_each(|part| ctx.audit.void(part));
        (self.is_alive, self.was_killed) = (false, true);
    }

    /// The next daemon of the node. It takes up what this one has sealed.
    pub(super) fn restart(&mut self, ctx: &mut Context) {
        if self.is_alive {
            self.kill(ctx);
        }
        let machine = std::mem::replace(&mut self.machine, Machine::new(self.node, self.life)).next();
        *self = Self::new(ctx, self.node, self.life + 1);
        self.machine = machine;
        for (job, epoch, snapshot) in self.machine.newest() {
            ctx.say(|| format!("{} takes up {job} at {epoch}", self.node));
            self.parts.insert(job, Part::taken_up(ctx, self.node, job, (epoch, snapshot)));
        }
    }

    /// Ends all parts, and itself.
    pub(super) fn end(&mut self, ctx: &mut Context) {
        ctx.say(|| format!("{} ends", self.node));
        for (job, part) in std::mem::take(&mut self.parts) {
            ctx.audit.void(&part);
            self.machine.remove(job);
        }
        self.is_alive = false;
        if let Some(session) = self.machine.session.take() {
            ctx.close(session);
        }
        self.hang_up(ctx);
    }

    /// Nothing is left on the node.
    pub(super) fn is_clean(&self) -> bool {
        self.parts.is_empty() && self.machine.is_empty()
    }

    pub(super) fn has_processes(&self) -> bool {
        self.parts.values().any(|part| part.state != PartState::Absent)
    }
}

/// The answer of a node that holds nothing of an application.
fn nothing(generation: u64) -> AppEvent {
    AppEvent::Holds(Box::new(Holding { generation, ..Holding::default() }))
}

fn words(request: &AppRequest) -> String {
    match request {
        AppRequest::Launch(_) => "launch".into(),
        AppRequest::Release { last_word } => format!("release ({last_word:?})"),
        AppRequest::FenceDone { .. } => "pass a fence".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}
