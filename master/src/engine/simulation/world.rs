//! One run of the simulation: hands each event to the party that it concerns, lets faults begin and end, and
//! has the audit look at everything after each event.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{JobId, NodeId, SimTime, strobe::Rows};
use coswitch_report::journal::RunOutcome;

use super::{
    HEARTBEAT,
    context::{Context, Event},
    daemon::Daemon,
    head::Head,
    network::{Place, Purpose, Wire},
    plan::{Fault, Plan, Wish, millis},
};
use crate::engine::run::Input;

/// After the calm has begun, all work is done within this time.
const END_LIMIT: Duration = Duration::from_secs(600);
/// After the calm has begun, nodes that are lost are back within this time, or stay down.
const BACK_LIMIT: Duration = Duration::from_secs(60);
/// How often users let held jobs go on, once it is calm.
const RESUME_EVERY: Duration = Duration::from_secs(3);

pub(super) struct World {
    pub(super) ctx: Context,
    head: Head,
    daemons: Vec<Daemon>,
    /// Until when the processes of a place stand still.
    paused: BTreeMap<Place, SimTime>,
    resumed_last: SimTime,
    /// Users who have not submitted their jobs yet.
    submits: usize,
    pub(super) events: u64,
}

impl World {
    pub(super) fn new(plan: Plan, traced: bool) -> Self {
        let mut ctx = Context::new(plan, traced);
        let daemons = (0..ctx.plan.nodes).map(|node| Daemon::new(&mut ctx, NodeId(node), 1)).collect();
        let works = ctx.plan.jobs.clone();
        ctx.audit.works = (0..).map(JobId).zip(works).collect();
        let is_submit = |(_, wish): &&(Duration, Wish)| matches!(wish, Wish::Submit(_));
        let submits = ctx.plan.wishes.iter().filter(is_submit).count();
        let mut world = Self {
            ctx,
            head: Head::default(),
            daemons,
            paused: BTreeMap::new(),
            resumed_last: SimTime(0),
            submits,
            events: 0,
        };
        world.plan_events();
        world
    }

    fn plan_events(&mut self) {
        let ctx = &mut self.ctx;
        ctx.after(Duration::ZERO, Event::Operator);
        for (index, planned) in ctx.plan.faults.clone().iter().enumerate() {
            ctx.after(planned.at, Event::Fault(index));
            ctx.after(planned.until, Event::Mended(index));
        }
        for (index, (at, _)) in ctx.plan.wishes.clone().iter().enumerate() {
            ctx.after(*at, Event::User(index));
        }
    }

    /// Runs to the end of all work, and of the cluster.
    pub(super) fn run(&mut self) {
        let limit = SimTime::from(self.ctx.plan.calm + END_LIMIT);
        while self.has_work() {
            self.step();
            self.keep_calm();
            assert!(
                self.ctx.now < limit,
                "the work has no end after all faults: {:?}",
                self.ctx.audit.open()
            );
        }
        if self.head.over.is_none() {
            self.run_until(self.ctx.now.after(Duration::from_secs(2)));
            self.ctx.audit.check_end();
            self.check_idle();
            self.end();
        }
        let limit = self.ctx.now.after(self.ctx.plan.stop_after + Duration::from_secs(60));
        while self.daemons.iter().any(|daemon| daemon.is_alive) {
            self.step();
            assert!(self.ctx.now < limit, "all daemons end with their cluster");
        }
        // What daemons that were killed have left is removed by the operator's clean-up.
        let ended = self.daemons.iter().filter(|daemon| !daemon.was_killed);
        ended.for_each(|daemon| assert!(daemon.is_clean(), "nothing is left on {}", daemon.node));
    }

    fn has_work(&self) -> bool {
        let is_calm = self.ctx.now >= SimTime::from(self.ctx.plan.calm);
        let is_idle = self.head.is_running() && self.submits == 0 && self.ctx.audit.open().is_empty();
        // The run waits for a node that is lost; where the work needs none, it may be given up.
        let is_whole = self.head.lost().next().is_none();
        let is_idle = is_idle && (is_whole || self.ctx.now >= SimTime::from(self.ctx.plan.calm + BACK_LIMIT));
        self.head.over.is_none() && !(is_calm && is_idle)
    }

