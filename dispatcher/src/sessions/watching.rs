//! One question to all nodes in each period, by the tree of daemons: [`crate::watch`] decides.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use coswitch_daemon::{protocol::HEARTBEAT, session::awake};
use coswitch_policies::NodeId;
use tokio::time::{MissedTickBehavior, interval};

use super::{Outgoing, Sessions};
use crate::watch::ANSWER_LIMIT;

impl Sessions {
    /// The nodes that have answered the last question: their sessions have few heartbeats.
    #[must_use]
    pub fn resting(&self) -> BTreeSet<NodeId> {
        self.outgoing().watch.resting()
    }

    /// On the thread of the sessions, and until they have ended.
    pub(super) fn watch(&self) {
        let outgoing = Arc::downgrade(&self.outgoing);
        self.thread.spawn(async move {
            let mut period = interval(HEARTBEAT);
            period.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                period.tick().await;
                if !act(&outgoing, Outgoing::ask_all) {
                    return;
                }
                pause(ANSWER_LIMIT).await;
                if !act(&outgoing, Outgoing::end_question) {
                    return;
                }
            }
        });
    }
}

/// Whether the sessions are still there.
fn act(outgoing: &Weak<Mutex<Outgoing>>, step: impl FnOnce(&mut Outgoing)) -> bool {
    let Some(outgoing) = outgoing.upgrade() else { return false };
    step(&mut outgoing.lock().expect("no panic while holding it"));
    true
}

/// In which this process runs: answers that lie unread after it has stood still are read first.
async fn pause(limit: Duration) {
    let _ = awake::timeout(limit, std::future::pending::<()>()).await;
}
