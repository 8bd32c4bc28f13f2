//! Protocol between launcher and daemon, over the message rings of the application's segment.
//!
//! A value is encoded with postcard and cut into parts that fit a ring message. The first byte of each part
//! says whether more parts follow. [`encode`] makes the parts, and an [`Assembler`] on the other side joins
//! them.

use std::marker::PhantomData;

use coswitch_ring::MESSAGE_MAX;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

/// Limit of what the ranks of an application put in a run ([`put_bytes`] of each): a thousand bytes for
/// each of sixteen thousand ranks. With all of it, a frame between daemon and master stays under its own
/// limit.
pub const PUTS_BYTES_MAX: usize = 16 << 20;
/// Limit of the barriers of an application over several nodes. MPICH passes two or three in `MPI_Init`, and
/// one in `MPI_Finalize`.
pub const FENCES_MAX: u64 = 4096;
/// Largest encoded value in bytes: all puts of an application.
const VALUE_MAX: usize = PUTS_BYTES_MAX + (1 << 20);
const LAST: u8 = 0;
const MORE: u8 = 1;

/// Message from a launcher to its daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherEvent {
    /// The ranks have been started.
    Ready,
    /// All ranks on this node are in the barrier. Not sent if all ranks of the application are on this node.
    Fence {
        /// Number of the barrier, from 1 on, equal on all nodes.
        sequence: u64,
        /// Keys and values that the ranks on this node have put since the last fence.
        puts: Vec<(String, String)>,
    },
    /// A rank has ended. After the first abnormal end the launcher ends the other ranks and reports them too.
    RankExited { rank: u32, status: ExitStatus },
    /// A rank has called `MPI_Abort` or exited without `MPI_Finalize`. The launcher ends all ranks on this
    /// node; `code` is the exit code that the rank requests.
    Abort { rank: u32, code: i32, message: String },
    /// No rank is left on this node, and the launcher exits.
    AllExited,
    /// A rank has broken the PMI protocol. The launcher ends all ranks on this node.
    Broke { rank: u32, reason: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    Exited(i32),
    Signaled(i32),
    /// The rank was not started, for this reason.
    ExecFailed(String),
}

/// Message from a daemon to its launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherCommand {
    /// All nodes have reached fence `sequence`. The puts are those of all nodes, or of all other nodes.
    FenceDone { sequence: u64, puts: Vec<(String, String)> },
    /// The launcher shall end all ranks on this node and exit.
    Kill,
}

/// Reason why a message was rejected. The conversation cannot continue.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    #[error("read a message part: it is empty")]
    Empty,
    #[error("read a message part: it begins with {0}")]
    Kind(u8),
    #[error("read a message of more than {VALUE_MAX} bytes")]
    TooLong,
    #[error("decode a message: {0}")]
    Decode(#[from] postcard::Error),
}

/// The ring messages that carry `value`, in order.
///
/// # Panics
/// If the encoded value is longer than all puts of an application.
pub fn encode(value: &impl Serialize) -> Vec<Vec<u8>> {
    let bytes = postcard::to_stdvec(value).expect("messages are plain data");
    assert!(bytes.len() <= VALUE_MAX, "a message has at most {VALUE_MAX} bytes, not {}", bytes.len());
    let count = bytes.len().div_ceil(MESSAGE_MAX - 1);
    let part = |(at, part): (usize, &[u8])| {
        let kind = if at + 1 == count { LAST } else { MORE };
        std::iter::once(kind).chain(part.iter().copied()).collect()
    };
    bytes.chunks(MESSAGE_MAX - 1).enumerate().map(part).collect()
}

/// The share of [`PUTS_BYTES_MAX`] that a put takes; no encoding of it is longer.
#[must_use]
pub const fn put_bytes(key: &str, value: &str) -> usize {
    key.len() + value.len() + 8
}

/// Joins the parts of values.
#[derive(Debug)]
pub struct Assembler<T> {
    bytes: Vec<u8>,
    value: PhantomData<fn() -> T>,
}

impl<T> Default for Assembler<T> {
    fn default() -> Self {
        Self { bytes: Vec::new(), value: PhantomData }
    }
}

impl<T> Assembler<T> {
    /// The parts of a value that is not complete.
    #[must_use]
    pub fn parts(&self) -> &[u8] {
        &self.bytes
    }

    /// Goes on after these parts.
    #[must_use]
    pub const fn after(parts: Vec<u8>) -> Self {
        Self { bytes: parts, value: PhantomData }
    }
}

impl<T: DeserializeOwned> Assembler<T> {
    /// Takes the next ring message and returns the value that it completes, if any.
    ///
    /// # Errors
    /// If the message is invalid, that is, the other side is damaged.
    pub fn push(&mut self, message: &[u8]) -> Result<Option<T>, ProtocolError> {
        let (&kind, part) = message.split_first().ok_or(ProtocolError::Empty)?;
        if self.bytes.len() + part.len() > VALUE_MAX {
            return Err(ProtocolError::TooLong);
        }
        self.bytes.extend_from_slice(part);
        match kind {
            MORE => Ok(None),
            LAST => Ok(Some(postcard::from_bytes(&std::mem::take(&mut self.bytes))?)),
            other => Err(ProtocolError::Kind(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carry(event: &LauncherEvent) -> (usize, LauncherEvent) {
        let parts = encode(event);
        assert!(parts.iter().all(|part| part.len() <= MESSAGE_MAX));
        let mut assembler = Assembler::default();
        let (last, firsts) = parts.split_last().unwrap();
        for part in firsts {
            assert_eq!(assembler.push(part), Ok(None));
        }
        (parts.len(), assembler.push(last).unwrap().unwrap())
    }

    #[test]
    fn short_value_takes_one_message_and_a_long_one_several() {
        let exited =
            LauncherEvent::RankExited { rank: 3, status: ExitStatus::ExecFailed("no such file".into()) };
        assert_eq!(carry(&exited), (1, exited));
        let put = |n: u32| (format!("-allgather-shm-1-{n}"), "f".repeat(100));
        let fence = LauncherEvent::Fence { sequence: 1, puts: (0..2000).map(put).collect() };
        let (parts, back) = carry(&fence);
        assert!(parts > 3);
        assert_eq!(back, fence);
    }

    #[test]
    fn all_that_may_be_put_fits_a_message() {
        let (key, value) = (String::new(), String::from("v"));
        let count = PUTS_BYTES_MAX / put_bytes(&key, &value);
        let fence = LauncherEvent::Fence { sequence: u64::MAX, puts: vec![(key, value); count] };
        assert!(encode(&fence).len() > 10);
    }

    #[test]
    fn invalid_message_is_an_error() {
        let mut assembler = Assembler::<LauncherCommand>::default();
        assert_eq!(assembler.push(&[]), Err(ProtocolError::Empty));
        assert_eq!(assembler.push(&[7]), Err(ProtocolError::Kind(7)));
        assert!(matches!(assembler.push(&[LAST, 99]), Err(ProtocolError::Decode(_))));
        let part = [&[MORE][..], &[0; MESSAGE_MAX - 1]].concat();
        let mut assembler = Assembler::<LauncherCommand>::default();
        let refused = (0..1000).find_map(|_| assembler.push(&part).err());
        assert_eq!(refused, Some(ProtocolError::TooLong));
    }
}
