//! The cut: the algorithm of Chandy and Lamport for one application's part on one node, without IO.
//!
//! The *process* of the algorithm is the part of the application on this node: its ranks, their rings and the
//! inbox. Its *channels* are the ordered streams between that part and the parts on the other nodes, and one
//! to the checkpoint scheduler: [`Input::Begin`] is the marker that arrives on it, [`CutReport::Flushed`] the
//! one that leaves. The data plane feeds inputs and carries out the outputs in the order given.
//!
//! ```text
//!             marker of a new epoch,                 Frozen: own state recorded
//!             from any node / FreezeRanks            / SendMarker to every peer
//!   Running ──────────────────────────> Freezing ──────────────────────────────> Draining
//!     ^  ^                               │  ^                                     │ │ │
//!     │  │                               │  └─── newer marker / FreezeRanks ──────┘ │ │ markers from all
//!     │  └─ FreezeFailed, PeerLost ──────┴──────────────────────────────────────────┘ │ channels / Flushed
//!     │     / ThawRanks, Failed; Abort / ThawRanks, Aborted                           v
//!     └───────────── Resumed; Abort / ThawRanks, Aborted ────────────────────────── Flushed
//! ```
//!
//! A marker of a newer epoch proves that the scheduler has given up the older one, unless this part has
//! reported `Flushed`: then only the scheduler ends the epoch (`Resumed` or `Abort`), and the newer one
//! begins after it. A peer may resume before this part does. Its messages then follow its marker, lie *after*
//! the cut, and wait in the [`Inbox`] until this part runs again.
//!
//! Invariants: an epoch number is never used twice; an epoch at or below `over` never begins again; from the
//! recording of the part's own state until the epoch ends no message is delivered to a rank; each marker is
//! sent once, behind all messages that were sent before the freeze.

mod events;
mod inbox;
mod machine;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use events::{Arrival, CutError, CutReport, Input, Output};
pub use inbox::Inbox;
pub use machine::Cut;
