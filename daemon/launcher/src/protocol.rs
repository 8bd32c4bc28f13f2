//! The conversation between launcher and daemon, through the message rings of the application's segment.
//!
//! A value is encoded with postcard and cut into parts that fit a ring message: each part begins with one byte that
//! says whether more follow. [`encode`] makes the parts, an [`Assembler`] on the other side puts them together.

use std::marker::PhantomData;

use coswitch_ring::MESSAGE_MAX;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

/// A value may be this long, encoded: far above any exchange of addresses, far below what would hurt.
const VALUE_MAX: usize = 64 << 20;
const LAST: u8 = 0;
const MORE: u8 = 1;

/// From a launcher to its daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherEvent {
    /// The ranks have been started.
    Ready,
    /// All ranks here are in the barrier. Not sent where all ranks of the application live here.
    Fence {
        /// Counts up from 1; equal on all nodes for the same barrier.
        sequence: u64,
        /// Key and value of each put by the ranks here since the last fence.
        puts: Vec<(String, String)>,
    },
    /// A rank has ended. After the first abnormal end the launcher ends the others and reports them too.
    RankExited {
        /// Which.
        rank: u32,
        /// How.
        status: ExitStatus,
    },
    /// A rank has called `MPI_Abort` or broken the PMI protocol, or has left without `MPI_Finalize`; the launcher ends
    /// all ranks here.
    Abort {
        /// Which.
        rank: u32,
        /// The exit code it asks for.
        code: i32,
        /// What it says.
        message: String,
    },
    /// No rank is left here; the launcher exits.
    AllExited,
}

/// How a rank has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// It never began.
    ExecFailed(String),
}

/// From a daemon to its launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LauncherCommand {
    /// All nodes have reached fence `sequence`.
    FenceDone {
        /// Which.
        sequence: u64,
        /// The puts of all nodes; those of this one may be left out.
        puts: Vec<(String, String)>,
    },
    /// End all ranks here and exit.
    Kill,
}

/// Why a message of the other side was not understood; the conversation cannot go on.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A part without its first byte.
    #[error("read a message part: it is empty")]
    Empty,
    /// A first byte that is neither of the two.
    #[error("read a message part: it begins with {0}")]
    Kind(u8),
    /// Larger than anything that is ever sent.
    #[error("read a message of more than {VALUE_MAX} bytes")]
    TooLong,
    /// Not a value of the type expected.
    #[error("decode a message: {0}")]
    Decode(#[from] postcard::Error),
}

/// The ring messages that carry `value`, in order.
///
/// # Panics
/// Where the value is longer than anything that makes sense.
pub fn encode(value: &impl Serialize) -> Vec<Vec<u8>> {
    let bytes = postcard::to_stdvec(value).expect("messages are plain data");
    assert!(bytes.len() <= VALUE_MAX, "a message of {} bytes", bytes.len());
    let count = bytes.len().div_ceil(MESSAGE_MAX - 1);
    let part = |(at, part): (usize, &[u8])| {
        let kind = if at + 1 == count { LAST } else { MORE };
        std::iter::once(kind).chain(part.iter().copied()).collect()
    };
    bytes.chunks(MESSAGE_MAX - 1).enumerate().map(part).collect()
}

/// Puts the parts of values together.
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

impl<T: DeserializeOwned> Assembler<T> {
    /// Takes the next ring message; gives a value where it completes one.
    ///
    /// # Errors
    /// Where it makes no sense: the other side is damaged.
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
    fn short_values_travel_in_one_message_and_long_ones_in_several() {
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
    fn a_damaged_message_is_an_error() {
        let mut assembler = Assembler::<LauncherCommand>::default();
        assert_eq!(assembler.push(&[]), Err(ProtocolError::Empty));
        assert_eq!(assembler.push(&[7]), Err(ProtocolError::Kind(7)));
        assert!(matches!(assembler.push(&[LAST, 99]), Err(ProtocolError::Decode(_))));
    }
}
