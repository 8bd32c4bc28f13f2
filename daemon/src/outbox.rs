//! Events on their way to the master that the daemon follows.

use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::UnboundedSender;

use crate::protocol::DaemonEvent;

/// Goes to the session of the moment. Without one, events are dropped: a new master asks what the node
/// holds.
#[derive(Clone, Debug, Default)]
pub struct Outbox(Arc<Mutex<Option<UnboundedSender<DaemonEvent>>>>);

impl Outbox {
    pub fn send(&self, event: DaemonEvent) {
        if let Some(session) = &*self.0.lock().expect("no panic while holding it") {
            let _ = session.send(event);
        }
    }

    /// From now on events go to `session`, or nowhere. The session before it ends when its events are sent.
    pub(crate) fn direct(&self, session: Option<UnboundedSender<DaemonEvent>>) {
        *self.0.lock().expect("no panic while holding it") = session;
    }
}
