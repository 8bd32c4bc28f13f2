//! State machine of one application over all its nodes. Pure: it takes orders, daemons' events and time-outs,
//! and returns requests, reports and time-outs.
//!
//! ```text
//!   Idle ─Launch─▶ (Sending ─▶) Launching ─▶ Running                     ─▶ when all nodes have answered
//!
//!   Running ─Suspend, Park─▶ Cutting ┬Suspend─▶ Suspended
//!                               │    └Park────▶ Dumping ─▶ Parked
//!                               └failed, late, or a rank ended: abort ─▶ Resuming ─▶ Running
//!
//!   Suspended ┬Resume, Restore─▶ Resuming ─▶ Running
//!             └Park─▶ Dumping ─▶ Parked
//!                        └failed on some nodes─▶ Undoing ─▶ Running or Suspended, as before
//!
//!   Parked ─Prefetch, Restore─▶ AwaitingSeal ─▶ Restoring ┬Prefetch─▶ Suspended
//!                                                ▲     │  └Restore──▶ Resuming ─▶ Running
//!                                                └─────┘ failed on some nodes: discard, try once more,
//!                                                        then restore the snapshot before it
//!
//!   any ─End, a rank failed, or nothing else helps─▶ Ending ─▶ Ended
//!
//!   Adopting ─▶ the state that the nodes are in, or Clearing ─▶ Ended            after another master
//!
//!   Running ─(pause)─▶ Cutting ─▶ Paused ─▶ Resuming ─▶ Running                 while a daemon is replaced
//!
//!   Running ─Checkpoint─▶ Cutting ─▶ Checkpointing ─▶ Resuming ─▶ Running        the images are written
//!
//!   Running on one node, Suspended ─node lost─▶ Away ─its next daemon has the part─▶ as before
//!
//!   any, a node lost ┬snapshots─▶ Stranded ─all nodes are back─▶ Parked
//!                    └none──────▶ Clearing ─▶ Ended                            to be launched again
//! ```
//! A cut is one line through all nodes. A node whose dump fails still has its ranks frozen on that line, and
//! a node whose dump succeeded can restore its images of the same line: so a failed switch is undone. The
//! ranks run only when the restore is complete on every node: a gang never runs in part. Where a dump loses
//! ranks, or the last snapshot cannot be restored, the application goes back to the snapshot before it and
//! repeats the work since then.
//!
//! A suspended application is in memory on one line: frozen since the cut, or restored from a snapshot of it
//! and not run since. A node that has an image of that line already parks it again without writing: it ends
//! the processes.
//!
//! An order that does not fit the state in which the application rests is answered by that state. An order
//! that comes while another is under way waits for that one's answer; a later order replaces it.
//! [`Order::End`] never waits.

mod adopt;
mod away;
mod checkpoint;
mod come_back;
mod copies;
mod end;
mod launch;
mod leave;
mod lost;
mod moving;
mod pause;
mod snapshots;
mod timeouts;

use std::{collections::BTreeSet, time::Duration};

use coswitch_daemon::protocol::{AppEvent, AppRequest, HeldCopy, SentProgram, Step};
use coswitch_policies::{Bytes, Epoch, NodeId, Residence};

use crate::{
    fence::Fences,
    protocol::{AppOutcome, Exit, LaunchSpec, Order, Park, Report, StayCause, StepDone, SwitchStep},
};
pub use adopt::Adoption;
use adopt::Holdings;
use checkpoint::Checkpoint;
use copies::Copies;
use moving::Moving;
use pause::Pause;
use snapshots::Snapshots;
pub use timeouts::Timeouts;

#[derive(Clone, Debug)]
pub enum Input {
    /// The first input of an application that an earlier master may have launched.
    Adopt,
    /// From the master.
    Order(Order),
    /// From a daemon.
    Event(NodeId, AppEvent),
    /// A node can no longer be reached; perhaps one that this application does not use.
    NodeLost(NodeId, String),
    /// A node that was lost has another daemon.
    NodeBack(NodeId),
    /// What the daemon of a node holds of other nodes' snapshots of this application; before `NodeBack`.
    HoldsCopies(NodeId, Vec<HeldCopy>),
    /// The part of a lost node is to go to another one, which has none; answered by [`Report::Moved`] or
    /// [`Report::NotMoved`].
    Move { from: NodeId, to: NodeId },
    /// The program of a launch is on its way: all nodes have more of it.
    MoreSent,
    /// It is there, or was not sent.
    Sent(Result<(SentProgram, Report), String>),
    /// The time-out armed last has run out.
    TimedOut,
    /// The daemon of a node will be replaced: take no further orders, and answer with [`Output::Settled`]
    /// when nothing is on its way.
    Settle,
    /// Stop the ranks; after that. Answered by [`Output::Paused`] or [`Output::NotPaused`].
    Pause,
    /// Go on, in whatever state of the replacement the application is.
    Continue,
}

