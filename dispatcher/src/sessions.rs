//! Sessions of the head node with all daemons: carries requests to the nodes and events to the jobs'
//! dispatchers, on a thread that does nothing else.

mod connecting;
mod outgoing;
mod primitives;
pub(crate) mod programs;
pub mod replace;
mod strobes;
mod watching;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use coswitch_daemon::{
    pki::Identity,
    protocol::{AppRequest, Asked, DaemonEvent, HeldCopy, Inventory, Member, Request, Said},
    session::{self, Heard, SessionError, SessionThread},
};
use coswitch_policies::{Allowance, Epoch, JobId, NodeId, primitives::Operations};
use thiserror::Error;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::warn;

pub use self::primitives::CompareAndWrite;
use self::{connecting::joined, outgoing::Outgoing, replace::Replacement};
use crate::{
    Note,
    app::Input,
    protocol::NodeEvent,
    provisioning::Address,
    watch::Heartbeats,
    ways::{Sent, Ways},
};

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Numbers for the lives of one application, from its launch to its end under one master.
const LIVES_EACH: u32 = 64;

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
    outgoing: Arc<Mutex<Outgoing>>,
    /// Ends after the sessions, which end when the senders above have gone.
    thread: SessionThread,
    inboxes: Arc<Mutex<Inboxes>>,
    master: Arc<Master>,
    /// One node after the other joins again, once it is connected.
    joining: Arc<tokio::sync::Mutex<()>>,
    /// One daemon after the other is replaced.
    replacing: Arc<tokio::sync::Mutex<()>>,
    /// One program after the other is sent.
    launching: Arc<tokio::sync::Mutex<()>>,
}

/// Who the daemons hear.
struct Master {
    identity: Identity,
    generation: u64,
    lost_after: Duration,
    events: UnboundedSender<NodeEvent>,
    lives: AtomicU32,
}

#[derive(Default)]
struct Inboxes {
    apps: BTreeMap<JobId, App>,
    /// Of nodes that have answered.
    inventories: BTreeMap<NodeId, Inventory>,
    /// The daemon of each node, and where it listens; also of lost nodes.
    members: BTreeMap<NodeId, Member>,
    /// Who waits until a node has joined.
    joining: BTreeMap<NodeId, UnboundedSender<Result<(), String>>>,
    /// For applications that start later, and why.
    lost: BTreeMap<NodeId, String>,
    /// Lost nodes whose new daemon is lost as well.
    lost_again: BTreeMap<NodeId, String>,
    /// Nodes that are not heard.
    silent: BTreeSet<NodeId>,
    /// The daemon that is being replaced, if there is one.
    replacement: Option<Replacement>,
}

struct App {
    nodes: BTreeSet<NodeId>,
    inbox: UnboundedSender<Note>,
}

impl Inboxes {
    fn tell_apps(&self, note: &Note) {
        self.apps.values().for_each(|app| drop(app.inbox.send(note.clone())));
    }

    fn on_silent(&mut self, node: NodeId) {
        self.silent.insert(node);
        self.tell_apps(&Note::Silent(node));
    }

    fn on_heard(&mut self, node: NodeId) {
        self.silent.remove(&node);
        self.tell_apps(&Note::Heard(node));
    }

    /// What a node has said that it holds of other nodes' snapshots of the application.
    fn copies_on(&self, node: NodeId, job: JobId) -> Vec<HeldCopy> {
        let copies = self.inventories.get(&node).into_iter().flat_map(|inventory| &inventory.copies);
        copies.filter(|(of, _)| *of == job).map(|(_, copy)| copy.clone()).collect()
    }

    fn fail_if_lost_again(&mut self, node: NodeId) -> Result<(), ConnectError> {
        let reason = self.lost_again.remove(&node);
        reason.map_or(Ok(()), |reason| Err(ConnectError::Join { node, reason }))
    }

    /// The members that are not lost.
    fn living(&self) -> Vec<Member> {
        self.members.values().filter(|member| !self.lost.contains_key(&member.node)).copied().collect()
    }
}

