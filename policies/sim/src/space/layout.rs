//! A machine of several node sets, as a user writes it: sets, the groups over them, the queues and their groups (paper 002 §2.2-2.3).

use std::time::Duration;

use coswitch_policies::{
    allocate::Mesh,
    machine::{Calendar, GroupId, Machine, MachineError, NodeGroup, NodeSet, SetId},
    queue::{
        Aging, AgingConfig, Conservative, Easy, Fcfs, Priority, QueueId, QueueOrder, QueueSpec, QueueTable,
    },
};
use serde::Deserialize;
use thiserror::Error;

use super::{AllocatorName, Jobs, LogStart, QueueName};
use crate::workload::swf::{Log, Record};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Take only the records of this partition of the log.
    #[serde(default)]
    pub partition: Option<u32>,
    /// Equal nodes that are allocated together.
    pub sets: Vec<SetLayout>,
    /// Who may use which sets.
    pub groups: Vec<GroupLayout>,
    /// The queues; a job in a queue that is not among them goes to the first.
    pub queues: Vec<QueueLayout>,
    /// Points a waiting job gains in an hour; for the queue `aging`.
    #[serde(default = "one")]
    pub age_factor: i64,
    /// From how many points on a job lets nobody overtake it; never where none.
    #[serde(default)]
    pub block_priority: Option<i64>,
}

const fn one() -> i64 {
    1
}

/// A node set.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLayout {
    /// What it is called.
    pub name: String,
    /// Nodes in a row.
    pub width: u32,
    /// Rows of nodes.
    #[serde(default = "a_line")]
    pub height: u32,
}

const fn a_line() -> u32 {
    1
}

/// A node group: names of sets, in the order in which jobs are divided among them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupLayout {
    /// What it is called.
    pub name: String,
    /// From nine to five on weekdays; as otherwise, where it is not told.
    #[serde(default)]
    pub prime: Option<Vec<String>>,
    /// Otherwise.
    pub sets: Vec<String>,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueLayout {
    /// What it is called in the log's header, or its number there.
    pub name: String,
    /// The node group of its jobs.
    pub group: String,
    /// In points; for the queue `aging`.
    #[serde(default)]
    pub priority: i64,
    /// The longest a job may run, which is what backfilling believes of it; what the log says, where none.
    #[serde(default)]
    pub hours: Option<u32>,
}

/// Why a layout makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// A name leads nowhere.
    #[error("`{from}` names the {what} `{name}`, and there is none")]
    Unknown {
        /// Who names it.
        from: String,
        /// What it should be.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// There is nothing to run on, or no way to it.
    #[error(
        "a machine has at least one node set, one group and one queue, and no set without nodes or with more than 2^24"
    )]
    Empty,
    /// The groups make no sense.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

