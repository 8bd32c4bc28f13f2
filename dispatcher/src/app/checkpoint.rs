//! Checkpoint: a snapshot of an application that computes, and goes on.
//!
//! ```text
//!   Running ─Checkpoint─▶ Cutting ─▶ Checkpointing ─▶ Resuming ─▶ Running ─all sealed─▶ Checkpointed
//!                            │            │                          │
//!                            └── failed ──┴── some node failed ──────┴──▶ NotCheckpointed; it computes on
//! ```
//! For the master the application runs all the time, and its orders wait. The snapshot counts when all nodes
//! have sealed it; where one cannot, the others drop theirs, so that each still keeps the snapshot before it.

use std::time::Duration;

use coswitch_daemon::protocol::AppRequest;
use coswitch_policies::{Bytes, Epoch, NodeId, Residence};

use super::{App, Back, DumpFailure, Nodes, Pause, State, Then};
use crate::protocol::{Park, Report, StayCause};

/// A checkpoint that is not sealed on all nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoint {
    epoch: Epoch,
    /// Nodes that have written their images, and those of them that have not sealed them.
    written: Nodes,
    unsealed: Nodes,
    bytes: Bytes,
    /// The longest time that ranks of a node were frozen.
    stood_still: Duration,
    /// The application computes again.
    runs: bool,
}

impl App {
    pub(super) fn begin_checkpoint(&mut self) {
        let refused = match &self.state {
            _ if self.launch.park == Park::PageOut => "it parks by page-out",
            _ if self.pause != Pause::None => "a daemon is being replaced",
            State::Running if !self.exited.is_empty() => {
                return self.tell(Report::NotCheckpointed { cause: StayCause::Ending });
            }
            State::Running if self.checkpoint.is_some() => "the one before it is being sealed",
            State::Running => {
                self.is_unnoticed = true;
                self.cut(Then::Checkpoint);
                self.checkpoint = Some(Checkpoint { epoch: self.epoch, ..Checkpoint::default() });
                return;
            }
            _ => "it does not run",
        };
        let cause = StayCause::Failed { reason: refused.into() };
        self.tell(Report::NotCheckpointed { cause });
    }

    /// All ranks are frozen on one line.
    pub(super) fn write_checkpoint(&mut self) {
        let waiting = self.ask_all(&AppRequest::Checkpoint(self.epoch));
        self.arm(self.timeouts.dump);
        self.state = State::Checkpointing { waiting, failure: None };
    }

    pub(super) fn on_checkpoint_written(&mut self, node: NodeId, bytes: Bytes) {
        if let State::Checkpointing { waiting, .. } = &self.state
            && waiting.contains(&node)
            && let Some(checkpoint) = &mut self.checkpoint
        {
            checkpoint.written.insert(node);
            checkpoint.unsealed.insert(node);
            checkpoint.bytes = checkpoint.bytes.saturating_add(bytes);
            self.on_checkpoint_answer(node, None);
        }
    }

    pub(super) fn on_checkpoint_answer(&mut self, node: NodeId, failed: Option<DumpFailure>) {
        let State::Checkpointing { waiting, failure } = &mut self.state else { return };
        waiting.remove(&node);
        if let Some(failed) = failed {
            DumpFailure::note(failure, failed);
        }
        if !waiting.is_empty() {
            return;
        }
        let Some(DumpFailure { cause, dead }) = failure.take() else { return self.resume(None) };
        self.give_checkpoint_up(cause.clone());
        match dead {
            false => self.resume(None),
            true if self.snapshots.newest().is_some() => {
                self.fall_back(cause.to_string(), Back { to: Residence::Running, undone: None });
                self.tell(Report::WentBack { epoch: self.epoch, why: cause.to_string() });
            }
            true => {
                self.is_unnoticed = false;
                self.clear(&cause.to_string());
            }
        }
    }

    /// A node could not make its part of the checkpoint, or not make it durable.
    pub(super) fn give_checkpoint_up(&mut self, cause: StayCause) {
        let Some(Checkpoint { epoch, written, .. }) = self.checkpoint.take() else { return };
        self.snapshots.drop_epoch(epoch);
        let there: Nodes = written.difference(&self.lost).copied().collect();
        self.ask(&there, &AppRequest::DropSnapshot(epoch));
        self.tell(Report::NotCheckpointed { cause });
    }

    pub(super) fn on_checkpoint_seal_failed(&mut self, node: NodeId, epoch: Epoch, reason: &str) {
        let Some(checkpoint) = self.checkpoint.as_mut().filter(|checkpoint| checkpoint.epoch == epoch) else {
            return;
        };
        checkpoint.written.remove(&node);
        let reason = format!("{node} failed to make its snapshot durable: {reason}");
        let cause = StayCause::Failed { reason };
        match &mut self.state {
            // Another node is still writing.
            State::Checkpointing { failure, .. } => {
                DumpFailure::note(failure, DumpFailure { cause, dead: false });
            }
            _ => self.give_checkpoint_up(cause),
        }
    }

    pub(super) fn on_checkpoint_sealed(&mut self, node: NodeId, epoch: Epoch) {
        if let Some(checkpoint) = self.checkpoint.as_mut().filter(|checkpoint| checkpoint.epoch == epoch) {
            checkpoint.unsealed.remove(&node);
            self.finish_checkpoint();
        }
    }

    /// Ranks of a node have run on after so long.
    pub(super) fn on_stood_still(&mut self, time: Duration) {
        if let Some(checkpoint) = self.checkpoint.as_mut().filter(|checkpoint| !checkpoint.runs) {
            checkpoint.stood_still = checkpoint.stood_still.max(time);
        }
    }

    /// All ranks run again.
    pub(super) fn on_checkpoint_over(&mut self) {
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.runs = true;
            self.finish_checkpoint();
        }
    }

    fn finish_checkpoint(&mut self) {
        let Some(checkpoint) = &self.checkpoint else { return };
        if !(checkpoint.runs && checkpoint.unsealed.is_empty() && checkpoint.written == self.nodes) {
            return;
        }
        let Checkpoint { epoch, bytes, stood_still, .. } = checkpoint.clone();
        self.checkpoint = None;
        self.tell(Report::Checkpointed { epoch, bytes, stood_still });
    }

    /// Whether the application stands still for a checkpoint: its steps are those of no switch.
    pub(super) fn is_checkpointing(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|checkpoint| !checkpoint.runs)
    }

    pub(super) fn is_of_checkpoint(&self, epoch: Epoch) -> bool {
        self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.epoch == epoch)
    }

    /// Whether the node is sealing its part of a checkpoint of this epoch.
    pub(super) fn is_sealing_checkpoint(&self, node: NodeId, epoch: Epoch) -> bool {
        self.is_of_checkpoint(epoch)
            && self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.unsealed.contains(&node))
    }

    /// An earlier master has ordered a checkpoint, which some of these nodes are still sealing.
    pub(super) fn adopt_checkpoint(&mut self, unsealed: Nodes) {
        let (epoch, written) = (self.epoch, self.nodes.clone());
        self.checkpoint = Some(Checkpoint { epoch, written, unsealed, runs: true, ..Checkpoint::default() });
    }
}