impl Sessions {
    /// Connects to all daemons, as the cluster's master of this generation, and makes them connect to each
    /// other. A daemon that is silent for `lost_after` is given up; `heartbeats` says how it is heard. Nodes
    /// that are `absent` have none, for the reason given: they count as lost. So do nodes that do not answer
    /// a later master than the first, unless no node answers it.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub async fn connect(
        addresses: &[Address],
        absent: &[(NodeId, String)],
        identity: &Identity,
        generation: u64,
        (lost_after, heartbeats): (Duration, Heartbeats),
        events: UnboundedSender<NodeEvent>,
    ) -> Result<Self, ConnectError> {
        let thread = SessionThread::start().map_err(ConnectError::Thread)?;
        // Lives of different masters are apart, and so are those of different launches.
        let lives = AtomicU32::new(u32::try_from(generation & 0xfff).unwrap_or_default() << 20 | 1);
        let master = Master { identity: identity.clone(), generation, lost_after, events, lives };
        let sessions = Self {
            outgoing: Arc::new(Mutex::new(Outgoing::new(generation))),
            thread,
            inboxes: Arc::default(),
            master: Arc::new(master),
            joining: Arc::default(),
            replacing: Arc::default(),
            launching: Arc::default(),
        };
        for (node, reason) in absent {
            sessions.routing().lose(*node, None, reason);
        }
        // The first node that does not answer.
        let mut silence = None;
        for (node, begun) in sessions.begin_all(addresses).await {
            if let Err(error) = begun {
                silence.get_or_insert(sessions.lose_if_silent(node, error)?);
            }
        }
        let members = sessions.inboxes().living();
        if generation > 1 {
            // A node lets go of links to daemons that were replaced before their successors connect to it.
            for member in &members {
                if let Err(error) = sessions.join(member.node, &members).await {
                    silence.get_or_insert(sessions.lose_if_silent(member.node, error)?);
                }
            }
        } else {
            let answers: Vec<_> = members
                .iter()
                .map(|member| (member.node, sessions.ask_to_join(member.node, &members)))
                .collect();
            for (node, answer) in answers {
                joined(node, answer).await?;
            }
        }
        let is_any_left = !sessions.inboxes().living().is_empty();
        if let Some(error) = silence.filter(|_| !is_any_left) {
            return Err(error);
        }
        members.iter().for_each(|member| sessions.let_pass_on(member.node));
        sessions.outgoing().by_operations(Operations::on_all_known);
        if heartbeats == Heartbeats::Tree {
            sessions.watch();
        }
        Ok(sessions)
    }

    fn inboxes(&self) -> MutexGuard<'_, Inboxes> {
        self.inboxes.lock().expect("no panic while holding it")
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().expect("no panic while holding it")
    }

    fn routing(&self) -> Routing {
        let (inboxes, outgoing) = (Arc::clone(&self.inboxes), Arc::clone(&self.outgoing));
        Routing { inboxes, outgoing, events: self.master.events.clone() }
    }

    /// Sends a request that is about no application.
    fn tell(&self, node: NodeId, request: Request) {
        self.outgoing().send(vec![(node, request)]);
    }

    /// Begins the session with a daemon, and asks what its node holds.
    async fn begin(&self, address: &Address) -> Result<(), ConnectError> {
        let (to_daemon, outgoing) = unbounded_channel();
        // Answered first.
        let _ = to_daemon.send(Request::Inventory);
        self.begin_with(address, outgoing).await?;
        let mut outgoing = self.outgoing();
        let _ = to_daemon.send(outgoing.ways.begin(address.node));
        outgoing.requests.insert(address.node, to_daemon);
        Ok(())
    }

    /// The same, with what the daemon is going to be asked.
    async fn begin_with(
        &self,
        address: &Address,
        outgoing: UnboundedReceiver<Request>,
    ) -> Result<(), ConnectError> {
        let Address { node, control, data } = *address;
        let master = Arc::clone(&self.master);
        let (identity, generation) = (master.identity.clone(), master.generation);
        let connect =
            async move { session::connect((node, control), &identity, generation, CONNECT_LIMIT).await };
        let connected = self.thread.run(connect).await;
        let (incarnation, stream) = connected.map_err(|source| ConnectError::Reach { node, source })?;
        let (incoming, from_daemon) = unbounded_channel();
        {
            let mut inboxes = self.inboxes();
            inboxes.members.insert(node, Member { node, incarnation, data });
            self.outgoing().listen(node);
            inboxes.lost_again.remove(&node);
            inboxes.inventories.remove(&node);
        }
        let (routing, beating) = (self.routing(), Arc::clone(&self.outgoing));
        let alive = move || beating.lock().expect("no panic while holding it").beat(node);
        self.thread.spawn(async move {
            let carried = session::carry(stream, outgoing, incoming, alive, master.lost_after);
            let routed = routing.route(node, incarnation, from_daemon);
            let (ended, ()) = tokio::join!(carried, routed);
            let hands_over = replace::on_session_end(node, incarnation, &routing.inboxes);
            if let Err(error) = ended
                && !hands_over
            {
                routing.lose(node, Some(incarnation), &error.to_string());
            }
        });
        Ok(())
    }

    /// A daemon that knows the others may pass requests on to them, and its memory is part of the global one.
    fn let_pass_on(&self, node: NodeId) {
        let inboxes = self.inboxes();
        if let Some(member) = inboxes.members.get(&node).filter(|_| !inboxes.lost.contains_key(&node)) {
            self.outgoing().open(*member);
        }
    }

    /// Connects to the new daemon of a node that was lost. When [`NodeEvent::Back`] is told, it has links to
    /// the others, and the applications know.
    ///
    /// # Errors
    /// [`ConnectError`]; the node is as lost as before.
    pub async fn connect_again(&self, address: &Address) -> Result<(), ConnectError> {
        let node = address.node;
        self.begin(address).await?;
        let _one_at_a_time = self.joining.lock().await;
        self.inboxes().fail_if_lost_again(node)?;
        let members: Vec<Member> = {
            let inboxes = self.inboxes();
            let back = inboxes.members.get(&node).copied();
            inboxes.living().into_iter().chain(back).collect()
        };
        // The others first: they let go of their links to the daemon before.
        for member in members.iter().filter(|member| member.node != node) {
            match self.join(member.node, &members).await {
                Err(error) if !self.inboxes().lost.contains_key(&member.node) => return Err(error),
                // One that is lost meanwhile joins when it is back.
                _ => {}
            }
        }
        self.join(node, &members).await?;
        self.welcome_back(node)
    }

    fn welcome_back(&self, node: NodeId) -> Result<(), ConnectError> {
        let mut inboxes = self.inboxes();
        inboxes.fail_if_lost_again(node)?;
        inboxes.lost.remove(&node);
        if let Some(member) = inboxes.members.get(&node) {
            self.outgoing().open(*member);
        }
        // What nobody here knows of has ended, or was launched again.
        let held = inboxes.inventories.get(&node).map(|inventory| inventory.held.clone()).unwrap_or_default();
        let is_known = |job: &JobId| inboxes.apps.get(job).is_some_and(|app| app.nodes.contains(&node));
        for held in held.iter().filter(|held| !is_known(&held.job)) {
            self.release(node, held.job);
        }
        let copies = inboxes.inventories.get(&node).map(|inventory| inventory.copies.clone());
        for (job, _) in copies.unwrap_or_default() {
            if !inboxes.apps.contains_key(&job) {
                self.drop_copies(node, job);
            }
        }
        for (job, app) in &inboxes.apps {
            let _ = app.inbox.send(Note::Input(Input::HoldsCopies(node, inboxes.copies_on(node, *job))));
        }
        let _ = self.master.events.send(NodeEvent::Back { node });
        inboxes.tell_apps(&Note::Input(Input::NodeBack(node)));
        Ok(())
    }

    /// The number of the first life of an application that is about to be launched.
    pub(crate) fn next_life(&self) -> u32 {
        self.master.lives.fetch_add(LIVES_EACH, Ordering::Relaxed)
    }

    /// What each node held when it was connected to.
    #[must_use]
    pub fn inventories(&self) -> BTreeMap<NodeId, Inventory> {
        self.inboxes().inventories.clone()
    }

    /// Sends the events of `job` to `inbox` from now on.
    pub(crate) fn register(&self, job: JobId, nodes: BTreeSet<NodeId>, inbox: UnboundedSender<Note>) {
        let mut inboxes = self.inboxes();
        for (node, reason) in &inboxes.lost {
            let _ = inbox.send(Note::Input(Input::NodeLost(*node, reason.clone())));
        }
        for node in &inboxes.silent {
            let _ = inbox.send(Note::Silent(*node));
        }
        for node in inboxes.inventories.keys() {
            let copies = inboxes.copies_on(*node, job);
            if !copies.is_empty() {
                let _ = inbox.send(Note::Input(Input::HoldsCopies(*node, copies)));
            }
        }
        inboxes.replacement.as_mut().into_iter().for_each(|replacement| replacement.add(job, &nodes, &inbox));
        inboxes.apps.insert(job, App { nodes, inbox });
    }

    /// The application has its parts on these nodes from now on.
    pub(crate) fn place(&self, job: JobId, nodes: &BTreeSet<NodeId>) {
        if let Some(app) = self.inboxes().apps.get_mut(&job) {
            app.nodes.clone_from(nodes);
        }
    }

    pub(crate) fn forget(&self, job: JobId) {
        let mut inboxes = self.inboxes();
        inboxes.apps.remove(&job);
        inboxes.replacement.as_mut().into_iter().for_each(|replacement| replacement.forget(job));
    }

    /// Sends a request about `job` to `nodes`. Applications know already where a node is lost.
    pub(crate) fn ask(&self, nodes: &[NodeId], job: JobId, request: &AppRequest) {
        let asked = Asked::App { job, request: Self::with_time(request.clone()) };
        self.outgoing().by_ways(|ways| ways.send(Instant::now(), nodes, &asked));
    }

    /// See [`Ways::are_heard`].
    pub(crate) fn are_heard(&self, nodes: &BTreeSet<NodeId>, since: Instant) -> bool {
        self.outgoing().ways.are_heard(nodes, since)
    }

    /// Has a node remove an application that nobody here drives.
    pub fn release(&self, node: NodeId, job: JobId) {
        self.ask(&[node], job, &AppRequest::Release { last_word: None });
    }

    /// Has a node remove its copies of snapshots of an application without a dispatcher here.
    pub fn drop_copies(&self, node: NodeId, job: JobId) {
        self.ask(&[node], job, &AppRequest::DropCopies { from: Epoch(0), to: Epoch(u64::MAX) });
    }

    /// Says what the jobs of `node` may hold together; `None`: as much as there is.
    pub fn allow(&self, node: NodeId, allowance: Option<Allowance>) {
        self.tell(node, Request::Allow { allowance });
    }

    /// Tells every daemon to end its applications and itself.
    pub fn shut_down(&self) {
        self.tell_all(&Request::Shutdown);
    }

    /// Tells every daemon to exit and to leave the snapshots of parked applications for a later one.
    pub fn leave(&self) {
        self.tell_all(&Request::Leave);
    }

    /// Sends `last` to every daemon, after all requests before it.
    fn tell_all(&self, last: &Request) {
        let mut outgoing = self.outgoing();
        outgoing.close_all();
        outgoing.requests.values().for_each(|session| drop(session.send(last.clone())));
    }

    /// Nodes that cannot be reached any more.
    #[must_use]
    pub fn lost(&self) -> BTreeSet<NodeId> {
        self.inboxes().lost.keys().copied().collect()
    }
}

