//! The life of one application, pure: orders, daemons' events and time-outs in; requests, reports and time-outs out.
//!
//! ```text
//!   Idle ─Launch─▶ Launching ─all launched─▶ Running ─Park─▶ Cutting ─all flushed─▶ Dumping ─all dumped─▶ Parked
//!                                             ▲  ▲             │ failed, late,        │ failed on some     │
//!                                  all resumed│  └─all resumed─┤ or a rank ended      ▼                  Restore
//!                                             │            Undoing ◀──────────────── (their images         │
//!                                         Resuming             ▲                      or processes remain) ▼
//!                                             ▲                                                        Restoring
//!                                             └────────────── all restored ────────────────────────────┤  ▲
//!                                                                                 failed on some: discard,│  │
//!                                                                                 then try once more     └──┘
//!   any ─End, a rank failed, or nothing else helps─▶ Ending ─all released─▶ Ended
//! ```
//! A cut is one line through all nodes. A node whose dump fails still has its ranks frozen on that line, and a node
//! whose dump succeeded can restore its images of the same line: so a failed switch is undone, not lost. A restore
//! is let run only when it is complete on every node: never a half-restored gang. Where the last snapshot cannot be
//! restored at all, the one before it is, and the work since then is repeated.

use std::{collections::BTreeSet, time::Duration};

use coswitch_daemon::protocol::{AppEvent, AppRequest, Exit, LaunchRequest, SNAPSHOTS_KEPT, Step};
use coswitch_policies::{Epoch, NodeId};

use crate::{
    fence::Fences,
    protocol::{Order, Outcome, Phase, PhaseKind, Report},
};

/// What the dispatcher hears.
#[derive(Clone, Debug)]
pub enum Input {
    /// From the master.
    Order(Order),
    /// From a daemon.
    Event(NodeId, AppEvent),
    /// A node can no longer be reached, of this application or not.
    NodeLost(NodeId, String),
    /// The time-out armed last has run out.
    TimedOut,
}

/// What the dispatcher does.
#[derive(Clone, Debug)]
pub enum Output {
    /// Ask a daemon.
    Ask(NodeId, AppRequest),
    /// Tell the master.
    Tell(Report),
    /// Arm the one time-out, or disarm it. A new one replaces the old.
    Arm(Option<Duration>),
}

/// How long each step may take on the slowest node. A daemon has time-outs of its own for what it does; these are
/// longer and guard against a daemon that does not answer.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Starting the ranks.
    pub launch: Duration,
    /// Freezing and flushing.
    pub cut: Duration,
    /// Writing images.
    pub dump: Duration,
    /// Reading images, the wait for the snapshot to be sealed included.
    pub restore: Duration,
    /// Letting ranks run.
    pub resume: Duration,
    /// Removing everything.
    pub release: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            launch: seconds(30),
            cut: seconds(30),
            dump: seconds(330),
            restore: seconds(330),
            resume: seconds(20),
            release: seconds(30),
        }
    }
}

type Nodes = BTreeSet<NodeId>;

/// Where the application stands; `waiting` are the nodes that have not answered yet.
#[derive(Clone, Debug)]
enum State {
    Idle,
    Launching {
        waiting: Nodes,
    },
    Running,
    Cutting {
        waiting: Nodes,
    },
    Dumping {
        waiting: Nodes,
        parked: Nodes,
        failure: Option<String>,
    },
    /// Back to the line of the cut: `restoring` nodes bring their images back, then all resume.
    Undoing {
        restoring: Nodes,
        reason: String,
    },
    Parked,
    /// Ordered to restore while snapshots were still being sealed.
    AwaitingSeal,
    Restoring {
        waiting: Nodes,
        attempt: u32,
        failure: Option<String>,
    },
    /// `undone`: why the switch was undone, if this ends one.
    Resuming {
        waiting: Nodes,
        undone: Option<String>,
    },
    Ending {
        waiting: Nodes,
        outcome: Outcome,
    },
    Ended,
}

