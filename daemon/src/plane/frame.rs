//! Frames of a data link between two daemons; one link carries frames of many applications.
//!
//! A frame is a [`FrameHead`] of 24 bytes; a data frame goes on with the ring record's header and then its
//! payload, so that the receiving daemon can hand the record on as it is. All integers are little-endian.

use coswitch_policies::{Epoch, JobId};
use coswitch_ring::{CHUNK_MAX, HEADER_BYTES, Header};
use thiserror::Error;

/// Bytes of a [`FrameHead`].
pub(crate) const HEAD_BYTES: usize = 24;
/// Bytes in front of the payload of a data frame.
pub(crate) const DATA_HEAD_BYTES: usize = HEAD_BYTES + HEADER_BYTES;
const MAGIC: u32 = u32::from_le_bytes(*b"CSWD");

/// A peer broke the protocol; its link is closed.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum FrameError {
    #[error("data frame does not begin with the magic number")]
    Magic,
    #[error("data frame of unknown kind {0}")]
    Kind(u32),
    #[error("data frame announces {announced} bytes but its record holds {record}")]
    Length { announced: u32, record: u32 },
    #[error("data frame announces {0} bytes, and no record has more than {CHUNK_MAX}")]
    TooLarge(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A message or a part of one; the record's header and payload follow.
    Data { payload: u32 },
    /// The marker of a cut: all frames before it were sent before the sender's cut.
    Marker { epoch: Epoch },
    /// The receiver has passed on this many bytes; the sender may send as many more.
    Credit { bytes: u64 },
}

/// One life of an application. It begins another where it goes back to an older snapshot without a cut: what
/// is on its way from the life before is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AppLife {
    pub(crate) job: JobId,
    pub(crate) life: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) app: AppLife,
    pub(crate) frame: Frame,
}

impl FrameHead {
    pub(crate) fn encode(self) -> [u8; HEAD_BYTES] {
        let AppLife { job, life } = self.app;
        // A data frame has no value, and the others have no length.
        let (kind, length, value) = match self.frame {
            Frame::Data { payload } => (0, payload, life.into()),
            Frame::Marker { epoch } => (1, life, epoch.0),
            Frame::Credit { bytes } => (2, life, bytes),
        };
        let mut out = [0; HEAD_BYTES];
        for (at, word) in [MAGIC, kind, job.0, length].into_iter().enumerate() {
            out[at * 4..at * 4 + 4].copy_from_slice(&u32::to_le_bytes(word));
        }
        out[16..].copy_from_slice(&u64::to_le_bytes(value));
        out
    }

    pub(crate) fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Self, FrameError> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let value = u64::from_le_bytes(bytes[16..].try_into().expect("eight bytes"));
        if word(0) != MAGIC {
            return Err(FrameError::Magic);
        }
        let (frame, life) = match word(4) {
            0 => (Frame::Data { payload: word(12) }, word(16)),
            1 => (Frame::Marker { epoch: Epoch(value) }, word(12)),
            2 => (Frame::Credit { bytes: value }, word(12)),
            kind => return Err(FrameError::Kind(kind)),
        };
        Ok(Self { app: AppLife { job: JobId(word(8)), life }, frame })
    }
}

/// A data frame's record must hold exactly what the frame announces, and no more than a chunk may. Memory
/// is taken only afterwards.
pub(crate) fn check_record(announced: u32, record: &Header) -> Result<(), FrameError> {
    match announced as usize {
        _ if record.len != announced => Err(FrameError::Length { announced, record: record.len }),
        0..=CHUNK_MAX => Ok(()),
        _ => Err(FrameError::TooLarge(announced)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_frame_reads_back() {
        for frame in [
            Frame::Data { payload: 4096 },
            Frame::Marker { epoch: Epoch(u64::MAX) },
            Frame::Credit { bytes: 1 << 40 },
        ] {
            let head = FrameHead { app: AppLife { job: JobId(9), life: 3 }, frame };
            assert_eq!(FrameHead::decode(&head.encode()), Ok(head));
        }
    }

    #[test]
    fn garbage_is_refused() {
        assert_eq!(FrameHead::decode(&[0; HEAD_BYTES]), Err(FrameError::Magic));
        let app = AppLife { job: JobId(0), life: 0 };
        let mut unknown = FrameHead { app, frame: Frame::Data { payload: 0 } }.encode();
        unknown[4] = 77;
        assert_eq!(FrameHead::decode(&unknown), Err(FrameError::Kind(77)));
        let record = |len| Header { len, ..Header::EMPTY };
        assert_eq!(check_record(8, &record(9)), Err(FrameError::Length { announced: 8, record: 9 }));
        assert_eq!(check_record(CHUNK_MAX as u32, &record(CHUNK_MAX as u32)), Ok(()));
        assert_eq!(check_record(u32::MAX, &record(u32::MAX)), Err(FrameError::TooLarge(u32::MAX)));
    }
}
