//! One dispatcher per application: launches it, drives its cut, dump, park and restore, and reports to the
//! master.
//!
//! [`app`] decides (pure); this file is the shell around it: a task that feeds it orders, daemons' events and
//! time-outs and carries out its outputs. [`provisioning`] starts the
//! daemons, and all dispatchers share the [`sessions`] with them.

pub mod app;
pub mod deadline;
mod fence;
pub mod protocol;
pub mod provisioning;
pub mod sessions;
pub mod watch;
pub mod ways;

use std::time::Instant;

use coswitch_policies::{JobId, NodeId};
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::sleep_until,
};
use tracing::{Instrument, debug, debug_span};

use crate::{
    app::{Adoption, App, Input, Output, Timeouts},
    deadline::Deadline,
    protocol::{LaunchSpec, Order, Report},
    sessions::{Sessions, programs, replace::Hold},
};

/// A message to the task of a dispatcher.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    Input(Input),
    /// Nothing is heard of a node; perhaps one that the application does not use.
    Silent(NodeId),
    /// The node is heard again.
    Heard(NodeId),
}

/// Handle of a dispatcher's task, which ends after [`Report::Ended`].
#[derive(Clone, Debug)]
pub struct Dispatcher {
    notes: UnboundedSender<Note>,
}

impl Dispatcher {
    /// Starts the dispatcher of `job`, which is to be launched; it sends its reports to `reports`, each with
    /// the job's number.
    #[must_use]
    pub fn start(
        job: JobId,
        launch: LaunchSpec,
        timeouts: Timeouts,
        sessions: Sessions,
        reports: UnboundedSender<(JobId, Report)>,
    ) -> Self {
        let app = App::new(launch, timeouts).in_life(sessions.next_life());
        let dispatcher = Self::run(job, app, timeouts, sessions, reports);
        dispatcher.order(Order::Launch);
        dispatcher
    }

    /// Starts the dispatcher of a job that an earlier master may have launched. Its first report says where
    /// the job is.
    #[must_use]
    pub fn adopt(
        job: JobId,
        launch: LaunchSpec,
        adoption: Adoption,
        timeouts: Timeouts,
        sessions: Sessions,
        reports: UnboundedSender<(JobId, Report)>,
    ) -> Self {
        let app = App::adopted(launch, timeouts, adoption).in_life(sessions.next_life());
        let dispatcher = Self::run(job, app, timeouts, sessions, reports);
        let _ = dispatcher.notes.send(Note::Input(Input::Adopt));
        dispatcher
    }

    fn run(
        job: JobId,
        mut app: App,
        timeouts: Timeouts,
        sessions: Sessions,
        reports: UnboundedSender<(JobId, Report)>,
    ) -> Self {
        let (notes, mut inbox) = unbounded_channel();
        let mut nodes = app.nodes().clone();
        sessions.register(job, nodes.clone(), notes.clone());
        let own = notes.downgrade();
        let task = async move {
            let mut deadline = Deadline::default();
            // Dropped, it sends no more.
            let mut sending = None;
            while !app.has_ended() {
                let due = deadline.due();
                let timer = sleep_until(due.unwrap_or_else(|| Instant::now() + timeouts.dump).into());
                let note = tokio::select! {
                    note = inbox.recv() => match note { Some(note) => note, None => break },
                    () = timer, if due.is_some() => {
                        let are_heard = |since| sessions.are_heard(app.nodes(), since);
                        match deadline.has_passed(Instant::now(), are_heard) {
                            true => Note::Input(Input::TimedOut),
                            false => continue,
                        }
                    }
                };
                let input = match note {
                    Note::Input(input) => input,
                    Note::Silent(node) => {
                        if nodes.contains(&node) {
                            deadline.on_silent(node);
                        }
                        continue;
                    }
                    Note::Heard(node) => {
                        deadline.on_heard(Instant::now(), node);
                        continue;
                    }
                };
                debug!(?input);
                let mut outputs = app.on(input).into_iter().peekable();
                while let Some(output) = outputs.next() {
                    debug!(?output);
                    match output {
                        Output::Ask(node, request) => {
                            let nodes = ways::asked_as_well(node, &request, &mut outputs);
                            sessions.ask(&nodes, job, &request);
                        }
                        Output::Send => sending = Some(programs::send(&sessions, app.parcel(job), &own)),
                        Output::Tell(report) => drop(reports.send((job, report))),
                        Output::Arm(limit) => deadline.arm(Instant::now(), limit),
                        Output::Settled => sessions.on_hold(job, Hold::Settled),
                        Output::Paused { ran } => sessions.on_hold(job, Hold::Paused { ran }),
                        Output::NotPaused(reason) => sessions.on_hold(job, Hold::Refused(reason)),
                    }
                }
                sending.take_if(|_| !app.is_sending());
                if app.settled_nodes().is_some_and(|settled| *settled != nodes) {
                    nodes.clone_from(app.nodes());
                    sessions.place(job, &nodes);
                }
            }
            sessions.forget(job);
        };
        tokio::spawn(task.instrument(debug_span!("dispatcher", %job)));
        Self { notes }
    }

    /// Has the part of a lost node move to another one. The answer is a report.
    pub fn move_part(&self, from: NodeId, to: NodeId) {
        let _ = self.notes.send(Note::Input(Input::Move { from, to }));
    }

    /// The answer is a report; an application that has ended gives none.
    pub fn order(&self, order: Order) {
        let _ = self.notes.send(Note::Input(Input::Order(order)));
    }
}
