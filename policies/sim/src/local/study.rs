//! Many runs on several threads. The outcome does not depend on how many: each run is a function of its arguments, and
//! outcomes come back in the order of the runs.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use super::{LocalModel, Shape, ShapeError, Times, simulate_local};

#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The cluster and its load.
    pub shape: Shape,
    pub model: LocalModel,
    pub seed: u64,
}

/// What is kept of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
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

impl Run {
    fn make(&self) -> Result<Outcome, ShapeError> {
        let report = simulate_local(&self.shape, &self.model, self.seed)?;
        let (tasks, time) = (report.tasks.len() as f64, report.end.0 as f64 * 1e-9);
        Ok(Outcome {
            coscheduling: report.degrees().map_or(0.0, |degrees| degrees.coscheduling),
            delay_per_task: report.system().delayed.as_secs_f64() / tasks,
            distributed: report.distributed(),
            local: report.local(),
            ready: report.ready,
            spun: report.spun.as_secs_f64() / (time * f64::from(self.shape.stations)),
        })
    }
}

/// Makes all runs on up to `threads` threads (at least one).
///
/// # Errors
/// The first shape, in the order of the runs, that cannot be simulated.
///
/// # Panics
/// Where a run does.
pub fn make_all(runs: &[Run], threads: usize) -> Result<Vec<Outcome>, ShapeError> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![None; runs.len()]);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some((index, run)) = take(runs, &next) {
                    let outcome = run.make();
                    outcomes.lock().expect("no run panics while it stores its outcome")[index] =
                        Some(outcome);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("no run panics while it stores its outcome");
    outcomes.into_iter().map(|outcome| outcome.expect("every run was taken")).collect()
}

fn take<'a>(runs: &'a [Run], next: &AtomicUsize) -> Option<(usize, &'a Run)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    runs.get(index).map(|run| (index, run))
}
