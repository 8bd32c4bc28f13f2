//! State of an endpoint: its match queues, and how it reports completions.

use super::buffer::Spans;
use super::matching::{Envelope, MatchQueue};

/// Index of a completion queue, counter, address vector or domain in a table of the engine.
pub(crate) type Handle = usize;

/// Reporting of completions, for one direction of an endpoint.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reporting {
    pub(crate) queue: Option<Handle>,
    /// Success is reported only for operations that ask for it.
    pub(crate) selective: bool,
    /// Flags of operations without flags of their own.
    pub(crate) default_flags: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BoundCounters {
    pub(crate) send: Option<Handle>,
    pub(crate) receive: Option<Handle>,
    pub(crate) read: Option<Handle>,
    pub(crate) write: Option<Handle>,
    pub(crate) remote_read: Option<Handle>,
    pub(crate) remote_write: Option<Handle>,
}

#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) context: usize,
    pub(crate) reports: bool,
    pub(crate) memory: Memory,
}

/// Memory of a posted receive.
#[derive(Debug)]
pub(crate) enum Memory {
    /// For one message.
    Single(Spans),
    /// A multi-receive buffer, which takes messages until it is used up.
    Multi(Handle),
}

#[derive(Debug)]
pub(crate) struct MultiBuffer {
    pub(crate) spans: Spans,
    pub(crate) used: usize,
    /// Messages that have a place in the buffer and whose bytes have not all arrived.
    pub(crate) outstanding: usize,
    /// No longer posted: the last completion returns it to the program.
    pub(crate) exhausted: bool,
}

/// A message that arrived before its receive was posted.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub(crate) data: Option<u64>,
    pub(crate) total: u64,
    pub(crate) body: Body,
}

/// Bytes of an unexpected message.
#[derive(Debug)]
pub(crate) enum Body {
    /// All have arrived.
    Whole(Box<[u8]>),
    /// The first bytes have arrived; the sender keeps the others until they are requested. Key of
    /// [`Core::partials`](super::Core).
    Partial((u32, u64)),
    /// Still in the memory of a send from this rank to itself.
    Own(Box<super::send::Outgoing>),
}

#[derive(Debug, Default)]
pub(crate) struct Endpoint {
    pub(crate) domain: usize,
    pub(crate) addresses: Option<Handle>,
    pub(crate) sending: Reporting,
    pub(crate) receiving: Reporting,
    pub(crate) counters: BoundCounters,
    pub(crate) tagged: MatchQueue<Posted, Unexpected>,
    pub(crate) untagged: MatchQueue<Posted, Unexpected>,
    /// Messages that a peek found and reserved for its context.
    pub(crate) claimed: Vec<(usize, Envelope, Unexpected)>,
    /// A multi-receive buffer with fewer free bytes is used up.
    pub(crate) multi_receive_min: usize,
}

impl Endpoint {
    pub(crate) fn queue_mut(&mut self, tagged: bool) -> &mut MatchQueue<Posted, Unexpected> {
        if tagged { &mut self.tagged } else { &mut self.untagged }
    }
}