impl Layout {
    /// Nodes in all sets.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.sets.iter().map(|set| set.width * set.height).sum()
    }

    /// The meshes of the sets, for pictures.
    #[must_use]
    pub fn meshes(&self) -> Vec<Mesh> {
        self.sets.iter().map(|set| Mesh { width: set.width, height: set.height }).collect()
    }

    /// The machine; `start` says what hour of which day it is when the log begins.
    ///
    /// # Errors
    /// Where names lead nowhere.
    pub fn machine(&self, allocator: AllocatorName, start: LogStart) -> Result<Machine, LayoutError> {
        let nodes = |set: &SetLayout| u64::from(set.width) * u64::from(set.height);
        let all: u64 = self.sets.iter().map(nodes).sum();
        if self.queues.is_empty()
            || self.sets.iter().any(|set| nodes(set) == 0)
            || !(1..=1 << 24).contains(&all)
        {
            return Err(LayoutError::Empty);
        }
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
        let begin = Duration::from_secs(start.second);
        let calendar = Calendar::nine_to_five().starting(begin, start.weekday());
        Ok(Machine::new(sets.collect(), groups, calendar)?)
    }

    /// An empty queue of this order.
    ///
    /// # Errors
    /// Where names lead nowhere.
    pub fn order(&self, name: QueueName) -> Result<Box<dyn QueueOrder>, LayoutError> {
        Ok(match name {
            QueueName::Fcfs => Box::new(Fcfs::default()),
            QueueName::Easy => Box::new(Easy::default()),
            QueueName::Conservative => Box::new(Conservative::default()),
            QueueName::Aging => Box::new(Aging::new(AgingConfig {
                queues: self.table()?,
                age_factor: Priority::points(self.age_factor),
                block_priority: self.block_priority.map(Priority::points),
            })),
        })
    }

    /// The records of the partition.
    #[must_use]
    pub fn records(&self, log: &Log) -> Log {
        self.partition.map_or_else(|| log.clone(), |number| super::paragon::partition(log, number))
    }

    /// Says the queue and the group of a record of `log`.
    ///
    /// # Errors
    /// Where names lead nowhere.
    pub fn homes(&self, log: &Log) -> Result<impl Fn(&Record) -> (QueueId, GroupId), LayoutError> {
        let (names, table) = (log.queue_names(), self.table()?);
        let known: Vec<String> = self.queues.iter().map(|queue| queue.name.clone()).collect();
        Ok(move |record: &Record| {
            let number = record.queue.unwrap_or(0);
            let is_it = |known: &String| names.get(&number) == Some(known) || number.to_string() == *known;
            let place = known.iter().position(is_it).unwrap_or(0);
            (QueueId(u16::try_from(place).unwrap_or(0)), table.0[place].group)
        })
    }

    /// Has the jobs believed to run as long as their queues allow.
    pub fn limit(&self, jobs: &mut Jobs) {
        for job in &mut jobs.jobs {
            let hours = self.queues.get(usize::from(job.queued.queue.0)).and_then(|queue| queue.hours);
            if let Some(hours) = hours {
                job.queued.limit = Duration::from_secs(3600 * u64::from(hours)).max(job.run);
            }
        }
    }

    fn table(&self) -> Result<QueueTable, LayoutError> {
        let spec = |queue: &QueueLayout| {
            let group =
                place("group", &queue.name, &queue.group, self.groups.iter().map(|group| &group.name))?;
            Ok(QueueSpec::new(&queue.name, GroupId(group), Priority::points(queue.priority)))
        };
        Ok(QueueTable(self.queues.iter().map(spec).collect::<Result<_, LayoutError>>()?))
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
mod tests {
    use super::*;

    fn example() -> Layout {
        let set = |name: &str, width| SetLayout { name: name.into(), width, height: 1 };
        let group = |name: &str, prime: Option<&[&str]>, sets: &[&str]| GroupLayout {
            name: name.into(),
            prime: prime.map(|sets| sets.iter().map(ToString::to_string).collect()),
            sets: sets.iter().map(ToString::to_string).collect(),
        };
        let queue = |name: &str, group: &str| QueueLayout {
            name: name.into(),
            group: group.into(),
            priority: 0,
            hours: None,
        };
        Layout {
            partition: None,
            sets: vec![set("thin", 8), set("fat", 16)],
            groups: vec![group("all", None, &["thin", "fat"]), group("night", Some(&[]), &["fat"])],
            queues: vec![queue("small", "all"), queue("3", "night")],
            age_factor: 1,
            block_priority: None,
        }
    }

    #[test]
    fn sets_groups_and_queues_become_a_machine() {
        let midnight = LogStart { day: 0, second: 0 };
        let machine = example().machine(AllocatorName::FirstFit, midnight).unwrap();
        let at = |hour: u64| Duration::from_secs(3600 * hour).into();
        assert_eq!((machine.total(), example().nodes()), (24, 24));
        assert_eq!([12, 20].map(|hour| machine.free_in(at(hour), GroupId(1))), [0, 16]);
        let log: Log = "; Queue: 1 small\n".parse().unwrap();
        let layout = example();
        let home = layout.homes(&log).unwrap();
        let of = |queue| home(&Record { queue: Some(queue), ..Record::default() });
        assert_eq!(of(1), (QueueId(0), GroupId(0)));
        assert_eq!(of(3), (QueueId(1), GroupId(1)));
        assert_eq!(of(7), of(1), "a queue that is not known is the first");
    }

    #[test]
    fn a_name_that_leads_nowhere_is_told() {
        let mut wrong = example();
        wrong.queues[1].group = "day".into();
        let error = wrong.order(QueueName::Aging).unwrap_err().to_string();
        assert_eq!(error, "`3` names the group `day`, and there is none");
        let mut wrong = example();
        wrong.groups[0].sets.push("huge".into());
        let midnight = LogStart { day: 0, second: 0 };
        let error = wrong.machine(AllocatorName::FirstFit, midnight).unwrap_err().to_string();
        assert_eq!(error, "`all` names the set `huge`, and there is none");
        let empty = Layout { sets: vec![], ..example() };
        assert_eq!(empty.machine(AllocatorName::FirstFit, midnight).unwrap_err(), LayoutError::Empty);
    }
}
