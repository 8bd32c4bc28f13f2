//! The replacement of a node's daemon by another program, below ranks that live on.
//!
//! ```text
//!   applications of the node        here                                  daemon
//!                                    │ ───── Examine ──────────────────────▶ │ nobody stands still yet
//!         │ ◀────── Settle ───────── │ ◀──── Examined ────────────────────── │
//!         │ ─────── Settled ───────▶ │
//!         │ ◀────── Pause ────────── │
//!    cut  │ ─────── Paused ────────▶ │ ───── Replace ──────────────────────▶ │
//!         ┆                          │ ◀──── HandsOver ───────────────────── │
//!         ┆                          │ ───── closes the connection ────────▶ │ exec
//!         ┆                          │ ───── a new connection ─────────────▶ │ the next program
//!         ┆                          │ ◀──── TookOver ────────────────────── │
//!         ┆                          │ ◀───▶ all nodes join                  │
//!         │ ◀────── Continue ─────── │
//! ```
//! What is asked of the daemon from `Replace` on waits for the next program. Where that does not answer, the
//! node is lost, and its applications go back to their snapshots.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use coswitch_daemon::{
    protocol::{DaemonEvent, Member, Programs, Request},
    session::awake,
};
use coswitch_policies::{JobId, NodeId};
use thiserror::Error;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Inboxes, Sessions, joined};
use crate::{Note, app::Input, provisioning::Address};

/// A daemon gives a program ten seconds to say what it is.
const EXAMINE_LIMIT: Duration = Duration::from_secs(20);
/// For applications to end the steps that are under way: a dump of a large one takes minutes.
const SETTLE_LIMIT: Duration = Duration::from_secs(10 * 60);
/// Longer than a cut may take.
const PAUSE_LIMIT: Duration = Duration::from_secs(60);
const HAND_OVER_LIMIT: Duration = Duration::from_secs(60);
const TAKE_OVER_LIMIT: Duration = Duration::from_secs(15);
/// A rank that ends at the moment of the cut makes that fail.
const ATTEMPTS: u32 = 3;
const PAUSE_BETWEEN: Duration = Duration::from_millis(200);

/// What an application says of its pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Settled,
    /// Whether its ranks ran before.
    Paused {
        ran: bool,
    },
    Refused(String),
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// From the first order to stand still to the last one to go on.
    pub pause: Duration,
    /// The applications that ran before.
    pub paused: BTreeSet<JobId>,
    /// The version of the program.
    pub version: String,
}

/// Why a daemon was not replaced.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReplaceError {
    /// Nothing was stopped for it.
    #[error("{0}")]
    Unfit(String),
    #[error("{0} is lost")]
    Down(NodeId),
    #[error("{} did not come to rest within {} minutes", list(.0), SETTLE_LIMIT.as_secs() / 60)]
    Busy(BTreeSet<JobId>),
    #[error("its applications cannot be stopped: {0}")]
    NotPaused(String),
    #[error("its daemon cannot hand over: {0}")]
    NotHandedOver(String),
    /// The program before goes on.
    #[error("the new program has given up, and the one before goes on: {0}")]
    GivenUp(String),
    /// Its applications go back to their snapshots.
    #[error("the new program has not taken over, and the node is lost: {0}")]
    Lost(String),
}

