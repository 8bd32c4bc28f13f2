//! Thread that wakes the sleeping data plane when a socket is ready.
//!
//! A rank announces a message by a futex (it must hold no descriptor that leads out of its image), a peer by
//! a socket. The plane sleeps on all futexes; meanwhile this thread sleeps on the sockets and rings the
//! plane's bell. The sockets are armed for one event each and only before a sleep, so the thread does no work
//! while the plane is busy.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use coswitch_ring::Bell;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// How long the thread may take to notice the order to end.
const NOTICE: Duration = Duration::from_millis(200);

pub(crate) struct SocketWatcher {
    epoll: Arc<Epoll>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SocketWatcher {
    pub(crate) fn start(bell: Arc<Bell>) -> io::Result<Self> {
        let epoll = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
        let stop = Arc::new(AtomicBool::new(false));
        let (its_epoll, its_stop) = (Arc::clone(&epoll), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("data-watch".into()).spawn(move || {
            let limit = EpollTimeout::try_from(NOTICE).expect("a fifth of a second");
            let mut events = [EpollEvent::empty(); 64];
            while !its_stop.load(Ordering::Relaxed) {
                // An interrupted or timed-out wait finds nothing, and the loop goes on.
                if its_epoll.wait(&mut events, limit).is_ok_and(|count| count > 0) {
                    bell.ring();
                }
            }
        })?;
        Ok(Self { epoll, stop, thread: Some(thread) })
    }

    pub(crate) fn add(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.epoll.add(socket, EpollEvent::new(EpollFlags::empty(), 0))?)
    }

    /// Rings the bell once when `socket` can be read or, if `also_write`, written.
    pub(crate) fn arm(&self, socket: BorrowedFd<'_>, also_write: bool) -> io::Result<()> {
        let mut flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLONESHOT;
        flags.set(EpollFlags::EPOLLOUT, also_write);
        Ok(self.epoll.modify(socket, &mut EpollEvent::new(flags, 0))?)
    }
}

impl Drop for SocketWatcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
