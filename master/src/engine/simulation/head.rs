//! The head node of the simulation: what masters leave on its disk, and the master of the moment, if one
//! lives: the run core, a dispatcher for each job and the sessions. As `engine::shell`, `dispatcher::Dispatcher`
//! and `dispatcher::sessions` do, without threads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use coswitch_daemon::protocol::{AppRequest, DaemonEvent, Inventory, Member, Request, VERSION};
use coswitch_dispatcher::{
    app::{self, Adoption, App, Timeouts},
    deadline::Deadline,
    protocol::{AppOutcome, LaunchSpec, NodeEvent, Report},
};
use coswitch_policies::{JobId, NodeId, Order, SimTime};
use coswitch_report::journal::{Event as Told, RunEvent, RunOutcome};

use super::{
    audit::Asker,
    context::{Context, Event},
    network::{Message, Purpose, Wire},
    plan::{Wish, millis},
    settings,
};
use crate::{
    api::{Accepted, User},
    engine::run::{Asked, Input, Output, Run, RunSettings, Takeover, Ticket},
    past::Past,
};

/// As in `dispatcher::sessions`.
const LIVES_EACH: u32 = 1 << 10;
/// For a connection to one daemon, and for all daemons to join.
const CONNECT_MS: u64 = 10_000;
/// Lines that a master tells the journal so late before its death may be lost with it.
const UNWRITTEN_MS: u64 = 5;

/// On the disk of the head node.
#[derive(Default)]
pub(super) struct Files {
    jobs: Vec<Accepted>,
    journal: Vec<RunEvent>,
    /// Of the last master.
    generation: u64,
}

#[derive(Default)]
pub(super) struct Head {
    pub(super) files: Files,
    pub(super) master: Option<Master>,
    /// The cluster has ended.
    pub(super) over: Option<RunOutcome>,
}

/// To a dispatcher.
enum Note {
    Input(app::Input),
    Silent(NodeId),
    Heard(NodeId),
}

struct Dispatcher {
    app: App,
    inbox: VecDeque<Note>,
    deadline: Deadline,
    nodes: BTreeSet<NodeId>,
}

/// A master that lives.
pub(super) struct Master {
    pub(super) generation: u64,
    /// Wires to the nodes that it has connected to.
    wires: BTreeMap<NodeId, Wire>,
    /// Nodes that have welcomed it.
    welcome: BTreeSet<NodeId>,
    inventories: BTreeMap<NodeId, Inventory>,
    /// The daemon of each node.
    members: BTreeMap<NodeId, u64>,
    /// Nodes that are still to be asked to join, and those that were.
    to_join: VecDeque<NodeId>,
    joining: BTreeSet<NodeId>,
    /// Counts what is waited for.
    stage: u32,
    /// Nodes with a new daemon, one after the other; the first is being connected to, and why it is lost again.
    rejoining: VecDeque<NodeId>,
    lost_again: Option<String>,
    lives: u32,
    /// News of nodes before there is a run.
    early: Vec<NodeEvent>,
    lost: BTreeMap<NodeId, String>,
    silent: BTreeSet<NodeId>,
    pub(super) run: Option<Run>,
    /// When its next timer is due.
    due: Option<SimTime>,
    dispatchers: BTreeMap<JobId, Dispatcher>,
    reports: VecDeque<(JobId, Report)>,
    tickets: BTreeMap<Ticket, Asker>,
    asked: u64,
}

impl Head {
    /// The operator starts a master.
    pub(super) fn start_master(&mut self, ctx: &mut Context) {
        if self.over.is_some() || self.master.is_some() {
            return;
        }
        if self.files.generation == 0 {
            self.files.jobs = settings::jobs(&ctx.plan).iter().map(Accepted::of_file).collect();
        }
        // Its number is on the disk before a daemon hears it.
        self.files.generation += 1;
        let generation = self.files.generation;
        ctx.say(|| format!("master {generation} starts"));
        self.master = Some(Master {
            generation,
            wires: BTreeMap::new(),
            welcome: BTreeSet::new(),
            inventories: BTreeMap::new(),
            members: BTreeMap::new(),
            to_join: VecDeque::new(),
            joining: BTreeSet::new(),
            stage: 0,
            rejoining: VecDeque::new(),
            lost_again: None,
            lives: (generation as u32 & 0xfff) << 20 | 1,
            early: Vec::new(),
            lost: BTreeMap::new(),
            silent: BTreeSet::new(),
            run: None,
            due: None,
            dispatchers: BTreeMap::new(),
            reports: VecDeque::new(),
            tickets: BTreeMap::new(),
            asked: 0,
        });
        self.connect_next(ctx);
    }

