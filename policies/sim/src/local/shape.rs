//! Parameters of SCluster (thesis ch. 4, Fig. 4.1).

use std::{num::NonZeroUsize, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::NodeMemory;

/// A millisecond stands for the thesis's time unit, which has no length. No result depends on it.
pub const UNIT: Duration = Duration::from_millis(1);

/// The kind of an arriving distributed task on a node that already has `maxm` of them. The thesis calls
/// `maxm` both the number of distributed applications and the maximum of distributed tasks on a node, and
/// does not say what happens above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Crowding {
    /// It is distributed: only the number of applications is `maxm`, and several tasks of one may share a
    /// node.
    Share,
    /// The node has one place for each application; a task without a place becomes a local task.
    TurnLocal,
}

/// The receivers of a distributed task. Not in the thesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Peers {
    /// Any task of its application on another node, chosen anew each time.
    Any,
    /// One task on the next node; the last node is followed by the first.
    Ring,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// *NSTATIONS*: nodes.
    pub stations: u32,
    /// Processors of each node. Not in the thesis, where it is 1.
    pub processors: NonZeroUsize,
    /// *MRQL*: tasks in a node's ready queue on average, if each only computed.
    pub queue_length: f64,
    /// *mit*: mean time between two arrivals on a node, exponential.
    pub interarrival: Duration,
    /// *nsdt*: the run ends when this many distributed tasks have ended.
    pub served: u32,
    /// *pdt*: probability that an arriving task is distributed, above 0.
    pub distributed: f64,
    /// *maxm*: distributed applications.
    pub applications: u32,
    /// *cf* of all applications; none: application number `a` has `cf = a`, so that all of `1..=maxm` occur.
    pub frequency: Option<u32>,
    pub crowding: Crowding,
    pub peers: Peers,
    /// Mean computation between two communications, in mean service times (exponential). Not in the thesis.
    pub grain: f64,
    /// Slice of every task. Not in the thesis.
    pub slice: Duration,
    /// Memory of nodes and tasks; none: always enough.
    pub memory: Option<NodeMemory>,
}

impl Default for Shape {
    /// The middle of the thesis's ranges: 4 nodes, *MRQL* 2, *pdt* 0.5, *maxm* 3.
    fn default() -> Self {
        Self {
            stations: 4,
            processors: NonZeroUsize::MIN,
            queue_length: 2.0,
            interarrival: 10 * UNIT,
            served: 10_000,
            distributed: 0.5,
            applications: 3,
            frequency: None,
            crowding: Crowding::Share,
            peers: Peers::Any,
            grain: 0.5,
            slice: UNIT,
            memory: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum ShapeError {
    #[error("simulate a cluster with no {0}")]
    None(&'static str),
    #[error("simulate {name} = {value}: it must be {range}")]
    Range { name: &'static str, value: f64, range: &'static str },
}

impl Shape {
    /// *mst*: mean service time, from `MRQL = ρ / (1 - ρ)` with `ρ = mst / mit` (formula 4.1).
    #[must_use]
    pub fn service(&self) -> Duration {
        self.interarrival.mul_f64(self.queue_length / (1.0 + self.queue_length))
    }

    /// Checks that it can be simulated.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ShapeError> {
        let counts = [
            ("nodes", self.stations),
            ("distributed tasks to wait for", self.served),
            ("applications", self.applications),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(ShapeError::None(name));
        }
        if self.interarrival.is_zero() || self.slice.is_zero() {
            return Err(ShapeError::None("time between arrivals, or no slice"));
        }
        let probable = self.distributed > 0.0 && self.distributed <= 1.0;
        range("pdt", self.distributed, probable, "above 0 and at most 1")?;
        let length = self.queue_length;
        range("MRQL", length, length > 0.0 && length <= 1000.0, "above 0 and at most 1000")?;
        range("grain", self.grain, self.grain >= 0.01 && self.grain.is_finite(), "at least 0.01")
    }
}

const fn range(name: &'static str, value: f64, holds: bool, range: &'static str) -> Result<(), ShapeError> {
    if holds { Ok(()) } else { Err(ShapeError::Range { name, value, range }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_time_follows_from_the_queue_length_by_formula_4_1() {
        let shape = |queue_length| Shape { queue_length, ..Shape::default() };
        assert_eq!(shape(1.0).service(), 5 * UNIT);
        assert_eq!(shape(4.0).service(), 8 * UNIT);
    }

    #[test]
    fn an_invalid_shape_is_refused_with_the_reason() {
        let shape = Shape { distributed: 0.0, ..Shape::default() };
        assert_eq!(
            shape.check().unwrap_err().to_string(),
            "simulate pdt = 0: it must be above 0 and at most 1"
        );
        assert!(Shape { stations: 0, ..Shape::default() }.check().is_err());
        assert_eq!(Shape::default().check(), Ok(()));
    }
}
