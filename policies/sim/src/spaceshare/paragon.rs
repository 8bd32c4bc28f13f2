//! The Intel Paragon of the San Diego Supercomputer Center as configured in paper 002 (§2.2-2.4, §3.0, §4.0).
//!
//! | part | nodes | mesh here | for |
//! | --- | --- | --- | --- |
//! | interactive partition | 32 | 2 × 16 | interactive jobs, first come first served |
//! | node set 1 | 112 with 16 MB | 7 × 16 | batch |
//! | node set 2 | 224 with 32 MB | 14 × 16 | batch |
//! | node set 3 | 32 with 32 MB | 2 × 16 | 9:00 to 17:00 short jobs, else as node set 2 |
//!
//! A queue name consists of `q`, `f` for fat (32 MB) nodes, the most nodes of a job, and `s`, `m` or `l` for
//! 1, 4 or 12 hours; `standby` and `fstandby` have low priority. The paper leaves open, and this file
//! assumes: the sets that the node groups combine (`GROUPS`), the priorities (short 12, medium 6, long 0,
//! standby -24 points), the age factor of one point an hour, and the block priority. A job without a known
//! queue counts as one of `q1l`.

use std::time::Duration;

use coswitch_policies::spaceshare::{
    allocate::Mesh,
    machine::{Calendar, GroupId, Machine, MachineError, NodeGroup, NodeSet, SetId},
    queue::{Aging, AgingConfig, Priority, QueueId, QueueSpec, QueueTable},
};

use super::AllocatorName;
use crate::workload::{
    LogStart,
    swf::{Log, Record},
};

/// Nodes of the interactive partition.
pub const INTERACTIVE_NODES: u32 = 32;
/// Nodes of the batch partition.
pub const BATCH_NODES: u32 = 368;

/// The batch sets: name, columns of 16 nodes.
const SETS: [(&str, u32); 3] = [("16 MB", 7), ("32 MB", 14), ("32 MB short", 2)];

/// Node groups: name, sets in prime time, sets in non-prime time, each in the order in which jobs are divided
/// among them. Thin queues may overflow to fat nodes: they admit jobs of up to 256 nodes, and there are 112
/// thin ones.
const GROUPS: [(&str, &[u16], &[u16]); 4] = [
    ("thin, short", &[0, 2, 1], &[0, 1, 2]),
    ("thin", &[0, 1], &[0, 1, 2]),
    ("fat, short", &[2, 1], &[1, 2]),
    ("fat", &[1], &[1, 2]),
];

/// The properties that the name of a queue encodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueClass {
    /// Needs 32 MB nodes.
    pub fat: bool,
    pub limit: Duration,
    /// Has low priority.
    pub standby: bool,
}

impl QueueClass {
    /// Reads a name such as `qf128m`; other names count as long jobs on thin nodes.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let hours = |n: u64| Duration::from_secs(n * 3600);
        let standby = name.ends_with("standby");
        let fat = name.starts_with("qf") || name == "fstandby";
        let limit = match name.trim_start_matches(['q', 'f']).trim_start_matches(|c: char| c.is_ascii_digit())
        {
            "s" | "t" => hours(1),
            "m" => hours(4),
            _ => hours(12),
        };
        Self { fat, limit, standby }
    }

    #[must_use]
    pub fn group(self) -> GroupId {
        let short = self.limit <= Duration::from_secs(3600);
        GroupId(u16::from(!short) + 2 * u16::from(self.fat))
    }

    /// Short before medium before long before standby; the first three lie within half a day of aging.
    const fn priority(self) -> Priority {
        match (self.standby, self.limit.as_secs() / 3600) {
            (true, _) => Priority::points(-24),
            (false, 0..=1) => Priority::points(12),
            (false, 2..=4) => Priority::points(6),
            (false, _) => Priority::points(0),
        }
    }
}