    /// Masters connect to one node after the other.
    fn connect_next(&mut self, ctx: &mut Context) {
        let Some(master) = &mut self.master else { return };
        let generation = master.generation;
        let next = (0..ctx.plan.nodes).map(NodeId).find(|node| !master.wires.contains_key(node));
        match next {
            Some(node) => master.connect(ctx, node),
            None => {
                master.to_join = master.living();
                // Later masters find links to daemons that were replaced.
                let at_once = if generation == 1 { master.to_join.len() } else { 1 };
                (0..at_once).for_each(|_| master.ask_next_to_join(ctx));
            }
        }
    }

    /// A step of the start has taken too long, perhaps: the master gives up, and its operator tries again.
    pub(super) fn on_too_late(&mut self, ctx: &mut Context, stage: u32) {
        let Some(master) = self.master.as_ref().filter(|master| master.stage == stage) else { return };
        match master.run {
            None => self.fail_start(ctx, "a node does not answer"),
            Some(_) => self.fail_rejoin(ctx, "no answer in time"),
        }
    }

    fn fail_start(&mut self, ctx: &mut Context, why: &str) {
        ctx.say(|| format!("the master cannot start: {why}"));
        self.master_ends(ctx, false);
        ctx.soon(200_000, 2_000_000, Event::Operator);
    }

    /// The process ends; `abruptly`: it is killed, and not all that it wanted to say has left it.
    fn master_ends(&mut self, ctx: &mut Context, abruptly: bool) {
        let Some(master) = self.master.take() else { return };
        for wire in master.wires.into_values() {
            match abruptly {
                true => ctx.cut_off(wire),
                false => ctx.close(wire),
            }
        }
    }

    pub(super) fn kill_master(&mut self, ctx: &mut Context) {
        if self.master.is_none() {
            return;
        }
        ctx.say(|| "the master is killed".into());
        let safe = ctx.now.before(millis(UNWRITTEN_MS));
        let journal = &mut self.files.journal;
        let written = journal.partition_point(|event| event.at < safe);
        let kept = ctx.dice.between(written as u64, journal.len() as u64) as usize;
        journal.truncate(kept);
        self.master_ends(ctx, true);
        ctx.soon(100_000, 6_000_000, Event::Operator);
    }

    pub(super) fn on_message(&mut self, ctx: &mut Context, wire: Wire, message: Message) {
        let Purpose::Control(generation, node) = ctx.net.purpose(wire) else { unreachable!("no data here") };
        let Some(master) = self.master.as_mut().filter(|master| master.generation == generation) else {
            return;
        };
        if master.wires.get(&node) != Some(&wire.other()) {
            return;
        }
        let (is_welcome, present) = (master.welcome.contains(&node), master.members.get(&node).copied());
        if is_welcome && let Some(silence) = ctx.heard(wire) {
            master.silent.remove(&node);
            master.note_all(ctx, || Note::Heard(node));
            self.on_node(ctx, NodeEvent::Heard { node, silence });
        }
        match message {
            Message::ToHead(DaemonEvent::Welcome { incarnation, .. }) => {
                self.on_welcome(ctx, node, wire, incarnation)
            }
            Message::ToHead(DaemonEvent::Refused { reason }) => self.fail(ctx, &reason),
            Message::ToHead(event) => self.route(ctx, node, event),
            Message::Closed if !is_welcome => self.fail(ctx, "a node hangs up"),
            Message::Closed => {
                ctx.close(wire.other());
                self.lose(ctx, node, present, "peer closed the control connection");
            }
            Message::ToDaemon(_) | Message::Record(..) | Message::Marker(..) => {
                unreachable!("daemons send events")
            }
        }
    }

    fn on_welcome(&mut self, ctx: &mut Context, node: NodeId, wire: Wire, incarnation: u64) {
        let Some(master) = &mut self.master else { return };
        master.welcome.insert(node);
        master.members.insert(node, incarnation);
        master.inventories.remove(&node);
        master.lost_again = None;
        ctx.listen(wire, ctx.plan.lost_after);
        ctx.after(super::HEARTBEAT, Event::Beats(wire.other()));
        ctx.send(wire.other(), Message::ToDaemon(Request::Inventory));
        if master.run.is_none() {
            return self.connect_next(ctx);
        }
        // The others first: they let go of their links to the daemon before.
        master.to_join = master.living().into_iter().filter(|other| *other != node).chain([node]).collect();
        master.ask_next_to_join(ctx);
    }

