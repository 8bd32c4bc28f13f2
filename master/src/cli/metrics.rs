//! `coswitch metrics`: what the numbers of a report mean.

use std::io::Write;

use anyhow::Context;

use super::{Exit, Failure};

pub(crate) const TEXT: &str = include_str!("metrics.txt");

/// Say what every number of a report means
#[derive(Debug, clap::Args)]
#[command(long_about = TEXT)]
pub(crate) struct Metrics;

impl Metrics {
    /// Prints the definitions.
    pub(crate) fn carry_out(self) -> Result<Exit, Failure> {
        std::io::stdout().lock().write_all(TEXT.as_bytes()).context("failed to print the definitions")?;
        Ok(Exit::Done)
    }
}