/// Attempts at a restore before the application is given up.
const RESTORE_ATTEMPTS: u32 = 2;

/// One application.
#[derive(Clone, Debug)]
pub struct App {
    launch: LaunchRequest,
    nodes: Nodes,
    limits: Limits,
    state: State,
    /// Of the cut under way, or of the snapshot that the application was parked into or came back from.
    epoch: Epoch,
    /// Cuts begun so far: each has a number of its own.
    cuts: u64,
    /// The snapshots that nodes still have, sealed on all of them, without those that turned out not to be restorable.
    sealed: BTreeSet<Epoch>,
    unsealed: Nodes,
    fences: Fences,
    /// Nodes on which all ranks have ended.
    exited: Nodes,
    outputs: Vec<Output>,
}

impl App {
    /// An application that has not been started.
    #[must_use]
    pub fn new(launch: LaunchRequest, limits: Limits) -> Self {
        let nodes: Nodes = launch.placement.iter().copied().collect();
        Self {
            fences: Fences::new(nodes.clone()),
            launch,
            nodes,
            limits,
            state: State::Idle,
            epoch: Epoch(0),
            cuts: 0,
            sealed: BTreeSet::new(),
            unsealed: Nodes::new(),
            exited: Nodes::new(),
            outputs: Vec::new(),
        }
    }

    /// Whether nothing more will happen.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Takes what happened and says what to do about it.
    pub fn on(&mut self, input: Input) -> Vec<Output> {
        if self.has_ended() {
            return Vec::new();
        }
        match input {
            Input::Order(order) => self.on_order(order),
            Input::Event(node, event) => self.on_event(node, event),
            // The loss of a node is told to all applications; most of them may have nothing there.
            Input::NodeLost(node, reason) if self.nodes.remove(&node) => {
                let reason = format!("{node} was lost: {reason}");
                match &mut self.state {
                    State::Ending { waiting, .. } => {
                        waiting.remove(&node);
                        self.on_released();
                    }
                    _ => self.end(Outcome::Lost { reason }),
                }
            }
            Input::NodeLost(..) => {}
            Input::TimedOut => self.on_time_out(),
        }
        std::mem::take(&mut self.outputs)
    }

    fn ask_all(&mut self, request: &AppRequest) -> Nodes {
        let nodes = self.nodes.clone();
        self.ask(&nodes, request);
        nodes
    }

    fn ask(&mut self, nodes: &Nodes, request: &AppRequest) {
        self.outputs.extend(nodes.iter().map(|node| Output::Ask(*node, request.clone())));
    }

    fn tell(&mut self, report: Report) {
        self.outputs.push(Output::Tell(report));
    }

    fn arm(&mut self, limit: Duration) {
        self.outputs.push(Output::Arm(Some(limit)));
    }

    fn on_order(&mut self, order: Order) {
        match (order, &self.state) {
            (Order::Launch, State::Idle) => {
                let waiting = self.ask_all(&AppRequest::Launch(Box::new(self.launch.clone())));
                self.arm(self.limits.launch);
                self.state = State::Launching { waiting };
            }
            (Order::Park, State::Running) if self.exited.is_empty() => {
                self.cuts += 1;
                self.epoch = Epoch(self.cuts);
                let waiting = self.ask_all(&AppRequest::Cut(self.epoch));
                self.arm(self.limits.cut);
                self.state = State::Cutting { waiting };
            }
            (Order::Park, State::Running) => {
                self.tell(Report::StillRunning { reason: "its ranks are ending".into() });
            }
            (Order::Restore, State::Parked) if self.unsealed.is_empty() => self.restore(1),
            (Order::Restore, State::Parked) => {
                self.arm(self.limits.restore);
                self.state = State::AwaitingSeal;
            }
            (Order::End, State::Ending { .. } | State::Ended) => {}
            (Order::End, _) => self.end(Outcome::Stopped),
            // The order was overtaken by an end that the master is being told of; or it has been carried out already.
            _ => {}
        }
    }

