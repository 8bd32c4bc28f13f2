//! What an endpoint knows: its queues, and how it reports.

use super::buffer::Spans;
use super::matching::{Envelope, MatchQueue};

/// Number of a completion queue, counter or address vector in the engine.
pub(crate) type Handle = usize;

/// How one direction of an endpoint reports completions.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reporting {
    pub(crate) queue: Option<Handle>,
    /// Only operations that ask for it report a success.
    pub(crate) selective: bool,
    /// Flags of operations that carry none of their own.
    pub(crate) default_flags: u64,
}

/// Counters bound to an endpoint.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BoundCounters {
    pub(crate) send: Option<Handle>,
    pub(crate) receive: Option<Handle>,
    pub(crate) read: Option<Handle>,
    pub(crate) write: Option<Handle>,
    pub(crate) remote_read: Option<Handle>,
    pub(crate) remote_write: Option<Handle>,
}

/// A posted receive.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) context: usize,
    pub(crate) reports: bool,
    pub(crate) memory: Memory,
}

/// Where a posted receive puts its bytes.
#[derive(Debug)]
pub(crate) enum Memory {
    /// One message.
    Single(Spans),
    /// One message after another, until it is used up.
    Multi(Handle),
}

/// A multi-receive buffer.
#[derive(Debug)]
pub(crate) struct MultiBuffer {
    pub(crate) spans: Spans,
    pub(crate) used: usize,
    /// Messages that have their place and not yet all their bytes.
    pub(crate) outstanding: usize,
    /// No longer posted: the last completion hands it back.
    pub(crate) exhausted: bool,
}

/// A message that came before its receive.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) data: Option<u64>,
    pub(crate) total: u64,
    pub(crate) body: Body,
}

/// Where the bytes of an unexpected message are.
#[derive(Debug)]
pub(crate) enum Body {
    /// All here.
    Whole(Box<[u8]>),
    /// The first ones here, the others with the sender until asked for. Key of [`Core::partials`](super::Core).
    Partial((u32, u64)),
    /// Still in the memory of a send to ourselves.
    Own(Box<super::send::Outgoing>),
}

/// An endpoint of this rank.
#[derive(Debug, Default)]
pub(crate) struct Endpoint {
    pub(crate) domain: usize,
    pub(crate) addresses: Option<Handle>,
    pub(crate) sending: Reporting,
    pub(crate) receiving: Reporting,
    pub(crate) counters: BoundCounters,
    pub(crate) tagged: MatchQueue<Posted, Arrived>,
    pub(crate) untagged: MatchQueue<Posted, Arrived>,
    /// Messages found by a peek and reserved for the context that peeked.
    pub(crate) claimed: Vec<(usize, Envelope, Arrived)>,
    /// A multi-receive buffer with less room is used up.
    pub(crate) multi_receive_min: usize,
}

impl Endpoint {
    pub(crate) fn queue_mut(&mut self, tagged: bool) -> &mut MatchQueue<Posted, Arrived> {
        if tagged { &mut self.tagged } else { &mut self.untagged }
    }
}