fn list(jobs: &BTreeSet<JobId>) -> String {
    jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The replacement that is under way.
pub(super) struct Replacement {
    node: NodeId,
    /// Of the daemon that hands over.
    incarnation: Option<u64>,
    phase: Phase,
    /// Applications that have not answered in this phase.
    waiting: BTreeSet<JobId>,
    ran: BTreeSet<JobId>,
    told: UnboundedSender<Told>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Examining,
    Settling,
    Pausing,
    HandingOver,
}

/// To the task that carries it out.
#[derive(Debug)]
enum Told {
    AllReady,
    Refused(String),
    /// A node.
    Lost(NodeId, String),
    Daemon(DaemonEvent),
    SessionEnded,
}

impl Replacement {
    fn tell(&self, told: Told) {
        let _ = self.told.send(told);
    }

    /// An application begins meanwhile.
    pub(super) fn add(&mut self, job: JobId, nodes: &BTreeSet<NodeId>, inbox: &UnboundedSender<Note>) {
        if self.phase != Phase::Examining && nodes.contains(&self.node) {
            let _ = inbox.send(Note::Input(Input::Settle));
            if self.phase == Phase::Settling {
                self.waiting.insert(job);
            }
        }
    }

    /// It has ended.
    pub(super) fn forget(&mut self, job: JobId) {
        self.is_ready(job);
    }

    fn is_ready(&mut self, job: JobId) {
        if self.waiting.remove(&job) && self.waiting.is_empty() {
            self.tell(Told::AllReady);
        }
    }

    fn on_hold(&mut self, job: JobId, hold: Hold) {
        match (hold, self.phase) {
            (Hold::Settled, Phase::Settling) => self.is_ready(job),
            (Hold::Paused { ran }, Phase::Pausing) => {
                self.ran.extend(ran.then_some(job));
                self.is_ready(job);
            }
            (Hold::Refused(reason), Phase::Pausing) => self.tell(Told::Refused(format!("{job}: {reason}"))),
            _ => {}
        }
    }

    pub(super) fn on_event(&self, node: NodeId, event: DaemonEvent) {
        if node == self.node {
            self.tell(Told::Daemon(event));
        }
    }

    pub(super) fn on_lost(&self, node: NodeId, reason: &str) {
        self.tell(Told::Lost(node, reason.to_owned()));
    }
}

/// The session with a daemon has ended. Whether that was to be.
pub(super) fn on_session_end(node: NodeId, incarnation: u64, inboxes: &std::sync::Mutex<Inboxes>) -> bool {
    let inboxes = inboxes.lock().expect("no panic while holding it");
    let Some(replacement) = &inboxes.replacement else { return false };
    let is_it = replacement.node == node && replacement.incarnation == Some(incarnation);
    let hands_over = is_it && replacement.phase == Phase::HandingOver;
    if hands_over {
        replacement.tell(Told::SessionEnded);
    }
    hands_over
}

impl Sessions {
    pub(crate) fn on_hold(&self, job: JobId, hold: Hold) {
        if let Some(replacement) = &mut self.inboxes().replacement {
            replacement.on_hold(job, hold);
        }
    }

    /// Has the daemon of a node replaced by another program, which goes on with its applications. These stand
    /// still meanwhile, on all of their nodes.
    ///
    /// # Errors
    /// [`ReplaceError`]; the applications go on in any case.
    pub async fn replace(&self, address: &Address, programs: Programs) -> Result<Replaced, ReplaceError> {
        let _one_at_a_time = self.replacing.lock().await;
        let node = address.node;
        let told = {
            let mut inboxes = self.inboxes();
            if inboxes.lost.contains_key(&node) || !inboxes.members.contains_key(&node) {
                return Err(ReplaceError::Down(node));
            }
            let (tell, told) = unbounded_channel();
            let incarnation = inboxes.members.get(&node).map(|member| member.incarnation);
            let (phase, waiting, ran) = (Phase::Examining, BTreeSet::new(), BTreeSet::new());
            inboxes.replacement = Some(Replacement { node, incarnation, phase, waiting, ran, told: tell });
            told
        };
        let replaced = Replacing { sessions: self, address, told }.carry_out(programs).await;
        self.let_go_on();
        self.inboxes().replacement = None;
        replaced
    }

    /// Also those that begin in between.
    fn let_go_on(&self) {
        let mut inboxes = self.inboxes();
        if let Some(replacement) = &mut inboxes.replacement {
            replacement.phase = Phase::Examining;
        }
        inboxes.tell_apps(&Note::Input(Input::Continue));
    }
}

/// The task.
struct Replacing<'a> {
    sessions: &'a Sessions,
    address: &'a Address,
    told: UnboundedReceiver<Told>,
}

