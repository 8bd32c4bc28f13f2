//! One dispatcher per application: launches it, drives its cut, dump, park and restore, and reports to the
//! master.
//!
//! [`app`] decides (pure); this file is the shell around it: a task that feeds it orders, daemons' events and
//! time-outs and carries out its outputs. [`provisioning`] starts the
//! daemons, and all dispatchers share the [`sessions`] with them.

pub mod app;
mod fence;
pub mod protocol;
pub mod provisioning;
pub mod sessions;

use coswitch_policies::JobId;
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{Instant, sleep_until},
};
use tracing::{Instrument, debug, debug_span};

use crate::{
    app::{App, Input, Output, Timeouts},
    protocol::{LaunchSpec, Order, Report},
    sessions::Sessions,
};

/// Handle of a dispatcher's task, which ends after [`Report::Ended`].
#[derive(Clone, Debug)]
pub struct Dispatcher {
    inputs: UnboundedSender<Input>,
}

impl Dispatcher {
    /// Starts the dispatcher of `job`; it sends its reports to `reports`, each with the job's number.
    #[must_use]
    pub fn start(
        job: JobId,
        launch: LaunchSpec,
        timeouts: Timeouts,
        sessions: Sessions,
        reports: UnboundedSender<(JobId, Report)>,
    ) -> Self {
        let (inputs, mut inbox) = unbounded_channel();
        sessions.register(job, inputs.clone());
        let mut app = App::new(launch, timeouts);
        let task = async move {
            let mut deadline: Option<Instant> = None;
            while !app.has_ended() {
                let timer = sleep_until(deadline.unwrap_or_else(|| Instant::now() + timeouts.dump));
                let input = tokio::select! {
                    input = inbox.recv() => match input { Some(input) => input, None => break },
                    () = timer, if deadline.is_some() => { deadline = None; Input::TimedOut }
                };
                debug!(?input);
                for output in app.on(input) {
                    debug!(?output);
                    match output {
                        Output::Ask(node, request) => sessions.ask(node, job, request),
                        Output::Tell(report) => drop(reports.send((job, report))),
                        Output::Arm(limit) => deadline = limit.map(|limit| Instant::now() + limit),
                    }
                }
            }
            sessions.forget(job);
        };
        tokio::spawn(task.instrument(debug_span!("dispatcher", %job)));
        Self { inputs }
    }

    /// The answer is a report; an application that has ended gives none.
    pub fn order(&self, order: Order) {
        let _ = self.inputs.send(Input::Order(order));
    }
}