    fn restore(&mut self, attempt: u32) {
        let waiting = self.ask_all(&AppRequest::Restore(self.epoch));
        self.arm(self.limits.restore);
        self.state = State::Restoring { waiting, attempt, failure: None };
    }

    fn on_event(&mut self, node: NodeId, event: AppEvent) {
        match event {
            AppEvent::Launched => {
                if let State::Launching { waiting } = &mut self.state {
                    waiting.remove(&node);
                    if waiting.is_empty() {
                        self.run();
                    }
                }
            }
            AppEvent::Fence { sequence, puts } => {
                let answers = self.fences.on_fence(node, sequence, puts);
                self.outputs.extend(answers.into_iter().map(|(node, request)| Output::Ask(node, request)));
            }
            AppEvent::Flushed { epoch, freeze, flush, drained } if epoch == self.epoch => {
                self.phase(node, PhaseKind::Freeze, freeze, 0);
                self.phase(node, PhaseKind::Flush, flush, drained.0);
                self.on_flushed(node);
            }
            AppEvent::Dumped { epoch, bytes, dump, release } if epoch == self.epoch => {
                self.phase(node, PhaseKind::Dump, dump, bytes.0);
                self.phase(node, PhaseKind::Release, release, 0);
                self.unsealed.insert(node);
                self.on_dump_answer(node, None);
            }
            AppEvent::Sealed { epoch, seal } if epoch == self.epoch => {
                self.phase(node, PhaseKind::Seal, seal, 0);
                if self.unsealed.remove(&node) && self.unsealed.is_empty() {
                    self.sealed.insert(epoch);
                    // The store keeps no more.
                    while self.sealed.len() > SNAPSHOTS_KEPT {
                        self.sealed.pop_first();
                    }
                }
                self.on_sealed();
            }
            AppEvent::Restored { epoch, bytes, restore } if epoch == self.epoch => {
                self.phase(node, PhaseKind::Restore, restore, bytes.0);
                self.on_restore_answer(node, None);
            }
            AppEvent::Resumed { epoch, thaw } if epoch == self.epoch => {
                if let Some(thaw) = thaw {
                    self.phase(node, PhaseKind::Thaw, thaw, 0);
                }
                self.on_resumed(node);
            }
            AppEvent::Released => {
                if let State::Ending { waiting, .. } = &mut self.state {
                    waiting.remove(&node);
                    self.on_released();
                }
            }
            AppEvent::RankExited { exit: Exit::Status(0), .. } => {}
            // The first one counts: the others are killed because of it.
            AppEvent::RankExited { rank, exit, last_output } => {
                self.end(Outcome::RankFailed { rank, exit, last_output });
            }
            AppEvent::Exited => {
                self.exited.insert(node);
                self.on_exited();
            }
            AppEvent::Progress { step, bytes, total } => {
                let kind = if step == Step::Restore { PhaseKind::Restore } else { PhaseKind::Dump };
                self.tell(Report::Progress { node, kind, bytes, total });
            }
            AppEvent::Traffic(ranks) => self.tell(Report::Traffic { node, ranks }),
            AppEvent::Failed { during, reason, alive } => self.on_failed(node, during, reason, alive),
            // Answers to what has been given up since.
            _ => {}
        }
    }

    fn phase(&mut self, node: NodeId, kind: PhaseKind, took: Duration, bytes: u64) {
        let bytes = coswitch_policies::Bytes(bytes);
        self.tell(Report::Phase(Phase { node, kind, took, bytes }));
    }

    fn run(&mut self) {
        self.outputs.push(Output::Arm(None));
        self.state = State::Running;
        self.tell(Report::Running);
        self.on_exited();
    }

