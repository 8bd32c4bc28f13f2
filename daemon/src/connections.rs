//! Limits of the connections that others make to this daemon.
//!
//! Each connection takes a thread and two descriptors. So the number of connections of each kind is limited:
//! when a new one exceeds the limit, the oldest of its kind is closed.
//!
//! Strangers have a limit because anybody who reaches the port can connect. A daemon says who it is within
//! milliseconds, so the oldest stranger is not a daemon, or has failed. Each other daemon has a limit because
//! an attacker may control it.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use coswitch_policies::NodeId;

use crate::plane::connect::Accepted;

/// The most connections at a time that have not said yet who they are.
pub(crate) const STRANGERS_MAX: usize = 64;
/// The most connections on which one other daemon passes requests on: the one in use, and perhaps one that
/// has just broken.
const REQUESTS_MAX: usize = 2;
/// The most connections by which one other daemon stores or fetches copies.
const COPIES_MAX: usize = 64;

/// The open connections of one kind.
#[derive(Clone)]
pub(crate) struct Connections {
    max: usize,
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    next: u64,
    /// By number, the oldest first.
    streams: VecDeque<(u64, TcpStream)>,
}

/// One connection that counts, until this value is dropped.
pub(crate) struct Counted {
    number: u64,
    among: Connections,
}

impl Connections {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, open: Arc::default() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection, and closes the oldest one where there are too many.
    ///
    /// # Errors
    /// Where there is no descriptor for it.
    pub(crate) fn add(&self, stream: &TcpStream) -> io::Result<Counted> {
        let stream = stream.try_clone()?;
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.streams.push_back((number, stream));
        if open.streams.len() > self.max
            && let Some((_, oldest)) = open.streams.pop_front()
        {
            // Its thread fails with it. One that has ended by itself is not connected any more.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        Ok(Counted { number, among: self.clone() })
    }
}

/// The connections of each other daemon, except its link to this one, of which there is only one.
#[derive(Clone, Default)]
pub(crate) struct OfPeers(Arc<Mutex<BTreeMap<NodeId, [Connections; 2]>>>);

impl OfPeers {
    /// Counts a connection whose daemon is known. Returns `None` for a link, which is not counted.
    ///
    /// # Errors
    /// Where there is no descriptor for it.
    pub(crate) fn add(&self, accepted: &Accepted) -> io::Result<Option<Counted>> {
        let (kind, peer, tls) = match accepted {
            Accepted::Link(_) => return Ok(None),
            Accepted::Requests(peer, tls) => (0, peer, tls),
            Accepted::Copies(peer, tls) => (1, peer, tls),
        };
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds =
            peers.entry(peer.node).or_insert_with(|| [REQUESTS_MAX, COPIES_MAX].map(Connections::new));
        kinds[kind].add(tls.get_ref()).map(Some)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.among.open().streams.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener, time::Duration};

    use super::*;

    #[test]
    fn the_oldest_stranger_makes_room_and_one_that_is_known_does_not_count() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let strangers = Connections::new(STRANGERS_MAX);
        let meet = || {
            let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let here = listener.accept().unwrap().0;
            let stranger = strangers.add(&here).unwrap();
            (there, here, stranger)
        };
        let is_closed = |stream: &TcpStream| {
            stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
            let mut stream = stream;
            matches!(stream.read(&mut [0]), Ok(0))
        };
        let mut met: Vec<_> = (0..STRANGERS_MAX).map(|_| meet()).collect();
        drop(met.remove(0));
        met.push(meet());
        assert!(met.iter().all(|(there, ..)| !is_closed(there)));
        met.extend([meet(), meet()]);
        let closed: Vec<bool> = met.iter().map(|(there, ..)| is_closed(there)).collect();
        assert_eq!(closed.iter().position(|closed| !closed), Some(2), "{closed:?}");
        drop(met);
        assert!(strangers.open().streams.is_empty());
    }
}
