//! `coswitch doctor`: checks whether this machine can run job sets.

use std::io;

use anyhow::Context;

use super::{Answer, Exit, Failure, Output};
use crate::doctor::{self, Findings};

/// Say what this machine lacks to run job sets, and how to get it.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorCommand;

impl DoctorCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let findings = doctor::examine(&[], false, &[]);
        output.print(&findings).context("failed to print")?;
        Ok(if findings.is_fit() { Exit::Done } else { Exit::Lacking })
    }
}

impl Answer for Findings {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        writeln!(out, "{self}")
    }
}
