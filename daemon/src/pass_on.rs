//! Passes requests of the master on to daemons below this one in the tree of daemons, and their answers to
//! the one above; takes what others pass on.
//!
//! A connection leads to each of these daemons, opened when it is first needed, to the port of the data links
//! and in TLS under the cluster's authority ([`crate::plane::connect`]). Control keeps away from data: it has
//! a thread and a connection of its own. What is lost on the way is sent again by the sessions
//! ([`crate::multicast`], [`crate::answers`]), and the master hears of a daemon that cannot be reached.
//!
//! An attacker may control another daemon. So the bytes that have come from one daemon and wait here to be
//! passed on are [limited](ROOM).

use std::{
    collections::BTreeMap,
    net::TcpStream,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use coswitch_policies::NodeId;
use rustls::{ServerConnection, StreamOwned};
use serde::{Deserialize, Serialize};
use tokio::sync::{
    OwnedSemaphorePermit, Semaphore,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};
use tracing::warn;

use crate::{
    answers::Answers,
    app::NodeServices,
    multicast::Multicast,
    pki::Identity,
    plane::{
        LinkEnd,
        connect::{self, REQUESTS},
    },
    processors::{TimeSlice, set_time_slice},
    protocol::{DaemonEvent, Member},
    wire,
};

/// To reach another daemon.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// For another daemon to take what is passed on to it.
const SILENCE: Duration = Duration::from_secs(5);
/// The most bytes of one connection that wait to be passed on. Each copy of a message counts by the length of
/// the frame that brought the message. Messages and copies beyond this limit are dropped.
const ROOM: usize = 4 * wire::FRAME_BYTES_MAX;

/// What one daemon passes on to another one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Passed {
    Down(Box<Multicast>),
    Up(Answers),
}

/// The part of [`ROOM`] that one copy of a message takes until this value is dropped. Messages of this daemon
/// and of its master take none.
pub(crate) struct Room(Option<OwnedSemaphorePermit>);

impl Room {
    /// Of a message of this daemon or of its master.
    pub(crate) const NOT_LIMITED: Self = Self(None);

    /// For a message of so many bytes, if there is room for the message.
    fn take(room: &Arc<Semaphore>, bytes: usize) -> Option<Self> {
        let bytes = u32::try_from(size_of::<Passed>() + bytes).ok()?;
        Some(Self(Some(Arc::clone(room).try_acquire_many_owned(bytes).ok()?)))
    }

    /// For another copy of the same message, if there is room for the copy.
    pub(crate) fn for_copy(&self) -> Option<Self> {
        let Some(taken) = &self.0 else { return Some(Self::NOT_LIMITED) };
        let bytes = u32::try_from(taken.num_permits()).expect("it was taken as such a number");
        Some(Self(Some(Arc::clone(taken.semaphore()).try_acquire_many_owned(bytes).ok()?)))
    }
}

/// The daemons next to this one in the tree, and what comes from them.
pub(crate) struct PassingOn {
    next: Mutex<BTreeMap<NodeId, Next>>,
    come: UnboundedSender<(Passed, Room)>,
}

struct Next {
    incarnation: u64,
    queue: Sender<(Passed, Room)>,
}

impl PassingOn {
    /// Also returns what other daemons pass on to this one.
    pub(crate) fn new() -> (Self, UnboundedReceiver<(Passed, Room)>) {
        let (come, passed_on) = unbounded_channel();
        (Self { next: Mutex::default(), come }, passed_on)
    }
}

impl NodeServices {
    /// Gives a message to the thread that writes to the daemon of node `to`, without waiting for it.
    pub(crate) fn pass_on(self: &Arc<Self>, to: NodeId, message: Passed, room: Room) {
        // Where this daemon does not know the node, the sessions carry the message.
        let Some(member) = self.links.member(to) else { return };
        let mut next = self.passing.next.lock().unwrap_or_else(PoisonError::into_inner);
        let present = next.get(&to).filter(|next| next.incarnation == member.incarnation);
        let message = match present {
            Some(next) => match next.queue.send((message, room)) {
                Ok(()) => return,
                Err(unsent) => unsent.0,
            },
            None => (message, room),
        };
        let (queue, passing) = channel();
        let _ = queue.send(message);
        next.insert(to, Next { incarnation: member.incarnation, queue });
        drop(next);
        let (identity, own, events) = (self.config.identity.clone(), self.link_end(), self.events.clone());
        let work = move || {
            set_time_slice(TimeSlice::Short);
            if let Err(error) = carry(&identity, own, member, &passing) {
                warn!(%to, error = format!("{error:#}"), "it could not be passed on");
                events.leave_tree();
                events.send(DaemonEvent::NotPassedOn { to, incarnation: member.incarnation });
            }
        };
        if let Err(error) = thread::Builder::new().name("pass-on".into()).spawn(work) {
            warn!(%to, %error, "it cannot be passed on");
            self.events.leave_tree();
            self.tell(DaemonEvent::NotPassedOn { to, incarnation: member.incarnation });
        }
    }
}

/// Writes messages to the daemon `to` until its node has another daemon.
fn carry(
    identity: &Identity,
    own: LinkEnd,
    to: Member,
    passing: &Receiver<(Passed, Room)>,
) -> anyhow::Result<()> {
    let client = identity.client()?;
    let connected = connect::connect_for(REQUESTS, (to.node, to.data), own, &client, CONNECT_LIMIT, SILENCE);
    let (found, mut tls) = connected.context("failed to reach it")?;
    ensure!(
        found == LinkEnd { node: to.node, incarnation: to.incarnation },
        "at {} answers {}, or another daemon of the node",
        to.data,
        found.node
    );
    while let Ok((message, _room)) = passing.recv() {
        wire::write_blocking(&mut tls, &message)?;
    }
    Ok(())
}

/// Takes what another daemon passes on, on this thread, until the connection ends.
///
/// # Errors
/// Where the connection breaks.
pub(crate) fn serve(
    node: Arc<NodeServices>,
    from: LinkEnd,
    mut tls: StreamOwned<ServerConnection, TcpStream>,
) -> Result<(), String> {
    set_time_slice(TimeSlice::Short);
    let come = node.passing.come.clone();
    drop(node);
    let ended = |error| format!("{} passes nothing on any more: {error}", from.node);
    let room = Arc::new(Semaphore::new(ROOM));
    let mut dropped = 0_u64;
    while let Some((message, bytes)) = wire::read_measured(&mut tls).map_err(ended)? {
        let Some(room) = Room::take(&room, bytes) else {
            dropped += 1;
            if dropped.is_power_of_two() {
                warn!(from = %from.node, dropped, "more than can be passed on: it is dropped");
            }
            continue;
        };
        if come.send((message, room)).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_dropped_until_copies_have_been_passed_on() {
        let room = Arc::new(Semaphore::new(ROOM));
        let largest = Room::take(&room, wire::FRAME_BYTES_MAX).unwrap();
        let copies: Vec<Room> = std::iter::from_fn(|| largest.for_copy()).collect();
        assert_eq!(copies.len(), 2, "each copy takes as much as the message");
        assert!(Room::take(&room, wire::FRAME_BYTES_MAX).is_none());
        assert!(Room::take(&room, wire::FRAME_BYTES_MAX / 2).is_some(), "a smaller one finds room");
        drop(largest);
        assert!(Room::take(&room, wire::FRAME_BYTES_MAX).is_some(), "the message has left its room");
        assert!(copies[0].for_copy().is_some());
        assert!(Room::NOT_LIMITED.for_copy().is_some());
    }
}
