//! Progress: moves records from the rings into the core and from the outboxes into the rings.

use super::send::{push_bytes, push_message};
use super::wire::Kind;
use super::{Core, Engine, Queued, or_abort};
use coswitch_ring::{Header, INLINE_MAX, Peer, Record};

/// Largest number of records taken from one peer before the next peer's turn.
const BATCH: usize = 32;

impl Core {
    fn on_record(&mut self, Record { header, payload }: Record<'_>) {
        let header = &header;
        match Kind::of(header) {
            Some(Kind::Eager | Kind::Rts) => self.on_message(header, payload),
            Some(Kind::Data) => self.on_data(header, payload),
            Some(Kind::Cts) => self.on_clear_to_send(header),
            Some(Kind::Write) => self.on_write(header, payload),
            Some(Kind::Read) => self.on_read(header),
            Some(Kind::ReadReply) => self.on_read_reply(header, payload),
            Some(Kind::Ack) => self.on_ack(header),
            None => {
                eprintln!("coswitch: record of unknown kind {} from rank {}", header.kind, header.src);
                std::process::abort()
            }
        }
    }
}

impl Engine {
    /// Receives arrived records and sends waiting ones; true if anything moved.
    pub(crate) fn progress(&mut self) -> bool {
        let mut moved = self.drain(Peer::Daemon);
        for local in 0..self.core.outboxes.len() as u32 - 1 {
            moved |= local != self.core.local && self.drain(Peer::Rank(local));
        }
        for outbox in 0..self.core.outboxes.len() {
            moved |= self.flush_outbox(outbox);
        }
        let (messages, bytes) =
            (std::mem::take(&mut self.core.received_messages), std::mem::take(&mut self.core.received_bytes));
        if messages > 0 {
            self.port.counters().on_received(messages, bytes);
        }
        moved
    }

    fn drain(&mut self, peer: Peer) -> bool {
        if !self.port.may_have_record(peer) {
            return false;
        }
        for _ in 0..BATCH {
            let Some(record) = or_abort(self.port.peek(peer)) else { break };
            let bulk = peer == Peer::Daemon && record.payload.len() > INLINE_MAX;
            self.core.on_record(record);
            or_abort(self.port.pop(peer));
            if bulk {
                self.bulk = true;
                break;
            }
        }
        true
    }

    /// Sends waiting records until the ring is full; true if any was sent.
    pub(crate) fn flush_outbox(&mut self, number: usize) -> bool {
        let peer = match number == self.core.outboxes.len() - 1 {
            true => Peer::Daemon,
            false => Peer::Rank(number as u32),
        };
        let mut moved = false;
        while !self.core.outboxes[number].queue.is_empty() {
            if !self.flush_queued(number, peer) {
                return moved;
            }
            moved = true;
        }
        while let Some(message) = self.core.outboxes[number].streams.pop_front() {
            if !self.flush_stream(number, peer, message) {
                return moved;
            }
            moved = true;
            if peer == Peer::Daemon {
                self.bulk = true;
                break;
            }
        }
        moved
    }

    fn flush_queued(&mut self, number: usize, peer: Peer) -> bool {
        let Some(queued) = self.core.outboxes[number].queue.pop_front() else { return false };
        let pushed = match &queued {
            Queued::Control(header) => or_abort(self.port.push(peer, header, &[])),
            Queued::Message(send) => push_message(&mut self.port, &mut self.core, peer, send),
        };
        match queued {
            queued if !pushed => self.core.outboxes[number].queue.push_front(queued),
            Queued::Message(send) => self.core.after_first_record(send, number),
            Queued::Control(_) => {}
        }
        pushed
    }

    /// Sends one record of a transfer and moves the transfer behind the others; false if the ring is full.
    fn flush_stream(&mut self, number: usize, peer: Peer, message: u64) -> bool {
        let Some(transfer) = self.core.transfers.get_mut(&message) else { return true };
        let piece = (transfer.allowed - transfer.sent).min(self.port.segment().chunk_bytes() as u64);
        let header = Header { offset: transfer.sent, ..transfer.header };
        let pushed = push_bytes(
            &mut self.port,
            peer,
            &header,
            &transfer.source,
            transfer.sent as usize,
            piece as usize,
        );
        if !pushed {
            self.core.outboxes[number].streams.push_front(message);
            return false;
        }
        transfer.sent += piece;
        if transfer.sent >= transfer.goal {
            self.core.finish_transfer(message);
        } else if transfer.sent < transfer.allowed {
            self.core.outboxes[number].streams.push_back(message);
        }
        true
    }
}
