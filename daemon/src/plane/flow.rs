//! Flow control of the ordered streams between this node and another one, for one application.

use coswitch_ring::{HEADER_BYTES, Header};

/// Bytes that one node may have sent to another before the receiver has passed them on. Large enough for the
/// bandwidth of a link times its delay, small enough for a quick flush at a cut.
const WINDOW_BYTES: u64 = 2 << 20;
/// A receiver returns credit in steps of this size.
const CREDIT_STEP: u64 = WINDOW_BYTES / 2;

pub(crate) struct FlowControl {
    /// Bytes that may still be sent.
    credit: u64,
    /// Bytes passed on here, but not yet returned to the sender as credit.
    owed: u64,
}

impl FlowControl {
    pub(crate) fn new() -> Self {
        Self { credit: WINDOW_BYTES, owed: 0 }
    }

    pub(crate) fn may_send(&self, header: &Header) -> bool {
        self.credit >= cost(header)
    }

    pub(crate) fn on_sent(&mut self, header: &Header) {
        self.credit -= cost(header);
    }

    pub(crate) fn on_credit(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_add(bytes).min(WINDOW_BYTES);
    }

    pub(crate) fn on_passed_on(&mut self, header: &Header) {
        self.owed += cost(header);
    }

    /// Takes the credit to return, once it is worth a frame.
    pub(crate) fn take_due(&mut self) -> Option<u64> {
        (self.owed >= CREDIT_STEP).then(|| std::mem::take(&mut self.owed))
    }
}

/// The credit that a record uses.
pub(crate) fn cost(header: &Header) -> u64 {
    u64::from(header.len) + HEADER_BYTES as u64
}
