//! The events that wake PID 1: the end of a child, lines from its ranks, and rings of its bell.
//!
//! The bell is a futex, which cannot be polled, so a thread sleeps on it and forwards rings to an eventfd.
//! Signalfd, eventfd and a thread in a futex wait all continue after a restore. A timerfd may not, so there
//! is none.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use coswitch_ring::Segment;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};

/// Longest wait for the bell, which bounds the delay by a lost ring.
const BELL_WAIT: Duration = Duration::from_secs(1);
const BELL_STACK_BYTES: usize = 64 << 10;

/// The event sources other than the PMI sockets.
pub(super) struct Wake {
    signals: SignalFd,
    bell: Arc<EventFd>,
}

/// Events since the last wait.
#[derive(Debug, Default)]
pub(super) struct Woken {
    pub(super) terminate: bool,
    pub(super) clients: Vec<u32>,
}

impl Wake {
    /// Blocks SIGCHLD and SIGTERM in this thread and those it starts, and receives them by a signalfd.
    pub(super) fn new() -> io::Result<Self> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        mask.add(Signal::SIGTERM);
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { signals, bell: Arc::new(bell) })
    }

    /// Starts to listen to the bell. The first wake-up comes at once, for messages that have already arrived.
    pub(super) fn listen(&self, segment: Arc<Segment>) -> io::Result<()> {
        let bell = Arc::clone(&self.bell);
        let listen = move || {
            loop {
                let ticket = segment.launcher_bell().ticket();
                // It fails only after 2^64 rings that were not read.
                let _ = bell.write(1);
                segment.launcher_bell().wait(ticket, Some(BELL_WAIT));
            }
        };
        std::thread::Builder::new().name("bell".into()).stack_size(BELL_STACK_BYTES).spawn(listen)?;
        Ok(())
    }

    /// Sleeps until an event, unless some rank is `waiting` already. The caller then checks all sources,
    /// but of the clients only those returned, which have input or free space for output, or wait.
    pub(super) fn wait<'a>(
        &self,
        waiting: Vec<u32>,
        clients: impl Iterator<Item = (u32, BorrowedFd<'a>, PollFlags)>,
    ) -> io::Result<Woken> {
        let (ranks, clients): (Vec<u32>, Vec<_>) =
            clients.map(|(rank, fd, flags)| (rank, PollFd::new(fd, flags))).unzip();
        let own = [self.signals.as_fd(), self.bell.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let mut fds: Vec<_> = own.into_iter().chain(clients).collect();
        let limit = if waiting.is_empty() { PollTimeout::NONE } else { PollTimeout::ZERO };
        match poll(&mut fds, limit) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut woken = Woken::default();
        let ready = ranks.iter().zip(&fds[2..]).filter(|(_, fd)| fd.any() == Some(true));
        woken.clients = ready.map(|(rank, _)| *rank).chain(waiting).collect();
        woken.clients.sort_unstable();
        woken.clients.dedup();
        let _ = self.bell.read();
        while let Ok(Some(signal)) = self.signals.read_signal() {
            woken.terminate |= signal.ssi_signo == Signal::SIGTERM as u32;
        }
        Ok(woken)
    }
}
