//! The way of answers up the tree of daemons. Pure; the daemon and the simulation of the control plane carry
//! it out.
//!
//! A daemon numbers all that it says to its master. The answer to a request that has come down the tree goes
//! up the same tree ([`Saying`]), and so does the end of all ranks that were launched by it: the report of
//! their termination (paper 004, §3.3). All else goes by the session. A daemon amid the tree gathers the
//! answers of those below it and its own ([`Gathering`]), for [`WINDOW`] at most, and passes them on as one
//! message; the uppermost one sends it by its session. The master brings what each daemon says into order,
//! each once ([`InOrder`](crate::multicast::InOrder)), and says with every heartbeat how far it has come; so
//! a daemon says again, by its own session, what was lost on the way.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use coswitch_policies::{
    NodeId,
    control_tree::{ControlTree, Place},
};
use serde::{Deserialize, Serialize};

use crate::{
    multicast::{Asked, Multicast, Subject},
    protocol::{AppEvent, AppRequest, DaemonEvent},
    tag::{Digest, Tag, TagKey, Word},
};

/// So long a daemon amid the tree waits for the answers of others.
pub const WINDOW: Duration = Duration::from_millis(2);
/// The most answers for which a daemon in the tree waits. Beyond this number the oldest requests are
/// forgotten, and their answers go by the sessions. Only requests that an attacker invents are so many.
pub const OPEN_MAX: usize = 1 << 22;
/// The record of a request takes as much memory as this number of awaited answers.
const REQUEST: usize = 32;
/// The time that an answer may take through the tree.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// What a daemon says to its master.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Said {
    pub node: NodeId,
    /// A later daemon of the node counts anew.
    pub incarnation: u64,
    /// From 1 with each master.
    pub number: u64,
    pub event: DaemonEvent,
    /// Of what goes up the tree.
    pub tag: Option<Tag>,
}

impl Said {
    /// Whether it was said by a daemon that has this key with its master.
    #[must_use]
    pub fn is_genuine(&self, key: &TagKey) -> bool {
        self.tag.as_ref().is_some_and(|tag| key.confirms(&self.word(), tag))
    }

    fn word(&self) -> Word {
        Word::Up { incarnation: self.incarnation, number: self.number, said: Digest::of(&self.event) }
    }

    const fn subject(&self) -> Option<Subject> {
        match self.event {
            DaemonEvent::App { job, event: AppEvent::Exited } => Some(Subject::End(job)),
            DaemonEvent::App { job, .. } => Some(Subject::Job(job)),
            DaemonEvent::Primitive(_) => Some(Subject::GlobalMemory),
            _ => None,
        }
    }
}

/// Answers on their way up the tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answers {
    /// Of the master to which they go.
    pub generation: u64,
    pub said: Vec<Said>,
}

/// By which way a daemon says something.
#[derive(Clone, Debug)]
pub enum Way {
    Session(Said),
    /// To the daemon's own [`Gathering`].
    Tree(Said),
}

/// Numbers what a daemon says, and keeps what goes by the tree until the master has heard it.
#[derive(Clone, Debug)]
pub struct Saying {
    node: NodeId,
    incarnation: u64,
    last: u64,
    /// Since the session has begun.
    key: Option<TagKey>,
    /// What has been asked by the tree and is not answered.
    asked: BTreeSet<Subject>,
    unheard: BTreeMap<u64, (Instant, Said)>,
}

impl Saying {
    #[must_use]
    pub const fn new(node: NodeId, incarnation: u64) -> Self {
        Self { node, incarnation, last: 0, key: None, asked: BTreeSet::new(), unheard: BTreeMap::new() }
    }

    /// Of the session.
    pub fn set_key(&mut self, key: TagKey) {
        self.key = Some(key);
    }

    #[must_use]
    pub const fn key(&self) -> Option<&TagKey> {
        self.key.as_ref()
    }

    /// Another master is followed.
    pub fn begin(&mut self) {
        *self = Self::new(self.node, self.incarnation);
    }

    /// Something is asked by the tree: the answer goes up the tree.
    pub fn on_asked(&mut self, subject: Subject) {
        self.asked.insert(subject);
    }

    pub fn say(&mut self, now: Instant, event: DaemonEvent) -> Way {
        self.last += 1;
        let is_by_tree = match &event {
            DaemonEvent::App { job, event: AppEvent::Exited } => self.asked.remove(&Subject::End(*job)),
            DaemonEvent::App { job, event } => is_answer(event) && self.asked.remove(&Subject::Job(*job)),
            DaemonEvent::Primitive(_) => self.asked.remove(&Subject::GlobalMemory),
            _ => false,
        };
        let (node, incarnation, number) = (self.node, self.incarnation, self.last);
        let mut said = Said { node, incarnation, number, event, tag: None };
        let Some(key) = self.key.as_ref().filter(|_| is_by_tree) else {
            return Way::Session(said);
        };
        said.tag = Some(key.tag(&said.word()));
        self.unheard.insert(said.number, (now, said.clone()));
        Way::Tree(said)
    }

    /// The master has heard all up to this number; returns what is to be said again, by the session.
    pub fn on_heard(&mut self, now: Instant, heard: u64) -> Vec<Said> {
        self.unheard = self.unheard.split_off(&(heard + 1));
        let is_late = self.unheard.values().any(|(sent, _)| now.duration_since(*sent) >= AGAIN_AFTER);
        if is_late { self.close() } else { Vec::new() }
    }