/// Gives the events of daemons to the applications and to the master.
struct Routing {
    inboxes: Arc<Mutex<Inboxes>>,
    outgoing: Arc<Mutex<Outgoing>>,
    events: UnboundedSender<NodeEvent>,
}

impl Routing {
    fn inboxes(&self) -> MutexGuard<'_, Inboxes> {
        self.inboxes.lock().expect("no panic while holding it")
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().expect("no panic while holding it")
    }

    fn by_ways(&self, act: impl FnOnce(&mut Ways) -> Sent) {
        self.outgoing().by_ways(act);
    }

    async fn route(
        &self,
        node: NodeId,
        incarnation: u64,
        mut from_daemon: UnboundedReceiver<Heard<DaemonEvent>>,
    ) {
        while let Some(heard) = from_daemon.recv().await {
            // The node has another daemon now.
            let present = self.inboxes().members.get(&node).copied();
            if present.is_none_or(|member| member.incarnation != incarnation) {
                continue;
            }
            match heard {
                Heard::Message(DaemonEvent::Said(said)) => {
                    said.into_iter().for_each(|said| self.on_said(node, said));
                }
                Heard::Message(event) => self.on_event(node, event),
                Heard::Silence => {
                    self.inboxes().on_silent(node);
                    self.by_ways(|ways| ways.on_silent(node));
                    let _ = self.events.send(NodeEvent::Silent { node });
                }
                Heard::Again(silence) => {
                    self.inboxes().on_heard(node);
                    self.outgoing().ways.on_heard_again(node);
                    let _ = self.events.send(NodeEvent::Heard { node, silence });
                }
            }
        }
    }

    /// The session with node `from` brings what its daemon says, or one that has it as its way up.
    fn on_said(&self, from: NodeId, said: Said) {
        if !self.outgoing().ways.is_genuine(from, &said) {
            return warn!(%from, node = %said.node, "what it passes on was not said by that node's daemon");
        }
        let Said { node, incarnation, number, event, .. } = said;
        let events = {
            let inboxes = self.inboxes();
            let is_present =
                inboxes.members.get(&node).is_some_and(|member| member.incarnation == incarnation);
            if !is_present || node != from && inboxes.lost.contains_key(&node) {
                return;
            }
            self.outgoing().ways.on_said(node, number, event)
        };
        events.into_iter().for_each(|event| self.on_event(node, event));
    }

    fn on_event(&self, node: NodeId, event: DaemonEvent) {
        let answer = |joined: Result<(), String>| {
            if let Some(waiting) = self.inboxes().joining.remove(&node) {
                let _ = waiting.send(joined);
            }
        };
        match event {
            DaemonEvent::Welcome { .. } | DaemonEvent::Refused { .. } | DaemonEvent::Said(_) => {}
            DaemonEvent::Alive { heard } => {
                self.by_ways(|ways| ways.on_heard(Instant::now(), node, heard));
            }
            DaemonEvent::NotPassedOn { to, incarnation } => {
                self.by_ways(|ways| ways.on_not_passed(to, incarnation));
            }
            DaemonEvent::Inventory(inventory) => {
                self.inboxes().inventories.insert(node, inventory);
            }
            DaemonEvent::Joined => answer(Ok(())),
            DaemonEvent::JoinFailed { reason } => answer(Err(reason)),
            DaemonEvent::LinkLost { peer, incarnation, reason, .. } => {
                let reason = format!("{node} lost its link to it: {reason}");
                self.lose(peer, Some(incarnation), &reason);
            }
            DaemonEvent::StoodStill(stood_still) => {
                let _ = self.events.send(NodeEvent::StoodStill { node, stood_still });
            }
            DaemonEvent::Allowed { exceeded } => {
                let _ = self.events.send(NodeEvent::Allowed { node, exceeded });
            }
            event @ (DaemonEvent::Examined(_)
            | DaemonEvent::NotReplaced { .. }
            | DaemonEvent::HandsOver
            | DaemonEvent::TookOver { .. }) => {
                if let Some(replacement) = &mut self.inboxes().replacement {
                    replacement.on_event(node, event);
                }
            }
            DaemonEvent::Primitive(answer) => {
                self.outgoing().by_operations(|operations| operations.on_answer(node, answer));
            }
            DaemonEvent::Slices(slices) => drop(self.events.send(NodeEvent::Slices { node, slices })),
            DaemonEvent::Load { index } => drop(self.events.send(NodeEvent::Load { node, index })),
            DaemonEvent::Memory(memory) => drop(self.events.send(NodeEvent::Memory { node, memory })),
            DaemonEvent::App { job, event } => {
                if let Some(app) = self.inboxes().apps.get(&job) {
                    let _ = app.inbox.send(Note::Input(Input::Event(node, event)));
                }
            }
        }
    }

    /// A daemon of this incarnation is lost: tells every application and the master, once.
    fn lose(&self, node: NodeId, incarnation: Option<u64>, reason: &str) {
        let mut inboxes = self.inboxes();
        let present = inboxes.members.get(&node).map(|member| member.incarnation);
        if incarnation.is_some() && incarnation != present {
            return;
        }
        self.outgoing().lose(node);
        // Nobody waits for its answer any more.
        inboxes.joining.remove(&node);
        if inboxes.lost.contains_key(&node) {
            inboxes.lost_again.insert(node, reason.to_string());
            return;
        }
        inboxes.lost.insert(node, reason.to_string());
        inboxes.replacement.as_mut().into_iter().for_each(|replacement| replacement.on_lost(node, reason));
        // The master hears of it before the applications do, whose ends follow.
        let _ = self.events.send(NodeEvent::Lost { node, reason: reason.to_string() });
        // No longer waited for.
        inboxes.on_heard(node);
        inboxes.tell_apps(&Note::Input(Input::NodeLost(node, reason.to_string())));
    }
}

#[cfg(test)]
mod tests;
