//! What the nodes hold, and how slowly the jobs on them run, kept as it changes: an event costs what the nodes of its
//! jobs are, whatever the cluster has besides.
//!
//! A table for each question: the nodes of a job are neighbours where they can be, so that an answer is few lines of the cache,
//! and on a large cluster to wait for these is most of what an event costs.

use coswitch_policies::{Bytes, Cluster, Communication, JobId, JobSpec, NodeId, Placement};

use smallvec::SmallVec;

use super::cost::{CostModel, Load, Slowdown};

/// Who runs on a node, in any order, and what they ask of it.
#[derive(Clone, Debug, Default)]
struct Running {
    load: Load,
    jobs: SmallVec<[JobId; 4]>,
    /// There are more working sets than the node holds.
    is_overfull: bool,
}

impl Running {
    fn asked(&self, cost: &CostModel) -> u64 {
        cost.asked(self.load, self.is_overfull)
    }
}

/// What working sets take, and the most they ever took.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    used: Bytes,
    peak: Bytes,
}

/// See the module. All tables are by node.
pub(crate) struct Nodes {
    cluster: Cluster,
    cost: CostModel,
    running: Vec<Running>,
    memory: Vec<Memory>,
    /// What is asked of them, in thousandths of a core: the pace.
    asked: Vec<u64>,
    /// The nodes whose pace is to be looked at again, and whether a node is one of them.
    stale: Vec<NodeId>,
    is_stale: Vec<bool>,
}

impl Nodes {
    pub(crate) fn new(cluster: Cluster, cost: CostModel) -> Self {
        let nodes = cluster.len();
        Self {
            cluster,
            cost,
            running: vec![Running::default(); nodes],
            memory: vec![Memory::default(); nodes],
            asked: vec![0; nodes],
            stale: Vec::new(),
            is_stale: vec![false; nodes],
        }
    }

    /// The job takes its memory.
    pub(crate) fn enter(&mut self, spec: &JobSpec, placement: &Placement) {
        for block in placement.blocks() {
            self.use_memory(block.node, |used| used.saturating_add(spec.memory_of(block.ranks)));
        }
    }

    /// The job gives its memory back.
    pub(crate) fn leave(&mut self, spec: &JobSpec, placement: &Placement) {
        for block in placement.blocks() {
            self.use_memory(block.node, |Bytes(used)| {
                Bytes(used.saturating_sub(spec.memory_of(block.ranks).0))
            });
        }
    }

    fn use_memory(&mut self, node: NodeId, change: impl FnOnce(Bytes) -> Bytes) {
        let (at, capacity) = (node.0 as usize, self.cluster.capacity(node));
        let memory = &mut self.memory[at];
        let used = change(memory.used);
        let before = std::mem::replace(&mut memory.used, used);
        memory.peak = memory.peak.max(used);
        if (used > capacity) != (before > capacity) {
            self.running[at].is_overfull = used > capacity;
            self.look_again(node);
        }
    }

    /// The ranks of the job run from now on.
    pub(crate) fn run(&mut self, job: JobId, placement: &Placement, communication: Option<Communication>) {
        for block in placement.blocks() {
            let running = &mut self.running[block.node.0 as usize];
            running.load.add(block.ranks, communication);
            running.jobs.push(job);
            self.look_again(block.node);
        }
    }

    /// They stop.
    pub(crate) fn stop(&mut self, job: JobId, placement: &Placement, communication: Option<Communication>) {
        for block in placement.blocks() {
            let running = &mut self.running[block.node.0 as usize];
            running.load.remove(block.ranks, communication);
            running.jobs.retain(|other| *other != job);
            self.look_again(block.node);
        }
    }

    /// Most often as much is asked of a node as before.
    fn look_again(&mut self, node: NodeId) {
        let at = node.0 as usize;
        if self.running[at].asked(&self.cost) != self.asked[at]
            && !std::mem::replace(&mut self.is_stale[at], true)
        {
            self.stale.push(node);
        }
    }

    /// The jobs that run on a node whose pace has changed since this was asked last; in any order, some more than once.
    pub(crate) fn affected(&mut self, into: &mut Vec<JobId>) {
        for node in self.stale.drain(..) {
            let at = node.0 as usize;
            let asked = self.running[at].asked(&self.cost);
            self.is_stale[at] = false;
            if std::mem::replace(&mut self.asked[at], asked) != asked {
                into.extend_from_slice(&self.running[at].jobs);
            }
        }
    }

    /// What is asked of the slowest node of a job: it sets the pace of all.
    pub(crate) fn asked(&self, placement: &Placement) -> u64 {
        let asked = placement.nodes().map(|node| self.asked[node.0 as usize]).max();
        asked.unwrap_or_default()
    }

    /// How slowly a job runs where so much is asked.
    pub(crate) fn slowdown(&self, asked: u64) -> Slowdown {
        self.cost.slowdown(asked)
    }

    /// The most they took at any instant, by node.
    pub(crate) fn peaks(&self) -> Vec<Bytes> {
        self.memory.iter().map(|memory| memory.peak).collect()
    }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::SimTime;

    use super::*;

    #[test]
    fn a_node_swaps_as_soon_as_it_holds_more_than_it_has_and_no_longer() {
        let cost = CostModel { cores: 1, swap_slowdown: 10, ..CostModel::default() };
        let mut nodes = Nodes::new(Cluster::uniform(2, Bytes::mib(100)), cost);
        let spec = |id, mib| JobSpec {
            id: JobId(id),
            name: "".into(),
            ranks: 1,
            memory_per_rank: Bytes::mib(mib),
            arrival: SimTime(0),
        };
        let (full, more, place) = (spec(0, 100), spec(1, 1), Placement::from_shares(&[1, 0]));
        let affected = |nodes: &mut Nodes| {
            let mut jobs = Vec::new();
            nodes.affected(&mut jobs);
            (jobs, nodes.asked(&place))
        };
        nodes.enter(&full, &place);
        nodes.run(full.id, &place, None);
        assert_eq!(affected(&mut nodes), (vec![full.id], 1000), "full is not too full");
        nodes.enter(&more, &place);
        assert_eq!(affected(&mut nodes), (vec![full.id], 10_000));
        nodes.leave(&more, &place);
        nodes.enter(&more, &place);
        assert_eq!(affected(&mut nodes), (vec![], 10_000), "nothing has changed in the end");
        nodes.leave(&more, &place);
        assert_eq!(affected(&mut nodes), (vec![full.id], 1000));
        assert_eq!(nodes.peaks(), [Bytes::mib(101), Bytes(0)]);
    }
}
