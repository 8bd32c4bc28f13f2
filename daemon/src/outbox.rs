//! Events on their way to the master that the daemon follows.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use tokio::sync::mpsc::UnboundedSender;

use crate::{
    answers::{Said, Saying, Way},
    multicast::Subject,
    protocol::DaemonEvent,
    tag::TagKey,
};

/// Goes to the session of the moment. Without one, events are dropped: a new master asks what the node
/// holds.
#[derive(Clone, Debug)]
pub struct Outbox {
    state: Arc<Mutex<State>>,
    /// What goes up the tree of daemons.
    to_tree: UnboundedSender<Said>,
}

#[derive(Debug)]
struct State {
    session: Option<UnboundedSender<DaemonEvent>>,
    saying: Saying,
}

impl State {
    fn by_session(&self, said: Vec<Said>) {
        if let Some(session) = self.session.as_ref().filter(|_| !said.is_empty()) {
            let _ = session.send(DaemonEvent::Said(said));
        }
    }
}

impl Outbox {
    pub(crate) fn new(saying: Saying, to_tree: UnboundedSender<Said>) -> Self {
        Self { state: Arc::new(Mutex::new(State { session: None, saying })), to_tree }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while holding it")
    }

    pub fn send(&self, event: DaemonEvent) {
        let mut state = self.state();
        if state.session.is_none() {
            return;
        }
        match state.saying.say(Instant::now(), event) {
            Way::Session(said) => state.by_session(vec![said]),
            Way::Tree(said) => {
                // Nothing gathers answers in a daemon that ends.
                if let Err(unsent) = self.to_tree.send(said) {
                    state.by_session(vec![unsent.0]);
                }
            }
        }
    }

    /// A heartbeat, besides those of the session.
    pub(crate) fn beat(&self, heard: u64) {
        if let Some(session) = &self.state().session {
            let _ = session.send(DaemonEvent::Alive { heard });
        }
    }

    /// What other daemons say as well.
    pub(crate) fn pass(&self, said: Vec<Said>) {
        self.state().by_session(said);
    }

    /// See [`Saying::on_asked`].
    pub(crate) fn on_asked(&self, subject: Subject) {
        self.state().saying.on_asked(subject);
    }

    /// Of the session of the moment.
    pub(crate) fn set_key(&self, key: TagKey) {
        self.state().saying.set_key(key);
    }

    pub(crate) fn key(&self) -> Option<TagKey> {
        self.state().saying.key().cloned()
    }

    /// The master has heard all up to this number.
    pub(crate) fn on_heard(&self, heard: u64) {
        let mut state = self.state();
        let again = state.saying.on_heard(Instant::now(), heard);
        state.by_session(again);
    }

    /// The tree leads nowhere, or the daemon is about to be replaced: all goes by the session.
    pub(crate) fn leave_tree(&self) {
        let mut state = self.state();
        let again = state.saying.close();
        state.by_session(again);
    }

    /// From now on events go to `session`, or nowhere. The session before it ends when its events are sent.
    pub(crate) fn direct(&self, session: Option<UnboundedSender<DaemonEvent>>) {
        let mut state = self.state();
        state.saying.begin();
        state.session = session;
    }
}
