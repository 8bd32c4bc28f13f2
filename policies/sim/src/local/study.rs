//! A grid of runs on several threads, and the figures that a study keeps of each run.

use super::{LocalModel, Shape, ShapeError, Times, simulate_local};
use crate::parallel::each;

#[derive(Clone, Debug, PartialEq)]
pub struct StudyRun {
    pub shape: Shape,
    pub model: LocalModel,
    pub seed: u64,
}

/// The figures that a study keeps of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunFigures {
    /// *SystemCoDe*, in 0..=1; 0 where no task ever communicated.
    pub coscheduling: f64,
    /// *SystemD* in seconds of simulated time, per ended task.
    pub delay_per_task: f64,
    pub distributed: Times,
    pub local: Times,
    /// Mean number of ready tasks on a node.
    pub ready: f64,
    /// Part of all processor time spent spinning, in 0..=1.
    pub spun: f64,
}

impl StudyRun {
    fn make(&self) -> Result<RunFigures, ShapeError> {
        let report = simulate_local(&self.shape, &self.model, self.seed)?;
        let (tasks, time) = (report.tasks.len() as f64, report.end.0 as f64 * 1e-9);
        Ok(RunFigures {
            coscheduling: report.degrees().map_or(0.0, |degrees| degrees.coscheduling),
            delay_per_task: report.system().delayed.as_secs_f64() / tasks,
            distributed: report.distributed(),
            local: report.local(),
            ready: report.ready,
            spun: report.spun.as_secs_f64() / (time * f64::from(self.shape.stations)),
        })
    }
}

/// Runs all on up to `threads` threads (at least one).
///
/// # Errors
/// Where a shape cannot be simulated: the first one in the order of the runs.
///
/// # Panics
/// Where a run does.
pub fn run_all(runs: &[StudyRun], threads: usize) -> Result<Vec<RunFigures>, ShapeError> {
    each(runs, threads, StudyRun::make).into_iter().collect()
}