    fn on_flushed(&mut self, node: NodeId) {
        let State::Cutting { waiting } = &mut self.state else { return };
        waiting.remove(&node);
        if !waiting.is_empty() {
            return;
        }
        if self.exited.is_empty() {
            let waiting = self.ask_all(&AppRequest::Dump(self.epoch));
            self.arm(self.limits.dump);
            self.state = State::Dumping { waiting, parked: Nodes::new(), failure: None };
        } else {
            // Some ranks ended before the cut reached them: the others are about to, and a gang is never split.
            self.give_cut_up("its ranks are ending".into());
        }
    }

    fn give_cut_up(&mut self, reason: String) {
        let waiting = self.ask_all(&AppRequest::AbortCut(self.epoch));
        self.arm(self.limits.resume);
        self.state = State::Resuming { waiting, undone: Some(reason) };
    }

    fn on_dump_answer(&mut self, node: NodeId, failed: Option<String>) {
        let State::Dumping { waiting, parked, failure } = &mut self.state else { return };
        waiting.remove(&node);
        match failed {
            None => drop(parked.insert(node)),
            Some(reason) => drop(failure.get_or_insert(reason)),
        }
        if !waiting.is_empty() {
            return;
        }
        match (failure.take(), std::mem::take(parked)) {
            (None, _) => {
                self.outputs.push(Output::Arm(None));
                self.state = State::Parked;
                self.tell(Report::Parked);
            }
            (Some(reason), parked) => {
                self.state = State::Undoing { restoring: parked, reason };
                self.arm(self.limits.restore);
                self.on_sealed();
            }
        }
    }

    fn on_sealed(&mut self) {
        match &mut self.state {
            State::AwaitingSeal if self.unsealed.is_empty() => self.restore(1),
            State::Undoing { restoring, reason } if restoring.is_empty() => {
                let reason = std::mem::take(reason);
                self.resume(Some(reason));
            }
            State::Undoing { restoring, .. } if self.unsealed.is_empty() => {
                let nodes = restoring.clone();
                self.ask(&nodes, &AppRequest::Restore(self.epoch));
            }
            _ => {}
        }
    }

    fn on_restore_answer(&mut self, node: NodeId, failed: Option<String>) {
        match &mut self.state {
            State::Undoing { restoring, reason } => {
                if let Some(why) = failed {
                    let reason = format!("{reason}; and it could not be undone: {why}");
                    return self.end(Outcome::Lost { reason });
                }
                restoring.remove(&node);
                if restoring.is_empty() {
                    self.on_sealed();
                }
            }
            State::Restoring { waiting, attempt, failure } => {
                waiting.remove(&node);
                if let Some(reason) = failed {
                    failure.get_or_insert(reason);
                }
                if waiting.is_empty() {
                    let (attempt, failure) = (*attempt, failure.take());
                    self.on_restored(attempt, failure);
                }
            }
            _ => {}
        }
    }

    fn on_restored(&mut self, attempt: u32, failure: Option<String>) {
        match failure {
            None => self.resume(None),
            Some(reason) if attempt < RESTORE_ATTEMPTS => {
                self.ask_all(&AppRequest::Discard);
                self.tell(Report::Mended { what: format!("a restore failed and is tried again: {reason}") });
                self.restore(attempt + 1);
            }
            Some(reason) => self.fall_back(reason),
        }
    }

    /// The last snapshot is of no use on some node: the whole gang goes back to the one before it.
    fn fall_back(&mut self, reason: String) {
        self.sealed.remove(&self.epoch);
        let Some(older) = self.sealed.last().copied() else {
            return self.end(Outcome::Lost { reason: format!("it could not be restored: {reason}") });
        };
        self.ask_all(&AppRequest::Discard);
        let what = format!("a snapshot could not be restored, and the one before it is used: {reason}");
        self.tell(Report::Mended { what });
        self.epoch = older;
        self.restore(1);
    }

    fn resume(&mut self, undone: Option<String>) {
        let waiting = self.ask_all(&AppRequest::Resume(self.epoch));
        if self.epoch.0 < self.cuts {
            self.outputs.extend(self.fences.repeat().map(|(node, request)| Output::Ask(node, request)));
        }
        self.arm(self.limits.resume);
        self.state = State::Resuming { waiting, undone };
    }