#[derive(Clone, Debug)]
pub enum Output {
    /// To a daemon.
    Ask(NodeId, AppRequest),
    /// Sends the program to all nodes; answered by [`Input::Sent`].
    Send,
    /// To the master.
    Tell(Report),
    /// Arms the one time-out in place of the one before, or disarms it.
    Arm(Option<Duration>),
    /// See [`Input::Settle`].
    Settled,
    /// None of its ranks computes; whether they did before.
    Paused { ran: bool },
    /// Its ranks run on, for this reason.
    NotPaused(String),
}

type Nodes = BTreeSet<NodeId>;

/// `waiting` are the nodes that have not answered yet.
#[derive(Clone, Debug)]
enum State {
    Idle,
    /// Asks the nodes what they hold.
    Adopting {
        waiting: Nodes,
        held: Holdings,
        /// From nodes that have answered.
        later: Vec<(NodeId, AppEvent)>,
    },
    /// Removes what an earlier master has launched in part.
    Clearing {
        waiting: Nodes,
    },
    /// The program is on its way to the nodes.
    Sending,
    Launching {
        waiting: Nodes,
    },
    Running,
    /// Stopped at a complete cut; the master does not know.
    Paused,
    Cutting {
        waiting: Nodes,
        then: Then,
    },
    /// Stopped at a complete cut, while the nodes write images; the master does not know.
    Checkpointing {
        waiting: Nodes,
        failure: Option<DumpFailure>,
    },
    Suspended,
    /// `parked` nodes have succeeded.
    Dumping {
        waiting: Nodes,
        parked: Nodes,
        from: Residence,
        failure: Option<DumpFailure>,
    },
    /// Back to the line of the cut: `restoring` nodes restore the images that they have written.
    Undoing {
        restoring: Nodes,
        failure: Option<String>,
        back: Back,
    },
    Parked,
    /// Ordered to come back while snapshots were still being sealed.
    AwaitingSeal {
        back: Back,
    },
    /// `before`: why the first attempt failed.
    Restoring {
        waiting: Nodes,
        before: Option<String>,
        failure: Option<String>,
        back: Back,
    },
    /// `undone`: why the application runs although it was to leave.
    Resuming {
        waiting: Nodes,
        undone: Option<StayCause>,
    },
    /// The daemons of these nodes were lost; the processes may be whole. The master does not know.
    Away {
        /// Where it was.
        rest: Residence,
        missing: Nodes,
        why: String,
    },
    /// A node was lost: the others end their processes, and all wait until it is back.
    Stranded {
        waiting: Nodes,
        /// The master knows.
        told: bool,
        why: String,
    },
    Ending {
        waiting: Nodes,
        outcome: AppOutcome,
    },
    Ended,
}

/// What follows a complete cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Stay,
    Leave,
    /// The master does not know.
    Pause,
    /// As long as the nodes need for their images.
    Checkpoint,
}

/// The state that an application returns to; `undone`: why, although it was to be parked.
#[derive(Clone, Debug)]
struct Back {
    to: Residence,
    undone: Option<StayCause>,
}

/// Why a dump failed on one node or more.
#[derive(Clone, Debug)]
struct DumpFailure {
    /// Of the first node that failed, or of the first whose store was full.
    cause: StayCause,
    /// The ranks of some node are gone.
    dead: bool,
}

