//! One dispatcher per application: launches it, drives its cut, dump, park and restore, and reports upward.
//!
//! [`app`] decides (pure); this file is the shell around it: a task that feeds it orders, daemons' events and
//! time-outs and carries out what it says. [`nodes`] starts the daemons of virtual nodes,
//! [`cluster`] holds the sessions with the daemons that all dispatchers share.

pub mod app;
pub mod cluster;
mod fence;
pub mod nodes;
pub mod protocol;

use coswitch_policies::JobId;
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::{Instant, sleep_until},
};
use tracing::{Instrument, debug, debug_span};

use crate::{
    app::{App, Input, Output, Timeouts},
    cluster::Cluster,
    protocol::{LaunchSpec, Order, Report},
};

/// A running dispatcher. It ends by itself after [`Report::Ended`].
#[derive(Clone, Debug)]
pub struct Dispatcher {
    inputs: UnboundedSender<Input>,
}

impl Dispatcher {
    /// Starts the dispatcher of `job`; reports go to `reports`, each with the job it is about.
    #[must_use]
    pub fn start(
        job: JobId,
        launch: LaunchSpec,
        timeouts: Timeouts,
        cluster: Cluster,
        reports: UnboundedSender<(JobId, Report)>,
    ) -> Self {
        let (inputs, mut inbox) = unbounded_channel();
        cluster.register(job, inputs.clone());
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
                        Output::Ask(node, request) => cluster.ask(node, job, request),
                        Output::Tell(report) => drop(reports.send((job, report))),
                        Output::Arm(limit) => deadline = limit.map(|limit| Instant::now() + limit),
                    }
                }
            }
            cluster.forget(job);
        };
        tokio::spawn(task.instrument(debug_span!("dispatcher", %job)));
        Self { inputs }
    }

    /// Gives an order; the answer is a report. An application that has ended takes none.
    pub fn order(&self, order: Order) {
        let _ = self.inputs.send(Input::Order(order));
    }
}