    /// What was waited for has failed.
    fn fail(&mut self, ctx: &mut Context, why: &str) {
        match self.master.as_ref().is_some_and(|master| master.run.is_some()) {
            true => self.fail_rejoin(ctx, why),
            false => self.fail_start(ctx, why),
        }
    }

    /// A node has another daemon. As `Sessions::connect_again`.
    pub(super) fn connect_again(&mut self, ctx: &mut Context, node: NodeId) {
        let Some(master) = &mut self.master else { return };
        master.rejoining.push_back(node);
        if master.rejoining.len() == 1 {
            master.connect(ctx, node);
        }
    }

    fn end_rejoin(&mut self, ctx: &mut Context) -> Option<NodeId> {
        let master = self.master.as_mut()?;
        let node = master.rejoining.pop_front()?;
        master.stage += 1;
        master.to_join.clear();
        master.joining.clear();
        if let Some(next) = master.rejoining.front().copied() {
            master.connect(ctx, next);
        }
        Some(node)
    }

    fn fail_rejoin(&mut self, ctx: &mut Context, why: &str) {
        let Some(node) = self.end_rejoin(ctx) else { return };
        ctx.say(|| format!("{node} is not back: {why}"));
        self.feed(ctx, Input::Node(NodeEvent::NotBack { node, reason: why.into() }));
    }

    /// A node could not be given another daemon.
    pub(super) fn on_not_restarted(&mut self, ctx: &mut Context, node: NodeId) {
        self.feed(ctx, Input::Node(NodeEvent::NotBack { node, reason: "it does not start".into() }));
    }

    fn welcome_back(&mut self, ctx: &mut Context) {
        let why = self.master.as_mut().and_then(|master| master.lost_again.take());
        if let Some(why) = why {
            return self.fail_rejoin(ctx, &why);
        }
        let Some(node) = self.end_rejoin(ctx) else { return };
        let Some(master) = &mut self.master else { return };
        ctx.say(|| format!("{node} is back"));
        master.lost.remove(&node);
        let held = master.inventories.get(&node).map(|inventory| inventory.held.clone()).unwrap_or_default();
        for (job, _) in held {
            let is_known = master.dispatchers.get(&job).is_some_and(|app| app.nodes.contains(&node));
            if !is_known && let Some(wire) = master.wires.get(&node) {
                let request = AppRequest::Release { last_word: None };
                ctx.send(*wire, Message::ToDaemon(Request::App { job, request }));
            }
        }
        self.feed(ctx, Input::Node(NodeEvent::Back { node }));
        if let Some(master) = &mut self.master {
            master.note_all(ctx, || Note::Input(app::Input::NodeBack(node)));
        }
    }

    /// A node has joined.
    fn on_joined(&mut self, ctx: &mut Context, node: NodeId) {
        let Some(master) = &mut self.master else { return };
        if !master.joining.remove(&node) {
            return;
        }
        master.stage += 1;
        self.go_on_joining(ctx);
    }

    fn go_on_joining(&mut self, ctx: &mut Context) {
        let Some(master) = &mut self.master else { return };
        master.ask_next_to_join(ctx);
        if master.joining.is_empty() && master.to_join.is_empty() {
            match master.run {
                None => self.begin(ctx),
                Some(_) => self.welcome_back(ctx),
            }
        }
    }

    pub(super) fn on_lull(
        &mut self,
        ctx: &mut Context,
        wire: Wire,
        lull: coswitch_daemon::session::rules::Lull,
    ) {
        use coswitch_daemon::session::rules::Lull;
        let Purpose::Control(generation, node) = ctx.net.purpose(wire) else { return };
        let Some(master) = self.master.as_mut().filter(|master| master.generation == generation) else {
            return;
        };
        match lull {
            Lull::Short => {}
            Lull::Silent => {
                ctx.say(|| format!("the master does not hear {node}"));
                master.silent.insert(node);
                master.note_all(ctx, || Note::Silent(node));
                self.on_node(ctx, NodeEvent::Silent { node });
            }
            Lull::GivenUp => {
                ctx.close(wire.other());
                let incarnation = master.members.get(&node).copied();
                self.lose(ctx, node, incarnation, "peer was silent for too long");
            }
        }
    }

