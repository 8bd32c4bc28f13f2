//! `coswitch top`: the cluster as it is now and in the next minute, on the terminal.

use std::io::{self, IsTerminal};

use anyhow::Context;

use super::Cluster;
use crate::{
    cli::{Answer, Exit, Failure, Output},
    top::{self, Over},
    watching::Status,
};

/// Watch the cluster: the turns of the next minute, the memory of the nodes, the switch under way, and your
/// jobs.
///
/// The turns are foreseen by the cluster's own scheduler, which knows nothing of jobs that will be submitted.
/// Keys: q quits, arrows scroll, s sorts the jobs, ? shows all keys. Where standard output is no terminal,
/// one frame is printed.
#[derive(Debug, clap::Args)]
pub(crate) struct TopCommand {
    /// Print one frame and end; with `--output json` what it is made of.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    cluster: Cluster,
}

impl TopCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let client = self.cluster.client()?;
        let status = client.block_on(top::ask(&client))?;
        let (stdout, stdin) = (io::stdout().is_terminal(), io::stdin().is_terminal());
        if self.once || output == Output::Json || !stdout || !stdin {
            output.print(&status).context("failed to print")?;
            return Ok(Exit::Done);
        }
        match top::watch(client, status).context("failed to draw on the terminal")? {
            Over::Quit => Ok(Exit::Done),
            Over::ClusterEnded => {
                eprintln!("the cluster has ended");
                Ok(Exit::Done)
            }
            Over::Terminated => Ok(Exit::Interrupted),
        }
    }
}

impl Answer for Status {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        out.write_all(top::frame(self).as_bytes())
    }
}
