//! The simulated cluster: where every job is, how far it got, and who uses which memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coswitch_policies::{
    Bytes, Cluster, Communication, Incoming, JobId, JobSpec, NodeId, Placement, SimTime,
    metrics::{JobTimes, Span},
};

use crate::{
    SimJob,
    cost::{CostModel, Load, Slowdown},
    resident,
};

/// Where a job is. Only `Running` progresses; `Running` and `Frozen` take memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Outside,
    Running { since: SimTime },
    Frozen,
    Ended { at: SimTime },
}

/// One job.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    spec: JobSpec,
    work: Duration,
    communication: Option<Communication>,
    left: Duration,
    /// Dies when that much work is left.
    dies_at: Option<Duration>,
    place: Place,
    placement: Placement,
    active: Vec<Span>,
}

/// How a job ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Finished(JobId),
    Crashed(JobId),
}

/// All jobs on the cluster.
pub(crate) struct World {
    cluster: Cluster,
    cost: CostModel,
    lives: BTreeMap<JobId, Life>,
    /// Those that take memory: whatever is looked for at an instant is among them.
    present: BTreeSet<JobId>,
    /// How slowly each running job runs; none after a change of who is here, until it is asked for.
    paces: Option<BTreeMap<JobId, Slowdown>>,
    now: SimTime,
    pub(crate) memory_peak: Vec<Bytes>,
}

impl World {
    pub(crate) fn new(cluster: Cluster, cost: CostModel) -> Self {
        let memory_peak = vec![Bytes(0); cluster.len()];
        Self {
            cluster,
            cost,
            lives: BTreeMap::new(),
            present: BTreeSet::new(),
            paces: None,
            now: SimTime::default(),
            memory_peak,
        }
    }

    pub(crate) fn add(&mut self, job: &SimJob, crashes: bool) {
        let life = Life {
            spec: job.spec.clone(),
            work: job.work,
            communication: job.communication,
            left: job.work,
            dies_at: crashes.then_some(job.work / 2),
            place: Place::Outside,
            placement: Placement::default(),
            active: Vec::new(),
        };
        self.lives.insert(job.spec.id, life);
    }

