//! Layout of a machine: its node sets, node groups and queues as a user writes them (paper 002 §2.2-2.3), in
//! a machine file of the simulator or in a run file.

mod check;
mod home;

use std::time::Duration;

pub use check::LayoutError;
pub use home::HomeError;
use serde::{Deserialize, Serialize};

use super::{
    allocate::Mesh,
    choice::{AllocatorName, QueueName},
    machine::{Calendar, GroupId, Machine, NodeGroup, NodeSet, SetId},
    queue::{
        Aging, AgingConfig, Apart, Conservative, Easy, Fcfs, Priority, QueueOrder, QueueSpec, QueueTable,
    },
};
use crate::NodeId;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Only the records of this partition of the log are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    pub sets: Vec<SetLayout>,
    /// The sets that the jobs of each queue may use.
    pub groups: Vec<GroupLayout>,
    /// The hours in which groups use their prime sets.
    #[serde(default)]
    pub prime_time: PrimeTime,
    /// A job whose queue is not listed goes to the first.
    pub queues: Vec<QueueLayout>,
    /// Points that a waiting job gains in an hour; for the queue `aging`.
    #[serde(default = "one")]
    pub age_factor: i64,
    /// Above this many points no job may overtake one that does not fit; never if none or zero.
    #[serde(default)]
    pub block_priority: Option<i64>,
}

/// Hours of the day; from nine to five by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct PrimeTime {
    /// Hour of the day at which it begins.
    pub from: u8,
    /// Hour of the same day at which it ends.
    pub to: u8,
    /// Whether Saturday and Sunday have prime time too.
    pub weekends: bool,
}

impl Default for PrimeTime {
    fn default() -> Self {
        Self { from: 9, to: 17, weekends: true }
    }
}

const fn one() -> i64 {
    1
}

/// A node set: nodes in a rectangle, which no other set has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetLayout {
    /// Its name, which groups use.
    pub name: String,
    /// Nodes in a row; as many as `nodes` fill if left out.
    #[serde(default)]
    pub width: Option<u32>,
    /// Rows of nodes; 1 if left out.
    #[serde(default = "a_line")]
    pub height: u32,
    /// Its nodes, by the names or numbers of `cluster.nodes`; the next ones in their order if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "names_or_numbers"))]
    pub nodes: Option<Vec<String>>,
}

#[cfg(feature = "schema")]
fn names_or_numbers(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": ["array", "null"], "items": { "type": ["string", "integer"] } })
}

const fn a_line() -> u32 {
    1
}

impl SetLayout {
    /// Its rectangle; none has a width of 0 in a [checked](Layout::check) layout.
    #[must_use]
    pub fn mesh(&self) -> Mesh {
        let named = self.nodes.as_ref().map_or(0, |nodes| u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        let width = self.width.unwrap_or_else(|| named / self.height.max(1));
        Mesh { width, height: self.height }
    }
}

/// A node group: names of sets, in the order in which jobs are divided among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupLayout {
    /// Its name, which queues and jobs use.
    pub name: String,
    /// Sets in prime time; those of `sets` if left out.
    #[serde(default)]
    pub prime: Option<Vec<String>>,
    /// Its sets; with `prime`, those outside of prime time.
    pub sets: Vec<String>,
}

/// A queue, of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct QueueLayout {
    /// Its name, which jobs use; in a log the name of its header, or the number there.
    pub name: String,
    /// The group whose nodes its jobs get.
    pub group: String,
    /// In points; for the queue `aging`.
    #[serde(default)]
    pub priority: i64,
    /// The most nodes of a job; as many as the group has if left out.
    #[serde(default)]
    pub nodes: Option<u32>,
    /// How many of its jobs may run at once; only for the queue `aging`.
    #[serde(default)]
    pub running: Option<u32>,
    /// The longest a job may run, in hours, which backfilling relies on; as the job says if left out.
    #[serde(default)]
    pub hours: Option<u32>,
    /// The same of the partition that this queue stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub time_limit: Option<Duration>,
    /// Its priority: jobs of a queue with a higher one are taken before those of the others, in any order.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub rank: i32,
    /// The users, besides root, whose jobs it takes; those of all if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub users: Option<Vec<QueueUser>>,
}

