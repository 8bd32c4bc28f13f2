//! `coswitch clean`: ends and removes the remains of runs whose master has ended.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use coswitch_daemon::{cgroup::Hierarchies, node};
use coswitch_report::words::plural;
use serde::Serialize;

use super::{Answer, Exit, Failure, Output};
use crate::{
    run_name::RunName,
    serve::{DEFAULT_SOCKET, Socket},
};

/// The time limit for the end of the killed processes of one node.
const LIMIT: Duration = Duration::from_secs(10);

/// End and remove the remains of dead runs: processes, cgroups, shared memory, images, a socket.
#[derive(Debug, clap::Args)]
pub(crate) struct CleanCommand {
    /// Also end clusters that stand without a master, and their jobs.
    #[arg(long)]
    standing: bool,
}

/// The nodes that were found, by name.
#[derive(Debug, Default, Serialize)]
struct Cleaned {
    removed: Vec<String>,
    /// Nodes of a living run: not touched.
    alive: Vec<String>,
    /// Nodes of a cluster whose master has gone, and whose jobs go on: not touched.
    standing: Vec<String>,
    /// Not made by a run: not touched.
    foreign: Vec<String>,
    failed: Vec<FailedNode>,
    /// The socket of a cluster whose master was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct FailedNode {
    node: String,
    why: String,
}

impl CleanCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let hierarchies = Hierarchies::find().context("failed to look for cgroups")?;
        let mut cleaned = Cleaned::default();
        let socket = Path::new(DEFAULT_SOCKET);
        cleaned.socket = Socket::remove_dead(socket).then(|| socket.into());
        for name in node::leftovers(&hierarchies) {
            match name.parse::<RunName>() {
                Err(_) => cleaned.foreign.push(name),
                Ok(run) if run.is_alive() || node::has_master(&name) => cleaned.alive.push(name),
                Ok(_) if !self.standing && node::standing_daemon(&name).is_some() => {
                    cleaned.standing.push(name);
                }
                Ok(_) => match node::end(&hierarchies, &name, LIMIT) {
                    Ok(()) => cleaned.removed.push(name),
                    Err(error) => {
                        let why = format!("{error:#}");
                        cleaned.failed.push(FailedNode { node: name, why });
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
        let Self { removed, alive, standing, foreign, failed, socket } = self;
        socket.iter().try_for_each(|path| writeln!(out, "removed the dead socket {}", path.display()))?;
        removed.iter().try_for_each(|name| writeln!(out, "removed what was left of {name}"))?;
        alive.iter().try_for_each(|name| writeln!(out, "{name} belongs to a run that is alive"))?;
        standing.iter().try_for_each(|name| {
            writeln!(
                out,
                "{name} stands without a master: `coswitch serve` takes it over, `clean --standing` ends it"
            )
        })?;
        foreign.iter().try_for_each(|name| writeln!(out, "{name} was not made by a run; left alone"))?;
        failed
            .iter()
            .try_for_each(|FailedNode { node, why }| writeln!(out, "failed to remove {node}: {why}"))?;
        writeln!(out, "{} removed", plural(removed.len(), "node"))
    }
}
