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
        self.allowed_for = Bytes(0);
        self.outputs.push(Output::Arm(Some(limit)));
    }

    /// A node that is waited for has told that it moves so much memory in the present step. The limit is for
    /// little memory, and begins anew with the time that this takes in addition.
    pub(super) fn allow_for(&mut self, node: NodeId, total: Bytes) {
        let (waiting, limit) = match &self.state {
            State::Dumping { waiting, .. } | State::Checkpointing { waiting, .. } => {
                (waiting, self.timeouts.dump)
            }
            State::Restoring { waiting, .. } | State::Undoing { restoring: waiting, .. } => {
                (waiting, self.timeouts.restore)
            }
            _ => return,
        };
        if waiting.contains(&node) && total > self.allowed_for {
            self.arm(limit + moving_time(total));
            self.allowed_for = total;
        }
    }
}