#[derive(Clone, Debug)]
pub struct App {
    launch: LaunchSpec,
    nodes: Nodes,
    /// Those of them that are lost.
    lost: Nodes,
    /// Nodes of which an adopted application does not know what they have sealed.
    unknown: Nodes,
    /// The number of the present life, see [`LaunchRequest::life`].
    life: u32,
    /// That of an adopted application, in which its nodes are until it begins another one.
    adopted_life: Option<u32>,
    timeouts: Timeouts,
    /// The present limit allows for the moving of so much memory.
    allowed_for: Bytes,
    state: State,
    /// The order that waits for the answer to the one before it.
    next: Option<Order>,
    /// Of the last cut, or of the snapshot that the application was restored from.
    epoch: Epoch,
    /// Cuts begun so far: the epoch of the last one.
    cuts: u64,
    snapshots: Snapshots,
    copies: Copies,
    moving: Option<Moving>,
    /// The size of the largest image, as far as known; while one is written, an estimate.
    image_bytes: Bytes,
    /// Nodes that have an image of `epoch`, sealed or not.
    imaged: Nodes,
    unsealed: Nodes,
    fences: Fences,
    /// Nodes on which all ranks have ended.
    exited: Nodes,
    /// An earlier master may have launched it.
    adoption: Option<Adoption>,
    pause: Pause,
    /// The present cut is for a pause, or for a checkpoint.
    is_unnoticed: bool,
    checkpoint: Option<Checkpoint>,
    /// It has gone back because a node was lost, and has not run since.
    went_back: bool,
    outputs: Vec<Output>,
}

impl App {
    #[must_use]
    pub fn new(launch: LaunchSpec, timeouts: Timeouts) -> Self {
        let nodes: Nodes = launch.placement.iter().copied().collect();
        Self {
            fences: Fences::new(nodes.clone()),
            snapshots: Snapshots::new(nodes.clone()),
            copies: Copies::new(launch.copies),
            moving: None,
            launch,
            nodes,
            lost: Nodes::new(),
            unknown: Nodes::new(),
            life: 1,
            adopted_life: None,
            timeouts,
            allowed_for: Bytes(0),
            state: State::Idle,
            next: None,
            epoch: Epoch(0),
            cuts: 0,
            image_bytes: Bytes(0),
            imaged: Nodes::new(),
            unsealed: Nodes::new(),
            exited: Nodes::new(),
            adoption: None,
            pause: Pause::None,
            is_unnoticed: false,
            checkpoint: None,
            went_back: false,
            outputs: Vec::new(),
        }
    }

    /// The application begins its first life here under this number. Its next ones have the numbers that
    /// follow: they must not be those of other launches of the same job.
    #[must_use]
    pub fn in_life(self, life: u32) -> Self {
        Self { life, ..self }
    }

    /// The nodes of its ranks.
    #[must_use]
    pub fn nodes(&self) -> &BTreeSet<NodeId> {
        &self.nodes
    }

    /// The same; `None` while the part of one of them is on its way to another node.
    pub(crate) fn settled_nodes(&self) -> Option<&BTreeSet<NodeId>> {
        self.moving.is_none().then_some(&self.nodes)
    }

    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    pub fn on(&mut self, input: Input) -> Vec<Output> {
        if self.has_ended() {
            return Vec::new();
        }
        match &input {
            Input::NodeLost(node, _) => self.copies.on_node_lost(*node),
            Input::NodeBack(node) => self.copies.on_node_back(*node),
            Input::Continue => self.copies.begin_again(),
            _ => {}
        }
        match input {
            Input::Adopt => self.ask_what_nodes_hold(),
            Input::Order(order) => self.on_order(order),
            // What a lost node has said before, and a node of an earlier launch.
            Input::Event(node, _) if self.lost.contains(&node) || !self.nodes.contains(&node) => {}
            Input::Event(node, event) => self.on_event(node, event),
            // All applications hear of a lost node, also those that do not use it.
            Input::NodeLost(node, reason) if self.nodes.contains(&node) && self.lost.insert(node) => {
                self.on_node_lost(node, &reason);
            }
            Input::NodeBack(node) if self.lost.remove(&node) => self.on_node_back(node),
            Input::NodeLost(..) | Input::NodeBack(_) => {}
            Input::Move { from, to } => self.on_move(from, to),
            Input::HoldsCopies(node, copies) => self.copies.on_held(node, copies),
            Input::MoreSent => self.on_more_sent(),
            Input::Sent(sent) => self.on_sent(sent),
            Input::TimedOut => self.on_time_out(),
            Input::Settle => self.on_settle(),
            Input::Pause => self.on_pause(),
            Input::Continue => self.on_continue(),
        }
        self.check_settled();
        self.copy_newest();
        std::mem::take(&mut self.outputs)
    }

