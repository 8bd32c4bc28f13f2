//! The head node of the simulation: what masters leave on its disk, and the master of the moment, if one
//! lives: the run core, as `engine::shell` runs it, with a dispatcher for each job and the sessions with the
//! daemons.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use coswitch_daemon::{
    protocol::{Inventory, Request},
    tag::TagKey,
};
use coswitch_dispatcher::{
    app::{self, Adoption, App},
    protocol::{LaunchSpec, NodeEvent, Report},
    watch::{Heartbeats, Watch},
    ways::Ways,
};
use coswitch_policies::{
    JobId, NodeId, Order, SimTime, local::explicit::Slices, primitives::Operations, strobe::Rows,
};
use coswitch_report::{
    Known, fold,
    journal::{Event as Told, RunEvent, RunOutcome},
};

use super::{
    audit::Asker,
    context::{Context, Event},
    dispatchers::{Dispatcher, Note, TIMEOUTS},
    network::{Message, Wire},
    plan::{Wish, millis},
    settings,
};
use crate::{
    api::{Accepted, User},
    compaction,
    engine::run::{Asked, Input, Output, Run, RunSettings, Takeover, Ticket},
    past::Past,
};

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

impl Files {
    /// A master has compacted the journal some time ago: nothing is lost, and nothing counts twice.
    fn compact(&mut self) {
        let events = self.journal.len() * (1 + self.generation as usize % 4) / 4;
        let compacted = compaction::compacted(&self.journal, events);
        assert_eq!(Known::of(&compacted), Known::of(&self.journal), "what a new master has to know");
        assert_eq!(fold(&compacted), fold(&self.journal), "the report");
        self.journal = compacted;
    }
}

#[derive(Default)]
pub(super) struct Head {
    pub(super) files: Files,
    pub(super) master: Option<Master>,
    /// The cluster has ended.
    pub(super) over: Option<RunOutcome>,
}

/// A master that lives.
pub(super) struct Master {
    pub(super) generation: u64,
    /// Wires to the nodes that it has connected to.
    pub(super) wires: BTreeMap<NodeId, Wire>,
    pub(super) ways: Ways,
    pub(super) watch: Watch,
    /// Of its last strobe.
    pub(super) rows: Option<Rows>,
    /// As it has set them last.
    pub(super) common: Option<Slices>,
    pub(super) operations: Operations,
    /// Nodes that have welcomed it.
    pub(super) welcome: BTreeSet<NodeId>,
    pub(super) inventories: BTreeMap<NodeId, Inventory>,
    /// The daemon of each node.
    pub(super) members: BTreeMap<NodeId, u64>,
    /// Nodes that are still to be asked to join, and those that were.
    pub(super) to_join: VecDeque<NodeId>,
    pub(super) joining: BTreeSet<NodeId>,
    /// Counts what is waited for.
    pub(super) stage: u32,
    /// Nodes with a new daemon that has welcomed the master: they join, one after the other.
    pub(super) rejoining: VecDeque<NodeId>,
    /// Why they are lost again.
    pub(super) lost_again: BTreeMap<NodeId, String>,
    pub(super) lives: u32,
    /// News of nodes before there is a run.
    pub(super) early: Vec<NodeEvent>,
    pub(super) lost: BTreeMap<NodeId, String>,
    pub(super) silent: BTreeSet<NodeId>,
    pub(super) run: Option<Run>,
    /// When its next timer is due.
    pub(super) due: Option<SimTime>,
    pub(super) dispatchers: BTreeMap<JobId, Dispatcher>,
    pub(super) reports: VecDeque<(JobId, Report)>,
    pub(super) tickets: BTreeMap<Ticket, Asker>,
    pub(super) asked: u64,
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
            ways: Ways::new(ctx.plan.radix, generation, TagKey::from([generation as u8; 32])),
            watch: Watch::default(),
            rows: None,
            common: None,
            operations: Operations::new(generation),
            welcome: BTreeSet::new(),
            inventories: BTreeMap::new(),
            members: BTreeMap::new(),
            to_join: VecDeque::new(),
            joining: BTreeSet::new(),
            stage: 0,
            rejoining: VecDeque::new(),
            lost_again: BTreeMap::new(),
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

    /// The process ends; `abruptly`: it is killed, and not all that it wanted to say has left it.
    pub(super) fn master_ends(&mut self, ctx: &mut Context, abruptly: bool) {
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

    pub(super) fn on_node(&mut self, ctx: &mut Context, event: NodeEvent) {
        let Some(master) = &mut self.master else { return };
        match master.run {
            Some(_) => self.feed(ctx, Input::Node(event)),
            None => master.early.push(event),
        }
    }

    /// All nodes have answered: the run begins, or goes on.
    pub(super) fn begin(&mut self, ctx: &mut Context) {
        let Some(master) = &mut self.master else { return };
        master.by_operations(ctx, Operations::on_all_known);
        ctx.after(Duration::ZERO, Event::Operation(master.generation));
        if ctx.plan.heartbeats == Heartbeats::Tree {
            ctx.after(Duration::ZERO, Event::Period(master.generation));
        }
        let settings = RunSettings { run: "sim".into(), standing: true, ..RunSettings::default() };
        let set = settings::job_set(&ctx.plan);
        let run = if master.generation == 1 {
            Run::new(set, settings)
        } else {
            self.files.compact();
            let past = Past::of(self.files.jobs.clone(), Known::of(&self.files.journal));
            let inventories = std::mem::take(&mut master.inventories);
            let takeover = Takeover::new(master.generation, past, inventories).expect("a dispatcher's words");
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
            Output::DropCopies(..) | Output::Move(..) => unreachable!("copies are not simulated"),
            Output::Replace(_) => unreachable!("no user of the simulation upgrades daemons"),
            Output::Release(node, job) => master.release(ctx, node, job),
            Output::Restart(node) => ctx.soon(50_000, 2_000_000, Event::Restart(master.generation, node)),
            Output::Order(job, order) => {
                ctx.say(|| format!("order to {job}: {order:?}").to_lowercase());
                master.note(ctx, job, Note::Input(app::Input::Order(order)));
            }
            Output::Answer(ticket, reply) => {
                let asker = master.tickets.remove(&ticket).expect("every question is answered once");
                ctx.audit.on_answer(&asker, ctx.now, &reply);
            }
            Output::Strobe(rows) => master.strobe(ctx, rows),
            Output::SetSlices(slices) => master.set_slices(ctx, slices),
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

    /// Nodes that the master has lost.
    pub(super) fn lost(&self) -> impl Iterator<Item = NodeId> {
        self.master.iter().flat_map(|master| master.lost.keys().copied())
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
}
