//! The master's side: which operation is started next.

use std::collections::BTreeSet;

use super::WINDOW;
use crate::{NodeId, primitives::Outcome};

/// A program on its way.
#[derive(Clone, Debug)]
pub struct Sending {
    fragments: u32,
    /// Fragments whose transfers were started.
    started: u32,
    /// All nodes are known to have written so many.
    taken: u32,
    comparison: Comparison,
}

/// Whether the nodes are being asked for what they have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    None,
    /// Whether it is so many.
    Asked(u32),
    /// They had not: to be asked again later.
    Refused,
}

/// What the master does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Start the transfer of this fragment.
    Transfer(u32),
    /// Start the comparison whether all nodes have written so many fragments.
    Compare(u32),
    /// Wait for the end of the operation that was started first.
    Wait,
    /// Wait for a while, then call [`Sending::on_pause_over`].
    Pause,
    /// All nodes have the program.
    Done,
}

/// Why a fragment has reached no node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// These nodes are lost.
    Lost(BTreeSet<NodeId>),
    /// These have no room for it, or have not answered.
    NoRoom(BTreeSet<NodeId>),
}

impl Sending {
    #[must_use]
    pub const fn new(fragments: u32) -> Self {
        Self { fragments, started: 0, taken: 0, comparison: Comparison::None }
    }

    /// The fragments that all nodes are known to have written.
    #[must_use]
    pub const fn taken(&self) -> u32 {
        self.taken
    }

    /// What is to be done now; a transfer or a comparison counts as started.
    pub fn step(&mut self) -> Next {
        if self.taken == self.fragments {
            return Next::Done;
        }
        if self.started < self.fragments && self.started - self.taken < WINDOW {
            self.started += 1;
            return Next::Transfer(self.started - 1);
        }
        match self.comparison {
            Comparison::None => {
                let wanted = self.wanted();
                self.comparison = Comparison::Asked(wanted);
                Next::Compare(wanted)
            }
            Comparison::Asked(_) => Next::Wait,
            Comparison::Refused => Next::Pause,
        }
    }

    /// Half of the window: the nodes write the other half while they are asked, and take new fragments while
    /// they write it.
    const fn wanted(&self) -> u32 {
        if self.started == self.fragments { self.fragments } else { self.taken + WINDOW / 2 }
    }

    /// A transfer is over.
    ///
    /// # Errors
    /// Where no node has got the fragment: the program cannot be completed.
    pub fn on_transferred(&mut self, outcome: Outcome) -> Result<(), Refused> {
        match outcome {
            Outcome::CarriedOut { lost } | Outcome::Dropped { lost, .. } if !lost.is_empty() => {
                Err(Refused::Lost(lost))
            }
            Outcome::CarriedOut { .. } => Ok(()),
            Outcome::Dropped { mut refused, late, .. } => {
                refused.extend(late);
                Err(Refused::NoRoom(refused))
            }
        }
    }

    /// A comparison is over.
    ///
    /// # Errors
    /// Where a node is lost.
    pub fn on_compared(&mut self, outcome: Outcome) -> Result<(), Refused> {
        let Comparison::Asked(wanted) = self.comparison else { return Ok(()) };
        match outcome {
            Outcome::CarriedOut { lost } | Outcome::Dropped { lost, .. } if !lost.is_empty() => {
                return Err(Refused::Lost(lost));
            }
            Outcome::CarriedOut { .. } => {
                self.taken = wanted;
                self.comparison = Comparison::None;
            }
            Outcome::Dropped { .. } => self.comparison = Comparison::Refused,
        }
        Ok(())
    }

    /// The nodes may be asked again.
    pub fn on_pause_over(&mut self) {
        if self.comparison == Comparison::Refused {
            self.comparison = Comparison::None;
        }
    }
}