    fn route(&mut self, ctx: &mut Context, node: NodeId, event: DaemonEvent) {
        let Some(master) = &mut self.master else { return };
        match event {
            DaemonEvent::Inventory(inventory) => drop(master.inventories.insert(node, inventory)),
            DaemonEvent::Joined => self.on_joined(ctx, node),
            DaemonEvent::JoinFailed { reason } if master.joining.contains(&node) => self.fail(ctx, &reason),
            DaemonEvent::LinkLost { peer, incarnation, reason, .. } => {
                self.lose(ctx, peer, Some(incarnation), &format!("{node} lost its link to it: {reason}"));
            }
            DaemonEvent::StoodStill(stood_still) => {
                self.on_node(ctx, NodeEvent::StoodStill { node, stood_still });
            }
            DaemonEvent::Allowed { exceeded } => self.on_node(ctx, NodeEvent::Allowed { node, exceeded }),
            DaemonEvent::Memory(memory) => self.on_node(ctx, NodeEvent::Memory { node, memory }),
            DaemonEvent::App { job, event } => {
                master.note(ctx, job, Note::Input(app::Input::Event(node, event)))
            }
            _ => {}
        }
    }

    /// A daemon is lost: tells every application and the run, once.
    fn lose(&mut self, ctx: &mut Context, node: NodeId, incarnation: Option<u64>, reason: &str) {
        let Some(master) = &mut self.master else { return };
        if incarnation != master.members.get(&node).copied() {
            return;
        }
        let was_awaited = master.joining.remove(&node);
        if master.lost.contains_key(&node) {
            master.lost_again = Some(reason.into());
            if was_awaited {
                self.fail(ctx, reason);
            }
            return;
        }
        if master.run.is_none() {
            return self.fail_start(ctx, reason);
        }
        master.lost.insert(node, reason.into());
        ctx.say(|| format!("the master has lost {node}: {reason}"));
        let reason = reason.to_string();
        self.on_node(ctx, NodeEvent::Lost { node, reason: reason.clone() });
        let Some(master) = &mut self.master else { return };
        master.silent.remove(&node);
        master.note_all(ctx, || Note::Heard(node));
        master.note_all(ctx, || Note::Input(app::Input::NodeLost(node, reason.clone())));
        // One that is lost meanwhile joins when it is back.
        if was_awaited {
            master.stage += 1;
            self.go_on_joining(ctx);
        }
    }

    fn on_node(&mut self, ctx: &mut Context, event: NodeEvent) {
        let Some(master) = &mut self.master else { return };
        match master.run {
            Some(_) => self.feed(ctx, Input::Node(event)),
            None => master.early.push(event),
        }
    }

    /// All nodes have answered: the run begins, or goes on.
    fn begin(&mut self, ctx: &mut Context) {
        let Some(master) = &mut self.master else { return };
        let settings = RunSettings { run: "sim".into(), standing: true, ..RunSettings::default() };
        let set = settings::job_set(&ctx.plan);
        let run = if master.generation == 1 {
            Run::new(set, settings)
        } else {
            let past = Past::of(self.files.jobs.clone(), &self.files.journal);
            let mut takeover = Takeover { generation: master.generation, past, ..Takeover::default() };
            for Inventory { held, released } in std::mem::take(&mut master.inventories).into_values() {
                takeover.held.extend(held);
                for (job, word) in released {
                    let outcome: AppOutcome = serde_json::from_str(&word).expect("a dispatcher's words");
                    takeover.released.insert(job, outcome);
                }
            }
            Run::resume_run(set, settings, takeover)
        };
        master.run = Some(run.expect("the settings are right"));
        let early = std::mem::take(&mut master.early);
        self.feed(ctx, Input::Due);
        early.into_iter().for_each(|event| self.feed(ctx, Input::Node(event)));
    }

    pub(super) fn feed(&mut self, ctx: &mut Context, input: Input) {
        let Some(master) = &mut self.master else { return };
        let Some(run) = &mut master.run else { return };
        let outputs = run.on(ctx.now, input);
        let before = std::mem::replace(&mut master.due, run.due());
        if let Some(due) = master.due.filter(|_| master.due != before) {
            ctx.at(due, Event::Due(master.generation));
        }
        for output in outputs {
            self.carry_out(ctx, output);
        }
    }

    pub(super) fn on_due(&mut self, ctx: &mut Context) {
        let run = self.master.as_ref().and_then(|master| master.run.as_ref());
        let Some(due) = run.and_then(Run::due) else { return };
        if due > ctx.now {
            return ctx.at(due, Event::Due(self.files.generation));
        }
        self.feed(ctx, Input::Due);
    }