    /// Asks all nodes that are not lost.
    fn ask_all(&mut self, request: &AppRequest) -> Nodes {
        let nodes: Nodes = self.nodes.difference(&self.lost).copied().collect();
        self.ask(&nodes, request);
        nodes
    }

    fn ask(&mut self, nodes: &Nodes, request: &AppRequest) {
        self.outputs.extend(nodes.iter().map(|node| Output::Ask(*node, request.clone())));
    }

    fn tell(&mut self, report: Report) {
        self.outputs.push(Output::Tell(report));
    }

    fn on_order(&mut self, order: Order) {
        match (order, &self.state) {
            // The end, of which the master will hear, has overtaken the order.
            (_, State::Ending { .. } | State::Ended) => {}
            (Order::End, _) => self.end(AppOutcome::Stopped),
            (Order::Checkpoint, _) => self.begin_checkpoint(),
            _ if self.is_held() => self.next = Some(order),
            (Order::Launch, State::Idle) => self.begin_launch(),
            (Order::Suspend | Order::Park, State::Running) if !self.exited.is_empty() => {
                self.tell(Report::StillRunning { cause: StayCause::Ending });
            }
            (Order::Suspend, State::Running) => self.cut(Then::Stay),
            (Order::Park, State::Running) => self.cut(Then::Leave),
            (Order::Park, State::Suspended) if !self.exited.is_empty() => {
                self.tell(Report::StillSuspended { cause: StayCause::Ending });
            }
            (Order::Park, State::Suspended) => self.dump(Residence::Suspended),
            (Order::Resume | Order::Restore, State::Suspended) => self.resume(None),
            (Order::Prefetch, State::Parked) => {
                self.come_back(Back { to: Residence::Suspended, undone: None })
            }
            (Order::Restore, State::Parked) => self.come_back(Back { to: Residence::Running, undone: None }),
            (_, State::Stranded { waiting, .. }) if waiting.is_empty() => self.tell(Report::Parked),
            (_, State::Running) => self.tell(Report::Running),
            (_, State::Suspended) => self.tell(Report::Suspended),
            (_, State::Parked) => self.tell(Report::Parked),
            _ => self.next = Some(order),
        }
    }

