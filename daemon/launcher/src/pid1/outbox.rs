//! Events on their way to the daemon: they wait here while its ring has no room.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_launcher::protocol::{LauncherEvent, encode};
use coswitch_ring::{Corrupt, MessagePort, Segment};

/// This end of the conversation with the daemon.
pub(super) struct Outbox {
    port: MessagePort,
    backlog: VecDeque<Vec<u8>>,
}

impl Outbox {
    pub(super) fn new(segment: Arc<Segment>) -> Self {
        Self { port: MessagePort::launcher_side(segment), backlog: VecDeque::new() }
    }

    pub(super) fn push(&mut self, event: &LauncherEvent) {
        self.backlog.extend(encode(event));
        self.flush();
    }

    /// Sends what there is room for; our bell is rung when there is more.
    pub(super) fn flush(&mut self) {
        while self.backlog.front().is_some_and(|message| self.port.send(message)) {
            self.backlog.pop_front();
        }
    }

    /// Sends the rest before this process ends, or gives up when nobody takes it.
    pub(super) fn finish(mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        self.flush();
        while !self.backlog.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
            self.flush();
        }
    }

    pub(super) fn recv(&mut self, message: &mut Vec<u8>) -> Result<bool, Corrupt> {
        self.port.recv(message)
    }
}
