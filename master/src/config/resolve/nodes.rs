//! Resolves what the nodes are: so many on this machine, or hosts, or those of an allocation of Slurm.

use std::{collections::BTreeSet, path::Path};

use coswitch_dispatcher::provisioning::{
    hosts::Host,
    slurm::{Allocation, OWN},
};
use coswitch_policies::{Bytes, Capacity, NodeId, Rate, local::explicit::PowerWeight};
use serde_yaml::Spanned;

use super::{Context, Purpose, Reader};
use crate::config::{
    file::{ClusterPart, HostEntry, HostPart, Nodes},
    job_set::NODES_MAX,
    leaf::{Copies, Leaf, Processors},
    problem::Problem,
    tree::span_at,
};

const MEMORY: &str = "cluster.memory";
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
                Ok(number) if (1..=NODES_MAX).contains(&number) => {
                    return (number, self.hosts(hosts, context.base), None);
                }
                _ => {
                    problem(format!("{} hosts; a cluster has from 1 to {NODES_MAX}", hosts.len())).help(HELP)
                }
            },
        };
        self.refuse(refused);
        (1, Vec::new(), None)
    }

    /// What each node offers to jobs, and the nodes that were asked for it; `None` where the file is wrong.
    pub(super) fn node_memory(
        &mut self,
        part: &ClusterPart,
        hosts: &[Host],
        allocation: Option<&Allocation>,
        context: &Context<'_>,
    ) -> Option<(Capacity, BTreeSet<NodeId>)> {
        let Nodes::Hosts(entries) = &part.nodes.value else {
            return self.equal_memory(part, allocation).map(|each| (Capacity::OfAll(each), BTreeSet::new()));
        };
        let each = part.memory.as_ref().map(|leaf| self.some_memory(MEMORY, leaf));
        let own = |(index, entry): (usize, &Spanned<HostEntry>)| {
            let own = entry.value.0.memory.as_ref();
            own.map(|leaf| self.some_memory(&format!("cluster.nodes[{index}].memory"), leaf)).or(each)
        };
        let said: Vec<Option<Option<Bytes>>> = entries.iter().enumerate().map(own).collect();
        let unsaid: Vec<usize> = (0..hosts.len()).filter(|index| said[*index].is_none()).collect();
        let mut memory =
            said.into_iter().map(|own| own.unwrap_or(Some(Bytes(0)))).collect::<Option<Vec<_>>>()?;
        if !unsaid.is_empty() {
            let asked: Vec<&Host> = unsaid.iter().map(|index| &hosts[*index]).collect();
            for (index, left) in unsaid.iter().zip(self.memory_of_hosts(part, &asked, context)?) {
                memory[*index] = left;
            }
        }
        let asked = unsaid.into_iter().filter_map(|index| u32::try_from(index).ok()).map(NodeId);
        Some((Capacity::of(memory), asked.collect()))
    }

    /// What these hosts have free, less what coswitch takes.
    fn memory_of_hosts(
        &mut self,
        part: &ClusterPart,
        hosts: &[&Host],
        context: &Context<'_>,
    ) -> Option<Vec<Bytes>> {
        let arena = part.arena.as_ref().and_then(|leaf| leaf.read("cluster.arena").ok()).unwrap_or(ARENA_MAX);
        let taken = arena.saturating_add(OWN);
        // A whole number of MiB.
        let left = |Bytes(free): Bytes| Bytes(free.saturating_sub(taken.0) >> 20 << 20);
        let (message, help) = match (context.free_memory)(hosts) {
            Ok(free) => match free.iter().zip(hosts).find(|(free, _)| left(**free) == Bytes(0)) {
                None => return Some(free.into_iter().map(left).collect()),
                Some((free, host)) => (
                    format!("`{}` has {free} of memory free, which leaves nothing for jobs", host.name),
                    format!("coswitch takes {OWN} and the arena of {arena}"),
                ),
            },
            Err(why) => (
                format!("the file does not say how much memory each host has, and {why}"),
                "write what a node offers to jobs, for example `memory: 16GiB`".into(),
            ),
        };
        self.refuse(Problem::new(MEMORY, span_at(&part.nodes.referenced), message).help(help));
        None
    }

    /// How fast each host is by the fastest one; empty where the file says it of none.
    pub(super) fn power(&mut self, nodes: &Nodes) -> Vec<PowerWeight> {
        let Nodes::Hosts(entries) = nodes else { return Vec::new() };
        if entries.iter().all(|entry| entry.value.0.power.is_none()) {
            return Vec::new();
        }
        let of = |(index, entry): (usize, &Spanned<HostEntry>)| {
            let field = format!("cluster.nodes[{index}].power");
            self.optional(&field, entry.value.0.power.as_ref()).unwrap_or_default()
        };
        entries.iter().enumerate().map(of).collect()
    }

    fn some_memory(&mut self, field: &str, leaf: &Leaf<Bytes>) -> Option<Bytes> {
        let memory = self.read(field, leaf)?;
        if memory == Bytes(0) {
            let problem = Problem::new(field, leaf.span(), "a node without memory holds no job");
            self.refuse(problem.help("write for example `1GiB`"));
        }
        Some(memory)
    }

    /// What a node offers to jobs: as the file says, else what Slurm leaves.
    fn equal_memory(&mut self, part: &ClusterPart, allocation: Option<&Allocation>) -> Option<Bytes> {
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
            self.refuse(Problem::new(MEMORY, span_at(&part.nodes.referenced), message).help(help));
            return None;
        };
        let memory = self.some_memory(MEMORY, leaf)?;
        if let Some((Some(all), Some(left), arena)) = offered.filter(|(_, left, _)| *left < Some(memory)) {
            let message = format!(
                "jobs are to have {memory} on a node, and of the allocation's {all} there {left} is left"
            );
            let problem = Problem::new(MEMORY, leaf.span(), message);
            self.refuse(problem.help(format!(
                "coswitch takes {OWN} and the arena of {arena}: ask Slurm for more (`--mem`), or leave \
                 `memory` out"
            )));
        }
        Some(memory)
    }

    /// How many copies of each snapshot the file asks for.
    pub(super) fn copies(&mut self, part: &ClusterPart, nodes: u32) -> Option<u32> {
        const FIELD: &str = "cluster.copies";
        let leaf = part.copies.as_ref()?;
        let Copies(copies) = self.read(FIELD, leaf)?;
        if copies >= nodes {
            let message = match nodes {
                1 => format!("{copies} copies need other nodes, and there is one node"),
                _ => format!("{copies} copies need {copies} other nodes, and there are {}", nodes - 1),
            };
            let help = "write at most the number of nodes less 1; `0` makes no copies";
            self.refuse(Problem::new(FIELD, leaf.span(), message).help(help));
            return None;
        }
        Some(copies)
    }

    fn hosts(&mut self, parts: &[Spanned<HostEntry>], base: &Path) -> Vec<Host> {
        // Their directories are not on this machine.
        self.is_run_here = false;
        let mut names = BTreeSet::new();
        for (index, part) in parts.iter().enumerate() {
            let HostPart { host, address, .. } = &part.value.0;
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
        let host = |(index, entry): (usize, &Spanned<HostEntry>)| {
            let HostPart { host, address, processors, store, .. } = &entry.value.0;
            let field = |name: &str| format!("cluster.nodes[{index}].{name}");
            let processors = self.optional(&field("processors"), processors.as_ref());
            Host {
                name: host.clone(),
                address: address.clone(),
                processors: processors.map(|Processors(all)| all).unwrap_or_default(),
                store: store.as_ref().map(|at| self.store(&field("store"), at, base)).unwrap_or_default(),
            }
        };
        parts.iter().enumerate().map(host).collect()
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

/// Whether the nodes are not all on this machine.
pub(super) fn are_machines(hosts: &[Host], allocation: Option<&Allocation>) -> bool {
    !hosts.is_empty() || allocation.is_some()
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
