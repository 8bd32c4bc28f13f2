//! Connection to the daemon: sends events, which wait here while the message ring is full, and receives
//! commands.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_launcher::protocol::{LauncherEvent, encode};
use coswitch_ring::{Corrupt, MessagePort, Segment};

pub(super) struct Uplink {
    port: MessagePort,
    backlog: VecDeque<Vec<u8>>,
}

impl Uplink {
    pub(super) fn new(segment: Arc<Segment>) -> Self {
        Self { port: MessagePort::launcher_side(segment), backlog: VecDeque::new() }
    }

    pub(super) fn push(&mut self, event: &LauncherEvent) {
        self.backlog.extend(encode(event));
        self.flush();
    }

    /// Sends until the ring is full; the launcher's bell is rung when there is free space.
    pub(super) fn flush(&mut self) {
        while self.backlog.front().is_some_and(|message| self.port.send(message)) {
            self.backlog.pop_front();
        }
    }

    /// Sends the rest before this process ends, or gives up after `patience`.
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
