//! Counters of a rank, read by the daemon: messages, bytes, polls, and time spent waiting.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one rank in shared memory. Only the rank writes them, one thread at a time.
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

/// Values of the counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountersSnapshot {
    /// Messages that the program handed to the driver.
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    pub bytes_received: u64,
    /// Nanoseconds for which the rank polled or slept and found nothing.
    pub wait_ns: u64,
    /// Number of polls of the completion queue.
    pub polls: u64,
}

/// A load and a store instead of an atomic addition: the rank is the only writer, and polls must stay cheap.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

impl Counters {
    pub fn on_sent(&self, bytes: u64) {
        add(&self.messages_sent, 1);
        add(&self.bytes_sent, bytes);
    }

    pub fn on_received(&self, messages: u64, bytes: u64) {
        add(&self.messages_received, messages);
        add(&self.bytes_received, bytes);
    }

    pub fn on_waited(&self, ns: u64) {
        add(&self.wait_ns, ns);
    }

    pub fn on_polled(&self, polls: u64) {
        add(&self.polls, polls);
    }

    /// Reads all counters. Each value is exact; a running rank may change some between two reads.
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
