//! The shared-memory segment of one application on one node: rings, slabs and doorbells.
//!
//! ```text
//!            out ring            in ring
//!   rank 0 ----------> daemon ----------> rank 0        one pair per rank, for messages between nodes
//!   rank 0 ---------------------------->  rank 1        one direct ring for every ordered pair of ranks
//!   launcher <------------------------->  daemon        two message rings
//! ```
//!
//! The segment is one file of fixed size. The daemon creates it; launcher and ranks open it by path and map
//! it `MAP_SHARED`. A process image does not contain it: the daemon saves and refills it. Therefore all state
//! of the conversation lies in the segment, and every private copy can be derived from it again.
//!
//! Invariants:
//! - A rank may be frozen, or killed and restored, at any instruction. Hence processes share no lock: every
//!   ring has one producer and one consumer, and an index is published after the data it covers.
//! - Small payloads lie in the ring behind their [`Header`]. A larger payload fills one slab *chunk*, whose
//!   number the header carries. A chunk has one owner, which leases it, and at any time one holder.
//! - Nothing read from the segment is trusted: a header is copied once, and indexes, lengths and chunk
//!   numbers are checked in the copy. A bad one is [`Corrupt`], never undefined behaviour and never a
//!   panic. Payloads are [`SharedBytes`], which may change while they are read.
//! - The file may be cut at any time, and `/dev/shm` may be full: see [`survive_missing_pages`].
//!
//! This crate contains all unsafe code about shared memory. It knows neither jobs nor sockets.

mod activity;
mod bell;
mod counters;
mod daemon_port;
mod damage;
mod header;
mod layout;
mod mapping;
mod message_port;
#[cfg(all(test, loom))]
mod models;
mod place;
mod rank_port;
mod segment;
mod shared;
mod slab;
mod spsc;
mod sync;
mod wait;

pub use activity::{Activity, Arrival, Ask, Doing};
pub use bell::Bell;
#[cfg(not(loom))]
pub use bell::wait_any;
pub use counters::{Counters, CountersSnapshot};
pub use daemon_port::{DaemonPort, Lease};
pub use damage::survive_missing_pages;
pub use header::{HEADER_BYTES, Header, NO_CHUNK};
pub use layout::{CHUNK_MAX, INLINE_MAX, MESSAGE_MAX, SegmentSpec, ShapeError};
pub use message_port::MessagePort;
pub use rank_port::{OutChunk, Peer, RankPort};
pub use segment::{Segment, SegmentError};
pub use shared::SharedBytes;
pub use spsc::{Corrupt, Record};
pub use wait::WaitPolicy;
