//! How a program is sent to the nodes of a job by the primitives (paper 004, §3.3 and §4.3). Pure; a task of
//! the dispatcher and the control loop of a daemon carry it out.
//!
//! ```text
//!   master                                             each node of the job
//!     │ announcement ─────────────────────────────────▶ TAKEN becomes 0
//!     │ XFER-AND-SIGNAL fragment i to slot i mod W ───▶ TEST-EVENT: takes the block, appends it to a file,
//!     │         ... W of them                            and sets TAKEN to i + 1
//!     │ COMPARE-AND-WRITE: TAKEN ≥ i on all nodes? ───▶
//!     │         yes: their slots are free                no: asked again after a pause
//!     │ COMPARE-AND-WRITE: TAKEN ≥ all? ──────────────▶ the digest was right before TAKEN became that
//!     ▼ the launch
//! ```
//! A slot gets a fragment when all nodes are known to have written the one before: so a slow disk stops the
//! master and fills no memory, of which a node needs [`WINDOW`] fragments. One program is sent at a time,
//! because the operations of a master are carried out one after the other in any case. The fragments and the
//! words lie in an [area](SLOTS) of the global memory that nothing else uses.

mod receiving;
mod sending;
#[cfg(test)]
mod tests;

pub use self::{
    receiving::Receiving,
    sending::{Next, Refused, Sending},
};
use crate::primitives::Address;

/// Size of a fragment, but for the last one, in bytes.
pub const FRAGMENT_BYTES: u64 = 512 << 10;
/// How many fragments all nodes hold at most that some node has not written.
pub const WINDOW: u32 = 8;

/// The first of the addresses that are for programs: fragment `i` goes to slot `i` modulo [`WINDOW`].
const SLOTS: u32 = 0x8000_0000;
/// Signalled by each fragment.
pub const ARRIVED: Address = Address(SLOTS + WINDOW);
/// The number of fragments that a node has written.
pub const TAKEN: Address = Address(SLOTS + WINDOW + 1);

/// The address to which a fragment goes.
#[must_use]
pub const fn slot(fragment: u32) -> Address {
    Address(SLOTS + fragment % WINDOW)
}

/// How many fragments a program of this size has.
#[must_use]
pub fn fragments(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(FRAGMENT_BYTES)).unwrap_or(u32::MAX)
}
