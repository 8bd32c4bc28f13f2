//! Replaces the daemons of nodes by the installed program, one node after the other. Their jobs stand still
//! for a moment each time, which the scheduler does not notice.
//!
//! ```text
//!   Upgrade ─▶ Output::Replace ─┬─▶ Replaced ─▶ the next node, or the answer
//!                               └─▶ NotReplaced ─▶ the answer: the other nodes keep their daemons
//! ```

use std::collections::{BTreeSet, VecDeque};

use coswitch_dispatcher::protocol::Replaced;
use coswitch_policies::{JobId, NodeId};
use coswitch_report::journal::Event;

use super::{Output, Run, Ticket};
use crate::api::{NodeUpgrade, Refusal, Reply, User};

/// The upgrade that is under way.
#[derive(Clone, Debug)]
pub(super) struct Upgrade {
    ticket: Ticket,
    /// The first one is being worked on.
    nodes: VecDeque<NodeId>,
    done: Vec<NodeUpgrade>,
}

impl Run {
    /// Begins an upgrade of these nodes, or of all; without `dry_run` it is answered later.
    pub(super) fn upgrade(&mut self, ticket: Ticket, user: User, nodes: &[NodeId], dry_run: bool) {
        match self.nodes_to_upgrade(user, nodes) {
            Err(refusal) => self.outputs.push(Output::Answer(ticket, Reply::Refused(refusal))),
            Ok(nodes) if dry_run => {
                let would = nodes.into_iter().map(|node| self.would_upgrade(node)).collect();
                self.outputs.push(Output::Answer(ticket, Reply::Upgraded(would)));
            }
            Ok(nodes) => {
                self.upgrade = Some(Upgrade { ticket, nodes, done: Vec::new() });
                self.upgrade_next();
            }
        }
    }

    fn nodes_to_upgrade(&self, user: User, nodes: &[NodeId]) -> Result<VecDeque<NodeId>, Refusal> {
        if user != User::ROOT {
            let why = "only user 0, as whom the cluster runs, may upgrade it".into();
            return Err(Refusal::BadRequest { why });
        }
        if self.upgrade.is_some() {
            return Err(Refusal::BadRequest { why: "another upgrade is under way".into() });
        }
        let all: BTreeSet<NodeId> = (0..self.cluster.nodes).map(NodeId).collect();
        let named: BTreeSet<NodeId> = nodes.iter().copied().collect();
        if let Some(unknown) = named.difference(&all).next() {
            let last = NodeId(self.cluster.nodes.saturating_sub(1));
            let why = format!("there is no {unknown}: the cluster has {} to {last}", NodeId(0));
            return Err(Refusal::BadRequest { why });
        }
        let nodes = if named.is_empty() { all } else { named };
        match nodes.iter().find(|node| self.down.contains_key(node)) {
            Some(down) => {
                let why = "it is lost, and the daemon that it is given next is the installed one".into();
                Err(Refusal::NotUpgraded { node: *down, why, done: Vec::new() })
            }
            None => Ok(nodes.into_iter().collect()),
        }
    }

    fn would_upgrade(&self, node: NodeId) -> NodeUpgrade {
        let there = self.node_memory.get(&node).into_iter().flat_map(|memory| &memory.by_job);
        let jobs: Vec<JobId> =
            there.map(|memory| memory.job).filter(|job| self.running.contains(job)).collect();
        NodeUpgrade { node, jobs, pause: None, version: None }
    }

    fn upgrade_next(&mut self) {
        let Some(upgrade) = &self.upgrade else { return };
        if let Some(node) = upgrade.nodes.front() {
            return self.outputs.push(Output::Replace(*node));
        }
        let Upgrade { ticket, done, .. } = self.upgrade.take().expect("looked at above");
        self.outputs.push(Output::Answer(ticket, Reply::Upgraded(done)));
    }

    pub(super) fn on_replaced(&mut self, node: NodeId, Replaced { pause, paused, version }: Replaced) {
        let jobs: Vec<JobId> = paused.into_iter().collect();
        self.tell(Event::DaemonReplaced { node, version: version.clone(), pause, jobs: jobs.clone() });
        let Some(upgrade) = self.upgrade.as_mut().filter(|upgrade| upgrade.nodes.front() == Some(&node))
        else {
            return;
        };
        upgrade.nodes.pop_front();
        upgrade.done.push(NodeUpgrade { node, jobs, pause: Some(pause), version: Some(version) });
        self.upgrade_next();
    }

    pub(super) fn on_not_replaced(&mut self, node: NodeId, why: String) {
        self.warn(format!("the daemon of {node} was not replaced: {why}"));
        if let Some(Upgrade { ticket, done, .. }) = self.upgrade.take() {
            let done = done.into_iter().map(|upgraded| upgraded.node).collect();
            let refusal = Refusal::NotUpgraded { node, why, done };
            self.outputs.push(Output::Answer(ticket, Reply::Refused(refusal)));
        }
    }
}
