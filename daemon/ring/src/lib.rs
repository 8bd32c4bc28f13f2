//! Shared-memory segment of one application on one node: rings, slabs, doorbells.
//!
//! ```text
//!            out ring            in ring
//!   rank 0 ----------> daemon ----------> rank 0        one pair a rank, for other nodes
//!   rank 0 ---------------------------->  rank 1        one direct ring for every ordered pair
//!   launcher <------------------------->  daemon        two message rings
//! ```
//!
//! The segment is one file of fixed size. The daemon creates it; launcher and ranks open it by path and map it
//! `MAP_SHARED`. Its contents are not in a process image: the daemon saves and refills them, so everything that
//! matters lies here and every private copy can be derived from it again.
//!
//! Invariants:
//! - A rank may be frozen, or killed and restored, at any instruction. Hence no lock is shared between processes:
//!   every ring has one producer and one consumer, and an index is published after the data it covers.
//! - Small payloads lie in the ring behind their [`Header`]; larger ones fill one slab *chunk* whose number the
//!   header carries. A chunk has one owner (who leases it) and at any time one holder.
//! - Nothing read from the segment is trusted: indexes, lengths and chunk numbers are checked and a bad one is
//!   [`Corrupt`], never undefined behaviour and never a panic.
//!
//! All unsafe code about shared memory is in this crate. It knows neither jobs nor sockets.

mod bell;
mod counters;
mod daemon_port;
mod header;
mod layout;
mod mapping;
mod message_port;
mod place;
mod rank_port;
mod segment;
mod slab;
mod spsc;
mod wait;

pub use bell::{Bell, wait_any};
pub use counters::{Counters, CountersSnapshot};
pub use daemon_port::{DaemonPort, Lease};
pub use header::{HEADER_BYTES, Header, NO_CHUNK};
pub use layout::{INLINE_MAX, MESSAGE_MAX, SegmentSpec, ShapeError};
pub use message_port::MessagePort;
pub use rank_port::{OutChunk, Path, RankPort};
pub use segment::{Segment, SegmentError};
pub use spsc::{Corrupt, Record};
pub use wait::WaitPolicy;
