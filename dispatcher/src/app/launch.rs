//! The launch: the program is sent to the nodes where they do not see it, then the ranks are started.

use std::path::PathBuf;

use coswitch_daemon::protocol::{AppRequest, LaunchRequest, SentProgram};
use coswitch_policies::JobId;

use super::{App, Output, State};
use crate::{
    protocol::{AppOutcome, Delivery, LaunchSpec, Report},
    sessions::programs::Parcel,
};

impl App {
    /// The application is idle.
    pub(super) fn begin_launch(&mut self) {
        self.copies.on_launch(self.life);
        if self.launch.delivery == Delivery::Shared {
            return self.start_ranks(None);
        }
        self.outputs.push(Output::Send);
        self.state = State::Sending;
    }

    fn start_ranks(&mut self, program: Option<SentProgram>) {
        let launch = LaunchRequest { life: self.life, program, ..self.launch.clone().into() };
        let waiting = self.ask_all(&AppRequest::Launch(Box::new(launch)));
        self.arm(self.timeouts.launch);
        self.state = State::Launching { waiting };
    }

    /// What is to be sent where.
    pub(crate) fn parcel(&self, job: JobId) -> Parcel {
        let path = self.launch.command.first().map(PathBuf::from).unwrap_or_default();
        let LaunchSpec { placement, user, .. } = &self.launch;
        Parcel { job, path, placement: placement.clone(), life: self.life, user: user.clone() }
    }

    /// Whether the program is on its way: [`Output::Send`] is void otherwise.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        matches!(self.state, State::Sending)
    }

    /// All nodes have taken more of the program, or it is its turn to be sent. While others are sent it may
    /// wait for any time.
    pub(super) fn on_more_sent(&mut self) {
        if self.is_sending() {
            self.arm(self.timeouts.launch);
        }
    }

    pub(super) fn on_sent(&mut self, sent: Result<(SentProgram, Report), String>) {
        if !self.is_sending() {
            return;
        }
        match sent {
            Ok((program, report)) => {
                self.tell(report);
                self.start_ranks(Some(program));
            }
            Err(reason) => self.end(AppOutcome::Lost { reason }),
        }
    }
}

impl From<LaunchSpec> for LaunchRequest {
    fn from(spec: LaunchSpec) -> Self {
        let LaunchSpec {
            name, placement, command, env, cwd, umask, user, memory, output, wait, park, ..
        } = spec;
        let (life, program) = (0, None);
        Self { name, placement, command, env, cwd, umask, user, memory, output, wait, park, life, program }
    }
}
