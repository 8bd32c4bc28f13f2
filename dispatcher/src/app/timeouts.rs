//! How long steps may take.

use std::time::Duration;

use coswitch_daemon::protocol::moving_time;
use coswitch_policies::{Bytes, NodeId};

use super::{App, Output, State};

/// How long each step may take on the slowest node. A daemon has shorter time-outs of its own; these guard
/// against a daemon that does not answer.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub launch: Duration,
    /// Freezing and flushing.
    pub cut: Duration,
    pub dump: Duration,
    /// The wait for the snapshot to be sealed included.
    pub restore: Duration,
    pub resume: Duration,
    pub release: Duration,
    /// How long the next daemon of a lost node is waited for, where processes outlive a daemon. `None`: they
    /// do not.
    pub away: Option<Duration>,
}

impl Timeouts {
    /// Of a cluster that stays.
    #[must_use]
    pub fn standing() -> Self {
        Self { away: Some(Duration::from_secs(10)), ..Self::default() }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            launch: seconds(70),
            cut: seconds(30),
            dump: seconds(330),
            restore: seconds(330),
            resume: seconds(20),
            release: seconds(30),
            away: None,
        }
    }
}

impl App {
    pub(super) fn arm(&mut self, limit: Duration) {
        self.arm_for(limit, Bytes(0));
    }

    /// The limit is for little memory; the time that the moving of so much memory takes is added.
    pub(super) fn arm_for(&mut self, limit: Duration, bytes: Bytes) {
        self.allowed_for = bytes;
        self.outputs.push(Output::Arm(Some(limit + moving_time(bytes))));
    }

    /// Arms the limit of nodes that were asked to go back. Each of them first ends its dump or restore, and
    /// seals what it has dumped: the memory moves twice.
    pub(super) fn arm_going_back(&mut self) {
        self.arm_for(self.timeouts.dump, self.image_bytes.times(2));
    }

    /// A node says how much memory it moves in its present step. If the application waits for this node, and
    /// the present limit is for less memory, the limit starts again with the time for this much.
    pub(super) fn allow_for(&mut self, node: NodeId, total: Bytes) {
        self.image_bytes = self.image_bytes.max(total);
        let (waiting, limit, bytes) = match &self.state {
            State::Dumping { waiting, .. } | State::Checkpointing { waiting, .. } => {
                (waiting, self.timeouts.dump, total)
            }
            State::Restoring { waiting, .. }
            | State::Undoing { restoring: waiting, .. }
            | State::Adopting { waiting, .. } => (waiting, self.timeouts.restore, total),
            // A snapshot that was dumped is sealed before the node answers; one that was fetched is compared.
            State::Stranded { waiting, .. } => (waiting, self.timeouts.dump, total.times(2)),
            _ => return,
        };
        if waiting.contains(&node) && bytes > self.allowed_for {
            self.arm_for(limit, bytes);
        }
    }
}
