//! Machine file: the node sets, node groups and queues of a machine as a user writes them (paper 002
//! §2.2-2.3).

mod check;

use std::time::Duration;

pub use check::LayoutError;
use coswitch_policies::spaceshare::{
    allocate::{Mesh, Rect},
    machine::{Calendar, GroupId, Machine, NodeGroup, NodeSet, SetId},
    queue::{
        Aging, AgingConfig, Conservative, Easy, Fcfs, Priority, QueueId, QueueOrder, QueueSpec, QueueTable,
    },
};
use serde::Deserialize;

use super::{AllocatorName, Blocks, Execution, Jobs, QueueName};
use crate::workload::{
    LogStart,
    swf::{Log, Record},
};

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// Only the records of this partition of the log are used.
    #[serde(default)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
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

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLayout {
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
    pub name: String,
    /// Sets in prime time; those of `sets` if none.
    #[serde(default)]
    pub prime: Option<Vec<String>>,
    pub sets: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueLayout {
    /// The name of the queue in the log's header, or its number there.
    pub name: String,
    pub group: String,
    /// In points; for the queue `aging`.
    #[serde(default)]
    pub priority: i64,
    /// The most nodes of a job; larger jobs are left out. None: as many as the group has.
    #[serde(default)]
    pub nodes: Option<u32>,
    /// How many of its jobs may run at once; only for the queue `aging`.
    #[serde(default)]
    pub running: Option<u32>,
    /// The longest a job may run, which backfilling relies on. None: as the log says.
    #[serde(default)]
    pub hours: Option<u32>,
}

impl Layout {
    /// Nodes in all sets of a [checked](Self::check) machine.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.sets.iter().map(|set| set.width * set.height).sum()
    }

    /// The meshes of the sets, for pictures.
    #[must_use]
    pub fn meshes(&self) -> Vec<Mesh> {
        self.sets.iter().map(|set| Mesh { width: set.width, height: set.height }).collect()
    }

    /// By set, Σ nodes · execution ÷ (nodes of the set · makespan). A job in several sets, or with more nodes
    /// than it requested, counts with its request, in proportion.
    #[must_use]
    pub fn utilisation(
        &self,
        jobs: &Jobs,
        executions: &[Execution],
        blocks: &Blocks,
        makespan_s: f64,
    ) -> Vec<f64> {
        let area = |rect: &Rect| f64::from(rect.width) * f64::from(rect.height);
        let (mut held, mut used) = (vec![0.0; executions.len()], vec![0.0; self.sets.len()]);
        for (job, _, rect) in &blocks.held {
            held[job.0 as usize] += area(rect);
        }
        for (job, set, rect) in &blocks.held {
            let job = job.0 as usize;
            let span = executions[job].finished.since(executions[job].started).as_secs_f64();
            let asked = f64::from(jobs.jobs[job].queued.request.units());
            used[usize::from(set.0)] += span * asked * area(rect) / held[job];
        }
        let all = self.meshes().into_iter().map(|mesh| f64::from(mesh.units()) * makespan_s);
        used.into_iter().zip(all).map(|(used, all)| if all > 0.0 { used / all } else { 0.0 }).collect()
    }

    /// The machine; `start` is the time of day and weekday at which the log begins.
    ///
    /// # Errors
    /// Where a name is unknown or a value invalid.
    pub fn machine(&self, allocator: AllocatorName, start: LogStart) -> Result<Machine, LayoutError> {
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
        let begin = Duration::from_secs(start.second);
        let PrimeTime { from, to, weekends } = self.prime_time;
        let hours = Calendar::between(from, to).starting(begin, start.weekday());
        let calendar = if weekends { hours } else { hours.on_workdays() };
        Ok(Machine::new(sets.collect(), groups, calendar)?)
    }

    /// An empty queue of this order.
    ///
    /// # Errors
    /// Where a name is unknown or a value invalid, or this order would ignore a limit.
    pub fn order(&self, name: QueueName) -> Result<Box<dyn QueueOrder>, LayoutError> {
        self.check()?;
        let limited = self.queues.iter().find(|queue| queue.running.is_some());
        if let (Some(queue), true) = (limited, name != QueueName::Aging) {
            return Err(LayoutError::IgnoredLimit(queue.name.clone()));
        }
        Ok(match name {
            QueueName::Fcfs => Box::new(Fcfs::default()),
            QueueName::Easy => Box::new(Easy::default()),
            QueueName::Conservative => Box::new(Conservative::default()),
            QueueName::Aging => Box::new(Aging::new(AgingConfig {
                queues: self.table()?,
                age_factor: Priority::points(self.age_factor),
                block_priority: self.block_priority.filter(|points| *points > 0).map(Priority::points),
            })),
        })
    }

    /// The records of the partition.
    #[must_use]
    pub fn records(&self, log: &Log) -> Log {
        self.partition.map_or_else(|| log.clone(), |number| super::paragon::partition(log, number))
    }

    /// Returns a function that finds the queue and the group of a record of `log`.
    ///
    /// # Errors
    /// Where a name is unknown.
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

    /// Whether `queue` admits jobs of this size.
    #[must_use]
    pub fn admits(&self, queue: QueueId, nodes: u32) -> bool {
        let most = self.queues.get(usize::from(queue.0)).and_then(|queue| queue.nodes);
        most.is_none_or(|most| nodes <= most)
    }

    /// Sets the limits of the jobs to those of their queues.
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
            let spec = QueueSpec::new(&queue.name, GroupId(group), Priority::points(queue.priority));
            Ok(QueueSpec { running_max: queue.running, ..spec })
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
mod tests;
