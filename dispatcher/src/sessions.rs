//! Sessions of the head node with all daemons: carries requests to the nodes and events to the jobs'
//! dispatchers, on a thread that does nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use coswitch_daemon::{
    pki::Identity,
    protocol::{AppRequest, DaemonEvent, Inventory, Member, Request},
    session::{self, Heard, SessionError, SessionThread, awake},
};
use coswitch_policies::{Allowance, JobId, NodeId};
use thiserror::Error;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{Note, app::Input, protocol::NodeEvent, provisioning::Address};

/// For the daemons to connect to each other.
const JOIN_LIMIT: Duration = Duration::from_secs(15);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Why the daemons could not be connected.
#[derive(Debug, Error)]
pub enum ConnectError {
    #[error("failed to start the thread of the sessions")]
    Thread(#[source] io::Error),
    #[error("failed to reach the daemon of {node}")]
    Reach { node: NodeId, source: SessionError },
    /// To the other daemons.
    #[error("{node} failed to join: {reason}")]
    Join { node: NodeId, reason: String },
}

/// All sessions; cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    requests: BTreeMap<NodeId, UnboundedSender<Request>>,
    /// Ends after the sessions, which end when the senders above have gone.
    _thread: SessionThread,
    inboxes: Arc<Mutex<Inboxes>>,
}

#[derive(Default)]
struct Inboxes {
    apps: BTreeMap<JobId, UnboundedSender<Note>>,
    /// Of nodes that have answered.
    inventories: BTreeMap<NodeId, Inventory>,
    /// For applications that start later, and why.
    lost: BTreeMap<NodeId, String>,
    /// Nodes that are not heard.
    silent: BTreeSet<NodeId>,
}

impl Inboxes {
    fn on_silent(&mut self, node: NodeId) {
        self.silent.insert(node);
        self.apps.values().for_each(|inbox| drop(inbox.send(Note::Silent(node))));
    }

    fn on_heard(&mut self, node: NodeId) {
        self.silent.remove(&node);
        self.apps.values().for_each(|inbox| drop(inbox.send(Note::Heard(node))));
    }
}

impl Sessions {
    /// Connects to all daemons, as the cluster's master of this generation, and makes them connect to each
    /// other. A daemon that is silent for `lost_after` is given up.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub async fn connect(
        addresses: &[Address],
        identity: &Identity,
        generation: u64,
        lost_after: Duration,
        events: UnboundedSender<NodeEvent>,
    ) -> Result<Self, ConnectError> {
        let thread = SessionThread::start().map_err(ConnectError::Thread)?;
        let mut sessions =
            Self { requests: BTreeMap::new(), _thread: thread.clone(), inboxes: Arc::default() };
        let mut joining = BTreeMap::new();
        for address in addresses {
            let node = address.node;
            let (control, identity) = (address.control, identity.clone());
            let connect =
                async move { session::connect(control, &identity, generation, CONNECT_LIMIT).await };
            let connected = thread.run(connect).await;
            let (_, stream) = connected.map_err(|source| ConnectError::Reach { node, source })?;
            let (to_daemon, outgoing) = unbounded_channel();
            let (incoming, from_daemon) = unbounded_channel();
            let (joined, answer) = unbounded_channel();
            let (inboxes, events) = (Arc::clone(&sessions.inboxes), events.clone());
            thread.spawn(async move {
                let carried = session::carry(stream, outgoing, incoming, || Request::Alive, lost_after);
                let routed = route(node, from_daemon, &inboxes, &events, joined);
                let (ended, ()) = tokio::join!(carried, routed);
                if let Err(error) = ended {
                    lose(node, &error.to_string(), &inboxes, &events);
                }
            });
            sessions.requests.insert(node, to_daemon);
            joining.insert(node, answer);
        }
        let members: Vec<Member> =
            addresses.iter().map(|address| Member { node: address.node, data: address.data }).collect();
        for requests in sessions.requests.values() {
            // The inventory is answered first.
            let _ = requests.send(Request::Inventory);
            let _ = requests.send(Request::Join { members: members.clone() });
        }
        for (node, mut answer) in joining {
            let failed = |reason: &str| ConnectError::Join { node, reason: reason.into() };
            match awake::timeout(JOIN_LIMIT, answer.recv()).await {
                Some(Some(Ok(()))) => {}
                Some(Some(Err(reason))) => return Err(failed(&reason)),
                Some(None) => return Err(failed("its daemon ended")),
                None => return Err(failed("no answer in time")),
            }
        }
        Ok(sessions)
    }

    /// What each node held when it was connected to.
    #[must_use]
    pub fn inventories(&self) -> BTreeMap<NodeId, Inventory> {
        self.inboxes.lock().expect("no panic while holding it").inventories.clone()
    }

    /// Sends the events of `job` to `inbox` from now on.
    pub(crate) fn register(&self, job: JobId, inbox: UnboundedSender<Note>) {
        let mut inboxes = self.inboxes.lock().expect("no panic while holding it");
        for (node, reason) in &inboxes.lost {
            let _ = inbox.send(Note::Input(Input::NodeLost(*node, reason.clone())));
        }
        for node in &inboxes.silent {
            let _ = inbox.send(Note::Silent(*node));
        }
        inboxes.apps.insert(job, inbox);
    }

    pub(crate) fn forget(&self, job: JobId) {
        self.inboxes.lock().expect("no panic while holding it").apps.remove(&job);
    }

    /// Sends a request about `job` to `node`. Applications know already where the node is lost.
    pub(crate) fn ask(&self, node: NodeId, job: JobId, request: AppRequest) {
        if let Some(requests) = self.requests.get(&node) {
            let _ = requests.send(Request::App { job, request });
        }
    }

    /// Says what the jobs of `node` may hold together; `None`: as much as there is.
    pub fn allow(&self, node: NodeId, allowance: Option<Allowance>) {
        if let Some(requests) = self.requests.get(&node) {
            let _ = requests.send(Request::Allow { allowance });
        }
    }

    /// Tells every daemon to end its applications and itself.
    pub fn shut_down(&self) {
        for requests in self.requests.values() {
            let _ = requests.send(Request::Shutdown);
        }
    }

    /// Nodes that cannot be reached any more.
    #[must_use]
    pub fn lost(&self) -> BTreeSet<NodeId> {
        self.inboxes.lock().expect("no panic while holding it").lost.keys().copied().collect()
    }
}

