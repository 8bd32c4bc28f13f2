//! The launcher of an application on one node: PID 1 of its PID namespace, parent of its ranks, and their PMI
//! server.
//!
//! This library is the part that the daemon uses: [`start`] starts a launcher from a [`LauncherSpec`],
//! [`protocol`] is the later conversation through the application's segment, and [`pmi`] the pure part of the
//! PMI server. The other part is the program `coswitch-launcher`.
//!
//! ```text
//!   daemon ──fork, exec──> coswitch-launcher (starter) ──clone (NEWPID, PARENT)──> PID 1 ──> ranks
//!     │ <──── Reply::Born, Started ──────┘ exits                                   │
//!     └──────────────── parent of PID 1; messages through the segment ────────────┘
//! ```
//!
//! PID 1 and its ranks hold no descriptor that leads out of their process tree, except regular files and
//! `/dev/null`. Therefore they can be dumped at any instruction, and restored under the same daemon or
//! another one.

/// The trial of a CRIU: see the program's `bait.rs`.
pub mod bait {
    use std::{path::Path, process::Command};

    /// The argument of the program that makes it the bait.
    pub const ARGUMENT: &str = "bait";
    /// Its exit code where it was executed in the place of CRIU.
    pub const TAKEN_OVER: u8 = 77;

    /// The bait, by the program `coswitch-launcher` at `launcher`. It ends with this process.
    pub fn command(launcher: &Path) -> Command {
        let mut command = Command::new(launcher);
        command.arg(ARGUMENT).arg(std::process::id().to_string());
        command
    }
}
pub mod keyring;
pub mod limits;
pub mod panics;
pub mod pmi;
pub mod protocol;
mod spec;
mod start;

pub use spec::{LauncherSpec, RankSpec, RankUser, Reply};
pub use start::{StartError, start};
