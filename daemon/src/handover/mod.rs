//! Handover: a daemon executes its successor, which has the same process id, the same children and the same
//! open sockets, and goes on with what it is handed.
//!
//! ```text
//!   daemon      every part at a complete cut or parked ─▶ [`Handover`] ─▶ memory file ─▶ exec ┐
//!   successor                     go on ◀─ adopt ◀─ read ◀─────────────── `adopt FD` ◀────────┘
//!                                            └─ fails: exec the program before, with the reason
//! ```
//! The kernel keeps the children of the thread that executes the program: the main thread, on which this
//! process forks ([`coswitch_ckpt::forker`]). What the successor is handed lies in memory and in no
//! directory, because it holds the daemon's key; it ends with the process. The data links and the session
//! with the master end: nothing is on its way in them then.

mod carry;
mod examine;
mod kept;

use std::{collections::BTreeSet, fs::File, io, path::PathBuf};

use coswitch_ckpt::Criu;
use coswitch_policies::{Allowance, Bytes, Epoch, JobId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use carry::Successor;
pub(crate) use carry::take;
pub(crate) use examine::examine;
pub use examine::{Compatible, compatible};
pub(crate) use kept::Kept;
use kept::Numbers;

use crate::{
    node::NodeConfig,
    process::Process,
    protocol::{LaunchRequest, Puts},
};

/// Raised when a [`Handover`] of this build cannot be read by those before, or the other way round.
pub const VERSION: u32 = 3;

/// All that a daemon has to know of its past.
#[derive(Serialize, Deserialize)]
pub struct Handover {
    pub(crate) config: NodeConfig,
    /// Of the master that is followed.
    pub(crate) generation: u64,
    pub(crate) files: Numbers,
    /// Found and prepared already.
    pub(crate) criu: Criu,
    pub(crate) allowance: Option<Allowance>,
    /// Released applications and the last word on each.
    pub(crate) released: Vec<(JobId, String)>,
    pub(crate) parts: Vec<HandedPart>,
}

/// An application's part, none of whose ranks computes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandedPart {
    pub(crate) job: JobId,
    pub(crate) launch: LaunchRequest,
    pub(crate) state: HandedState,
    pub(crate) epoch: Epoch,
    pub(crate) cuts: Epoch,
    pub(crate) flushed: Option<Epoch>,
    pub(crate) reached: Option<(u64, Puts)>,
    pub(crate) fences: Vec<(u64, Puts)>,
    pub(crate) life: u32,
    /// The beginning of a message from the launcher.
    pub(crate) launcher: Vec<u8>,
    pub(crate) image_bytes: Bytes,
    /// Snapshots that stay for their copies.
    #[serde(default)]
    pub(crate) needed: BTreeSet<u64>,
    /// Content of its channels at the cut; stored apart from the rest.
    #[serde(skip)]
    pub(crate) channels: Vec<u8>,
    pub(crate) channel_bytes: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum HandedState {
    /// Not handed over; see [`crate::survival`].
    Running {
        root: Process,
    },
    Frozen {
        root: Process,
    },
    PagedOut {
        root: Process,
    },
    Stopped {
        root: Process,
        processes: Vec<i32>,
    },
    Parked,
}

impl HandedState {
    /// The launcher.
    pub(crate) const fn root(&self) -> Option<Process> {
        match self {
            Self::Running { root }
            | Self::Frozen { root }
            | Self::PagedOut { root }
            | Self::Stopped { root, .. } => Some(*root),
            Self::Parked => None,
        }
    }
}

/// Why a daemon cannot go on with what it was handed.
#[derive(Debug, Error)]
pub enum HandoverError {
    #[error("what the daemon before has left cannot be read")]
    Read(#[from] io::Error),
    #[error("what the daemon before has left is not understood")]
    Damaged(#[from] serde_json::Error),
    #[error("the daemon before has left a handover of version {0}; this program reads version {VERSION}")]
    Version(u32),
    #[error("{0} is not the number of an open file")]
    NotAFile(String),
}

/// The program of this process, also where its file has been replaced.
pub(crate) fn own_program() -> io::Result<File> {
    File::open("/proc/self/exe")
}

/// What the master has asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Programs {
    /// `coswitchd`.
    pub daemon: PathBuf,
    /// `coswitch-launcher`, for applications that are launched later.
    pub launcher: PathBuf,
    /// The directory that holds `libcoswitch_fi.so`, for the same.
    pub provider: PathBuf,
}
