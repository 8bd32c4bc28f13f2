//! What a rank counts about itself for the daemon to read: traffic and time spent waiting.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one rank, in shared memory. Only the rank writes them, one thread at a time.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Counters {
    messages_sent: AtomicU64,
    bytes_sent: AtomicU64,
    messages_received: AtomicU64,
    bytes_received: AtomicU64,
    wait_ns: AtomicU64,
    polls: AtomicU64,
}

/// The counters of one rank at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountersSnapshot {
    /// Messages handed to the driver.
    pub messages_sent: u64,
    /// Payload bytes of these messages.
    pub bytes_sent: u64,
    /// Messages delivered to the program.
    pub messages_received: u64,
    /// Payload bytes of these messages.
    pub bytes_received: u64,
    /// Time the rank polled or slept without finding anything, in nanoseconds.
    pub wait_ns: u64,
    /// Polls of the completion queue.
    pub polls: u64,
}

/// Not a read-modify-write of the bus: the rank is the only writer, and a poll must stay cheap.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

impl Counters {
    /// One message of `bytes` was handed to the driver.
    pub fn on_sent(&self, bytes: u64) {
        add(&self.messages_sent, 1);
        add(&self.bytes_sent, bytes);
    }

    /// `messages` messages of `bytes` bytes in all were delivered.
    pub fn on_received(&self, messages: u64, bytes: u64) {
        add(&self.messages_received, messages);
        add(&self.bytes_received, bytes);
    }

    /// `ns` more nanoseconds went by in waiting.
    pub fn on_waited(&self, ns: u64) {
        add(&self.wait_ns, ns);
    }

    /// `polls` more polls were made.
    pub fn on_polled(&self, polls: u64) {
        add(&self.polls, polls);
    }

    /// All counters now. Each is exact; together they may be torn by a running rank.
    pub fn snapshot(&self) -> CountersSnapshot {
        CountersSnapshot {
            messages_sent: self.messages_sent.load(Ordering::Relaxed),
            bytes_sent: self.bytes_sent.load(Ordering::Relaxed),
            messages_received: self.messages_received.load(Ordering::Relaxed),
            bytes_received: self.bytes_received.load(Ordering::Relaxed),
            wait_ns: self.wait_ns.load(Ordering::Relaxed),
            polls: self.polls.load(Ordering::Relaxed),
        }
    }
}