impl Replacing<'_> {
    async fn carry_out(&mut self, programs: Programs) -> Result<Replaced, ReplaceError> {
        let version = self.examine(&programs).await?;
        let mut attempt = 1;
        let began = loop {
            self.settle().await?;
            let began = Instant::now();
            match self.pause().await {
                Ok(()) => break began,
                Err(reason) if attempt == ATTEMPTS => return Err(ReplaceError::NotPaused(reason)),
                Err(reason) => {
                    tracing::info!(reason, "the replacement of a daemon is tried again");
                    attempt += 1;
                    self.sessions.let_go_on();
                    tokio::time::sleep(PAUSE_BETWEEN).await;
                }
            }
        };
        let requests = self.hand_over(programs).await?;
        let given_up = self.take_over(requests).await.map_err(|reason| self.lost(reason))?;
        let pause = began.elapsed();
        let paused = self.replacement(|replacement| replacement.ran.clone());
        match given_up {
            None => Ok(Replaced { pause, paused, version }),
            Some(reason) => Err(ReplaceError::GivenUp(reason)),
        }
    }

    fn replacement<T>(&self, change: impl FnOnce(&mut Replacement) -> T) -> T {
        change(self.sessions.inboxes().replacement.as_mut().expect("until it is over"))
    }

    fn ask(&self, request: Request) {
        self.sessions.tell(self.address.node, request);
    }

    /// The next thing that happens; `None`: nothing in time.
    async fn next(&mut self, limit: Duration) -> Option<Told> {
        awake::timeout(limit, self.told.recv()).await.flatten()
    }

    fn is_own(&self, node: NodeId) -> bool {
        node == self.address.node
    }

    async fn examine(&mut self, programs: &Programs) -> Result<String, ReplaceError> {
        self.ask(Request::Examine { program: programs.daemon.clone() });
        loop {
            match self.next(EXAMINE_LIMIT).await {
                Some(Told::Daemon(DaemonEvent::Examined(examined))) => {
                    return examined.map_err(ReplaceError::Unfit);
                }
                Some(Told::Lost(node, reason)) if self.is_own(node) => {
                    return Err(ReplaceError::Lost(reason));
                }
                Some(_) => {}
                None => return Err(ReplaceError::Unfit("its daemon has not answered in time".into())),
            }
        }
    }

    /// Enters a phase, in which all applications of the node have to answer `input`.
    fn begin(&self, phase: Phase, input: &Input) {
        let mut inboxes = self.sessions.inboxes();
        let Inboxes { apps, replacement, .. } = &mut *inboxes;
        let replacement = replacement.as_mut().expect("until it is over");
        let own = apps.iter().filter(|(_, app)| app.nodes.contains(&self.address.node));
        replacement.phase = phase;
        replacement.ran.clear();
        replacement.waiting = own.clone().map(|(job, _)| *job).collect();
        own.for_each(|(_, app)| drop(app.inbox.send(Note::Input(input.clone()))));
        if replacement.waiting.is_empty() {
            replacement.tell(Told::AllReady);
        }
    }

    async fn settle(&mut self) -> Result<(), ReplaceError> {
        self.begin(Phase::Settling, &Input::Settle);
        loop {
            match self.next(SETTLE_LIMIT).await {
                Some(Told::AllReady) if self.replacement(|replacement| replacement.waiting.is_empty()) => {
                    return Ok(());
                }
                Some(Told::Lost(node, reason)) if self.is_own(node) => {
                    return Err(ReplaceError::Lost(reason));
                }
                Some(_) => {}
                None => {
                    return Err(ReplaceError::Busy(
                        self.replacement(|replacement| replacement.waiting.clone()),
                    ));
                }
            }
        }
    }

    async fn pause(&mut self) -> Result<(), String> {
        // One may have become ready and have begun anew before this phase.
        self.begin(Phase::Pausing, &Input::Pause);
        loop {
            match self.next(PAUSE_LIMIT).await {
                Some(Told::AllReady) if self.replacement(|replacement| replacement.waiting.is_empty()) => {
                    return Ok(());
                }
                Some(Told::Refused(reason)) => return Err(reason),
                Some(Told::Lost(node, reason)) => return Err(format!("{node} was lost: {reason}")),
                Some(_) => {}
                None => return Err("they have not answered in time".into()),
            }
        }
    }

    /// Returns what was asked of the node since.
    async fn hand_over(&mut self, programs: Programs) -> Result<UnboundedReceiver<Request>, ReplaceError> {
        let node = self.address.node;
        self.replacement(|replacement| replacement.phase = Phase::HandingOver);
        let (later, mut waiting) = unbounded_channel();
        let before = {
            let mut outgoing = self.sessions.outgoing();
            outgoing.by_ways(|ways| ways.close(node));
            // Its global memory ends with the program.
            outgoing.by_operations(|operations| operations.on_lost(node));
            let _ = later.send(outgoing.ways.begin(node));
            let before = outgoing.requests.insert(node, later).ok_or(ReplaceError::Down(node))?;
            let _ = before.send(Request::Replace(programs));
            before
        };
        let reason = loop {
            match self.next(HAND_OVER_LIMIT).await {
                Some(Told::Daemon(DaemonEvent::HandsOver)) => break None,
                Some(Told::Daemon(DaemonEvent::NotReplaced { reason })) => break Some(reason),
                Some(Told::SessionEnded) => return Err(self.lost("its daemon has ended".into())),
                Some(Told::Lost(lost, reason)) if self.is_own(lost) => {
                    return Err(ReplaceError::Lost(reason));
                }
                Some(_) => {}
                None => return Err(self.lost("its daemon has not answered in time".into())),
            }
        };
        let Some(reason) = reason else { return Ok(waiting) };
        self.replacement(|replacement| replacement.phase = Phase::Examining);
        let mut outgoing = self.sessions.outgoing();
        while let Ok(request) = waiting.try_recv() {
            let _ = before.send(request);
        }
        outgoing.requests.insert(node, before);
        drop(outgoing);
        self.sessions.let_pass_on(node);
        Err(ReplaceError::NotHandedOver(reason))
    }

    /// The daemon has said its last word, and the connection is closed: connects to the next program.
    async fn take_over(&mut self, requests: UnboundedReceiver<Request>) -> Result<Option<String>, String> {
        let _joins_alone = self.sessions.joining.lock().await;
        while !matches!(self.next(TAKE_OVER_LIMIT).await, Some(Told::SessionEnded) | None) {}
        self.sessions.begin_with(self.address, requests).await.map_err(|error| chain(&error))?;
        let given_up = loop {
            match self.next(TAKE_OVER_LIMIT).await {
                Some(Told::Daemon(DaemonEvent::TookOver { given_up })) => break given_up,
                Some(Told::Lost(node, reason)) if self.is_own(node) => return Err(reason),
                Some(_) => {}
                None => return Err("it does not say that it has taken over".into()),
            }
        };
        self.join_all().await?;
        self.sessions.let_pass_on(self.address.node);
        Ok(given_up)
    }

    /// The others first: they let go of their links to the daemon before.
    async fn join_all(&self) -> Result<(), String> {
        let members = self.sessions.inboxes().living();
        let (own, others): (Vec<Member>, Vec<Member>) =
            members.iter().partition(|member| member.node == self.address.node);
        for some in [others, own] {
            let nodes = some.iter().map(|member| member.node);
            let answers: BTreeMap<_, _> =
                nodes.map(|node| (node, self.sessions.ask_to_join(node, &members))).collect();
            for (node, answer) in answers {
                match joined(node, answer).await {
                    // One that is lost meanwhile joins when it is back.
                    Err(error) if !self.sessions.lost().contains(&node) => return Err(error.to_string()),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The node counts as lost from now on.
    fn lost(&self, reason: String) -> ReplaceError {
        let (node, sessions) = (self.address.node, self.sessions);
        self.replacement(|replacement| replacement.phase = Phase::Examining);
        sessions.routing().lose(node, None, &reason);
        ReplaceError::Lost(reason)
    }
}

/// An error and its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    std::iter::once(error.to_string()).chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
}
