//! Resolves what the nodes are: so many on this machine, or hosts.

use std::collections::BTreeSet;

use coswitch_dispatcher::provisioning::hosts::Host;
use coswitch_policies::Rate;
use serde_yaml::Spanned;

use super::Reader;
use crate::config::{
    file::{HostPart, Nodes},
    job_set::NODES_MAX,
    leaf::Leaf,
    problem::Problem,
    tree::span_at,
};

const HELP: &str = "write the number of virtual nodes on this machine, for example `2`, or a list of hosts";

impl Reader {
    /// The number of nodes, and the hosts if they are hosts.
    pub(super) fn nodes(&mut self, nodes: &Spanned<Nodes>) -> (u32, Vec<Host>) {
        let problem = |message: String| Problem::new("cluster.nodes", span_at(&nodes.referenced), message);
        let refused = match &nodes.value {
            Nodes::Word(word) => match word.parse::<u32>() {
                Ok(number) if (1..=NODES_MAX).contains(&number) => return (number, Vec::new()),
                _ if word == "slurm" => problem("nodes from Slurm come later".into()),
                _ => problem(format!("`{word}` is not a number of nodes from 1 to {NODES_MAX}")),
            },
            Nodes::Hosts(hosts) => match u32::try_from(hosts.len()) {
                Ok(number) if (1..=NODES_MAX).contains(&number) => return (number, self.hosts(hosts)),
                _ => problem(format!("{} hosts; a cluster has from 1 to {NODES_MAX}", hosts.len())),
            },
        };
        self.refuse(refused.help(HELP));
        (1, Vec::new())
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

/// Nothing that `ssh` or a shell could take for something else.
fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@:%[]".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(plain)
}