    /// The job was refused.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.lives.remove(&job);
    }

    /// The job that ends next by itself, and when; the lowest number where several do.
    pub(crate) fn next_end(&mut self) -> Option<(SimTime, JobId)> {
        let paces = self.paces();
        let next = self
            .running()
            .map(|(job, life)| {
                let to_do = life.left.saturating_sub(life.dies_at.unwrap_or_default());
                (self.now.after(paces[&job].time_for(to_do)), job)
            })
            .min();
        self.paces = Some(paces);
        next
    }

    /// Lets time pass in which nothing changes.
    pub(crate) fn advance(&mut self, to: SimTime) {
        let span = to.since(self.now);
        let paces = self.paces();
        for (job, pace) in &paces {
            let work = pace.work_in(span);
            let life = self.life(*job);
            life.left = life.left.saturating_sub(work);
        }
        self.paces = Some(paces);
        self.now = self.now.max(to);
    }

    /// The job reached its end, or its crash.
    pub(crate) fn end_by_itself(&mut self, job: JobId) -> Ending {
        let crashed = self.life(job).dies_at.is_some();
        self.end(job);
        if crashed { Ending::Crashed(job) } else { Ending::Finished(job) }
    }

    /// The job is over, wherever it was.
    pub(crate) fn end(&mut self, job: JobId) {
        self.stop(job);
        let at = self.now;
        self.life(job).place = Place::Ended { at };
        self.present.remove(&job);
    }

    pub(crate) fn is_ended(&self, job: JobId) -> bool {
        matches!(self.lives[&job].place, Place::Ended { .. })
    }

    /// Takes memory, does not run yet.
    pub(crate) fn enter(&mut self, job: JobId, placement: &Placement) {
        let life = self.life(job);
        life.placement = placement.clone();
        life.place = Place::Frozen;
        self.paces = None;
        self.present.insert(job);
        self.note_memory();
    }

    /// Runs from now on.
    pub(crate) fn thaw(&mut self, job: JobId) {
        let since = self.now;
        self.paces = None;
        self.life(job).place = Place::Running { since };
    }

    /// Stops and keeps its memory.
    pub(crate) fn freeze(&mut self, job: JobId) {
        self.stop(job);
        self.life(job).place = Place::Frozen;
    }

    /// Gives its memory back.
    pub(crate) fn leave(&mut self, job: JobId) {
        self.stop(job);
        self.life(job).place = Place::Outside;
        self.present.remove(&job);
    }

    /// Whether the job progresses.
    pub(crate) fn is_running(&self, job: JobId) -> bool {
        matches!(self.lives[&job].place, Place::Running { .. })
    }

    /// Whether any job runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.running().next().is_none()
    }

    /// What `jobs` have on the node where they have most, and in all.
    pub(crate) fn bytes_of(&self, jobs: impl Iterator<Item = JobId>) -> (Bytes, Bytes) {
        let by_node = self.memory_of(jobs);
        (by_node.iter().copied().max().unwrap_or_default(), by_node.into_iter().sum())
    }

    /// What `jobs` have on each node.
    fn memory_of(&self, jobs: impl Iterator<Item = JobId>) -> Vec<Bytes> {
        let mut by_node = vec![Bytes(0); self.cluster.len()];
        for life in jobs.map(|job| &self.lives[&job]) {
            for block in life.placement.blocks() {
                let node = &mut by_node[block.node.0 as usize];
                *node = node.saturating_add(life.spec.memory_of(block.ranks));
            }
        }
        by_node
    }

    /// What was measured of the jobs that ended.
    pub(crate) fn times(&self) -> Vec<JobTimes> {
        self.lives.values().filter_map(Life::times).collect()
    }

    /// Of `candidates`, the last first, those that must leave so that `incoming` (where it is not here already) fits beside what
    /// stays. See [`crate::resident`].
    pub(crate) fn evictions(&self, candidates: &[JobId], incoming: &[Incoming]) -> Vec<JobId> {
        let mut excess = self.excess(incoming);
        let of = |job: JobId| {
            let life = &self.lives[&job];
            life.placement
                .blocks()
                .iter()
                .map(|block| (block.node, life.spec.memory_of(block.ranks).0))
                .collect()
        };
        resident::evictions(candidates, &mut excess, of)
    }

    /// Whether `incoming` fits beside all that is here.
    pub(crate) fn holds_also(&self, incoming: &[Incoming]) -> bool {
        self.excess(incoming).iter().all(|excess| *excess <= 0)
    }

    /// Whether the job takes memory.
    pub(crate) fn is_present(&self, job: JobId) -> bool {
        self.present.contains(&job)
    }

    /// By node, how many bytes too many there were with `incoming` beside all that is here.
    fn excess(&self, incoming: &[Incoming]) -> Vec<i128> {
        let mut excess: Vec<i128> = self.cluster.nodes().map(|(_, has)| -i128::from(has.0)).collect();
        let mut add = |placement: &Placement, spec: &JobSpec| {
            for block in placement.blocks() {
                excess[block.node.0 as usize] += i128::from(spec.memory_of(block.ranks).0);
            }
        };
        self.here().for_each(|life| add(&life.placement, &life.spec));
        let absent = incoming.iter().filter(|incoming| !self.is_present(incoming.job));
        absent.for_each(|incoming| add(&incoming.placement, &self.lives[&incoming.job].spec));
        excess
    }

    fn here(&self) -> impl Iterator<Item = &Life> {
        self.present.iter().map(|job| &self.lives[job])
    }

    fn running(&self) -> impl Iterator<Item = (JobId, &Life)> {
        let all = self.present.iter().map(|job| (*job, &self.lives[job]));
        all.filter(|(_, life)| matches!(life.place, Place::Running { .. }))
    }

    fn life(&mut self, job: JobId) -> &mut Life {
        self.lives.get_mut(&job).expect("only submitted jobs are decided about")
    }

    fn stop(&mut self, job: JobId) {
        let to = self.now;
        self.paces = None;
        let life = self.life(job);
        if let Place::Running { since } = life.place {
            life.active.push(Span { from: since, to });
        }
    }

    /// The pace of every running job, from one walk over all that are here. Whoever takes it puts it back.
    fn paces(&mut self) -> BTreeMap<JobId, Slowdown> {
        if let Some(paces) = self.paces.take() {
            return paces;
        }
        let mut nodes = vec![(Load::default(), Bytes(0)); self.cluster.len()];
        for life in self.here() {
            let runs = matches!(life.place, Place::Running { .. });
            for block in life.placement.blocks() {
                let (load, memory) = &mut nodes[block.node.0 as usize];
                load.add(if runs { block.ranks } else { 0 }, life.communication);
                *memory = memory.saturating_add(life.spec.memory_of(block.ranks));
            }
        }
        let on = |node: NodeId| {
            let (load, memory) = nodes[node.0 as usize];
            self.cost.slowdown(load, memory, self.cluster.capacity(node))
        };
        let pace = |life: &Life| life.placement.nodes().map(on).fold(Slowdown::NONE, Slowdown::max);
        self.running().map(|(job, life)| (job, pace(life))).collect()
    }

    fn note_memory(&mut self) {
        let used = self.memory_of(self.present.iter().copied());
        for (peak, used) in self.memory_peak.iter_mut().zip(used) {
            *peak = (*peak).max(used);
        }
    }
}

impl Life {
    fn times(&self) -> Option<JobTimes> {
        let Place::Ended { at } = self.place else { return None };
        Some(JobTimes {
            job: self.spec.id,
            submitted: self.spec.arrival,
            finished: at,
            active: self.active.clone(),
            nodes: self.placement.nodes().collect(),
            alone: Some(self.work),
        })
    }
}