    fn check_idle(&self) {
        let open = self.head.open_questions();
        assert!(open.is_empty(), "questions without an answer: {open:?}");
        let master = self.head.master.as_ref().expect("it runs");
        self.ctx.ledger.check_end(&self.daemons, master);
        let lost: Vec<NodeId> = self.head.lost().collect();
        for daemon in self.daemons.iter().filter(|daemon| !lost.contains(&daemon.node)) {
            let rows = |rows: &Option<Rows>| rows.as_ref().map(|rows| rows.rows.clone()).unwrap_or_default();
            assert_eq!(rows(&daemon.rows), rows(&master.rows), "{} knows its slices", daemon.node);
            assert_eq!(daemon.common, master.common, "{} has the common slices", daemon.node);
            assert!(!daemon.has_processes() && daemon.is_clean(), "nothing is left on {}", daemon.node);
        }
    }

    /// The operator ends the cluster.
    fn end(&mut self) {
        while self.head.over.is_none() {
            self.head.feed(&mut self.ctx, Input::Stop(RunOutcome::Interrupted));
            self.step();
        }
    }

    fn run_until(&mut self, end: SimTime) {
        while self.ctx.now < end {
            self.step();
        }
    }

    /// Once it is calm, no user holds a job or a node.
    fn keep_calm(&mut self) {
        let is_calm = self.ctx.now >= SimTime::from(self.ctx.plan.calm);
        if !is_calm || self.ctx.now < self.resumed_last.after(RESUME_EVERY) {
            return;
        }
        self.resumed_last = self.ctx.now;
        for job in self.ctx.audit.open() {
            self.head.ask(&mut self.ctx, Wish::Resume(job.0));
        }
        for node in 0..self.ctx.plan.nodes {
            self.head.ask(&mut self.ctx, Wish::Undrain(node));
        }
    }

    fn step(&mut self) {
        let event = self.ctx.pop().expect("daemons measure for ever");
        self.events += 1;
        let paused = self.place(event).and_then(|place| self.paused.get(&place)).copied();
        if let Some(until) = paused.filter(|until| *until > self.ctx.now) {
            return self.ctx.at(until, event);
        }
        self.dispatch(event);
        self.join();
        self.ctx.audit.look(&self.daemons);
        self.ctx.ledger.look(&self.daemons);
    }

    /// Where the process is that an event needs.
    fn place(&self, event: Event) -> Option<Place> {
        match event {
            Event::Arrives(wire) | Event::Lull(wire) => Some(self.ctx.net.receiver(wire)),
            Event::Beats(wire) => Some(self.ctx.net.receiver(wire.other())),
            Event::Fault(_) | Event::Mended(_) | Event::User(_) | Event::Operator => None,
            Event::Restart(..) => Some(Place::Head),
            Event::TooLate(..)
            | Event::NotReached(..)
            | Event::Operation(_)
            | Event::Period(_)
            | Event::Answers(_)
            | Event::Due(_)
            | Event::Report(_)
            | Event::Note(..)
            | Event::Deadline(..) => Some(Place::Head),
            Event::Alone(node, _)
            | Event::Gathered(node, _)
            | Event::Sample(node, _)
            | Event::Step(node, ..)
            | Event::Sealed(node, ..)
            | Event::Worked(node, ..) => Some(Place::Node(node)),
        }
    }

