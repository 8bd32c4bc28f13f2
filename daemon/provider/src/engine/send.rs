//! Outgoing messages: short ones go in one record (eager), long ones in several, most of them once the
//! receive matches.

use super::address::Address;
use super::buffer::Source;
use super::completion::Completion;
use super::wire::{self, HAS_DATA, Kind, TAGGED, UNSOLICITED_BYTES};
use super::{Core, Engine, Errno, Queued, Route, or_abort};
use crate::abi::{FI_EAGAIN, FI_EHOSTUNREACH, FI_MSG, FI_SEND, FI_TAGGED};
use coswitch_ring::{Header, INLINE_MAX, Peer, RankPort};

/// A message to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) from: Address,
    pub(crate) to: Address,
    pub(crate) source: Source,
    pub(crate) tag: u64,
    pub(crate) tagged: bool,
    pub(crate) data: Option<u64>,
    pub(crate) report: SendReport,
}

/// The parameters of a send that its completion needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendReport {
    pub(crate) endpoint: u16,
    pub(crate) tagged: bool,
    pub(crate) context: usize,
    pub(crate) reports: bool,
}

/// A message or reply that is sent in several records.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// Common fields of the records; `total` is the length of the message.
    pub(crate) header: Header,
    pub(crate) source: Source,
    pub(crate) outbox: usize,
    pub(crate) sent: u64,
    /// Number of bytes that may be sent now.
    pub(crate) allowed: u64,
    /// Number of bytes to be sent in all.
    pub(crate) goal: u64,
    /// Set for messages; a one-sided operation is reported when its reply arrives.
    pub(crate) report: Option<SendReport>,
}

impl Outgoing {
    fn header(&self, kind: Kind, message: u64) -> Header {
        let tagged = if self.tagged { TAGGED } else { 0 };
        let has_data = if self.data.is_some() { HAS_DATA } else { 0 };
        Header {
            flags: tagged | has_data,
            tag: self.tag,
            data: self.data.unwrap_or(0),
            message,
            total: self.source.len() as u64,
            ..wire::header(kind, self.from, self.to)
        }
    }
}

impl Engine {
    /// Sends a message, at once if the ring has space and else later. With `must_not_wait` it fails with
    /// FI_EAGAIN instead of sending later.
    pub(crate) fn send(&mut self, send: Outgoing, must_not_wait: bool) -> Result<(), Errno> {
        let len = send.source.len() as u64;
        match self.core.route(send.to.rank) {
            Route::Own => self.core.send_to_self(send, must_not_wait),
            Route::Nowhere => return Err(FI_EHOSTUNREACH),
            Route::Via(peer, outbox) => {
                if self.core.outboxes[outbox].queue.is_empty()
                    && push_message(&mut self.port, &mut self.core, peer, &send)
                {
                    self.core.after_first_record(send, outbox);
                } else if must_not_wait {
                    return Err(FI_EAGAIN);
                } else {
                    self.core.outboxes[outbox].queue.push_back(Queued::Message(send));
                }
            }
        }
        self.port.counters().on_sent(len);
        Ok(())
    }
}

/// Sends `len` bytes of `source` from `offset` on, inline or in a chunk; false if there is no space.
pub(crate) fn push_bytes(
    port: &mut RankPort,
    peer: Peer,
    header: &Header,
    source: &Source,
    offset: usize,
    len: usize,
) -> bool {
    if len <= INLINE_MAX {
        return source.with_slices(offset, len, |slices| or_abort(port.push(peer, header, slices)));
    }
    let Some(chunk) = port.lease_chunk(peer) else { return false };
    let mut place = port.chunk(&chunk);
    source.with_slices(offset, len, |slices| {
        for slice in slices {
            place.first(slice.len()).copy_from(slice);
            place = place.skip(slice.len());
        }
    });
    match or_abort(port.push_chunk(&Header { len: len as u32, ..*header }, chunk)) {
        Ok(()) => true,
        Err(chunk) => {
            port.release(chunk);
            false
        }
    }
}

/// Sends the first record of a message, for most messages the only one. False if there is no space.
pub(crate) fn push_message(port: &mut RankPort, core: &mut Core, peer: Peer, send: &Outgoing) -> bool {
    let total = send.source.len();
    let first = total.min(port.segment().chunk_bytes());
    let kind = if first == total { Kind::Eager } else { Kind::Rts };
    let header = send.header(kind, core.next_message + 1);
    let pushed = push_bytes(port, peer, &header, &send.source, 0, first);
    if pushed {
        core.new_message();
    }
    pushed
}

impl Core {
    /// Continues after the first record of a message: reports a short message, starts the transfer of a long
    /// one.
    pub(crate) fn after_first_record(&mut self, send: Outgoing, outbox: usize) {
        let total = send.source.len() as u64;
        let first = total.min(self.segment.chunk_bytes() as u64);
        if first == total {
            return self.report_sent(send.report, total as usize);
        }
        let message = self.next_message;
        let allowed = UNSOLICITED_BYTES.clamp(first, total);
        let header = send.header(Kind::Data, message);
        let report = Some(send.report);
        let transfer =
            Transfer { header, source: send.source, outbox, sent: first, allowed, goal: total, report };
        self.start_transfer(message, transfer);
    }

    pub(crate) fn start_transfer(&mut self, message: u64, transfer: Transfer) {
        if transfer.sent < transfer.allowed {
            self.outboxes[transfer.outbox].streams.push_back(message);
        }
        self.transfers.insert(message, transfer);
    }

    /// Handles the receiver's request for `header.total` bytes of the message in all.
    pub(crate) fn on_clear_to_send(&mut self, header: &Header) {
        let message = header.message;
        let Some(transfer) = self.transfers.get_mut(&message) else { return };
        let was_waiting = transfer.sent == transfer.allowed;
        transfer.goal = header.total.min(transfer.header.total);
        transfer.allowed = transfer.goal.max(transfer.sent);
        if transfer.sent >= transfer.goal {
            // If it was not waiting, its number is still in `streams`, where a number without transfer is
            // skipped.
            self.finish_transfer(message);
        } else if was_waiting {
            self.outboxes[transfer.outbox].streams.push_back(message);
        }
    }

    pub(crate) fn finish_transfer(&mut self, message: u64) {
        let Some(transfer) = self.transfers.remove(&message) else { return };
        if let Some(report) = transfer.report {
            self.report_sent(report, transfer.header.total as usize);
        }
    }

    pub(crate) fn report_sent(&mut self, report: SendReport, len: usize) {
        let Some(endpoint) = self.endpoint(report.endpoint) else { return };
        let (sending, counter) = (endpoint.sending, endpoint.counters.send);
        let kind = if report.tagged { FI_TAGGED } else { FI_MSG };
        let completion =
            Completion { context: report.context, flags: FI_SEND | kind, len, ..Completion::EMPTY };
        self.complete(sending, report.reports, completion);
        self.count(counter, false);
    }
}
