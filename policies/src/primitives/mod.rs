//! The primitives of STORM (paper 004, §3.1) over the daemons of a cluster: XFER-AND-SIGNAL, TEST-EVENT and
//! COMPARE-AND-WRITE. Pure; the sessions of the master, the control loop of a daemon and the simulation of
//! the control plane carry the messages.
//!
//! **Where things live.** Each daemon has a global [`Memory`]: at an [`Address`], the same on all nodes, lies
//! a word or a block. An event is a word that counts its signals; [`Memory::test_event`] takes one. The local
//! event of an operation is its [`Number`]: it is signalled when the operation is over, and
//! [`Operations::test_event`] gives the [`Outcome`]. Daemons change words of their own node with
//! [`Memory::set`], and take blocks there with [`Memory::take`].
//!
//! **One order.** The master alone starts operations, one after the other, and numbers them: that is the
//! order in which all nodes see them. Each node hears the messages of one master in order, each once
//! (`daemon::multicast`); a message of an earlier master is void.
//!
//! ```text
//!   master                          node
//!     │ Ask(n) ────────────────────▶ compares, or takes the block; holds n, or refuses it
//!     │ ◀─────────────── Answered(n)
//!     │ all hold it: carry out; one refuses, is lost, or is given up: drop
//!     │ Decide(n) ─────────────────▶ writes and signals, or forgets n
//!     │ ◀──────────────── Decided(n)
//!     ▼ all have: n is over, and the caller sees its outcome
//! ```
//! The answers are combined on their way up the tree of daemons. Where a node holds a comparison, it keeps
//! back its own changes of the compared word: so the condition holds on all nodes at one time, and until all
//! have written. A comparison that writes nothing ends with the answers, each of which is true at a time
//! between the call and its end.
//!
//! **Failures.** A set of nodes is all or none:
//! - A node that is lost before the decision: no node carries it out, and the outcome names the lost node.
//!   One that is lost later: all others carry it out.
//! - A node that is lost may still live, cut off from this master or taken over by a later one, and hold an
//!   operation. Therefore a decision to drop it goes to all nodes of the cluster, and the caller sees no
//!   outcome before they all have it. They keep it until the lost node has another daemon, whose memory is
//!   empty.
//! - A new master asks all nodes what they hold before it starts anything. An operation that some node holds
//!   is carried out if any node has done so; it is dropped if any knows that it was, or has refused it, or if
//!   one of its set has never heard it; else all have it, and it is carried out. Its caller was of the master
//!   before.
//! - A node that some master has not found when it took over has missed what that one decided. It is not on
//!   the [`Roster`] that the others have got, and has to forget everything first.
//!
//! What this cannot do: where a master takes over without any node that knew of a decision to drop, and finds
//! the lost node, that node may carry out an operation whose caller saw it dropped. So may it where no node
//! was left to know.
//!
//! An operation costs two rounds; a comparison without a write costs one.

mod memory;
mod operations;
mod shared_bytes;
mod takeover;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use self::{memory::Memory, operations::Operations, shared_bytes::SharedBytes};
use crate::NodeId;

/// What the blocks of one node's memory may hold together, in bytes.
pub const BLOCKS_MAX: usize = 64 << 20;

/// A place in the global memory: the same on all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address(pub u32);

/// The generation of the master that the node follows lies here.
pub const FOLLOWED: Address = Address(u32::MAX);

/// The place of an operation in the one order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Number {
    /// Of the master that has started it.
    pub generation: u64,
    pub sequence: u64,
}

/// What lies at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    Word(i64),
    Block(SharedBytes),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    Less,
    AtMost,
    Equal,
    NotEqual,
    AtLeast,
    Greater,
}

impl Comparison {
    #[must_use]
    pub const fn holds(self, variable: i64, value: i64) -> bool {
        match self {
            Self::Less => variable < value,
            Self::AtMost => variable <= value,
            Self::Equal => variable == value,
            Self::NotEqual => variable != value,
            Self::AtLeast => variable >= value,
            Self::Greater => variable > value,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// XFER-AND-SIGNAL: puts a value at an address, and signals an event there.
    Transfer { to: Address, value: Value, signal: Option<Address> },
    /// COMPARE-AND-WRITE. The condition holds on no node where there is no word at the address.
    Compare { variable: Address, comparison: Comparison, value: i64, write: Option<(Address, i64)> },
}

impl Operation {
    /// Asks whether nodes follow the master of this generation: what is not answered is not heard.
    #[must_use]
    pub const fn follows(generation: u64) -> Self {
        let (variable, value) = (FOLLOWED, generation.cast_signed());
        Self::Compare { variable, comparison: Comparison::Equal, value, write: None }
    }

    /// Whether nodes have to hold it until it is decided.
    #[must_use]
    pub const fn changes_memory(&self) -> bool {
        !matches!(self, Self::Compare { write: None, .. })
    }
}

/// Nodes, each with the incarnation of its daemon.
pub type Members = BTreeMap<NodeId, u64>;

/// The nodes that a master counts on when it admits a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// Of the master.
    pub generation: u64,
    pub members: Members,
}

/// From the master to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Of the master.
    pub generation: u64,
    pub request: Request,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Asked first by each master; answered by [`Answer::Holds`]. What an earlier master asks is void from
    /// now on.
    Describe,
    /// All that the node holds is void. Answered by [`Answer::Holds`].
    Forget {
        /// Counts with the operations: a repeated request changes nothing.
        number: Number,
    },
    /// The node counts from now on. Not answered.
    Admit(Roster),
    /// Answered by [`Answer::Answered`].
    Ask {
        number: Number,
        /// All that are asked.
        nodes: Members,
        operation: Operation,
        /// Earlier operations are over, but for these, whose decisions a lost node may not know.
        open_from: Number,
        kept: BTreeSet<Number>,
    },
    /// Also to nodes that were not asked, where a node that was asked is lost. Answered by
    /// [`Answer::Decided`].
    Decide { number: Number, carries_out: bool },
}

/// From a node to the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Holds(Box<Report>),
    /// Whether the node holds the operation; of a comparison that writes nothing, whether the condition
    /// holds.
    Answered {
        number: Number,
        holds: bool,
    },
    Decided {
        number: Number,
    },
}

/// What a node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The newest that it has got; without a generation where its memory is as new.
    pub roster: Roster,
    /// The operation that waits for its decision, and the nodes that were asked.
    pub held: Option<(Number, Members)>,
    /// Whether later operations were carried out that may not be over.
    pub decided: BTreeMap<Number, bool>,
}

impl Report {
    /// Nothing that could contradict other nodes.
    fn is_as_new(&self) -> bool {
        self.roster.generation == 0
    }
}

/// How an operation has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All nodes of the set have carried it out, but for those that were lost meanwhile.
    CarriedOut { lost: BTreeSet<NodeId> },
    /// No node has: these have refused it, because the condition does not hold there or a block has no room;
    /// these are lost; these have not answered until it was given up.
    Dropped { refused: BTreeSet<NodeId>, lost: BTreeSet<NodeId>, late: BTreeSet<NodeId> },
}

impl Outcome {
    #[must_use]
    pub const fn is_carried_out(&self) -> bool {
        matches!(self, Self::CarriedOut { .. })
    }
}

/// A message to several nodes.
pub type Sent = (Vec<NodeId>, Message);

#[cfg(test)]
mod tests;
