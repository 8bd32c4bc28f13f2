//! Connections that have not said yet who they are.
//!
//! Anybody who reaches the port can make them, and each has a thread and two descriptors until it is given
//! up. So there are a few at a time: for a new one the oldest is closed. A daemon says who it is within
//! milliseconds; the oldest one is a stranger, or has failed.

use std::{
    collections::VecDeque,
    io,
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// How many there are at a time.
pub(crate) const STRANGERS_MAX: usize = 64;

#[derive(Clone, Default)]
pub(crate) struct Strangers(Arc<Mutex<Open>>);

#[derive(Default)]
struct Open {
    next: u64,
    /// By number, the oldest first.
    streams: VecDeque<(u64, TcpStream)>,
}

/// One of them, until it is dropped.
pub(crate) struct Stranger {
    number: u64,
    among: Strangers,
}

impl Strangers {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a connection, and closes the oldest one where there are too many.
    ///
    /// # Errors
    /// Where there is no descriptor for it.
    pub(crate) fn add(&self, stream: &TcpStream) -> io::Result<Stranger> {
        let stream = stream.try_clone()?;
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.streams.push_back((number, stream));
        if open.streams.len() > STRANGERS_MAX
            && let Some((_, oldest)) = open.streams.pop_front()
        {
            // Its thread fails with it. One that has ended by itself is not connected any more.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        Ok(Stranger { number, among: self.clone() })
    }
}

impl Drop for Stranger {
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
        let strangers = Strangers::default();
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
