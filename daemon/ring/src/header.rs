//! The record header: one cache line in front of every payload, sent unchanged between nodes.
//!
//! The daemon reads `src`, `dst` and `len`. The other fields belong to the driver, which alone gives them a
//! meaning. `slot` is local to a segment: it is set when a record enters a ring and cleared when it is read.

/// Size of a [`Header`], in a ring and on the wire.
pub const HEADER_BYTES: usize = 64;

/// Value of [`Header::slot`] for a payload that lies in the ring itself.
pub const NO_CHUNK: u32 = u32::MAX;

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Global rank of the sender.
    pub src: u32,
    /// Global rank of the receiver.
    pub dst: u32,
    /// Length of the payload in bytes.
    pub len: u32,
    /// Slab chunk that holds the payload, or [`NO_CHUNK`]. Has a meaning only inside a ring.
    pub slot: u32,
    /// Kind of record in the driver's protocol. [`Header::PAD`] is reserved.
    pub kind: u16,
    pub flags: u16,
    pub src_endpoint: u16,
    pub dst_endpoint: u16,
    /// Tag of a tagged message, or a remote address.
    pub tag: u64,
    /// Completion data of a message, or a memory key.
    pub data: u64,
    /// Number of the message or one-sided operation to which the record belongs.
    pub message: u64,
    /// Offset of this payload in the message.
    pub offset: u64,
    /// Length of the whole message.
    pub total: u64,
}

impl Header {
    /// Kind of the record that fills the end of a ring; readers skip it.
    pub const PAD: u16 = u16::MAX;

    /// All zeros, with an inline payload.
    pub const EMPTY: Header = Header {
        src: 0,
        dst: 0,
        len: 0,
        slot: NO_CHUNK,
        kind: 0,
        flags: 0,
        src_endpoint: 0,
        dst_endpoint: 0,
        tag: 0,
        data: 0,
        message: 0,
        offset: 0,
        total: 0,
    };

    /// The header as sent over the network.
    pub fn as_bytes(&self) -> &[u8; HEADER_BYTES] {
        // SAFETY: Header is repr(C) and has 64 bytes without padding (see the layout test), so any byte may
        // be read.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }

    /// Decodes a header from the network. Any bytes make a header: the reader has to check its numbers.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Header {
        // SAFETY: the source is 64 readable bytes and every bit pattern is a valid Header of plain integers.
        unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn header_is_one_cache_line_without_padding() {
        assert_eq!(size_of::<Header>(), HEADER_BYTES);
        assert_eq!(align_of::<Header>(), 8);
        let offsets = [
            offset_of!(Header, src),
            offset_of!(Header, dst),
            offset_of!(Header, len),
            offset_of!(Header, slot),
            offset_of!(Header, kind),
            offset_of!(Header, flags),
            offset_of!(Header, src_endpoint),
            offset_of!(Header, dst_endpoint),
            offset_of!(Header, tag),
            offset_of!(Header, data),
            offset_of!(Header, message),
            offset_of!(Header, offset),
            offset_of!(Header, total),
        ];
        assert_eq!(offsets, [0, 4, 8, 12, 16, 18, 20, 22, 24, 32, 40, 48, 56]);
    }

    #[test]
    fn header_is_unchanged_after_encoding_and_decoding() {
        let header = Header { src: 1, dst: 2, len: 3, kind: 4, tag: u64::MAX, total: 9, ..Header::EMPTY };
        assert_eq!(Header::from_bytes(header.as_bytes()), header);
    }
}
