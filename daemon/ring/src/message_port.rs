//! Byte messages between launcher and daemon, over two rings of the same kind as those of the ranks.
//!
//! Either side can be created again from the shared indexes at any time; at most one of each lives at a time.

use crate::header::Header;
use crate::layout::MESSAGE_MAX;
use crate::segment::Segment;
use crate::spsc::{Consumer, Corrupt, Producer};
use std::sync::Arc;

/// One side of the two message rings.
#[derive(Debug)]
pub struct MessagePort {
    segment: Arc<Segment>,
    out: Producer,
    inward: Consumer,
    is_daemon: bool,
}

impl MessagePort {
    pub fn launcher_side(segment: Arc<Segment>) -> MessagePort {
        MessagePort::new(segment, false)
    }

    pub fn daemon_side(segment: Arc<Segment>) -> MessagePort {
        MessagePort::new(segment, true)
    }

    fn new(segment: Arc<Segment>, is_daemon: bool) -> MessagePort {
        let out = Producer::new(segment.clone(), segment.message_ring(!is_daemon));
        let inward = Consumer::new(segment.clone(), segment.message_ring(is_daemon), MESSAGE_MAX);
        MessagePort { segment, out, inward, is_daemon }
    }

    /// Sends a message of at most [`MESSAGE_MAX`] bytes and rings the other side's bell. `false`: the ring is
    /// full (or its indexes are damaged, which the next `recv` reports); this side's bell will be rung when
    /// there is free space.
    pub fn send(&mut self, message: &[u8]) -> bool {
        assert!(message.len() <= MESSAGE_MAX, "messages are at most {MESSAGE_MAX} bytes");
        let header = Header { len: message.len() as u32, ..Header::EMPTY };
        let sent = self.out.push(&header, &[message]).unwrap_or(false);
        if sent {
            self.ring_other();
        }
        sent
    }

    /// Replaces the contents of `message` by the next message; `false` if there is none.
    pub fn recv(&mut self, message: &mut Vec<u8>) -> Result<bool, Corrupt> {
        let Some(record) = self.inward.first()? else { return Ok(false) };
        if record.header.slot != crate::header::NO_CHUNK {
            return Err(Corrupt::Chunk { chunk: record.header.slot, len: record.header.len });
        }
        message.clear();
        self.inward.inline_payload(&record).append_to(message);
        if self.inward.release_to(record.end) {
            self.ring_other();
        }
        Ok(true)
    }

    /// How far this side has read. The other side sees the same place, and so does a new port in this one's
    /// place.
    pub fn position(&self) -> u64 {
        self.inward.head()
    }

    fn ring_other(&self) {
        let bell = if self.is_daemon { self.segment.launcher_bell() } else { self.segment.daemon_bell() };
        bell.ring();
    }
}
