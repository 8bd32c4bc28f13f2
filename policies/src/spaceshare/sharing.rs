//! Settings of space sharing in a live run, or in the simulation of one.

use serde::{Deserialize, Serialize};

use super::{
    choice::{AllocatorName, QueueName, machine, mesh_of},
    machine::Machine,
    queue::QueueOrder,
};

/// How jobs that have nodes of their own share a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceSharing {
    /// The order in which waiting jobs start.
    pub queue: QueueName,
    /// Which nodes a job gets.
    #[serde(default)]
    pub allocator: AllocatorName,
}

impl SpaceSharing {
    /// The empty machine of so many nodes, in the [mesh](mesh_of) that the simulator takes as well.
    #[must_use]
    pub fn machine(self, nodes: u32) -> Machine {
        machine(mesh_of(nodes), self.allocator)
    }

    /// The most nodes that a job may have.
    #[must_use]
    pub fn largest_job(self, nodes: u32) -> u32 {
        self.machine(nodes).sets().iter().map(|set| set.allocator.largest_ever()).max().unwrap_or(0)
    }

    /// The empty queue.
    #[must_use]
    pub fn order(self) -> Box<dyn QueueOrder> {
        self.queue.order()
    }
}