/// The batch partition, with `allocator` inside each set.
///
/// # Errors
/// Never: the groups are those above.
pub fn batch(allocator: AllocatorName, start: LogStart) -> Result<Machine, MachineError> {
    let set = |(name, width): (&str, u32)| NodeSet {
        name: name.into(),
        allocator: allocator.allocator(Mesh { width, height: 16 }),
    };
    let ids = |sets: &[u16]| sets.iter().copied().map(SetId).collect::<Vec<_>>();
    let group = |(name, prime, non_prime): (&str, &[u16], &[u16])| NodeGroup {
        name: name.into(),
        prime: ids(prime),
        non_prime: ids(non_prime),
    };
    let calendar = Calendar::nine_to_five().starting(Duration::from_secs(start.second), start.weekday());
    Machine::new(SETS.map(set).into(), GROUPS.map(group).into(), calendar)
}

/// The meshes of the batch sets, for pictures.
#[must_use]
pub fn meshes() -> [Mesh; 3] {
    SETS.map(|(_, width)| Mesh { width, height: 16 })
}

#[must_use]
pub fn interactive(allocator: AllocatorName) -> Machine {
    Machine::single(allocator.allocator(Mesh { width: INTERACTIVE_NODES / 16, height: 16 }))
}

#[must_use]
pub fn queues(log: &Log) -> Queues {
    let names = log.queue_names();
    let count = names.keys().max().map_or(1, |most| most + 1);
    let spec = |number: u32| {
        let name = names.get(&number).map_or("q1l", String::as_str);
        let class = QueueClass::of(name);
        QueueSpec::new(name, class.group(), class.priority())
    };
    Queues { table: QueueTable((0..count).map(spec).collect()) }
}

#[derive(Clone, Debug)]
pub struct Queues {
    /// By the numbers of the log.
    pub table: QueueTable,
}

impl Queues {
    /// Aging by one point an hour, and blocking above this many points; never if none.
    #[must_use]
    pub fn order(&self, block_points: Option<i64>) -> Aging {
        Aging::new(AgingConfig {
            queues: self.table.clone(),
            age_factor: Priority::points(1),
            block_priority: block_points.map(Priority::points),
        })
    }

    /// The time limit of a queue, which backfilling relies on because the log has no requested times.
    #[must_use]
    pub fn limit(&self, queue: QueueId) -> Duration {
        QueueClass::of(&self.table.0[usize::from(queue.0)].name).limit
    }

    #[must_use]
    pub fn home(&self, record: &Record) -> (QueueId, GroupId) {
        let number = usize::try_from(record.queue.unwrap_or(0)).unwrap_or(0).min(self.table.0.len() - 1);
        let group = self.table.0[number].group;
        (QueueId(u16::try_from(number).unwrap_or(0)), group)
    }
}

/// The records of one partition: 1 is interactive, 2 is batch.
#[must_use]
pub fn partition(log: &Log, partition: u32) -> Log {
    let records = log.records.iter().filter(|record| record.partition == Some(partition)).cloned().collect();
    Log { comments: log.comments.iter().filter(|comment| comment.before == 0).cloned().collect(), records }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::spaceshare::allocate::Request;

    use super::*;

    #[test]
    fn the_name_of_a_queue_says_its_nodes_and_its_hours() {
        let of = |name| {
            let class = QueueClass::of(name);
            (class.fat, class.limit.as_secs() / 3600, class.standby)
        };
        assert_eq!(of("q4t"), (false, 1, false));
        assert_eq!(of("qf16s"), (true, 1, false));
        assert_eq!(of("q256m"), (false, 4, false));
        assert_eq!(of("qf128l"), (true, 12, false));
        assert_eq!(of("standby"), (false, 12, true));
        assert_eq!(of("fstandby"), (true, 12, true));
    }

    #[test]
    fn short_jobs_alone_use_the_third_set_by_day() {
        let midnight = LogStart { day: 0, second: 0 };
        let machine = batch(AllocatorName::M2db, midnight).unwrap();
        let (noon, night) = (Duration::from_secs(12 * 3600).into(), Duration::from_secs(20 * 3600).into());
        let group = |name| QueueClass::of(name).group();
        assert_eq!(machine.total(), BATCH_NODES);
        assert_eq!(machine.free_in(noon, group("qf32s")), 256);
        assert_eq!(machine.free_in(noon, group("qf32l")), 224);
        assert_eq!(machine.free_in(night, group("qf32l")), 256);
        assert_eq!(machine.free_in(noon, group("q128l")), 336);
        assert!(machine.can_ever_hold(group("qf256l"), Request::nodes(256)));
    }
}