    fn dispatch(&mut self, event: Event) {
        let (ctx, head) = (&mut self.ctx, &mut self.head);
        let is_master = |generation: u64| {
            let master = head.master.as_ref();
            master.is_some_and(|master| master.generation == generation)
        };
        match event {
            Event::Operator => self.start_master(),
            Event::Restart(generation, node) if is_master(generation) => self.restart(node),
            Event::Restart(..) => {}
            Event::Fault(index) => self.begin_fault(index),
            Event::Mended(index) => self.end_fault(index),
            Event::User(index) => self.on_user(index),
            Event::Arrives(wire) => self.deliver(wire),
            Event::Beats(wire) => self.beat(wire),
            Event::Lull(wire) => self.on_lull(wire),
            Event::TooLate(generation, stage) if is_master(generation) => head.on_too_late(ctx, stage),
            Event::NotReached(generation, node, wire) if is_master(generation) => {
                head.on_not_reached(ctx, node, wire);
            }
            Event::Operation(generation) if is_master(generation) => head.on_operation(ctx),
            Event::Period(generation) if is_master(generation) => head.on_period(ctx),
            Event::Answers(generation) if is_master(generation) => head.on_answers(ctx),
            Event::Due(generation) if is_master(generation) => head.on_due(ctx),
            Event::Report(generation) if is_master(generation) => head.on_report(ctx),
            Event::Note(generation, job) if is_master(generation) => head.on_note(ctx, job),
            Event::Deadline(generation, job) if is_master(generation) => head.on_deadline(ctx, job),
            Event::TooLate(..)
            | Event::NotReached(..)
            | Event::Operation(_)
            | Event::Period(_)
            | Event::Answers(_)
            | Event::Due(_)
            | Event::Report(_)
            | Event::Note(..)
            | Event::Deadline(..) => {}
            Event::Alone(node, life) => self.at_node(node, life, Daemon::on_alone),
            Event::Gathered(node, life) => self.at_node(node, life, Daemon::on_gathered),
            Event::Sample(node, life) => self.at_node(node, life, Daemon::sample),
            Event::Step(node, job, step) => self.daemons[node.0 as usize].on_step(ctx, job, step),
            Event::Sealed(node, job, number, epoch) => {
                self.daemons[node.0 as usize].on_sealed(ctx, job, number, epoch);
            }
            Event::Worked(node, job, work) => self.daemons[node.0 as usize].on_worked(ctx, job, work),
        }
    }

    /// The operator starts a master, which gives nodes without a daemon another one.
    fn start_master(&mut self) {
        if self.head.over.is_none() && self.head.master.is_none() {
            for node in 0..self.ctx.plan.nodes {
                if !self.daemons[node as usize].is_alive {
                    self.daemons[node as usize].restart(&mut self.ctx);
                }
            }
            self.head.start_master(&mut self.ctx);
        }
    }

    fn kill(&mut self, node: NodeId) {
        let daemon = &mut self.daemons[node.0 as usize];
        if daemon.is_alive {
            daemon.kill(&mut self.ctx);
        }
    }

    /// A node gets another daemon, sometimes at the second attempt only.
    fn restart(&mut self, node: NodeId) {
        let is_calm = self.ctx.now >= SimTime::from(self.ctx.plan.calm);
        if !is_calm && self.ctx.dice.chance(200) {
            return self.head.on_not_restarted(&mut self.ctx, node);
        }
        self.paused.remove(&Place::Node(node));
        self.daemons[node.0 as usize].restart(&mut self.ctx);
        self.head.connect_again(&mut self.ctx, node);
    }

    /// A node opens links to others that know it.
    fn join(&mut self) {
        let Some((node, peers)) = self.ctx.joining.take() else { return };
        let own = self.daemons[node.0 as usize].life;
        for (peer, incarnation) in peers {
            let there = &mut self.daemons[peer.0 as usize];
            let is_there = there.is_alive && there.life == incarnation;
            if !is_there || there.machine.known.get(&node) != Some(&own) {
                continue;
            }
            let link = self.ctx.net.link(Purpose::Data(node, peer));
            there.machine.wires.insert(node, Wire { link, back: true });
            self.daemons[node.0 as usize].machine.wires.insert(peer, Wire { link, back: false });
        }
    }

    fn at_node(&mut self, node: NodeId, life: u64, act: impl Fn(&mut Daemon, &mut Context)) {
        let daemon = &mut self.daemons[node.0 as usize];
        if daemon.is_alive && daemon.life == life {
            act(daemon, &mut self.ctx);
        }
    }

