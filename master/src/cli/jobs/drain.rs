//! `coswitch drain` and `coswitch undrain`: takes nodes out of use, and back.

use std::io;

use anyhow::Context;
use coswitch_policies::NodeId;
use coswitch_report::words::plural;

use super::Cluster;
use crate::{
    api::{NodeStatus, Refusal},
    cli::{Answer, Exit, Failure, Output},
    client::Client,
    config::ClusterConfig,
};

/// Take nodes out of use until `coswitch undrain`. Returns when no job is in memory there.
///
/// Jobs there are parked: what they have computed is kept, and they come back with the node. New jobs go to
/// the other nodes. Under a policy that parks no jobs, those of the node run to their ends.
#[derive(Debug, clap::Args)]
pub(crate) struct DrainCommand {
    /// The nodes, by number or name: `1`, `node-1`, or the name of a host.
    #[arg(required = true)]
    nodes: Vec<String>,
    #[command(flatten)]
    cluster: Cluster,
}

/// Let drained nodes take jobs again.
#[derive(Debug, clap::Args)]
pub(crate) struct UndrainCommand {
    /// The nodes, by number or name: `1`, `node-1`, or the name of a host.
    #[arg(required = true)]
    nodes: Vec<String>,
    #[command(flatten)]
    cluster: Cluster,
}

impl DrainCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        for_each(&self.cluster, &self.nodes, output, Client::drain)
    }
}

impl UndrainCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        for_each(&self.cluster, &self.nodes, output, Client::undrain)
    }
}

fn for_each(
    cluster: &Cluster,
    words: &[String],
    output: Output,
    ask: impl Fn(&Client, NodeId) -> Result<NodeStatus, crate::client::ClientError>,
) -> Result<Exit, Failure> {
    let client = cluster.client()?;
    let config = client.cluster()?.cluster;
    let nodes = words.iter().map(|word| find(&config, word)).collect::<Result<Vec<NodeId>, Failure>>()?;
    for node in nodes {
        output.print(&ask(&client, node)?).context("failed to print")?;
    }
    Ok(Exit::Done)
}

/// The node that a user calls `1`, `node-1` or `alpha`.
fn find(config: &ClusterConfig, word: &str) -> Result<NodeId, Failure> {
    let by_name = (0..).zip(&config.hosts).find(|(_, host)| host.name == word).map(|(number, _)| number);
    let by_number = || word.strip_prefix("node-").unwrap_or(word).parse().ok();
    by_name.or_else(by_number).map(NodeId).ok_or_else(|| {
        let why = format!("there is no node called `{word}`; the nodes are numbered from 0, as `node-0`");
        Failure::Refused(Refusal::BadRequest { why })
    })
}

impl Answer for NodeStatus {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let Self { node, drained, waiting } = self;
        let jobs = plural(waiting.len(), "job");
        let waits = if waiting.len() == 1 { "waits" } else { "wait" };
        match drained {
            true => writeln!(out, "{node} is drained: no job is in memory there, {jobs} {waits} for it"),
            false => writeln!(out, "{node} takes jobs"),
        }
    }
}
