//! Sessions of the head node with all daemons: carries requests to the nodes and events to the jobs'
//! dispatchers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use coswitch_daemon::{
    pki::Identity,
    protocol::{AppRequest, DaemonEvent, Member, Request},
    session::{self, SessionError},
};
use coswitch_policies::{JobId, NodeId};
use thiserror::Error;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::timeout,
};

use crate::{app::Input, protocol::NodeEvent, provisioning::Address};

/// For the daemons to connect to each other.
const JOIN_LIMIT: Duration = Duration::from_secs(15);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Why the daemons could not be connected.
#[derive(Debug, Error)]
pub enum ConnectError {
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
    inboxes: Arc<Mutex<Inboxes>>,
}

#[derive(Default)]
struct Inboxes {
    apps: BTreeMap<JobId, UnboundedSender<Input>>,
    /// For applications that start later, and why.
    lost: BTreeMap<NodeId, String>,
}

impl Sessions {
    /// Connects to all daemons and makes them connect to each other.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub async fn connect(
        addresses: &[Address],
        identity: &Identity,
        events: UnboundedSender<NodeEvent>,
    ) -> Result<Self, ConnectError> {
        let mut sessions = Self { requests: BTreeMap::new(), inboxes: Arc::default() };
        let mut joining = BTreeMap::new();
        for address in addresses {
            let node = address.node;
            let connected = session::connect(address.control, identity, CONNECT_LIMIT).await;
            let (_, stream) = connected.map_err(|source| ConnectError::Reach { node, source })?;
            let (to_daemon, outgoing) = unbounded_channel();
            let (incoming, from_daemon) = unbounded_channel();
            let (joined, answer) = unbounded_channel();
            let (inboxes, events) = (Arc::clone(&sessions.inboxes), events.clone());
            tokio::spawn(async move {
                let carried = session::carry(stream, outgoing, incoming, || Request::Alive);
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
            let _ = requests.send(Request::Join { members: members.clone() });
        }
        for (node, mut answer) in joining {
            let failed = |reason: &str| ConnectError::Join { node, reason: reason.into() };
            match timeout(JOIN_LIMIT, answer.recv()).await {
                Ok(Some(Ok(()))) => {}
                Ok(Some(Err(reason))) => return Err(failed(&reason)),
                Ok(None) => return Err(failed("its daemon ended")),
                Err(_) => return Err(failed("no answer in time")),
            }
        }
        Ok(sessions)
    }

    /// Sends the events of `job` to `inbox` from now on.
    pub(crate) fn register(&self, job: JobId, inbox: UnboundedSender<Input>) {
        let mut inboxes = self.inboxes.lock().expect("no panic while holding it");
        for (node, reason) in &inboxes.lost {
            let _ = inbox.send(Input::NodeLost(*node, reason.clone()));
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
    mut from_daemon: UnboundedReceiver<DaemonEvent>,
    inboxes: &Mutex<Inboxes>,
    events: &UnboundedSender<NodeEvent>,
    joined: UnboundedSender<Result<(), String>>,
) {
    while let Some(event) = from_daemon.recv().await {
        match event {
            DaemonEvent::Welcome { .. } | DaemonEvent::Alive => {}
            DaemonEvent::Joined => drop(joined.send(Ok(()))),
            DaemonEvent::JoinFailed { reason } => drop(joined.send(Err(reason))),
            DaemonEvent::LinkLost { peer } => {
                lose(peer, &format!("{node} lost its link to it"), inboxes, events)
            }
            DaemonEvent::Memory(memory) => drop(events.send(NodeEvent::Memory { node, memory })),
            DaemonEvent::App { job, event } => {
                let inboxes = inboxes.lock().expect("no panic while holding it");
                if let Some(inbox) = inboxes.apps.get(&job) {
                    let _ = inbox.send(Input::Event(node, event));
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
    for inbox in inboxes.apps.values() {
        let _ = inbox.send(Input::NodeLost(node, reason.to_string()));
    }
    let _ = events.send(NodeEvent::Lost { node, reason: reason.to_string() });
}
