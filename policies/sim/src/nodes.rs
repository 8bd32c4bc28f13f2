//! What the nodes hold, and how slowly the jobs on them run, kept as it changes: an event costs what the nodes of its
//! jobs are, whatever the cluster has besides.

use coswitch_policies::{Bytes, Cluster, Communication, JobId, JobSpec, NodeId, Placement};

use smallvec::SmallVec;

use crate::cost::{CostModel, Load, Slowdown};

/// One node.
#[derive(Clone, Debug)]
struct Node {
    load: Load,
    memory: Bytes,
    peak: Bytes,
    /// Who runs here, in any order.
    running: SmallVec<[JobId; 5]>,
    pace: Slowdown,
    /// Whether its pace is to be looked at again.
    stale: bool,
}

/// See the module.
pub(crate) struct Nodes {
    cluster: Cluster,
    cost: CostModel,
    nodes: Vec<Node>,
    stale: Vec<NodeId>,
}

impl Nodes {
    pub(crate) fn new(cluster: Cluster, cost: CostModel) -> Self {
        let idle = Node {
            load: Load::default(),
            memory: Bytes(0),
            peak: Bytes(0),
            running: SmallVec::new(),
            pace: Slowdown::NONE,
            stale: false,
        };
        let nodes = vec![idle; cluster.len()];
        Self { cluster, cost, nodes, stale: Vec::new() }
    }

    /// The job takes its memory.
    pub(crate) fn enter(&mut self, spec: &JobSpec, placement: &Placement) {
        self.change(placement, |node, ranks| {
            node.memory = node.memory.saturating_add(spec.memory_of(ranks));
            node.peak = node.peak.max(node.memory);
        });
    }

    /// The job gives its memory back.
    pub(crate) fn leave(&mut self, spec: &JobSpec, placement: &Placement) {
        self.change(placement, |node, ranks| {
            node.memory = Bytes(node.memory.0.saturating_sub(spec.memory_of(ranks).0));
        });
    }

    /// The ranks of the job run from now on.
    pub(crate) fn run(&mut self, job: JobId, placement: &Placement, communication: Option<Communication>) {
        self.change(placement, |node, ranks| {
            node.load.add(ranks, communication);
            node.running.push(job);
        });
    }

    /// They stop.
    pub(crate) fn stop(&mut self, job: JobId, placement: &Placement, communication: Option<Communication>) {
        self.change(placement, |node, ranks| {
            node.load.remove(ranks, communication);
            node.running.retain(|other| *other != job);
        });
    }

    fn change(&mut self, placement: &Placement, mut change: impl FnMut(&mut Node, u32)) {
        for block in placement.blocks() {
            let node = &mut self.nodes[block.node.0 as usize];
            change(node, block.ranks);
            if !std::mem::replace(&mut node.stale, true) {
                self.stale.push(block.node);
            }
        }
    }

    /// The jobs that run on a node whose pace has changed since this was asked last; in any order, some more than once.
    pub(crate) fn affected(&mut self) -> Vec<JobId> {
        let mut affected = Vec::new();
        for at in self.stale.drain(..) {
            let node = &mut self.nodes[at.0 as usize];
            let pace = self.cost.slowdown(node.load, node.memory, self.cluster.capacity(at));
            node.stale = false;
            if std::mem::replace(&mut node.pace, pace) != pace {
                affected.extend_from_slice(&node.running);
            }
        }
        affected
    }

    /// How slowly a job runs there: at the pace of its slowest node.
    pub(crate) fn pace(&self, placement: &Placement) -> Slowdown {
        let paces = placement.nodes().map(|node| self.nodes[node.0 as usize].pace);
        paces.fold(Slowdown::NONE, Slowdown::max)
    }

    /// The most they took at any instant, by node.
    pub(crate) fn peaks(&self) -> Vec<Bytes> {
        self.nodes.iter().map(|node| node.peak).collect()
    }
}
