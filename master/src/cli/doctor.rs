//! `coswitch doctor`: what this machine lacks, and how to get it.

use anyhow::Context;

use super::{Exit, Failure, Output};
use crate::doctor;

/// Say what this machine lacks to run job sets, and how to get it.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor;

impl Doctor {
    /// Looks at everything; ends with exit code 3 where something needed is not there.
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let findings = doctor::examine(&[], false, &[]);
        output.print(&findings).context("failed to print")?;
        Ok(if findings.is_fit() { Exit::Done } else { Exit::Lacking })
    }
}
