//! `coswitch metrics`: the definition of every number of a report.

use std::io::Write;

use anyhow::Context;
use coswitch_report::METRICS;

use super::{Exit, Failure};

/// Print the definition of every number of a report
#[derive(Debug, clap::Args)]
#[command(long_about = METRICS)]
pub(crate) struct MetricsCommand;

impl MetricsCommand {
    pub(crate) fn carry_out(self) -> Result<Exit, Failure> {
        std::io::stdout().lock().write_all(METRICS.as_bytes()).context("failed to print the definitions")?;
        Ok(Exit::Done)
    }
}
