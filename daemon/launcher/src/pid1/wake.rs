//! What PID 1 sleeps on: the end of a child, lines of its ranks, and the daemon's bell.
//!
//! The bell is a futex, which cannot be polled; a thread sleeps on it and passes it on through an eventfd. Signalfd,
//! eventfd and a thread in a futex wait all come back from an image. A timerfd may not, so there is none.

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

/// Even a ring that is lost delays us by no more than this.
const BELL_WAIT: Duration = Duration::from_secs(1);
const BELL_STACK_BYTES: usize = 64 << 10;

/// The sources of news that are always there.
pub(super) struct Wake {
    signals: SignalFd,
    bell: Arc<EventFd>,
}

/// What there is news of.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) terminate: bool,
    pub(super) clients: Vec<u32>,
}

impl Wake {
    /// Takes SIGCHLD and SIGTERM over from their handlers, for this thread and those it starts.
    pub(super) fn new() -> io::Result<Self> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        mask.add(Signal::SIGTERM);
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { signals, bell: Arc::new(bell) })
    }

    /// Starts to listen to the daemon; the first news is at once, for whatever is there already.
    pub(super) fn listen(&self, segment: Arc<Segment>) -> io::Result<()> {
        let bell = Arc::clone(&self.bell);
        let listen = move || {
            loop {
                let ticket = segment.launcher_bell().ticket();
                // It fails only where 2^64 rings have not been taken notice of.
                let _ = bell.write(1);
                segment.launcher_bell().wait(ticket, Some(BELL_WAIT));
            }
        };
        std::thread::Builder::new().name("bell".into()).stack_size(BELL_STACK_BYTES).spawn(listen)?;
        Ok(())
    }

    /// Sleeps until there is news. The caller looks everywhere in any case, except that only the clients named have
    /// something to say, or room for what is said to them.
    pub(super) fn wait<'a>(
        &self,
        clients: impl Iterator<Item = (u32, BorrowedFd<'a>, PollFlags)>,
    ) -> io::Result<News> {
        let (ranks, clients): (Vec<u32>, Vec<_>) =
            clients.map(|(rank, fd, flags)| (rank, PollFd::new(fd, flags))).unzip();
        let own = [self.signals.as_fd(), self.bell.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let mut fds: Vec<_> = own.into_iter().chain(clients).collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut news = News::default();
        let spoken = ranks.iter().zip(&fds[2..]).filter(|(_, fd)| fd.any() == Some(true));
        news.clients = spoken.map(|(rank, _)| *rank).collect();
        let _ = self.bell.read();
        while let Ok(Some(signal)) = self.signals.read_signal() {
            news.terminate |= signal.ssi_signo == Signal::SIGTERM as u32;
        }
        Ok(news)
    }
}