    fn carry_out(&mut self, ctx: &mut Context, output: Output) {
        let Some(master) = &mut self.master else { return };
        match output {
            Output::Keep(accepted) => self.files.jobs.push(*accepted),
            Output::Tell(event) => {
                if let Some(line) = settings::shown(&event.kind) {
                    ctx.say(|| line);
                }
                if let Told::JobFinished { job, outcome, .. } = &event.kind {
                    ctx.audit.on_finished(*job, outcome);
                }
                self.files.journal.push(event);
            }
            Output::Launch(job, spec) => {
                let spec = settings::with_work(&mut ctx.audit, job, *spec);
                let app = App::new(spec, TIMEOUTS).in_life(master.next_life());
                master.start(ctx, job, app, app::Input::Order(Order::Launch));
            }
            Output::Adopt(job, spec, ended) => {
                let spec: LaunchSpec = *spec;
                let adoption = Adoption { generation: master.generation, ended };
                let app = App::adopted(spec, TIMEOUTS, adoption).in_life(master.next_life());
                master.start(ctx, job, app, app::Input::Adopt);
            }
            Output::Restart(node) => ctx.soon(50_000, 2_000_000, Event::Restart(master.generation, node)),
            Output::Order(job, order) => {
                ctx.say(|| format!("order to {job}: {order:?}").to_lowercase());
                master.note(ctx, job, Note::Input(app::Input::Order(order)));
            }
            Output::Answer(ticket, reply) => {
                let asker = master.tickets.remove(&ticket).expect("every question is answered once");
                ctx.audit.on_answer(&asker, ctx.now, &reply);
            }
            Output::Allow(node, allowance) => {
                if let Some(wire) = master.wires.get(&node) {
                    ctx.send(*wire, Message::ToDaemon(Request::Allow { allowance }));
                }
            }
            Output::Over(outcome) => {
                ctx.say(|| format!("the cluster ends: {outcome:?}"));
                for wire in master.wires.values() {
                    ctx.send(*wire, Message::ToDaemon(Request::Shutdown));
                }
                self.over = Some(outcome);
                self.master_ends(ctx, false);
            }
        }
    }

    pub(super) fn on_report(&mut self, ctx: &mut Context) {
        let Some(master) = &mut self.master else { return };
        if let Some((job, report)) = master.reports.pop_front() {
            self.feed(ctx, Input::Report(job, report));
        }
    }

    /// A user asks something; not answered where there is no master that can.
    pub(super) fn ask(&mut self, ctx: &mut Context, wish: Wish) -> bool {
        let Some(master) = self.master.as_mut().filter(|master| master.run.is_some()) else { return false };
        let (ticket, request) = (Ticket(master.asked), settings::request(wish));
        master.asked += 1;
        let asker = Asker { at: ctx.now, wish };
        master.tickets.insert(ticket, asker);
        self.feed(ctx, Input::Asked(Asked { ticket, user: User::ROOT, request }));
        true
    }

    pub(super) fn is_running(&self) -> bool {
        self.master.as_ref().is_some_and(|master| master.run.is_some())
    }

    /// Questions without an answer.
    pub(super) fn open_questions(&self) -> Vec<Asker> {
        self.master.iter().flat_map(|master| master.tickets.values().cloned()).collect()
    }

    pub(super) fn on_note(&mut self, ctx: &mut Context, job: JobId) {
        if let Some(master) = &mut self.master {
            master.read_note(ctx, job);
        }
    }

    pub(super) fn on_deadline(&mut self, ctx: &mut Context, job: JobId) {
        let Some(master) = &mut self.master else { return };
        let Some(dispatcher) = master.dispatchers.get_mut(&job) else { return };
        if dispatcher.deadline.has_passed(ctx.instant()) {
            ctx.say(|| format!("the time-out of {job} has passed"));
            master.give(ctx, job, app::Input::TimedOut);
        } else {
            master.mind_deadline(ctx, job);
        }
    }
}

const TIMEOUTS: Timeouts = Timeouts {
    launch: millis(6_000),
    cut: millis(6_000),
    dump: millis(10_000),
    restore: millis(20_000),
    resume: millis(6_000),
    release: millis(10_000),
};

impl Master {
    fn connect(&mut self, ctx: &mut Context, node: NodeId) {
        let generation = self.generation;
        let wire = Wire { link: ctx.net.link(Purpose::Control(generation, node)), back: false };
        self.wires.insert(node, wire);
        self.welcome.remove(&node);
        ctx.send(wire, Message::ToDaemon(Request::Hello { version: VERSION, generation }));
        self.wait(ctx);
    }