    fn on_event(&mut self, node: NodeId, event: AppEvent) {
        let Some(event) = self.on_copy_event(node, event) else { return };
        // In any state: nodes that are adopted, or go back, come to the end of their step first.
        if let AppEvent::Progress { total, .. } = event {
            self.allow_for(node, total);
        }
        match event {
            AppEvent::Holds(holding) if matches!(self.state, State::Away { .. }) => {
                self.on_survivor(node, &holding);
            }
            AppEvent::Holds(holding) => self.on_holds(node, *holding),
            event if matches!(self.state, State::Adopting { .. }) => self.on_early_event(node, event),
            AppEvent::WentBack { life, sealed } => self.on_went_back(node, life, sealed),
            event if self.is_void(node, &event) => {}
            AppEvent::Launched => {
                if let State::Launching { waiting } = &mut self.state {
                    waiting.remove(&node);
                    if waiting.is_empty() {
                        self.rest(State::Running, Report::Running);
                    }
                }
            }
            AppEvent::Fence { sequence, puts } => {
                self.on_fence(node, sequence, puts);
            }
            AppEvent::Flushed { epoch, freeze, flush, drained } if epoch == self.epoch => {
                self.step_done(node, SwitchStep::Freeze, freeze, Bytes(0));
                self.step_done(node, SwitchStep::Flush, flush, drained);
                self.on_flushed(node);
            }
            AppEvent::Dumped { epoch, bytes, dump, release } if epoch == self.epoch => {
                self.step_done(node, SwitchStep::Dump, dump, bytes);
                self.step_done(node, SwitchStep::Release, release, Bytes(0));
                if self.launch.park == Park::Criu {
                    self.image_bytes = self.image_bytes.max(bytes);
                    self.imaged.insert(node);
                    self.unsealed.insert(node);
                }
                self.on_dump_answer(node, None);
            }
            AppEvent::Discarded => self.on_dump_answer(node, None),
            AppEvent::Checkpointed { epoch, bytes } if epoch == self.epoch => {
                self.image_bytes = self.image_bytes.max(bytes);
                self.on_checkpoint_written(node, bytes);
            }
            AppEvent::Sealed { epoch, seal, tier, bytes, sealed } => {
                if !self.is_of_checkpoint(epoch) {
                    self.step_done(node, SwitchStep::Seal, seal, Bytes(0));
                }
                // Each node has a directory of its own below the one that the user has named.
                let root = tier.parent().map_or_else(|| tier.clone(), Into::into);
                self.tell(Report::Stored { node, root, bytes, epoch });
                self.image_bytes = self.image_bytes.max(bytes);
                self.snapshots.set(node, sealed);
                if epoch == self.epoch && self.unsealed.remove(&node) {
                    self.on_sealed();
                }
                self.on_checkpoint_sealed(node, epoch);
            }
            AppEvent::SealFailed { epoch, reason } if self.is_of_checkpoint(epoch) => {
                self.on_checkpoint_seal_failed(node, epoch, &reason);
            }
            AppEvent::SealFailed { epoch, reason } if epoch == self.epoch => {
                self.on_seal_failed(node, format!("{node} failed to make its snapshot durable: {reason}"));
            }
            AppEvent::Restored { epoch, bytes, restore } if epoch == self.epoch => {
                self.step_done(node, SwitchStep::Restore, restore, bytes);
                // Ranks that had ended after the snapshot are back.
                self.exited.remove(&node);
                self.on_restore_answer(node, None);
            }
            AppEvent::Resumed { epoch, thaw, stood_still } if epoch == self.epoch => {
                self.on_stood_still(stood_still);
                if let Some(thaw) = thaw {
                    self.step_done(node, SwitchStep::Thaw, thaw, Bytes(0));
                }
                self.on_resumed(node);
            }
            AppEvent::Released => match &mut self.state {
                State::Ending { waiting, .. } => {
                    waiting.remove(&node);
                    self.on_released();
                }
                State::Clearing { waiting } => {
                    waiting.remove(&node);
                    self.finish_clearing();
                }
                _ => {}
            },
            AppEvent::RankExited { exit: Exit::Status(0), .. } => {}
            // The first one is the cause: the daemons kill the others because of it.
            AppEvent::RankExited { rank, exit, last_output } => {
                self.end(AppOutcome::RankFailed { rank, exit, last_output });
            }
            AppEvent::Exited => {
                self.exited.insert(node);
                self.on_exited();
            }
            AppEvent::Progress { .. } if self.is_checkpointing() => {}
            AppEvent::Progress { step, bytes, total } => {
                let step = if step == Step::Restore { SwitchStep::Restore } else { SwitchStep::Dump };
                self.tell(Report::Progress { node, step, bytes, total });
            }
            AppEvent::Traffic(ranks) => self.tell(Report::Traffic { node, ranks }),
            AppEvent::Processed { group, used } => self.tell(Report::Processed { node, group, used }),
            AppEvent::Scheduled(counted) => self.tell(Report::Scheduled { node, counted }),
            AppEvent::Failed { during, failure } => self.on_failed(node, during, failure),
            // Late answers to requests that were given up.
            _ => {}
        }
    }

    fn step_done(&mut self, node: NodeId, step: SwitchStep, took: Duration, bytes: Bytes) {
        if !self.is_checkpointing() {
            self.tell(Report::StepDone(StepDone { node, step, took, bytes }));
        }
    }

    /// The last order has been carried out; the one that has waited for that is next.
    fn rest(&mut self, state: State, report: Report) {
        self.outputs.push(Output::Arm(None));
        self.went_back &= !matches!(state, State::Running);
        self.state = state;
        self.tell(report);
        self.on_exited();
        if let Some(order) = self.next.take() {
            self.on_order(order);
        }
    }

    /// The application has succeeded when the ranks of all nodes have ended with status 0.
    fn on_exited(&mut self) {
        if matches!(self.state, State::Running | State::Cutting { .. }) && self.exited == self.nodes {
            self.end(AppOutcome::Succeeded);
        } else if matches!(self.state, State::Cutting { .. }) && !self.exited.is_empty() {
            self.abort_cut(StayCause::Ending);
        }
    }
}

#[cfg(test)]
mod tests;
