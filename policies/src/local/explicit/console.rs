//! Console of DTS: one process for the cluster that sets the slices of all nodes (thesis §2.1.1-2.1.2,
//! Algorithm 2).

use std::{collections::BTreeMap, time::Duration};

use thiserror::Error;

use super::{PowerWeight, Slices};
use crate::NodeId;

#[derive(Clone, Debug, PartialEq, Error)]
pub enum ConsoleError {
    #[error("take the load of {0}: it is not one of the console's nodes")]
    Unknown(NodeId),
}

/// Works in balanced mode; in static mode no node reports its load.
#[derive(Clone, Debug, PartialEq)]
pub struct Console {
    period: Duration,
    nodes: BTreeMap<NodeId, Node>,
    announced: f64,
    slices: Slices,
    /// The slices that were sent to the live nodes last; `None`: some node has not got any.
    told: Option<Slices>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Node {
    power: PowerWeight,
    /// `None`: it was lost, and has not reported since.
    index: Option<f64>,
}

/// `|RLA - RLA_prev|` must exceed this for a broadcast.
const ANNOUNCED_STEP: f64 = 0.5;

impl Console {
    /// A console for these nodes, all idle.
    pub fn new(period: Duration, nodes: impl IntoIterator<Item = (NodeId, PowerWeight)>) -> Self {
        let idle = |(node, power)| (node, Node { power, index: Some(0.0) });
        let nodes = nodes.into_iter().map(idle).collect();
        Self { period, nodes, announced: 0.0, slices: Slices::for_load(0.0, period), told: None }
    }

    /// The slices that are broadcast every synchronisation interval.
    #[must_use]
    pub const fn slices(&self) -> Slices {
        self.slices
    }

    /// The slices that are to be sent to the live nodes now; `None`: all of them have these already.
    pub fn to_tell(&mut self) -> Option<Slices> {
        (self.told.replace(self.slices) != Some(self.slices)).then_some(self.slices)
    }

    /// Some node has not got any slices: the next [`Console::to_tell`] returns them.
    pub const fn tell_again(&mut self) {
        self.told = None;
    }

    /// The load index of each node that counts, as it was reported last.
    pub fn loads(&self) -> impl Iterator<Item = (NodeId, f64)> {
        self.nodes.iter().filter_map(|(id, node)| Some((*id, node.index?)))
    }

    /// *RLA*: the mean over the nodes that count of load index by power weight (formula 2.2).
    #[must_use]
    pub fn relative_load(&self) -> f64 {
        let loads = || self.nodes.values().filter_map(|node| Some(node.index? / node.power.get()));
        loads().sum::<f64>() / loads().count().max(1) as f64
    }

    /// Takes a node's load index and returns the slices to broadcast if the relative load moved by more than
    /// half a task.
    ///
    /// # Errors
    /// Where the node is not known.
    pub fn on_load(&mut self, node: NodeId, index: f64) -> Result<Option<Slices>, ConsoleError> {
        self.nodes.get_mut(&node).ok_or(ConsoleError::Unknown(node))?.index = Some(index);
        Ok(self.announce())
    }

    /// A node is lost: its load does not count until it reports again. Returns what [`Console::on_load`]
    /// does. (The thesis knows no lost nodes.)
    ///
    /// # Errors
    /// Where the node is not known.
    pub fn on_lost(&mut self, node: NodeId) -> Result<Option<Slices>, ConsoleError> {
        self.nodes.get_mut(&node).ok_or(ConsoleError::Unknown(node))?.index = None;
        Ok(self.announce())
    }

    fn announce(&mut self) -> Option<Slices> {
        let load = self.relative_load();
        if (load - self.announced).abs() <= ANNOUNCED_STEP {
            return None;
        }
        self.announced = load;
        self.slices = Slices::for_load(load, self.period);
        Some(self.slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(1);

    fn console<const NODES: usize>(powers: [f64; NODES]) -> Console {
        let powers = powers.map(|power| PowerWeight::try_from(power).unwrap());
        Console::new(PERIOD, (0..).map(NodeId).zip(powers))
    }

    #[test]
    fn a_node_of_half_the_power_counts_double_as_in_the_example_of_the_thesis() {
        let mut console = console([1.0, 0.5]);
        console.on_load(NodeId(0), 2.0).unwrap();
        let slices = console.on_load(NodeId(1), 1.0).unwrap().expect("the load rose by one");
        assert!((console.relative_load() - 2.0).abs() < 1e-12);
        assert_eq!(slices.local, Duration::from_millis(400));
    }

    #[test]
    fn a_small_change_is_not_broadcast() {
        let mut console = console([1.0]);
        assert_eq!(console.on_load(NodeId(0), 0.5), Ok(None));
        assert!(console.on_load(NodeId(0), 0.6).unwrap().is_some());
        assert_eq!(console.on_load(NodeId(0), 1.0), Ok(None));
    }

    #[test]
    fn a_lost_node_does_not_count_until_it_reports_again() {
        let mut console = console([1.0, 1.0]);
        let local = |slices: Option<Slices>| slices.map(|slices| slices.local.as_millis());
        assert_eq!(local(console.on_load(NodeId(0), 4.0).unwrap()), Some(400), "the mean with an idle node");
        assert_eq!(local(console.on_lost(NodeId(1)).unwrap()), Some(800));
        assert_eq!(console.loads().collect::<Vec<_>>(), [(NodeId(0), 4.0)]);
        assert_eq!(local(console.on_load(NodeId(1), 1.0).unwrap()), Some(500));
        console.on_lost(NodeId(0)).unwrap();
        assert_eq!(local(console.on_lost(NodeId(1)).unwrap()), Some(100), "nothing is known of any node");
    }

    #[test]
    fn nodes_are_told_what_they_do_not_know() {
        let mut console = console([1.0]);
        let first = console.slices();
        assert_eq!([console.to_tell(), console.to_tell()], [Some(first), None]);
        console.on_load(NodeId(0), 0.4).unwrap();
        assert_eq!(console.to_tell(), None, "a small change");
        console.on_load(NodeId(0), 2.0).unwrap();
        assert_eq!(console.to_tell(), Some(console.slices()));
        console.tell_again();
        assert_eq!([console.to_tell(), console.to_tell()], [Some(console.slices()), None]);
    }

    #[test]
    fn the_load_of_a_stranger_is_refused() {
        let mut console = console([1.0]);
        assert_eq!(console.on_load(NodeId(9), 1.0), Err(ConsoleError::Unknown(NodeId(9))));
        assert_eq!(console.on_lost(NodeId(9)), Err(ConsoleError::Unknown(NodeId(9))));
    }
}