    fn deliver(&mut self, wire: Wire) {
        let Some(message) = self.ctx.net.take(wire, self.ctx.now) else { return };
        match self.ctx.net.receiver(wire) {
            Place::Head => self.head.on_message(&mut self.ctx, wire, message),
            Place::Node(node) => {
                let daemon = &mut self.daemons[node.0 as usize];
                if daemon.is_alive {
                    daemon.on_message(&mut self.ctx, wire, message);
                }
            }
        }
    }

    fn beat(&mut self, wire: Wire) {
        if !self.ctx.net.way(wire).is_open {
            return;
        }
        let message = match wire.back {
            false => {
                let Place::Node(node) = self.ctx.net.receiver(wire) else { unreachable!("a daemon") };
                self.head.beat(node)
            }
            true => {
                let Place::Node(node) = self.ctx.net.receiver(wire.other()) else { unreachable!("a daemon") };
                self.daemons[node.0 as usize].beat(wire)
            }
        };
        if let Some(message) = message {
            self.ctx.send(wire, message);
        }
        self.ctx.after(HEARTBEAT, Event::Beats(wire));
    }

    fn on_lull(&mut self, wire: Wire) {
        let Some(lull) = self.ctx.lull(wire) else { return };
        match self.ctx.net.receiver(wire) {
            Place::Head => self.head.on_lull(&mut self.ctx, wire, lull),
            Place::Node(node) => self.daemons[node.0 as usize].on_lull(&mut self.ctx, wire, lull),
        }
    }

    fn on_user(&mut self, index: usize) {
        let (_, wish) = self.ctx.plan.wishes[index];
        self.ctx.say(|| format!("a user asks: {wish:?}"));
        let was_asked = self.head.ask(&mut self.ctx, wish);
        if let Wish::Submit(_) = wish {
            match was_asked {
                true => self.submits -= 1,
                false => self.ctx.after(millis(1500), Event::User(index)),
            }
        }
    }

    fn begin_fault(&mut self, index: usize) {
        let planned = self.ctx.plan.faults[index];
        self.ctx.say(|| format!("FAULT until {:?}: {:?}", planned.until, planned.fault));
        let until = SimTime::from(planned.until);
        match planned.fault {
            Fault::MasterDies => self.head.kill_master(&mut self.ctx),
            Fault::DaemonDies(node) => self.kill(node),
            Fault::MasterPauses => self.pause(Place::Head, until),
            Fault::DaemonPauses(node) => self.pause(Place::Node(node), until),
            Fault::NodeCutOff { node, hears } => {
                let (head, node, now) = (Place::Head, Place::Node(node), self.ctx.now);
                match hears {
                    true => self.ctx.net.block(node, head, now),
                    false => self.ctx.net.block(head, node, now),
                }
            }
            Fault::NodesCutOff { from, to } => {
                let now = self.ctx.now;
                self.ctx.net.block(Place::Node(from), Place::Node(to), now);
            }
            Fault::Slow { node, times } => drop(self.ctx.slowness.insert(node, times)),
            Fault::DiskFull(node) => self.daemons[node.0 as usize].machine.is_full = true,
            Fault::StepFails(node, step) => self.daemons[node.0 as usize].machine.failures.push(step),
        }
    }

    fn pause(&mut self, place: Place, until: SimTime) {
        let paused = self.paused.entry(place).or_default();
        *paused = until.max(*paused);
    }

    fn end_fault(&mut self, index: usize) {
        let planned = self.ctx.plan.faults[index];
        match planned.fault {
            Fault::MasterDies | Fault::DaemonDies(_) | Fault::MasterPauses | Fault::DaemonPauses(_) => {}
            Fault::NodeCutOff { node, .. } => self.ctx.unblock(Place::Head, Place::Node(node)),
            Fault::NodesCutOff { from, to } => self.ctx.unblock(Place::Node(from), Place::Node(to)),
            Fault::Slow { node, .. } => drop(self.ctx.slowness.remove(&node)),
            Fault::DiskFull(node) => self.daemons[node.0 as usize].machine.is_full = false,
            Fault::StepFails(node, _) => self.daemons[node.0 as usize].machine.failures.clear(),
        }
    }
}
