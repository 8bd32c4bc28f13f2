//! `coswitch upgrade`: replaces the daemons of a cluster by the installed program, below jobs that live on.

use std::{io, time::Duration};

use anyhow::Context;
use coswitch_policies::NodeId;
use coswitch_report::words::plural;

use super::Cluster;
use crate::{
    api::{NodeUpgrade, Refusal},
    cli::{Answer, Exit, Failure, Output},
};

/// Replace the daemons of a cluster by the program that is installed now, one node after the other.
///
/// The jobs that run on the node stand still for it, on all of their nodes, and go on where they were; jobs
/// that are suspended or parked stay so. Where the new program cannot take over, the one before goes on.
/// Jobs that are launched later use the new launcher and driver, the others keep theirs.
#[derive(Debug, clap::Args)]
pub(crate) struct UpgradeCommand {
    /// The nodes, as `node-1` or `1` [default: all].
    nodes: Vec<String>,
    /// Say which daemons would be replaced, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(serde::Serialize)]
#[serde(transparent)]
struct Upgraded(Vec<NodeUpgrade>);

impl UpgradeCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let nodes = self.nodes.iter().map(|word| node(word)).collect::<Result<Vec<_>, _>>()?;
        let upgraded = self.cluster.client()?.upgrade(&nodes, self.dry_run)?;
        output.print(&Upgraded(upgraded)).context("failed to print")?;
        Ok(Exit::Done)
    }
}

/// The node that a user calls `node-1` or `1`.
fn node(word: &str) -> Result<NodeId, Failure> {
    let number = word.strip_prefix("node-").unwrap_or(word).parse().ok().map(NodeId);
    number.ok_or_else(|| {
        let why = format!("`{word}` is not a node: nodes are called `node-0`, `node-1` and so on");
        Failure::Refused(Refusal::BadRequest { why })
    })
}

impl Answer for Upgraded {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        self.0.iter().try_for_each(|upgrade| writeln!(out, "{}", line(upgrade)))
    }
}

fn line(NodeUpgrade { node, jobs, pause, version }: &NodeUpgrade) -> String {
    let jobs = plural(jobs.len(), "job");
    match (pause, version) {
        (Some(pause), Some(version)) => {
            format!(
                "{node} has a daemon of version {version}; {jobs} stood still for {}",
                milliseconds(*pause)
            )
        }
        _ => format!("would replace the daemon of {node}; {jobs} would stand still"),
    }
}

fn milliseconds(span: Duration) -> String {
    format!("{} ms", span.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_by_its_number_or_its_name() {
        assert_eq!((node("3").ok(), node("node-3").ok()), (Some(NodeId(3)), Some(NodeId(3))));
        assert!(node("node-x").is_err() && node("").is_err() && node("job-3").is_err());
    }
}
