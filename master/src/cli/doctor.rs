//! `coswitch doctor`: checks whether this machine can run job sets.

use std::{io, path::PathBuf};

use anyhow::Context;

use super::{Answer, Exit, Failure, Output};
use crate::{
    config::{self, ParkMethod},
    doctor::{self, Findings},
};

/// Say what this machine lacks to run job sets, and how to get it.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorCommand {
    /// A run file, whose programs, swap and stores are checked too.
    file: Option<PathBuf>,
}

impl DoctorCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let findings = match &self.file {
            None => doctor::examine(&[], false, &[]),
            Some(file) => {
                let set = config::load(file)?;
                let pages_out = set.scheduler.park == ParkMethod::PageOut;
                doctor::examine(&set.jobs, pages_out, set.cluster.stores_here())
            }
        };
        let findings = findings.and(doctor::try_criu());
        output.print(&findings).context("failed to print")?;
        Ok(if findings.is_fit() { Exit::Done } else { Exit::Lacking })
    }
}

impl Answer for Findings {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        writeln!(out, "{self}")
    }
}
