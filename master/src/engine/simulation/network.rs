//! The simulated network: connections whose two wires deliver messages in order, late, or not at all.
//!
//! A wire that is cut off keeps its messages until the path is whole again, as TCP does. A connection that is
//! closed delivers what its closing end has sent, and then the end. One that breaks loses what is under way,
//! and both ends learn of it, each in its time.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use coswitch_daemon::{
    answers::Answers,
    multicast::Multicast,
    protocol::{DaemonEvent, Request},
    session::rules::{Hearing, Lull},
};
use coswitch_policies::{Epoch, JobId, NodeId, SimTime};

use super::context::{Context, Event};

/// How long TCP sends on without an acknowledgement.
const UNACKNOWLEDGED: Duration = Duration::from_millis(250);

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Head,
    Node(NodeId),
}

/// A message on a wire.
#[derive(Clone, Debug)]
pub(super) enum Message {
    ToDaemon(Request),
    ToHead(DaemonEvent),
    /// From one daemon to another.
    PassedOn(Box<Multicast>),
    PassedUp(Answers),
    /// Of a job in a life of it: message number `.2` of its ranks on one node to those on another.
    Record(JobId, u32, u64),
    Marker(JobId, u32, Epoch),
    /// The sender has closed the connection, or it is broken.
    Closed,
}

/// One direction of a connection: the number of the connection, and whether it is the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wire {
    pub(super) link: usize,
    pub(super) back: bool,
}

impl Wire {
    pub(super) const fn other(self) -> Self {
        Self { back: !self.back, ..self }
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// From the master of this generation to a node.
    Control(u64, NodeId),
    /// From one node to another.
    Data(NodeId, NodeId),
    /// The same, for what the first one passes on to it.
    Requests(NodeId, NodeId),
}

pub(super) struct Link {
    pub(super) purpose: Purpose,
    pub(super) ways: [Way; 2],
}

#[derive(Default)]
pub(super) struct Way {
    queue: VecDeque<(SimTime, Message)>,
    /// The sender takes part.
    pub(super) is_open: bool,
    /// How long the receiver has heard nothing; data links have no heartbeats.
    pub(super) hearing: Option<Hearing>,
    /// When to look next how long that is.
    looks_at: Option<Instant>,
}

#[derive(Default)]
pub(super) struct Network {
    pub(super) links: Vec<Link>,
    /// Paths on which nothing arrives that would arrive from this time on.
    blocked: BTreeMap<(Place, Place), SimTime>,
}

impl Network {
    pub(super) fn link(&mut self, purpose: Purpose) -> usize {
        let way = || Way { is_open: true, ..Way::default() };
        self.links.push(Link { purpose, ways: [way(), way()] });
        self.links.len() - 1
    }

    pub(super) fn way(&mut self, wire: Wire) -> &mut Way {
        &mut self.links[wire.link].ways[usize::from(wire.back)]
    }

    pub(super) fn purpose(&self, wire: Wire) -> Purpose {
        self.links[wire.link].purpose
    }

    /// Sender and receiver.
    fn path(&self, wire: Wire) -> (Place, Place) {
        let (a, b) = match self.purpose(wire) {
            Purpose::Control(_, node) => (Place::Head, Place::Node(node)),
            Purpose::Data(a, b) | Purpose::Requests(a, b) => (Place::Node(a), Place::Node(b)),
        };
        if wire.back { (b, a) } else { (a, b) }
    }

    pub(super) fn receiver(&self, wire: Wire) -> Place {
        self.path(wire).1
    }

    /// The message that arrives now, if one does.
    pub(super) fn take(&mut self, wire: Wire, now: SimTime) -> Option<Message> {
        let since = self.blocked.get(&self.path(wire)).copied();
        let queue = &mut self.way(wire).queue;
        queue.front().filter(|(at, _)| *at <= now && since.is_none_or(|since| *at < since))?;
        queue.pop_front().map(|(_, message)| message)
    }