async fn route(
    node: NodeId,
    mut from_daemon: UnboundedReceiver<Heard<DaemonEvent>>,
    inboxes: &Mutex<Inboxes>,
    events: &UnboundedSender<NodeEvent>,
    joined: UnboundedSender<Result<(), String>>,
) {
    while let Some(heard) = from_daemon.recv().await {
        let event = match heard {
            Heard::Message(event) => event,
            Heard::Silence => {
                inboxes.lock().expect("no panic while holding it").on_silent(node);
                let _ = events.send(NodeEvent::Silent { node });
                continue;
            }
            Heard::Again(silence) => {
                inboxes.lock().expect("no panic while holding it").on_heard(node);
                let _ = events.send(NodeEvent::Heard { node, silence });
                continue;
            }
        };
        match event {
            DaemonEvent::Welcome { .. } | DaemonEvent::Refused { .. } | DaemonEvent::Alive => {}
            DaemonEvent::Inventory(inventory) => {
                inboxes.lock().expect("no panic while holding it").inventories.insert(node, inventory);
            }
            DaemonEvent::Joined => drop(joined.send(Ok(()))),
            DaemonEvent::JoinFailed { reason } => drop(joined.send(Err(reason))),
            DaemonEvent::LinkLost { peer } => {
                lose(peer, &format!("{node} lost its link to it"), inboxes, events)
            }
            DaemonEvent::StoodStill(stood_still) => {
                let _ = events.send(NodeEvent::StoodStill { node, stood_still });
            }
            DaemonEvent::Allowed { exceeded } => {
                let _ = events.send(NodeEvent::Allowed { node, exceeded });
            }
            DaemonEvent::Memory(memory) => drop(events.send(NodeEvent::Memory { node, memory })),
            DaemonEvent::App { job, event } => {
                let inboxes = inboxes.lock().expect("no panic while holding it");
                if let Some(inbox) = inboxes.apps.get(&job) {
                    let _ = inbox.send(Note::Input(Input::Event(node, event)));
                }
            }
        }
    }
}

/// Tells every application and the master, once for each node.
fn lose(node: NodeId, reason: &str, inboxes: &Mutex<Inboxes>, events: &UnboundedSender<NodeEvent>) {
    let mut inboxes = inboxes.lock().expect("no panic while holding it");
    if inboxes.lost.insert(node, reason.to_string()).is_some() {
        return;
    }
    // The master hears of it before the applications do, whose ends follow.
    let _ = events.send(NodeEvent::Lost { node, reason: reason.to_string() });
    // No longer waited for.
    inboxes.on_heard(node);
    for inbox in inboxes.apps.values() {
        let _ = inbox.send(Note::Input(Input::NodeLost(node, reason.to_string())));
    }
}
