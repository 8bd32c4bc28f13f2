//! Dump and restore of an application's part on a node through CRIU; snapshot manifest and store.
//!
//! The daemon calls this crate; it depends on nothing of ours and knows neither gangs nor daemons. What it
//! handles is a *tree*: a launcher that is PID 1 of its own PID namespace and the ranks below it, frozen in one
//! cgroup, sharing one segment file with a process that is never dumped.
//!
//! ```text
//! Criu ─ dump ─┬▶ images ───┐
//!              └▶ Memory ───┼─ SnapshotWriter ── seal ──▶ manifest: the snapshot is valid from here on
//!  segment file, channels ──┘
//! Snapshot ─ verify ─ load_segment ─▶ Criu ─ restore, pages ──▶ Restored, stopped ── resume ──▶ running
//! ```
//!
//! | module | what it is |
//! | --- | --- |
//! | [`criu`], [`kerndat`] | where CRIU is, what it can, and its cache of kernel probes |
//! | [`dump`], [`restore`], [`processes`] | the two acts, and the processes before and after |
//! | [`pages`] | the arena; pages from CRIU to it, to a file, and back into a tree |
//! | [`preflight`] | what must be true of files before a restore |
//! | [`image_file`], [`images`] | reading CRIU's images: pure, and from a directory |
//! | [`manifest`] | what a complete snapshot is; pure |
//! | [`snapshot`], [`segment`], [`store`] | one snapshot in a directory, the segment's contents in it, and all of them |

pub mod criu;
pub mod dump;
pub mod image_file;
pub mod images;
pub mod kerndat;
pub mod manifest;
pub mod pages;
pub mod preflight;
pub mod processes;
pub mod restore;
pub mod segment;
pub mod snapshot;
pub mod store;

mod files;
mod options;
mod proc_mount;

pub use criu::{Criu, LocateError};
pub use criu_sys::forker;
pub use dump::{DumpError, DumpReport, DumpRequest, JobState};
pub use manifest::{Damage, Identity, Manifest, Origin};
pub use pages::{Arena, Memory};
pub use preflight::{ForeignOutput, OutputFile, SegmentFile};
pub use restore::{RestoreError, RestoreRequest, Restored, Retry};
pub use snapshot::{BringBackError, Snapshot, SnapshotError, SnapshotWriter};
pub use store::{Store, StoreError};

/// How many threads of a node copy or check side by side, at most four.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(4)
}
