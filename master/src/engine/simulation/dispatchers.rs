//! The dispatchers of a master of the simulation, one for each job, as `dispatcher::Dispatcher` runs them.

use std::collections::{BTreeSet, VecDeque};

use coswitch_dispatcher::{
    app::{self, App, Timeouts},
    deadline::Deadline,
    protocol::Report,
    ways,
};
use coswitch_policies::{JobId, NodeId};

use super::{
    context::{Context, Event},
    head::{Head, Master},
    plan::millis,
    settings,
};

/// As in `dispatcher::sessions`.
const LIVES_EACH: u32 = 1 << 10;
pub(super) const TIMEOUTS: Timeouts = Timeouts {
    launch: millis(6_000),
    cut: millis(6_000),
    dump: millis(10_000),
    restore: millis(20_000),
    resume: millis(6_000),
    release: millis(10_000),
    away: Some(millis(2_000)),
};

/// To a dispatcher.
pub(super) enum Note {
    Input(app::Input),
    Silent(NodeId),
    Heard(NodeId),
}

pub(super) struct Dispatcher {
    app: App,
    inbox: VecDeque<Note>,
    deadline: Deadline,
    pub(super) nodes: BTreeSet<NodeId>,
}

impl Head {
    pub(super) fn on_deadline(&mut self, ctx: &mut Context, job: JobId) {
        let Some(master) = &mut self.master else { return };
        let Some(dispatcher) = master.dispatchers.get_mut(&job) else { return };
        let are_heard = |since| master.ways.are_heard(dispatcher.app.nodes(), since);
        if dispatcher.deadline.has_passed(ctx.instant(), are_heard) {
            ctx.say(|| format!("the time-out of {job} has passed"));
            master.give(ctx, job, app::Input::TimedOut);
        } else {
            master.mind_deadline(ctx, job);
        }
    }
}

impl Master {
    /// As `Sessions::next_life`.
    pub(super) fn next_life(&mut self) -> u32 {
        self.lives += LIVES_EACH;
        self.lives - LIVES_EACH
    }

    /// As `Sessions::register` and `Dispatcher::run` do.
    pub(super) fn start(&mut self, ctx: &mut Context, job: JobId, app: App, first: app::Input) {
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

    pub(super) fn note(&mut self, ctx: &mut Context, job: JobId, note: Note) {
        if let Some(dispatcher) = self.dispatchers.get_mut(&job) {
            dispatcher.inbox.push_back(note);
            ctx.soon(1, 30, Event::Note(self.generation, job));
        }
    }

    pub(super) fn note_all(&mut self, ctx: &mut Context, note: impl Fn() -> Note) {
        let jobs: Vec<JobId> = self.dispatchers.keys().copied().collect();
        jobs.into_iter().for_each(|job| self.note(ctx, job, note()));
    }

    pub(super) fn read_note(&mut self, ctx: &mut Context, job: JobId) {
        let Some(dispatcher) = self.dispatchers.get_mut(&job) else { return };
        match dispatcher.inbox.pop_front() {
            None => {}
            Some(Note::Input(input)) => self.give(ctx, job, input),
            Some(Note::Silent(node)) if dispatcher.nodes.contains(&node) => {
                dispatcher.deadline.on_silent(node);
            }
            Some(Note::Silent(_)) => {}
            Some(Note::Heard(node)) => {
                dispatcher.deadline.on_heard(ctx.instant(), node);
                self.mind_deadline(ctx, job);
            }
        }
    }

    fn give(&mut self, ctx: &mut Context, job: JobId, input: app::Input) {
        let Some(dispatcher) = self.dispatchers.get_mut(&job) else { return };
        let mut outputs = dispatcher.app.on(input).into_iter().peekable();
        while let Some(output) = outputs.next() {
            let Some(dispatcher) = self.dispatchers.get_mut(&job) else { return };
            match output {
                app::Output::Ask(node, request) => {
                    let nodes = ways::asked_as_well(node, &request, &mut outputs);
                    self.ask(ctx, &nodes, job, &request);
                }
                app::Output::Tell(report) => {
                    settings::say_report(ctx, job, &report);
                    if let Report::Ended(outcome) = &report {
                        ctx.audit.on_ended(job, outcome);
                    }
                    self.reports.push_back((job, report));
                    ctx.soon(1, 30, Event::Report(self.generation));
                }
                app::Output::Send => unreachable!("all nodes of the simulation see the programs"),
                app::Output::Arm(limit) => dispatcher.deadline.arm(ctx.instant(), limit),
                app::Output::Settled | app::Output::Paused { .. } | app::Output::NotPaused(_) => {
                    unreachable!("no daemon of the simulation is replaced");
                }
            }
        }
        let has_ended = self.dispatchers.get(&job).is_some_and(|dispatcher| dispatcher.app.has_ended());
        if has_ended {
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
