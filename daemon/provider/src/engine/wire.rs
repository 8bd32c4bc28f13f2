//! The driver's protocol: kinds of record that ranks exchange.
//!
//! ```text
//! sender                          receiver
//! Eager [all bytes] ------------>                     a message of at most one chunk
//!
//! Rts [first bytes] ------------>                     a longer one: envelope and first bytes,
//! Data [next bytes] ------------>                     then some unsolicited bytes,
//!           <-------------------- Cts {wanted}        and the rest once a receive has matched
//! Data [rest]       ------------>
//!
//! Write [bytes]     ------------> ... last: Ack       one-sided, served by the target's progress
//! Read              ------------>
//!           <-------------------- ReadReply [bytes]   or Ack with an error
//! ```
//!
//! Records between two ranks take one way and stay in order. `message` is unique per sending rank.

use super::address::Address;
use coswitch_ring::Header;

/// Bytes of a long message that are sent before its receive has matched.
pub(crate) const UNSOLICITED_BYTES: u64 = 512 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    Eager = 1,
    Rts = 2,
    Data = 3,
    Cts = 4,
    Write = 5,
    Read = 6,
    ReadReply = 7,
    Ack = 8,
}

impl Kind {
    pub(crate) fn of(header: &Header) -> Option<Kind> {
        use Kind::*;
        [Eager, Rts, Data, Cts, Write, Read, ReadReply, Ack]
            .into_iter()
            .find(|&kind| kind as u16 == header.kind)
    }
}

/// The message is tagged.
pub(crate) const TAGGED: u16 = 1;
/// The message carries completion data.
pub(crate) const HAS_DATA: u16 = 2;

pub(crate) fn header(kind: Kind, from: Address, to: Address) -> Header {
    Header {
        src: from.rank,
        dst: to.rank,
        kind: kind as u16,
        src_endpoint: from.endpoint,
        dst_endpoint: to.endpoint,
        ..Header::EMPTY
    }
}

pub(crate) fn sender(header: &Header) -> Address {
    Address { rank: header.src, endpoint: header.src_endpoint }
}

/// Header of the reply to a record: the same message number, sender and receiver exchanged.
pub(crate) fn reply(kind: Kind, header: &Header) -> Header {
    let receiver = Address { rank: header.dst, endpoint: header.dst_endpoint };
    Header { message: header.message, ..self::header(kind, receiver, sender(header)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_decoded_from_its_header() {
        let a = Address { rank: 1, endpoint: 2 };
        let b = Address { rank: 3, endpoint: 4 };
        for kind in [
            Kind::Eager,
            Kind::Rts,
            Kind::Data,
            Kind::Cts,
            Kind::Write,
            Kind::Read,
            Kind::ReadReply,
            Kind::Ack,
        ] {
            assert_eq!(Kind::of(&header(kind, a, b)), Some(kind));
        }
        assert_eq!(Kind::of(&Header { kind: 99, ..Header::EMPTY }), None);
    }

    #[test]
    fn reply_goes_to_the_sender_with_the_same_message_number() {
        let (a, b) = (Address { rank: 1, endpoint: 2 }, Address { rank: 3, endpoint: 4 });
        let asked = Header { message: 77, ..header(Kind::Rts, a, b) };
        let answer = reply(Kind::Cts, &asked);
        assert_eq!((answer.src, answer.dst, answer.src_endpoint, answer.dst_endpoint), (3, 1, 4, 2));
        assert_eq!(answer.message, 77);
    }
}
