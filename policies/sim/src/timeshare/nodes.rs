//! Simulated nodes: their memory, and the demand that slows down their jobs. An event costs as much as the
//! nodes of its jobs, whatever the size of the cluster.

use std::collections::BTreeMap;

use coswitch_policies::{Block, Bytes, Cluster, JobId, NodeId, Placement, strobe::Rows};

use super::cost::{CostModel, Habits, Load, Slowdown};

#[derive(Clone, Debug, Default)]
struct Node {
    load: Load,
    /// The jobs that run here, in any order.
    running: Vec<JobId>,
    /// Memory that working sets take, and the most they ever took.
    used: Bytes,
    peak: Bytes,
    /// What the jobs ask of the node, in thousandths of a core, as of the last call of [`Nodes::affected`].
    demand: u64,
}

pub(crate) struct Nodes {
    cluster: Cluster,
    cost: CostModel,
    nodes: Vec<Node>,
    /// The nodes whose demand may have changed; some more than once.
    changed: Vec<NodeId>,
    /// Where jobs take slices: those that run, and the number of their rows.
    sliced: BTreeMap<JobId, Placement>,
    rows: u64,
}

impl Nodes {
    pub(crate) fn new(cluster: Cluster, cost: CostModel) -> Self {
        let nodes = vec![Node::default(); cluster.len()];
        Self { cluster, cost, nodes, changed: Vec::new(), sliced: BTreeMap::new(), rows: 1 }
    }

    /// The job takes so much memory for each rank.
    pub(crate) fn enter(&mut self, rank: Bytes, placement: &Placement) {
        for block in placement.blocks() {
            self.use_memory(block.node, |used| used.saturating_add(rank.times(block.ranks)));
        }
    }

    /// The job gives its memory back.
    pub(crate) fn leave(&mut self, rank: Bytes, placement: &Placement) {
        for block in placement.blocks() {
            self.use_memory(block.node, |Bytes(used)| Bytes(used.saturating_sub(rank.times(block.ranks).0)));
        }
    }

    fn use_memory(&mut self, node: NodeId, change: impl FnOnce(Bytes) -> Bytes) {
        let was_overfull = self.is_overfull(node);
        let memory = &mut self.nodes[node.0 as usize];
        memory.used = change(memory.used);
        memory.peak = memory.peak.max(memory.used);
        if self.is_overfull(node) != was_overfull {
            self.changed.push(node);
        }
    }

    /// What working sets take of the node.
    pub(crate) fn held(&self, node: NodeId) -> Bytes {
        self.nodes[node.0 as usize].used
    }

    /// The jobs that run on the node, in any order.
    pub(crate) fn running(&self, node: NodeId) -> &[JobId] {
        &self.nodes[node.0 as usize].running
    }

    pub(crate) const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The ranks of the job run from now on.
    pub(crate) fn run(&mut self, job: JobId, placement: &Placement, habits: Habits) {
        if self.cost.slice.is_some() {
            self.sliced.insert(job, placement.clone());
        }
        for block in placement.blocks() {
            let node = &mut self.nodes[block.node.0 as usize];
            node.load.add(block.ranks, habits);
            node.running.push(job);
            self.changed.push(block.node);
        }
    }

    /// The ranks of the job stop.
    pub(crate) fn stop(&mut self, job: JobId, placement: &Placement, habits: Habits) {
        self.sliced.remove(&job);
        for block in placement.blocks() {
            let node = &mut self.nodes[block.node.0 as usize];
            node.load.remove(block.ranks, habits);
            node.running.retain(|other| *other != job);
            self.changed.push(block.node);
        }
    }

    /// Adds the jobs that run on a node whose demand has changed since the last call; in any order, some more
    /// than once.
    pub(crate) fn affected(&mut self, into: &mut Vec<JobId>) {
        if let Some(slice) = self.cost.slice.filter(|_| !self.changed.is_empty()) {
            let jobs = self.sliced.iter().map(|(job, placement)| (*job, placement));
            let rows = Rows::of(slice, jobs).rows.len() as u64;
            if std::mem::replace(&mut self.rows, rows) != rows {
                into.extend(self.sliced.keys());
            }
        }
        for node in std::mem::take(&mut self.changed) {
            let demand = self.cost.asked(self.nodes[node.0 as usize].load, self.is_overfull(node));
            let node = &mut self.nodes[node.0 as usize];
            if std::mem::replace(&mut node.demand, demand) != demand {
                into.extend_from_slice(&node.running);
            }
        }
    }

    fn is_overfull(&self, node: NodeId) -> bool {
        self.nodes[node.0 as usize].used > self.cluster.capacity(node)
    }

    /// The demand on the slowest node of a job: it sets the pace of all its ranks.
    pub(crate) fn demand(&self, placement: &Placement, habits: Habits) -> u64 {
        let demand = |block: Block| {
            if self.cost.slice.is_none() {
                return self.nodes[block.node.0 as usize].demand;
            }
            let mut own = Load::default();
            own.add(block.ranks, habits);
            self.cost.asked_in_slices(own, self.is_overfull(block.node), self.rows)
        };
        placement.blocks().map(demand).max().unwrap_or_default()
    }

    /// How slowly a job runs under this demand.
    pub(crate) fn slowdown(&self, demand: u64) -> Slowdown {
        self.cost.slowdown(demand)
    }

    /// The most that working sets took at any instant, by node.
    pub(crate) fn peaks(&self) -> Vec<Bytes> {
        self.nodes.iter().map(|node| node.peak).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_swaps_while_working_sets_exceed_its_memory() {
        let cost = CostModel { cores: 1, swap_slowdown: 10, ..CostModel::default() };
        let mut nodes = Nodes::new(Cluster::uniform(2, Bytes::mib(100)), cost);
        let (job, place) = (JobId(0), Placement::from_shares(&[1, 0]));
        let habits = Habits { processors: 1, communication: None };
        let (full, more) = (Bytes::mib(100), Bytes::mib(1));
        let affected = |nodes: &mut Nodes| {
            let mut jobs = Vec::new();
            nodes.affected(&mut jobs);
            (jobs, nodes.demand(&place, habits))
        };
        nodes.enter(full, &place);
        nodes.run(job, &place, habits);
        assert_eq!(affected(&mut nodes), (vec![job], 1000), "full is not overfull");
        nodes.enter(more, &place);
        assert_eq!(affected(&mut nodes), (vec![job], 10_000));
        nodes.leave(more, &place);
        nodes.enter(more, &place);
        assert_eq!(affected(&mut nodes), (vec![], 10_000), "nothing changed in the end");
        nodes.leave(more, &place);
        assert_eq!(affected(&mut nodes), (vec![job], 1000));
        assert_eq!(nodes.peaks(), [Bytes::mib(101), Bytes(0)]);
    }
}