    /// The tree is not to be used, or cannot be: returns what is to be said again, by the session.
    pub fn close(&mut self) -> Vec<Said> {
        self.asked.clear();
        std::mem::take(&mut self.unheard).into_values().map(|(_, said)| said).collect()
    }
}

/// Whether it tells that a request was carried out, or has failed.
const fn is_answer(event: &AppEvent) -> bool {
    matches!(
        event,
        AppEvent::Launched
            | AppEvent::Flushed { .. }
            | AppEvent::Dumped { .. }
            | AppEvent::Checkpointed { .. }
            | AppEvent::Restored { .. }
            | AppEvent::Discarded
            | AppEvent::Resumed { .. }
            | AppEvent::Released
            | AppEvent::WentBack { .. }
            | AppEvent::Failed { .. }
    )
}

/// Gathers answers at one daemon of the tree.
#[derive(Clone, Debug)]
pub struct Gathering {
    node: NodeId,
    /// By the last request about each subject.
    waiting: BTreeMap<Subject, Waiting>,
    requests: u64,
    /// The keys of `waiting`, each after the number of its request: the oldest comes first.
    by_age: BTreeSet<(u64, Subject)>,
    /// The answers that are waited for, and [`REQUEST`] for each key.
    open: usize,
}

#[derive(Clone, Debug)]
struct Waiting {
    request: u64,
    up: Place,
    /// Nodes at and below this one that have not answered.
    open: BTreeSet<NodeId>,
    said: Vec<Said>,
    due: Option<Instant>,
}

/// What is to be sent on: to the daemon of a node, or by the session.
pub type Onward = (Place, Vec<Said>);

impl Gathering {
    #[must_use]
    pub const fn new(node: NodeId) -> Self {
        Self { node, waiting: BTreeMap::new(), requests: 0, by_age: BTreeSet::new(), open: 0 }
    }

    /// A request has come, and its parts go on. Returns answers to the request before.
    pub fn on_request(&mut self, request: &Multicast) -> Vec<Onward> {
        let tree = ControlTree::new(request.radix, request.nodes, request.failed.clone());
        let up = tree.parent(self.node);
        let open: BTreeSet<NodeId> = request.to.keys().copied().collect();
        self.requests += 1;
        let mut before = Vec::new();
        for subject in request.asked.subjects() {
            before.extend(self.forget(subject));
            self.open += REQUEST + open.len();
            self.by_age.insert((self.requests, subject));
            let (request, open) = (self.requests, open.clone());
            self.waiting.insert(subject, Waiting { request, up, open, said: Vec::new(), due: None });
        }
        // Nodes whose ranks have been ended for it say no more that they have ended.
        if let Asked::App { job, request: AppRequest::Release { .. } } = request.asked {
            before.extend(self.forget(Subject::End(job)));
        }
        while self.open > OPEN_MAX
            && let Some((_, oldest)) = self.by_age.first().copied()
        {
            before.extend(self.forget(oldest));
        }
        combined(before.into_iter().map(|before| (before.up, before.said)))
    }

    /// Answers of this daemon, or of one below it.
    pub fn on_answers(&mut self, now: Instant, said: Vec<Said>) -> Vec<Onward> {
        combined(said.into_iter().filter_map(|said| self.on_said(now, said)))
    }

    /// One that is not waited for goes by the session.
    fn on_said(&mut self, now: Instant, said: Said) -> Option<Onward> {
        let subject = said.subject();
        let waiting = subject.and_then(|subject| Some((subject, self.waiting.get_mut(&subject)?)));
        let Some((subject, waiting)) = waiting else {
            return Some((Place::Master, vec![said]));
        };
        self.open -= usize::from(waiting.open.remove(&said.node));
        waiting.said.push(said);
        if waiting.open.is_empty() {
            return self.forget(subject).map(|waiting| (waiting.up, waiting.said));
        }
        waiting.due.get_or_insert(now + WINDOW);
        None
    }

    fn forget(&mut self, subject: Subject) -> Option<Waiting> {
        let forgotten = self.waiting.remove(&subject)?;
        self.by_age.remove(&(forgotten.request, subject));
        self.open -= REQUEST + forgotten.open.len();
        Some(forgotten)
    }

    /// When to call [`Gathering::on_due`].
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.waiting.values().filter_map(|waiting| waiting.due).min()
    }

    /// All that waits, once some of it has waited for long enough.
    pub fn on_due(&mut self, now: Instant) -> Vec<Onward> {
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        combined(self.waiting.values_mut().filter_map(|waiting| {
            waiting.due.take()?;
            Some((waiting.up, std::mem::take(&mut waiting.said)))
        }))
    }
}

/// One message for each receiver.
fn combined(onward: impl Iterator<Item = Onward>) -> Vec<Onward> {
    let mut messages: BTreeMap<Place, Vec<Said>> = BTreeMap::new();
    onward.for_each(|(place, said)| messages.entry(place).or_default().extend(said));
    messages.into_iter().filter(|(_, said)| !said.is_empty()).collect()
}

#[cfg(test)]
mod tests;