    fn on_resumed(&mut self, node: NodeId) {
        let State::Resuming { waiting, undone } = &mut self.state else { return };
        waiting.remove(&node);
        if waiting.is_empty() {
            match undone.take() {
                None => self.run(),
                Some(reason) => {
                    self.outputs.push(Output::Arm(None));
                    self.state = State::Running;
                    self.tell(Report::StillRunning { reason });
                    self.on_exited();
                }
            }
        }
    }

    /// The application has succeeded when the ranks of all nodes have ended, and none of them badly.
    fn on_exited(&mut self) {
        if matches!(self.state, State::Running | State::Cutting { .. }) && self.exited == self.nodes {
            self.end(Outcome::Succeeded);
        } else if matches!(self.state, State::Cutting { .. }) {
            self.give_cut_up("its ranks are ending".into());
        }
    }

    fn on_failed(&mut self, node: NodeId, during: Step, reason: String, alive: bool) {
        let reason = format!("{node} failed to {}: {reason}", verb(during));
        match (during, &self.state) {
            (_, State::Idle | State::Ending { .. } | State::Ended) => {}
            (Step::Cut, State::Cutting { .. }) => self.give_cut_up(reason),
            (Step::Dump, State::Dumping { .. }) if alive => self.on_dump_answer(node, Some(reason)),
            (Step::Restore, State::Restoring { .. } | State::Undoing { .. }) => {
                self.on_restore_answer(node, Some(reason));
            }
            _ => self.end(Outcome::Lost { reason }),
        }
    }

    fn on_time_out(&mut self) {
        match &self.state {
            State::Cutting { .. } => self.give_cut_up("the network was not flushed in time".into()),
            State::Ending { waiting, .. } => {
                // A daemon that does not even release is lost; the master finds out by its heartbeats.
                let names: Vec<_> = waiting.iter().map(ToString::to_string).collect();
                let what = format!("no answer from {} at the end; left to its clean-up", names.join(", "));
                self.tell(Report::Mended { what });
                if let State::Ending { waiting, .. } = &mut self.state {
                    waiting.clear();
                }
                self.on_released();
            }
            State::Ended => {}
            state => {
                let reason = format!("no answer in time while {}", doing(state));
                self.end(Outcome::Lost { reason });
            }
        }
    }

    fn end(&mut self, outcome: Outcome) {
        if matches!(self.state, State::Ending { .. } | State::Ended) {
            return;
        }
        let waiting =
            if matches!(self.state, State::Idle) { Nodes::new() } else { self.ask_all(&AppRequest::Release) };
        self.arm(self.limits.release);
        self.state = State::Ending { waiting, outcome };
        self.on_released();
    }

    fn on_released(&mut self) {
        if let State::Ending { waiting, outcome } = &self.state
            && waiting.is_empty()
        {
            let outcome = outcome.clone();
            self.outputs.push(Output::Arm(None));
            self.state = State::Ended;
            self.tell(Report::Ended(outcome));
        }
    }
}

fn verb(step: Step) -> &'static str {
    match step {
        Step::Launch => "launch it",
        Step::Cut => "cut it",
        Step::Dump => "dump it",
        Step::Seal => "make its snapshot durable",
        Step::Restore => "restore it",
        Step::Discard => "end what it had restored",
        Step::Resume => "resume it",
        Step::Run => "keep it running",
    }
}

fn doing(state: &State) -> &'static str {
    match state {
        State::Launching { .. } => "launching",
        State::Dumping { .. } => "dumping",
        State::Undoing { .. } => "undoing a failed switch",
        State::AwaitingSeal => "sealing the snapshot",
        State::Restoring { .. } => "restoring",
        State::Resuming { .. } => "resuming",
        _ => "waiting",
    }
}

#[cfg(test)]
mod tests;
