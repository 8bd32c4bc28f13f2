//! `coswitch clean`: ends and removes what runs left behind whose master is gone.

use std::{io, time::Duration};

use anyhow::Context;
use coswitch_daemon::{cgroup::Hierarchies, node};
use serde::Serialize;

use super::{Answer, Exit, Failure, Output, check::plural};
use crate::run_name::RunName;

/// How long the killed processes of one node may take to be gone.
const LIMIT: Duration = Duration::from_secs(10);

/// End and remove what dead runs left behind: processes, cgroups, shared memory, images.
#[derive(Debug, clap::Args)]
pub(crate) struct Clean;

/// What was found and done, by the names of nodes.
#[derive(Debug, Default, Serialize)]
struct Cleaned {
    /// Ended and removed.
    removed: Vec<String>,
    /// Of a run that is still alive: left alone.
    alive: Vec<String>,
    /// Not made by a run, so nothing is known of it: left alone.
    foreign: Vec<String>,
    /// Would not go.
    failed: Vec<Stuck>,
}

#[derive(Debug, Serialize)]
struct Stuck {
    node: String,
    why: String,
}

impl Clean {
    /// Looks through all cgroups and shared memory of coswitch.
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let hierarchies = Hierarchies::find().context("failed to look for cgroups")?;
        let mut cleaned = Cleaned::default();
        for name in node::leftovers(&hierarchies) {
            match name.parse::<RunName>() {
                Err(_) => cleaned.foreign.push(name),
                Ok(run) if run.is_alive() => cleaned.alive.push(name),
                Ok(_) => match node::destroy(&hierarchies, &name, LIMIT) {
                    Ok(()) => cleaned.removed.push(name),
                    Err(error) => {
                        let why = format!("{:#}", anyhow::Error::new(error));
                        cleaned.failed.push(Stuck { node: name, why });
                    }
                },
            }
        }
        output.print(&cleaned).context("failed to print")?;
        Ok(if cleaned.failed.is_empty() { Exit::Done } else { Exit::Internal })
    }
}

impl Answer for Cleaned {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let Self { removed, alive, foreign, failed } = self;
        removed.iter().try_for_each(|name| writeln!(out, "removed what was left of {name}"))?;
        alive.iter().try_for_each(|name| writeln!(out, "{name} belongs to a run that is alive"))?;
        foreign.iter().try_for_each(|name| writeln!(out, "{name} was not made by a run; left alone"))?;
        failed.iter().try_for_each(|Stuck { node, why }| writeln!(out, "failed to remove {node}: {why}"))?;
        writeln!(out, "{} removed", plural(removed.len(), "node"))
    }
}
