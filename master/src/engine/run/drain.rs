//! Nodes that are to be empty, for as long as their administrator needs them.

use std::collections::{BTreeMap, BTreeSet};

use coswitch_policies::{JobId, NodeId, SchedulerEvent};
use coswitch_report::journal::Event;

use super::{Output, Run, Ticket};
use crate::api::{NodeStatus, Refusal, Reply, User};

/// Drained nodes, with those who wait until nothing is in memory there.
pub(super) type Drained = BTreeMap<NodeId, Vec<Ticket>>;

impl Run {
    /// Answered by [`Run::answer_drained`].
    pub(super) fn drain(&mut self, user: User, node: NodeId, ticket: Ticket) -> Result<(), Refusal> {
        self.check_node(user, node)?;
        self.drained.entry(node).or_default().push(ticket);
        self.tell(Event::NodeDrained { node });
        // A scheduler that adopts jobs hears of it then.
        if self.adoption.is_none() {
            self.schedule(SchedulerEvent::Drained { node });
        }
        Ok(())
    }

    pub(super) fn undrain(&mut self, user: User, node: NodeId) -> Result<Reply, Refusal> {
        self.check_node(user, node)?;
        if let Some(waiting) = self.drained.remove(&node) {
            self.refuse_drain(node, waiting, "it was undrained before it was empty");
            self.tell(Event::NodeUndrained { node });
            if self.adoption.is_none() {
                self.schedule(SchedulerEvent::Undrained { node });
            }
        }
        Ok(self.node_status(node))
    }

    fn check_node(&self, user: User, node: NodeId) -> Result<(), Refusal> {
        if user != User::ROOT {
            return Err(Refusal::OnlyRoot { user: user.0 });
        }
        match node.0 < self.cluster.nodes {
            true => Ok(()),
            false => Err(Refusal::UnknownNode { node, nodes: self.cluster.nodes }),
        }
    }

    fn node_status(&self, node: NodeId) -> Reply {
        let is_there = |job: &JobId| self.scheduler.awaited_nodes(*job).contains(&node);
        let living = self.records.iter().filter(|(_, record)| record.ended.is_none());
        let waiting = living.map(|(job, _)| *job).filter(is_there).collect();
        Reply::Node(NodeStatus { node, drained: self.drained.contains_key(&node), waiting })
    }

    /// Answers who waits for nodes that are empty now.
    pub(super) fn answer_drained(&mut self) {
        if self.adoption.is_some() {
            return;
        }
        let empty = self.drained.iter().filter(|(_, waiting)| !waiting.is_empty());
        let empty = empty.filter(|(node, _)| self.scheduler.in_memory_on(**node).is_empty());
        let empty: Vec<NodeId> = empty.map(|(node, _)| *node).collect();
        for node in empty {
            let status = self.node_status(node);
            let waiting = self.drained.get_mut(&node).map(std::mem::take);
            let answers = waiting.into_iter().flatten().map(|ticket| Output::Answer(ticket, status.clone()));
            self.outputs.extend(answers);
        }
    }

    /// A job that was to leave memory could not.
    pub(super) fn on_stuck(&mut self, job: JobId) {
        let has_it = |node: &NodeId| self.scheduler.in_memory_on(*node).contains(&job);
        let nodes: Vec<NodeId> = self.drained.keys().copied().filter(has_it).collect();
        for node in nodes {
            let waiting = self.drained.get_mut(&node).map(std::mem::take).unwrap_or_default();
            let why = format!(
                "{job} could not leave memory and runs on; the log of the cluster says why. The node takes \
                 no other jobs; `drain` tries it again"
            );
            self.refuse_drain(node, waiting, &why);
        }
    }

    fn refuse_drain(&mut self, node: NodeId, waiting: Vec<Ticket>, why: &str) {
        for ticket in waiting {
            let refusal = Refusal::CannotDrain { node, why: why.into() };
            self.outputs.push(Output::Answer(ticket, Reply::Refused(refusal)));
        }
    }

    pub(super) fn drained_nodes(&self) -> BTreeSet<NodeId> {
        self.drained.keys().copied().collect()
    }
}
