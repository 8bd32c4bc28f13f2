//! The run loop's seam: what the command line gives it and what it gets back.

use std::path::PathBuf;

use thiserror::Error;

use crate::{
    config::JobSet,
    journal::{RunEvent, RunOutcome},
};

/// How a job set is to be run.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// What the run is called: names its directories, cgroups and network namespaces.
    pub run: String,
    /// The run's directory: journal, outputs of the ranks, logs, images. It exists.
    pub out: PathBuf,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How.
    pub run: RunOutcome,
}

/// Why the engine could not go on.
#[derive(Debug, Error)]
pub enum EngineError {
    /// This build has no run loop.
    #[error("this build of coswitch has no run loop")]
    NotBuilt,
}

/// Runs `jobs` to their end, telling `events` everything that happens.
///
/// # Errors
/// Where coswitch itself fails; a job that fails is told in the outcome.
pub fn run(_jobs: JobSet, _options: EngineOptions, _events: impl FnMut(RunEvent)) -> anyhow::Result<Outcome> {
    Err(EngineError::NotBuilt.into())
}
