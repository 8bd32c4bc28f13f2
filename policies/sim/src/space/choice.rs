//! Policies by the names a user writes.

use std::str::FromStr;

use coswitch_policies::{
    allocate::{Allocator, Contiguous, FirstFit},
    machine::Machine,
    queue::{Fcfs, QueueOrder},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Who chooses the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllocatorName {
    /// The lowest free nodes.
    #[default]
    FirstFit,
    /// The first run of neighbours that is long enough.
    Contiguous,
}

/// Who says which job starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QueueName {
    /// First come, first served.
    #[default]
    Fcfs,
}

/// Why a name was not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no {what} `{name}`; there are {known}")]
pub struct ChoiceError {
    /// Of what.
    pub what: &'static str,
    /// What was written.
    pub name: String,
    /// What would be right.
    pub known: String,
}

impl AllocatorName {
    const ALL: [(&'static str, Self); 2] = [("first-fit", Self::FirstFit), ("contiguous", Self::Contiguous)];

    /// The allocator for a machine of `nodes` nodes in a line.
    #[must_use]
    pub fn allocator(self, nodes: u32) -> Box<dyn Allocator> {
        match self {
            Self::FirstFit => Box::new(FirstFit::new(nodes)),
            Self::Contiguous => Box::new(Contiguous::new(nodes)),
        }
    }
}

impl QueueName {
    const ALL: [(&'static str, Self); 1] = [("fcfs", Self::Fcfs)];

    /// An empty queue.
    #[must_use]
    pub fn order(self) -> Box<dyn QueueOrder> {
        match self {
            Self::Fcfs => Box::new(Fcfs::default()),
        }
    }
}

/// One set of `nodes` nodes that every job may use.
#[must_use]
pub fn machine(nodes: u32, allocator: AllocatorName) -> Machine {
    Machine::single(allocator.allocator(nodes))
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