/// A user of the machine on which the master runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueUser {
    pub name: String,
    pub number: u32,
}

/// The number of root, for whom no partition is closed.
const ROOT: u32 = 0;

const fn is_zero(rank: &i32) -> bool {
    *rank == 0
}

impl QueueLayout {
    /// The queue of a group where none are listed.
    #[must_use]
    pub fn of_group(group: &GroupLayout) -> Self {
        let (name, group) = (group.name.clone(), group.name.clone());
        let (nodes, running, hours, time_limit, users) = (None, None, None, None, None);
        Self { name, group, priority: 0, nodes, running, hours, time_limit, rank: 0, users }
    }

    /// Whether it takes jobs of the user with this number.
    #[must_use]
    pub fn takes_jobs_of(&self, user: u32) -> bool {
        let is_one = |users: &Vec<QueueUser>| users.iter().any(|one| one.number == user);
        user == ROOT || self.users.as_ref().is_none_or(is_one)
    }

    #[must_use]
    pub fn longest(&self) -> Option<Duration> {
        self.time_limit.or(self.hours.map(|hours| Duration::from_secs(3600 * u64::from(hours))))
    }
}

/// The time of the day and the day of the week at time 0. The core has no clock: it gets this as an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Daytime {
    pub since_midnight: Duration,
    /// 0 is Monday.
    pub weekday: u8,
}

impl Layout {
    /// Of a cluster that is divided into partitions: each is a set of these nodes, which only the jobs of its
    /// own group and queue get.
    #[must_use]
    pub fn of_partitions(partitions: &[(String, Vec<String>)]) -> Self {
        let set = |(name, nodes): &(String, Vec<String>)| SetLayout {
            name: name.clone(),
            width: None,
            height: a_line(),
            nodes: Some(nodes.clone()),
        };
        let group = |(name, _): &(String, Vec<String>)| GroupLayout {
            name: name.clone(),
            prime: None,
            sets: vec![name.clone()],
        };
        let groups: Vec<GroupLayout> = partitions.iter().map(group).collect();
        Self {
            partition: None,
            sets: partitions.iter().map(set).collect(),
            queues: groups.iter().map(QueueLayout::of_group).collect(),
            groups,
            prime_time: PrimeTime::default(),
            age_factor: one(),
            block_priority: None,
        }
    }

