//! Failures, time-outs and lost nodes, and the end of the application.

use coswitch_daemon::protocol::{AppRequest, Failure, Puts, Step};
use coswitch_policies::NodeId;

use super::{App, DumpFailure, Nodes, Output, State};
use crate::protocol::{AppOutcome, Report, StayCause};

impl App {
    pub(super) fn on_failed(&mut self, node: NodeId, during: Step, failure: Failure) {
        let verb = match failure {
            Failure::StoreFull { .. } => "find room for it",
            _ => verb(during),
        };
        let reason = format!("{node} failed to {verb}: {failure}");
        let stay_cause = |reason: String| match failure {
            Failure::StoreFull { .. } => StayCause::StoreFull { reason },
            Failure::Ending => StayCause::Ending,
            Failure::Other { .. } => StayCause::Failed { reason },
        };
        match (during, &self.state) {
            (Step::Release, _) => self.on_release_failed(node, reason),
            (_, State::Idle | State::Adopting { .. } | State::Clearing { .. }) => {}
            (_, State::Ending { .. } | State::Ended) => {}
            (Step::Cut, State::Cutting { .. }) => self.abort_cut(stay_cause(reason)),
            // Another node has failed before, and it was taken back.
            (Step::Cut, State::Resuming { .. } | State::Running) => {}
            (Step::Dump, State::Dumping { .. } | State::Checkpointing { .. }) => {
                let dead = matches!(failure, Failure::Other { alive: false, .. });
                let failed = Some(DumpFailure { cause: stay_cause(reason), dead });
                match self.state {
                    State::Dumping { .. } => self.on_dump_answer(node, failed),
                    _ => self.on_checkpoint_answer(node, failed),
                }
            }
            (_, State::Away { .. }) => self.strand(reason),
            (Step::Restore, State::Restoring { .. } | State::Undoing { .. }) => {
                self.on_restore_answer(node, Some(reason));
            }
            _ => self.end(AppOutcome::Lost { reason }),
        }
    }

    /// A node has reached a fence of the PMI exchange. Too many keys and values end the application.
    pub(super) fn on_fence(&mut self, node: NodeId, sequence: u64, puts: Puts) {
        match self.fences.on_fence(node, sequence, puts) {
            Ok(answers) => {
                self.outputs.extend(answers.into_iter().map(|(node, request)| Output::Ask(node, request)));
            }
            Err(error) => self.end(AppOutcome::Lost { reason: error.to_string() }),
        }
    }

    /// A node has tried twice to remove everything, and will not try again.
    fn on_release_failed(&mut self, node: NodeId, reason: String) {
        match &mut self.state {
            State::Ending { waiting, .. } => {
                waiting.remove(&node);
                let what = format!("{reason}; that is left to its clean-up");
                self.tell(Report::Mended { what });
                self.on_released();
            }
            // It cannot be launched again beside what is left. The other nodes have been asked already.
            State::Clearing { waiting } => {
                waiting.remove(&node);
                let waiting = std::mem::take(waiting);
                self.next = None;
                self.state = State::Ending { waiting, outcome: AppOutcome::Lost { reason } };
                self.on_released();
            }
            // A part of an earlier launch, which has gone before this one.
            _ => {}
        }
    }

    pub(super) fn on_time_out(&mut self) {
        match &mut self.state {
            // No answer is outstanding.
            State::Idle
            | State::Running
            | State::Paused
            | State::Suspended
            | State::Parked
            | State::Ended => {}
            State::Stranded { waiting, .. } if waiting.is_empty() => {}
            State::Cutting { .. } => {
                self.abort_cut(StayCause::Failed { reason: "the network was not flushed in time".into() });
            }
            State::Away { why, .. } => {
                let why = format!("{why}; it has no other daemon yet");
                self.strand(why);
            }
            State::Ending { waiting, .. } => {
                // The master finds out by the heartbeats that such a daemon is lost.
                let names: Vec<_> = std::mem::take(waiting).iter().map(ToString::to_string).collect();
                let what = format!("no answer from {} at the end; left to its clean-up", names.join(", "));
                self.tell(Report::Mended { what });
                self.on_released();
            }
            state => {
                let reason = format!("no answer in time while {}", doing(state));
                self.end(AppOutcome::Lost { reason });
            }
        }
    }

    pub(super) fn end(&mut self, outcome: AppOutcome) {
        if matches!(self.state, State::Ending { .. } | State::Ended) {
            return;
        }
        let waiting = if matches!(self.state, State::Idle) { Nodes::new() } else { self.release(&outcome) };
        self.arm(self.timeouts.release);
        self.next = None;
        self.checkpoint = None;
        self.state = State::Ending { waiting, outcome };
        self.on_released();
    }

    fn release(&mut self, outcome: &AppOutcome) -> Nodes {
        self.release_moved(outcome);
        self.ask_all(&release(outcome))
    }

    pub(super) fn on_released(&mut self) {
        if let State::Ending { waiting, outcome } = &self.state
            && waiting.is_empty()
        {
            let outcome = outcome.clone();
            self.outputs.push(Output::Arm(None));
            self.drop_all_copies();
            self.state = State::Ended;
            self.tell(Report::Ended(outcome));
        }
    }
}

pub(super) fn release(outcome: &AppOutcome) -> AppRequest {
    let last_word = serde_json::to_string(outcome).expect("an outcome is plain data");
    AppRequest::Release { last_word: Some(last_word) }
}

fn verb(step: Step) -> &'static str {
    match step {
        Step::Launch => "launch it",
        Step::Cut => "cut it",
        Step::Dump => "dump it",
        Step::Restore => "restore it",
        Step::Discard => "end what it had restored",
        Step::Resume => "resume it",
        Step::Run => "keep it running",
        Step::Release => "remove all of it",
    }
}

fn doing(state: &State) -> &'static str {
    match state {
        State::Adopting { .. } => "asking what the nodes hold",
        State::Clearing { .. } => "removing what was launched in part",
        State::Sending => "sending its program",
        State::Launching { .. } => "launching",
        State::Dumping { .. } => "dumping",
        State::Checkpointing { .. } => "writing a checkpoint",
        State::Undoing { .. } => "undoing a failed switch",
        State::AwaitingSeal { .. } => "sealing the snapshot",
        State::Restoring { .. } => "restoring",
        State::Resuming { .. } => "resuming",
        State::Stranded { .. } => "ending what runs beside a lost node",
        _ => "waiting",
    }
}
