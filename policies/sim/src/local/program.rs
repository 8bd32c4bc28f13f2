//! Arrivals of tasks and their communication, by seed.
//!
//! From the thesis: Poisson arrivals on each node and exponential service; a task is distributed with
//! probability *pdt*, then of one of *maxm* applications, with a sending frequency uniform in `0..=cf`, drawn
//! once for each task.
//!
//! The thesis does not say when a task waits for a message. Here a distributed task computes for a while
//! (exponential, [`super::Shape::grain`]), then sends as many requests as its frequency, each to a task of
//! its application on another node, and needs the replies before it goes on. A request is answered when its
//! receiver has the processor, at once if it has it already. So a wait is short where peers run at the same
//! time, which is the aim of coscheduling. A task without any peer goes on without sending.
//!
//! Arrivals are the same under every model with the same seed: each node and each task has its own sequence.

use std::time::Duration;

use coswitch_policies::{Bytes, JobId};

use super::Shape;
use crate::Seed;

/// The arrivals of one node.
#[derive(Clone, Debug)]
pub struct Arrivals {
    seed: Seed,
}

/// A task as it arrives.
#[derive(Clone, Debug)]
pub struct Newcomer {
    /// Time since the arrival before it.
    pub after: Duration,
    /// Processor time that it needs.
    pub work: Duration,
    /// The application it would belong to; none for a local task.
    pub application: Option<JobId>,
    pub program: Program,
    /// The memory that it needs on the node.
    pub memory: Bytes,
}

impl Arrivals {
    /// The sequence of node number `node`.
    #[must_use]
    pub const fn new(seed: u64, node: u32) -> Self {
        let mut mixed = Seed::new(seed);
        Self { seed: Seed::new(mixed.next_u64() ^ ((node as u64) << 32)) }
    }

    pub fn next(&mut self, shape: &Shape) -> Newcomer {
        let seed = &mut self.seed;
        let after = exponential(seed, shape.interarrival);
        let work = exponential(seed, shape.service());
        let is_distributed = seed.unit() < shape.distributed;
        let application = seed.between(1, u64::from(shape.applications));
        let program_seed = seed.next_u64();
        let program = Program { seed: Seed::new(program_seed) };
        // Drawn from its own sequence, so that a memory model changes nothing else.
        let memory = shape.memory.map_or(Bytes(0), |memory| memory.draw(&mut Seed::new(!program_seed)));
        let application = is_distributed.then_some(JobId(application as u32));
        Newcomer { after, work, application, program, memory }
    }
}

/// The random choices of one task.
#[derive(Clone, Debug)]
pub struct Program {
    seed: Seed,
}

impl Program {
    /// The sending frequency of a task of `application`: uniform in `0..=cf`.
    pub fn frequency(&mut self, application: JobId, shape: &Shape) -> u32 {
        let most = shape.frequency.unwrap_or(application.0);
        u32::try_from(self.seed.between(0, u64::from(most))).expect("at most the bound, a u32")
    }

    /// Computation until the next communication.
    pub fn burst(&mut self, shape: &Shape) -> Duration {
        exponential(&mut self.seed, shape.service().mul_f64(shape.grain))
    }

    /// One of `count`, which is above 0.
    pub fn choose(&mut self, count: usize) -> usize {
        let last = u64::try_from(count - 1).expect("a number of tasks");
        usize::try_from(self.seed.between(0, last)).expect("below a usize")
    }
}

/// At least a nanosecond, so that time advances.
fn exponential(seed: &mut Seed, mean: Duration) -> Duration {
    Duration::from_secs_f64(seed.exponential(mean.as_secs_f64())).max(Duration::from_nanos(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_the_means_of_the_shape() {
        let shape = Shape { distributed: 0.2, ..Shape::default() };
        let mut arrivals = Arrivals::new(3, 1);
        let tasks: Vec<_> = (0..20_000).map(|_| arrivals.next(&shape)).collect();
        let mean = |sum: Duration| sum / 20_000;
        let near = |found: Duration, wanted: Duration| {
            assert!(found.abs_diff(wanted) < wanted / 30, "{found:?} instead of {wanted:?}");
        };
        near(mean(tasks.iter().map(|task| task.after).sum()), shape.interarrival);
        near(mean(tasks.iter().map(|task| task.work).sum()), shape.service());
        let distributed = tasks.iter().filter(|task| task.application.is_some()).count();
        assert!((3800..4200).contains(&distributed), "{distributed} of 20000 at pdt 0.2");
        assert!(tasks.iter().filter_map(|task| task.application).all(|job| (1..=3).contains(&job.0)));
    }

    #[test]
    fn a_node_has_a_sequence_of_its_own() {
        let shape = Shape::default();
        let first = |seed, node| Arrivals::new(seed, node).next(&shape).work;
        assert_eq!(first(1, 2), first(1, 2));
        assert!(first(1, 2) != first(1, 3) && first(1, 2) != first(2, 2));
    }
}