    /// Nodes in all sets of a [checked](Self::check) machine.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.meshes().iter().map(Mesh::units).sum()
    }

    /// The meshes of the sets.
    #[must_use]
    pub fn meshes(&self) -> Vec<Mesh> {
        self.sets.iter().map(SetLayout::mesh).collect()
    }

    /// The empty machine; `start` is the time of day and weekday at time 0.
    ///
    /// # Errors
    /// Where a name is unknown or a value invalid.
    pub fn machine(&self, allocator: AllocatorName, start: Daytime) -> Result<Machine, LayoutError> {
        self.check()?;
        let sets = self.sets.iter().zip(self.meshes());
        let sets =
            sets.map(|(set, mesh)| NodeSet { name: set.name.clone(), allocator: allocator.allocator(mesh) });
        let group = |group: &GroupLayout| {
            let ids = |names: &[String]| names.iter().map(|name| self.set(&group.name, name)).collect();
            let non_prime: Vec<SetId> = ids(&group.sets)?;
            let prime = group.prime.as_deref().map(ids).transpose()?.unwrap_or_else(|| non_prime.clone());
            Ok(NodeGroup { name: group.name.clone(), prime, non_prime })
        };
        let groups = self.groups.iter().map(group).collect::<Result<Vec<_>, LayoutError>>()?;
        self.table()?;
        let PrimeTime { from, to, weekends } = self.prime_time;
        let hours = Calendar::between(from, to).starting(start.since_midnight, start.weekday);
        let calendar = if weekends { hours } else { hours.on_workdays() };
        Ok(Machine::new(sets.collect(), groups, calendar)?)
    }

    /// An empty queue of this order, for each part of the machine.
    ///
    /// # Errors
    /// Where a name is unknown or a value invalid, or this order would ignore a limit.
    pub fn order(&self, name: QueueName) -> Result<Box<dyn QueueOrder>, LayoutError> {
        self.check()?;
        let limited = self.queues.iter().find(|queue| queue.running.is_some());
        if let (Some(queue), true) = (limited, name != QueueName::Aging) {
            return Err(LayoutError::IgnoredLimit(queue.name.clone()));
        }
        let order: Box<dyn QueueOrder> = match name {
            QueueName::Fcfs => Box::new(Fcfs::default()),
            QueueName::Easy => Box::new(Easy::default()),
            QueueName::Conservative => Box::new(Conservative::default()),
            QueueName::Aging => Box::new(Aging::new(AgingConfig {
                queues: self.table()?,
                age_factor: Priority::points(self.age_factor),
                block_priority: self.block_priority.filter(|points| *points > 0).map(Priority::points),
            })),
        };
        let machine = self.machine(AllocatorName::FirstFit, Daytime::default())?;
        Ok(Box::new(Apart::new(&machine, order)))
    }

    /// The queues as the order `aging` takes them.
    ///
    /// # Errors
    /// Where a queue names an unknown group.
    pub fn table(&self) -> Result<QueueTable, LayoutError> {
        let spec = |queue: &QueueLayout| {
            let group =
                place("group", &queue.name, &queue.group, self.groups.iter().map(|group| &group.name))?;
            let spec = QueueSpec::new(&queue.name, GroupId(group), Priority::points(queue.priority));
            Ok(QueueSpec { running_max: queue.running, ..spec })
        };
        Ok(QueueTable(self.queues.iter().map(spec).collect::<Result<_, LayoutError>>()?))
    }

    /// The node of each unit of the machine: its sets lie one after the other. `find` finds a node by its
    /// name, among so many of the cluster.
    ///
    /// # Errors
    /// Unless each node is in just one set.
    pub fn nodes_by_unit(
        &self,
        nodes: u32,
        find: impl Fn(&str) -> Option<NodeId>,
    ) -> Result<Vec<NodeId>, LayoutError> {
        let mut named: Vec<NodeId> = Vec::new();
        for set in &self.sets {
            for name in set.nodes.iter().flatten() {
                let unknown =
                    || LayoutError::UnknownNode { set: set.name.clone(), node: name.clone(), nodes };
                let node = find(name).filter(|node| node.0 < nodes).ok_or_else(unknown)?;
                if named.contains(&node) {
                    return Err(LayoutError::NodeTwice { set: set.name.clone(), node: name.clone() });
                }
                named.push(node);
            }
        }
        if self.nodes() != nodes {
            return Err(LayoutError::Nodes { sets: self.nodes(), nodes });
        }
        let mut others = (0..nodes).map(NodeId).filter(|node| !named.contains(node));
        let mut named = named.iter().copied();
        let units = self.sets.iter().flat_map(|set| {
            let count = set.mesh().units() as usize;
            match set.nodes {
                Some(_) => named.by_ref().take(count).collect::<Vec<_>>(),
                None => others.by_ref().take(count).collect(),
            }
        });
        Ok(units.collect())
    }

    fn set(&self, from: &str, name: &str) -> Result<SetId, LayoutError> {
        place("set", from, name, self.sets.iter().map(|set| &set.name)).map(SetId)
    }
}

fn place<'a>(
    what: &'static str,
    from: &str,
    name: &str,
    mut all: impl Iterator<Item = &'a String>,
) -> Result<u16, LayoutError> {
    let found = all.position(|known| known == name).and_then(|place| u16::try_from(place).ok());
    found.ok_or_else(|| LayoutError::Unknown { from: from.into(), what, name: name.into() })
}

#[cfg(test)]
mod tests;
