//! Settings of space sharing in a live run, or in the simulation of one.

use serde::{Deserialize, Serialize};

use super::{
    choice::{AllocatorName, QueueName, machine, mesh_of},
    layout::{Daytime, Layout, LayoutError},
    machine::{GroupId, Machine},
    queue::{QueueId, QueueOrder},
};
use crate::{Cluster, NodeId};

/// How jobs that have nodes of their own share a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceSharing {
    /// The order in which waiting jobs start.
    pub queue: QueueName,
    /// Which nodes a job gets.
    #[serde(default)]
    pub allocator: AllocatorName,
    /// Node sets, groups and queues; `None`: one set, which every job may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sets: Option<Box<NodeSets>>,
}

/// A cluster that is divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSets {
    pub layout: Layout,
    /// The node of each unit of the machine, whose sets lie one after the other.
    pub nodes: Vec<NodeId>,
    /// When time 0 was.
    #[serde(default)]
    pub start: Daytime,
}

impl SpaceSharing {
    /// One set of nodes, which every job may use.
    #[must_use]
    pub const fn of(queue: QueueName, allocator: AllocatorName) -> Self {
        Self { queue, allocator, sets: None }
    }

    /// Whether machine and queue can be made of these settings.
    ///
    /// # Errors
    /// Where they are wrong, or do not fit the cluster.
    pub fn check(&self, cluster: &Cluster) -> Result<(), LayoutError> {
        let Some(sets) = &self.sets else { return Ok(()) };
        sets.layout.machine(self.allocator, sets.start)?;
        sets.layout.order(self.queue)?;
        let nodes = u32::try_from(cluster.len()).unwrap_or(u32::MAX);
        let mut units = sets.nodes.clone();
        units.sort_unstable();
        let are_all = units.iter().copied().eq((0..nodes).map(NodeId)) && sets.layout.nodes() == nodes;
        let of_sets = u32::try_from(units.len()).unwrap_or(u32::MAX);
        if are_all { Ok(()) } else { Err(LayoutError::Nodes { sets: of_sets, nodes }) }
    }

    /// The empty machine of so many nodes, in the [mesh](mesh_of) that the simulator takes as well, or in the
    /// sets.
    ///
    /// # Panics
    /// Where the settings were not [checked](Self::check).
    #[must_use]
    pub fn machine(&self, nodes: u32) -> Machine {
        match &self.sets {
            None => machine(mesh_of(nodes), self.allocator),
            Some(sets) => sets.layout.machine(self.allocator, sets.start).expect("the sets were checked"),
        }
    }

    /// The empty queue.
    ///
    /// # Panics
    /// Where the settings were not [checked](Self::check).
    #[must_use]
    pub fn order(&self) -> Box<dyn QueueOrder> {
        match &self.sets {
            None => self.queue.order(),
            Some(sets) => sets.layout.order(self.queue).expect("the sets were checked"),
        }
    }

    /// The most nodes that a job of this queue may have.
    #[must_use]
    pub fn largest_job(&self, nodes: u32, queue: QueueId) -> u32 {
        self.within(queue, self.machine(nodes).largest_ever(self.group_of(queue)))
    }

    /// So many nodes, or as many as the queue admits.
    #[must_use]
    pub fn within(&self, queue: QueueId, most: u32) -> u32 {
        let of_queue = self
            .sets
            .as_ref()
            .and_then(|sets| sets.layout.queues.get(usize::from(queue.0)).and_then(|queue| queue.nodes));
        of_queue.map_or(most, |of_queue| of_queue.min(most))
    }

    /// The group of a queue.
    #[must_use]
    pub fn group_of(&self, queue: QueueId) -> GroupId {
        self.sets.as_ref().map_or(GroupId(0), |sets| sets.layout.group_of(queue))
    }

    /// The name of the group of a queue, where the cluster is divided.
    #[must_use]
    pub fn group_name(&self, queue: QueueId) -> Option<&str> {
        let queues = &self.sets.as_ref()?.layout.queues;
        queues.get(usize::from(queue.0)).map(|queue| queue.group.as_str())
    }

    /// The name of a queue, where the cluster is divided.
    #[must_use]
    pub fn queue_name(&self, queue: QueueId) -> Option<&str> {
        let queues = &self.sets.as_ref()?.layout.queues;
        queues.get(usize::from(queue.0)).map(|queue| queue.name.as_str())
    }

    /// How early its jobs are taken: those of a queue with a higher rank before the others.
    #[must_use]
    pub fn rank_of(&self, queue: QueueId) -> i32 {
        let queues = self.sets.as_ref().map(|sets| &sets.layout.queues);
        queues.and_then(|queues| queues.get(usize::from(queue.0))).map_or(0, |queue| queue.rank)
    }

    /// Why a queue takes no jobs of the user with this number, if so.
    #[must_use]
    pub fn refuses(&self, queue: QueueId, user: u32) -> Option<String> {
        let queue = self.sets.as_ref()?.layout.queues.get(usize::from(queue.0))?;
        let users = queue.users.as_ref().filter(|_| !queue.takes_jobs_of(user))?;
        let names = users.iter().map(|user| user.name.as_str()).collect::<Vec<_>>().join(", ");
        Some(format!("the partition `{}` takes jobs of these users alone: {names}", queue.name))
    }

    /// The node of a unit of the machine.
    #[must_use]
    pub fn node_of(&self, unit: u32) -> NodeId {
        self.sets.as_ref().map_or(NodeId(unit), |sets| sets.nodes[unit as usize])
    }

    /// The unit of a node.
    ///
    /// # Panics
    /// Where the node is in no set.
    #[must_use]
    pub fn unit_of(&self, node: NodeId) -> u32 {
        let place = |sets: &NodeSets| sets.nodes.iter().position(|known| *known == node);
        self.sets.as_ref().map_or(node.0, |sets| {
            u32::try_from(place(sets).expect("each node is in a set")).expect("there are few nodes")
        })
    }
}
