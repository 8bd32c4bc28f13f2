//! Resolves what the nodes are: so many on this machine, or hosts, or those of an allocation of Slurm.

use std::collections::BTreeSet;

use coswitch_dispatcher::provisioning::{
    hosts::Host,
    slurm::{Allocation, OWN},
};
use coswitch_policies::{Bytes, Rate};
use serde_yaml::Spanned;

use super::{Context, Purpose, Reader};
use crate::config::{
    file::{ClusterPart, HostPart, Nodes},
    job_set::NODES_MAX,
    leaf::Leaf,
    problem::Problem,
    tree::span_at,
};

const HELP: &str = "write the number of virtual nodes on this machine, for example `2`, or a list of hosts, \
                    or `slurm`";
/// The largest arena that a node of an allocation has unless the file says so.
const ARENA_MAX: Bytes = Bytes::mib(256);

/// The arena of a node whose file names none, where Slurm limits the memory of both.
pub(super) fn usual_arena(allocation: &Allocation) -> Bytes {
    let quarter = |Bytes(memory): Bytes| Bytes::mib((memory >> 22).max(1));
    allocation.memory.map_or(ARENA_MAX, |memory| quarter(memory).min(ARENA_MAX))
}

impl Reader {
    /// The number of nodes; the hosts if they are hosts; the allocation if they are Slurm's.
    pub(super) fn nodes(
        &mut self,
        nodes: &Spanned<Nodes>,
        context: &Context<'_>,
    ) -> (u32, Vec<Host>, Option<Allocation>) {
        let problem = |message: String| Problem::new("cluster.nodes", span_at(&nodes.referenced), message);
        let refused = match &nodes.value {
            Nodes::Word(_) if nodes.value.are_slurms() => match slurms(context) {
                Ok((number, allocation)) => return (number, Vec::new(), Some(allocation)),
                Err((message, help)) => problem(message).help(help),
            },
            Nodes::Word(word) => match word.parse::<u32>() {
                Ok(number) if (1..=NODES_MAX).contains(&number) => return (number, Vec::new(), None),
                _ => problem(format!("`{word}` is not a number of nodes from 1 to {NODES_MAX}")).help(HELP),
            },
            Nodes::Hosts(hosts) => match u32::try_from(hosts.len()) {
                Ok(number) if (1..=NODES_MAX).contains(&number) => return (number, self.hosts(hosts), None),
                _ => {
                    problem(format!("{} hosts; a cluster has from 1 to {NODES_MAX}", hosts.len())).help(HELP)
                }
            },
        };
        self.refuse(refused);
        (1, Vec::new(), None)
    }

    /// What a node offers to jobs: as the file says, else what Slurm leaves.
    pub(super) fn node_memory(
        &mut self,
        part: &ClusterPart,
        allocation: Option<&Allocation>,
    ) -> Option<Bytes> {
        const FIELD: &str = "cluster.memory";
        let arena = |allocation| {
            let read = part.arena.as_ref().and_then(|leaf| leaf.read("cluster.arena").ok());
            read.unwrap_or_else(|| usual_arena(allocation))
        };
        let offered = allocation.map(|allocation| {
            let arena = arena(allocation);
            (allocation.memory, allocation.memory_for_jobs(arena), arena)
        });
        let Some(leaf) = &part.memory else {
            let (message, help) = match offered? {
                (_, Some(left), _) if left > Bytes(0) => return Some(left),
                (Some(all), _, arena) => (
                    format!("the allocation gives a node {all}, which leaves nothing for jobs"),
                    format!("coswitch takes {OWN} and the arena of {arena}: ask Slurm for more (`--mem`)"),
                ),
                (None, ..) => (
                    "the field `memory` is missing: Slurm does not share memory out here".into(),
                    "write what a node offers to jobs, for example `memory: 16GiB`".into(),
                ),
            };
            self.refuse(Problem::new(FIELD, span_at(&part.nodes.referenced), message).help(help));
            return None;
        };
        let memory = self.read(FIELD, leaf)?;
        let mut refuse = |message: String, help: String| {
            self.refuse(Problem::new(FIELD, leaf.span(), message).help(help));
        };
        if memory == Bytes(0) {
            refuse("a node without memory holds no job".into(), "write for example `1GiB`".into());
        } else if let Some((Some(all), Some(left), arena)) =
            offered.filter(|(_, left, _)| *left < Some(memory))
        {
            refuse(
                format!(
                    "jobs are to have {memory} on a node, and of the allocation's {all} there {left} is left"
                ),
                format!(
                    "coswitch takes {OWN} and the arena of {arena}: ask Slurm for more (`--mem`), or leave \
                     `memory` out"
                ),
            );
        }
        Some(memory)
    }

    fn hosts(&mut self, parts: &[Spanned<HostPart>]) -> Vec<Host> {
        let mut names = BTreeSet::new();
        for (index, part) in parts.iter().enumerate() {
            let HostPart { host, address } = &part.value;
            let mut refuse = |field: String, message: String, help: &str| {
                self.refuse(Problem::new(field, span_at(&part.referenced), message).help(help));
            };
            let field = format!("cluster.nodes[{index}]");
            if !is_name(host) {
                let message = format!("`{host}` is not the name of a host");
                refuse(field.clone(), message, "write it as `ssh` takes it: `node7`, `root@10.0.0.7`");
            } else if !names.insert(host) {
                let help = "several nodes on one machine are virtual: `nodes: 2`";
                refuse(field.clone(), format!("the host `{host}` is named twice"), help);
            }
            if let Some(address) = address.as_ref().filter(|address| !is_name(address)) {
                let message = format!("`{address}` is not the address of a host");
                refuse(format!("{field}.address"), message, "write for example `10.0.0.7` or `node7-ib0`");
            }
        }
        let host =
            |HostPart { host, address }: &HostPart| Host { name: host.clone(), address: address.clone() };
        parts.iter().map(|part| host(&part.value)).collect()
    }

    /// The links of hosts are as fast as they are.
    pub(super) fn refuse_rate(&mut self, rate: Option<&Leaf<Rate>>) {
        if let Some(rate) = rate {
            let message = "only the links of virtual nodes can be given a rate";
            let problem = Problem::new("cluster.network.rate", rate.span(), message);
            self.refuse(problem.help("leave `rate` out"));
        }
    }
}

/// The allocation that this process runs in; else why it cannot be used, and what to do.
fn slurms(context: &Context<'_>) -> Result<(u32, Allocation), (String, &'static str)> {
    if matches!(context.purpose, Purpose::Serve) {
        let message = "a cluster that stays cannot have the nodes of an allocation, which ends";
        return Err((message.into(), "`coswitch run` uses them, and parks its jobs before the end"));
    }
    let inside = "run coswitch inside an allocation: in a script of `sbatch`, or a shell of `salloc`";
    let allocation = (context.allocation)().map_err(|error| (error.to_string(), inside))?;
    match u32::try_from(allocation.hosts.len()) {
        Ok(number) if (1..=NODES_MAX).contains(&number) => Ok((number, allocation)),
        _ => {
            let message = format!("the allocation has {} nodes", allocation.hosts.len());
            Err((format!("{message}; a cluster has from 1 to {NODES_MAX}"), "ask Slurm for fewer"))
        }
    }
}

/// Nothing that `ssh` or a shell could take for something else.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@:%[]".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(plain)
}
