//! `coswitch report`: the report of an earlier run, from its journal.

use std::path::PathBuf;

use anyhow::Context;

use super::{Exit, Failure, Output};
use crate::{journal, report};

/// Show the report of an earlier run again, from its journal.
#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    /// The run's directory, or its journal.
    run: PathBuf,
}

impl Report {
    /// Folds the journal.
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let path = if self.run.is_dir() { self.run.join(journal::FILE_NAME) } else { self.run };
        let events = journal::read(&path).context("failed to make the report")?;
        output.print(&report::fold(&events)).context("failed to print")?;
        Ok(Exit::Done)
    }
}
