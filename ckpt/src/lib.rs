//! Dump and restore of an application's part on a node through CRIU; snapshots and their store.
//!
//! The daemon calls this crate; the crate depends on nothing of ours and knows neither gangs nor daemons. It
//! handles a *tree*: a launcher that is PID 1 of its own PID namespace and the ranks below it, frozen in one
//! cgroup, sharing one segment file with a process that is never dumped.
//!
//! ```text
//! Criu ─ dump ─┬▶ images ───┐
//!              └▶ Memory ───┼─ SnapshotWriter ── seal ──▶ manifest: the snapshot is valid from here on
//!  segment file, channels ──┘
//! Snapshot ─ open ─ load_segment ─▶ Criu ─ restore, pages ──▶ Restored, stopped ── resume ──▶ running
//! ```
//!
//! | module | what it is |
//! | --- | --- |
//! | [`criu`], [`kerndat`] | where CRIU is, what it can do, and its cache of kernel probes |
//! | [`dump`], [`restore`], [`processes`] | dump, restore, and the processes before and after |
//! | [`pages`] | pages from CRIU to the arena, to a file, and back into a tree |
//! | [`preflight`] | checks of files before a restore |
//! | [`image_file`], [`images`] | CRIU's images: decoding (pure), and a directory of them |
//! | [`keys`], `sealed` | the key of each file of a snapshot, and how a file is encrypted |
//! | [`manifest`] | what a complete snapshot is; pure |
//! | `machine` | what a snapshot needs of the processors |
//! | [`private`] | files that only this user may read, in directories that only it may change |
//! | `plain` | CRIU's images in memory, while CRIU writes or reads them |
//! | [`writer`], [`snapshot`] | a snapshot that is being written, and a sealed one |
//! | [`segment`], [`store`] | the segment's contents in a snapshot, and all snapshots |
//! | [`copies`] | chunks of snapshots that other nodes own |
//! | [`user`], [`theirs`] | whose a tree is, and files in directories that its user may change |
//! | [`programs`] | programs that have come with their applications |
//!
//! No two files here import each other, directly or through others.

pub mod copies;
pub mod criu;
pub mod dump;
#[doc(hidden)]
pub mod fuzzing;
pub mod image_file;
pub mod images;
pub mod kerndat;
pub mod keys;
pub mod manifest;
pub mod pages;
pub mod preflight;
pub mod private;
pub mod processes;
pub mod programs;
pub mod restore;
pub mod segment;
pub mod snapshot;
pub mod store;
pub mod theirs;
pub mod trial;
pub mod user;
pub mod writer;

mod error;
mod files;
mod machine;
mod options;
mod parallel;
mod plain;
mod proc_mount;
mod program;
mod reservations;
mod sealed;

pub use criu::{Criu, LocateError};
pub use criu_sys::forker;
pub use dump::{DumpError, DumpReport, DumpRequest, TreeState};
pub use error::{SnapshotError, is_full};
pub use keys::{ClusterKey, Sealing};
pub use manifest::{Checksum, Damage, Identity, Manifest, Origin};
pub use pages::{Arena, Memory, SealedPages};
pub use preflight::{ForeignOutput, OutputFile, SegmentFile};
pub use programs::{Checksummer, ProgramError, ProgramWriter};
pub use restore::{RestoreError, RestoreRequest, Restored, Retry};
pub use snapshot::{Snapshot, SnapshotRestoreError};
pub use store::{Store, StoreError};
pub use user::{JobUser, NotTheUsers};
pub use writer::SnapshotWriter;
