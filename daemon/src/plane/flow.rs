//! Flow control of the ordered streams between this node and another one, for one application.

use coswitch_ring::{HEADER_BYTES, Header};

/// Bytes that one node may have sent to another before the receiver has passed them on. Large enough for the
/// bandwidth of a link times its delay, small enough for a quick flush at a cut.
const WINDOW_BYTES: u64 = 2 << 20;
/// A receiver returns credit in steps of this size.
const CREDIT_STEP: u64 = WINDOW_BYTES / 2;
/// The same while records wait in the inbox: those for a rank that does not read may hold more than half of
/// the window, and the rest has to come back for the ranks beside it.
const SMALL_CREDIT_STEP: u64 = WINDOW_BYTES / 16;

pub(crate) struct FlowControl {
    /// Bytes that may still be sent.
    credit: u64,
    /// Bytes that the peer may still send, at most.
    peer_credit: u64,
    /// Bytes passed on here, but not yet returned to the sender as credit.
    owed: u64,
}

impl FlowControl {
    pub(crate) fn new() -> Self {
        Self { credit: WINDOW_BYTES, peer_credit: WINDOW_BYTES, owed: 0 }
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

    /// False where the peer had no credit for this record.
    #[must_use]
    pub(crate) fn on_received(&mut self, header: &Header) -> bool {
        let left = self.peer_credit.checked_sub(cost(header));
        self.peer_credit = left.unwrap_or(0);
        left.is_some()
    }

    pub(crate) fn on_passed_on(&mut self, header: &Header) {
        self.owed += cost(header);
    }

    /// Takes the credit to return, once it is worth a frame.
    pub(crate) fn take_due(&mut self, records_wait: bool) -> Option<u64> {
        let step = if records_wait { SMALL_CREDIT_STEP } else { CREDIT_STEP };
        let due = (self.owed >= step).then(|| std::mem::take(&mut self.owed))?;
        self.peer_credit += due;
        Some(due)
    }
}

/// The credit that a record uses.
pub(crate) fn cost(header: &Header) -> u64 {
    u64::from(header.len) + HEADER_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_keeps_to_its_credit_is_never_refused_and_one_that_does_not_is() {
        let header = Header { len: 100_000, ..Header::from_bytes(&[0; HEADER_BYTES]) };
        let (mut sender, mut receiver) = (FlowControl::new(), FlowControl::new());
        // What was restored from a snapshot is passed on, too, but was not sent under this credit.
        receiver.on_passed_on(&header);
        for _ in 0..100 {
            while sender.may_send(&header) {
                sender.on_sent(&header);
                assert!(receiver.on_received(&header));
                receiver.on_passed_on(&header);
            }
            sender.on_credit(receiver.take_due(false).expect("more than a half was passed on"));
        }
        let beyond = (0..=2 * WINDOW_BYTES / cost(&header)).position(|_| !receiver.on_received(&header));
        assert!(beyond.is_some(), "a peer is bounded");
    }
}
