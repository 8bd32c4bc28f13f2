//! Validation of a layout.

use thiserror::Error;

use super::{Layout, PrimeTime, SetLayout};
use crate::spaceshare::machine::MachineError;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    #[error("`{from}` names the {what} `{name}`, and there is none")]
    Unknown { from: String, what: &'static str, name: String },
    #[error("there are two {0}s called `{1}`")]
    Twice(&'static str, String),
    #[error("`{0}` is {1}; it is {2}")]
    Range(&'static str, i64, &'static str),
    /// Otherwise the limit would silently be ignored.
    #[error("the queue `{0}` limits how many of its jobs run, which only the queue order `aging` applies")]
    IgnoredLimit(String),
    #[error(
        "a machine has at least one node set, one group and one queue, and no set without nodes or with more \
         than 2^24"
    )]
    Empty,
    #[error("the group `{0}` has no nodes, by day or by night")]
    NoNodes(String),
    #[error("the set `{set}` names {named} nodes, and is {width} × {height}")]
    Mesh { set: String, named: usize, width: u32, height: u32 },
    #[error("the set `{set}` names the node `{node}`, and the cluster, which has {nodes}, has no such node")]
    UnknownNode { set: String, node: String, nodes: u32 },
    #[error("the set `{set}` names the node `{node}`, which is in a set already")]
    NodeTwice { set: String, node: String },
    #[error("the sets have {sets} nodes together, and the cluster has {nodes}")]
    Nodes { sets: u32, nodes: u32 },
    #[error(transparent)]
    Machine(#[from] MachineError),
}

/// Keeps products with the hours of a log far from overflow.
const POINTS_MAX: i64 = 1_000_000;

impl Layout {
    /// Checks the values that do not depend on a log or a cluster.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), LayoutError> {
        self.check_sets()?;
        once("node set", self.sets.iter().map(|set| &set.name))?;
        once("group", self.groups.iter().map(|group| &group.name))?;
        once("queue", self.queues.iter().map(|queue| &queue.name))?;
        let is_empty = |group: &&super::GroupLayout| {
            group.sets.is_empty() && group.prime.as_ref().is_none_or(Vec::is_empty)
        };
        if let Some(group) = self.groups.iter().find(is_empty) {
            return Err(LayoutError::NoNodes(group.name.clone()));
        }
        let PrimeTime { from, to, .. } = self.prime_time;
        if from > to || to > 24 {
            let text = "not before its begin, and within the day";
            return Err(LayoutError::Range("prime_time.to", to.into(), text));
        }
        let (up, both) = ("from 0 to 1000000", "from -1000000 to 1000000");
        in_range("age_factor", self.age_factor, 0, up)?;
        in_range("block_priority", self.block_priority.unwrap_or(0), 0, up)?;
        for queue in &self.queues {
            in_range("priority", queue.priority, -POINTS_MAX, both)?;
            let most = i64::from(queue.running.unwrap_or(1));
            if most == 0 {
                return Err(LayoutError::Range("running", most, "at least 1"));
            }
        }
        Ok(())
    }

    fn check_sets(&self) -> Result<(), LayoutError> {
        let nodes = |set: &SetLayout| u64::from(set.mesh().width) * u64::from(set.mesh().height);
        let all = self.sets.iter().map(nodes).fold(0, u64::saturating_add);
        if self.queues.is_empty()
            || self.sets.iter().any(|set| nodes(set) == 0)
            || !(1..=1 << 24).contains(&all)
        {
            return Err(LayoutError::Empty);
        }
        for set in &self.sets {
            let named = set.nodes.as_ref().map_or(nodes(set), |names| names.len() as u64);
            if named != nodes(set) {
                let (width, height) = (set.mesh().width, set.height);
                let named = usize::try_from(named).unwrap_or(usize::MAX);
                return Err(LayoutError::Mesh { set: set.name.clone(), named, width, height });
            }
        }
        Ok(())
    }
}

fn once<'a>(what: &'static str, names: impl Iterator<Item = &'a String> + Clone) -> Result<(), LayoutError> {
    let twice =
        names.clone().enumerate().find(|(at, name)| names.clone().take(*at).any(|other| other == *name));
    twice.map_or(Ok(()), |(_, name)| Err(LayoutError::Twice(what, name.clone())))
}

fn in_range(name: &'static str, value: i64, least: i64, text: &'static str) -> Result<(), LayoutError> {
    if (least..=POINTS_MAX).contains(&value) { Ok(()) } else { Err(LayoutError::Range(name, value, text)) }
}