    /// Nothing arrives on this path. What goes the other way arrives for a moment longer: TCP sends nothing
    /// new where nothing is acknowledged.
    pub(super) fn block(&mut self, from: Place, to: Place, now: SimTime) {
        self.blocked.entry((from, to)).or_insert(now);
        self.blocked.entry((to, from)).or_insert(now.after(UNACKNOWLEDGED));
    }
}

impl Context {
    pub(super) fn send(&mut self, wire: Wire, message: Message) {
        if !self.net.way(wire).is_open {
            return;
        }
        let delay = match self.dice.between(0, 19) {
            0 => self.dice.between(2_000, 40_000),
            _ => self.dice.between(50, 500),
        };
        let at = self.now.after(Duration::from_micros(delay));
        let queue = &mut self.net.way(wire).queue;
        let at = queue.back().map_or(at, |(last, _)| at.max(*last));
        queue.push_back((at, message));
        self.at(at, Event::Arrives(wire));
    }

    /// The sender of `wire` takes part no longer: what it has sent arrives, and then the end. It hears
    /// nothing more.
    pub(super) fn close(&mut self, wire: Wire) {
        self.send(wire, Message::Closed);
        self.net.way(wire).is_open = false;
        let back = self.net.way(wire.other());
        back.queue.clear();
        (back.is_open, back.hearing) = (false, None);
    }

    /// As [`Context::close`], by the death of the sender: not all that it wanted to send has left it.
    pub(super) fn cut_off(&mut self, wire: Wire) {
        let most = self.net.way(wire).queue.len() as u64;
        let kept = if self.dice.chance(500) { most } else { self.dice.between(0, most) };
        self.net.way(wire).queue.truncate(kept as usize);
        self.close(wire);
    }

    /// From now on the receiver of `wire` minds silence.
    pub(super) fn listen(&mut self, wire: Wire, patience: Duration) {
        let hearing = Hearing::new(self.instant(), super::QUIET_AFTER, patience);
        self.net.way(wire).hearing = Some(hearing);
        self.look_at(wire, hearing.due());
    }

    fn look_at(&mut self, wire: Wire, due: Instant) {
        self.net.way(wire).looks_at = Some(due);
        self.at_instant(due, Event::Lull(wire));
    }

    /// The time for a look has come: what silence there is means.
    pub(super) fn lull(&mut self, wire: Wire) -> Option<Lull> {
        let now = self.instant();
        let way = self.net.way(wire);
        // The end of a silence has brought the look forward.
        if way.looks_at.is_some_and(|at| now < at) {
            return None;
        }
        let hearing = way.hearing.as_mut()?;
        let (lull, due) = (hearing.on_due(now), hearing.due());
        if lull != Lull::GivenUp {
            self.look_at(wire, due);
        }
        Some(lull)
    }

    /// A message has come on the wire; how long a silence it ends.
    pub(super) fn heard(&mut self, wire: Wire) -> Option<Duration> {
        let now: Instant = self.instant();
        let hearing = self.net.way(wire).hearing.as_mut()?;
        let silence = hearing.on_message(now)?;
        let due = hearing.due();
        self.look_at(wire, due);
        Some(silence)
    }

    /// The paths between two places are whole again: what waited arrives.
    pub(super) fn unblock(&mut self, from: Place, to: Place) {
        self.unblock_path(from, to);
        self.unblock_path(to, from);
    }

    fn unblock_path(&mut self, from: Place, to: Place) {
        if self.net.blocked.remove(&(from, to)).is_none() {
            return;
        }
        for link in 0..self.net.links.len() {
            for back in [false, true] {
                let wire = Wire { link, back };
                if self.net.path(wire) == (from, to) {
                    for _ in 0..self.net.way(wire).queue.len() {
                        self.soon(10, 400, Event::Arrives(wire));
                    }
                }
            }
        }
    }
}
