//! Policies by name: the allocators and queues that a command line or a run file names.

use std::{fmt, str::FromStr};

use crate::spaceshare::{
    allocate::{Allocator, BoxPacker, Buddy, Buddy2d, Contiguous, FirstFit, M2db, Mesh},
    machine::{GroupId, Machine},
    queue::{Aging, AgingConfig, Conservative, Easy, Fcfs, Priority, QueueOrder, QueueSpec, QueueTable},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllocatorName {
    /// The lowest free nodes.
    #[default]
    FirstFit,
    /// The first run of neighbours that is long enough.
    Contiguous,
    /// A tree of powers of two (DHC, ParPar: paper 000, §4.3.1).
    Buddy,
    /// Squares of powers of two (Li and Cheng, by paper 002, §2.4).
    Buddy2d,
    /// The modified 2-D buddy system of paper 002, §2.4.
    M2db,
    /// Boxes of nodes × CPUs: the mesh is as wide as there are nodes, and as high as a node has CPUs (RMS:
    /// paper 000, §3.2.1).
    Boxes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueName {
    #[default]
    Fcfs,
    /// Backfilling with a reservation for the head (Lifka 1995).
    Easy,
    /// Backfilling with a reservation for every job.
    Conservative,
    /// Aging with one queue, blocking after 24 hours (paper 002, §2.3): for a day, other jobs may overtake a
    /// job that does not fit.
    Aging,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no {what} `{name}`; there are {known}")]
pub struct ChoiceError {
    pub what: &'static str,
    pub name: String,
    pub known: String,
}

impl AllocatorName {
    pub const ALL: [(&'static str, Self); 6] = [
        ("first-fit", Self::FirstFit),
        ("contiguous", Self::Contiguous),
        ("buddy", Self::Buddy),
        ("buddy-2d", Self::Buddy2d),
        ("m2db", Self::M2db),
        ("boxes", Self::Boxes),
    ];

    /// The allocator of a machine. Allocators of a line number the nodes of the mesh row by row.
    #[must_use]
    pub fn allocator(self, mesh: Mesh) -> Box<dyn Allocator> {
        match self {
            Self::FirstFit => Box::new(FirstFit::new(mesh.units())),
            Self::Contiguous => Box::new(Contiguous::new(mesh.units())),
            Self::Buddy => Box::new(Buddy::new(mesh.units())),
            Self::Buddy2d => Box::new(Buddy2d::new(mesh)),
            Self::M2db => Box::new(M2db::new(mesh)),
            Self::Boxes => Box::new(BoxPacker::new(mesh.width, mesh.height)),
        }
    }
}

/// The default mesh of this many nodes: as high as the largest power of two that divides the number and does
/// not exceed the width. 400 nodes are 25 × 16, as in the Paragon; a prime number of nodes is a line.
#[must_use]
pub fn mesh_of(nodes: u32) -> Mesh {
    let mut height = 1;
    while nodes.is_multiple_of(2 * height) && 2 * height <= nodes / (2 * height) {
        height *= 2;
    }
    Mesh { width: nodes / height, height }
}

impl QueueName {
    pub const ALL: [(&'static str, Self); 4] = [
        ("fcfs", Self::Fcfs),
        ("easy", Self::Easy),
        ("conservative", Self::Conservative),
        ("aging", Self::Aging),
    ];

    /// Whether the order depends on how long jobs run at most.
    #[must_use]
    pub const fn relies_on_limits(self) -> bool {
        matches!(self, Self::Easy | Self::Conservative)
    }

    /// An empty queue, for one node group.
    #[must_use]
    pub fn order(self) -> Box<dyn QueueOrder> {
        match self {
            Self::Fcfs => Box::new(Fcfs::default()),
            Self::Easy => Box::new(Easy::default()),
            Self::Conservative => Box::new(Conservative::default()),
            Self::Aging => Box::new(Aging::new(AgingConfig {
                queues: QueueTable(vec![QueueSpec::new("all", GroupId(0), Priority::points(0))]),
                age_factor: Priority::points(1),
                block_priority: Some(Priority::points(24)),
            })),
        }
    }
}

/// A machine of one node set that every job may use.
#[must_use]
pub fn machine(mesh: Mesh, allocator: AllocatorName) -> Machine {
    Machine::single(allocator.allocator(mesh))
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&Self::ALL, *self))
    }
}

impl fmt::Display for AllocatorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&Self::ALL, *self))
    }
}

fn name_of<T: Copy + PartialEq>(all: &[(&'static str, T)], value: T) -> &'static str {
    all.iter().find(|(_, known)| *known == value).map(|(name, _)| *name).expect("every value has a name")
}

fn find<T: Copy>(what: &'static str, all: &[(&'static str, T)], name: &str) -> Result<T, ChoiceError> {
    all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).ok_or_else(|| {
        let known = all.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
        ChoiceError { what, name: name.to_owned(), known }
    })
}

impl FromStr for AllocatorName {
    type Err = ChoiceError;
    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        find("allocator", &Self::ALL, text)
    }
}

impl FromStr for QueueName {
    type Err = ChoiceError;
    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        find("queue", &Self::ALL, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_is_as_square_as_powers_of_two_make_it() {
        let of = |nodes| (mesh_of(nodes).width, mesh_of(nodes).height);
        assert_eq!([400, 128, 64, 7, 1, 112].map(of), [(25, 16), (16, 8), (8, 8), (7, 1), (1, 1), (14, 8)]);
    }

    #[test]
    fn every_allocator_has_its_name_and_holds_the_whole_machine_or_a_part() {
        for (name, allocator) in AllocatorName::ALL {
            assert_eq!(name.parse(), Ok(allocator));
            assert_eq!(allocator.allocator(mesh_of(64)).total(), 64);
        }
        let error = "best".parse::<QueueName>().unwrap_err().to_string();
        assert!(error.starts_with("there is no queue `best`; there are fcfs"), "{error}");
    }
}