    /// Minds the time-out of what is waited for from now on.
    fn wait(&mut self, ctx: &mut Context) {
        self.stage += 1;
        ctx.after(millis(CONNECT_MS), Event::TooLate(self.generation, self.stage));
    }

    /// Nodes that are not lost.
    fn living(&self) -> VecDeque<NodeId> {
        self.members.keys().filter(|node| !self.lost.contains_key(node)).copied().collect()
    }

    fn ask_next_to_join(&mut self, ctx: &mut Context) {
        let Some(node) = self.to_join.pop_front() else { return };
        let back = self.rejoining.front().copied();
        let here = |node: &NodeId| !self.lost.contains_key(node) || Some(*node) == back;
        let members = self.members.iter().filter(|(node, _)| here(node));
        let data = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let member =
            |(node, incarnation): (&NodeId, &u64)| Member { node: *node, incarnation: *incarnation, data };
        let members = members.map(member).collect();
        self.joining.insert(node);
        ctx.send(self.wires[&node], Message::ToDaemon(Request::Join { members }));
        self.wait(ctx);
    }

    /// As `Sessions::next_life`.
    fn next_life(&mut self) -> u32 {
        self.lives += LIVES_EACH;
        self.lives - LIVES_EACH
    }

    /// As `Sessions::register` and `Dispatcher::run` do.
    fn start(&mut self, ctx: &mut Context, job: JobId, app: App, first: app::Input) {
        let dispatcher = Dispatcher {
            nodes: app.nodes().clone(),
            app,
            inbox: VecDeque::new(),
            deadline: Deadline::default(),
        };
        self.dispatchers.insert(job, dispatcher);
        for (node, reason) in self.lost.clone() {
            self.note(ctx, job, Note::Input(app::Input::NodeLost(node, reason)));
        }
        for node in self.silent.clone() {
            self.note(ctx, job, Note::Silent(node));
        }
        self.note(ctx, job, Note::Input(first));
    }

    fn note(&mut self, ctx: &mut Context, job: JobId, note: Note) {
        if let Some(dispatcher) = self.dispatchers.get_mut(&job) {
            dispatcher.inbox.push_back(note);
            ctx.soon(1, 30, Event::Note(self.generation, job));
        }
    }

    fn note_all(&mut self, ctx: &mut Context, note: impl Fn() -> Note) {
        let jobs: Vec<JobId> = self.dispatchers.keys().copied().collect();
        jobs.into_iter().for_each(|job| self.note(ctx, job, note()));
    }

    fn read_note(&mut self, ctx: &mut Context, job: JobId) {
        let Some(dispatcher) = self.dispatchers.get_mut(&job) else { return };
        match dispatcher.inbox.pop_front() {
            None => {}
            Some(Note::Input(input)) => self.give(ctx, job, input),
            Some(Note::Silent(node)) => {
                if dispatcher.nodes.contains(&node) {
                    dispatcher.deadline.on_silent(node);
                }
            }
            Some(Note::Heard(node)) => {
                dispatcher.deadline.on_heard(ctx.instant(), node);
                self.mind_deadline(ctx, job);
            }
        }
    }

    fn give(&mut self, ctx: &mut Context, job: JobId, input: app::Input) {
        let Some(dispatcher) = self.dispatchers.get_mut(&job) else { return };
        for output in dispatcher.app.on(input) {
            match output {
                app::Output::Ask(node, request) => {
                    if let Some(wire) = self.wires.get(&node) {
                        ctx.send(*wire, Message::ToDaemon(Request::App { job, request }));
                    }
                }
                app::Output::Tell(report) => {
                    settings::say_report(ctx, job, &report);
                    if let Report::Ended(outcome) = &report {
                        ctx.audit.on_ended(job, outcome);
                    }
                    self.reports.push_back((job, report));
                    ctx.soon(1, 30, Event::Report(self.generation));
                }
                app::Output::Arm(limit) => dispatcher.deadline.arm(ctx.instant(), limit),
            }
        }
        if dispatcher.app.has_ended() {
            self.dispatchers.remove(&job);
        } else {
            self.mind_deadline(ctx, job);
        }
    }

    fn mind_deadline(&self, ctx: &mut Context, job: JobId) {
        if let Some(due) = self.dispatchers.get(&job).and_then(|dispatcher| dispatcher.deadline.due()) {
            ctx.at_instant(due, Event::Deadline(self.generation, job));
        }
    }
}
