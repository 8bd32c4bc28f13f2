//! The simulated cluster: where every job is, how far it got, and who uses which memory.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{
    Bytes, Cluster, JobId, JobSpec, NodeId, Placement, SimTime,
    metrics::{JobTimes, Span},
};

use crate::{SimJob, cost::CostModel, cost::Slowdown};

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
    now: SimTime,
    pub(crate) memory_peak: Vec<Bytes>,
}

impl World {
    pub(crate) fn new(cluster: Cluster, cost: CostModel) -> Self {
        let memory_peak = vec![Bytes(0); cluster.len()];
        Self { cluster, cost, lives: BTreeMap::new(), now: SimTime::default(), memory_peak }
    }

    pub(crate) fn add(&mut self, job: &SimJob, crashes: bool) {
        let life = Life {
            spec: job.spec.clone(),
            work: job.work,
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
    pub(crate) fn next_end(&self) -> Option<(SimTime, JobId)> {
        let running = self.lives.iter().filter(|(_, life)| matches!(life.place, Place::Running { .. }));
        running
            .map(|(job, life)| {
                let to_do = life.left.saturating_sub(life.dies_at.unwrap_or_default());
                (self.now.after(self.pace(life).time_for(to_do)), *job)
            })
            .min()
    }

    /// Lets time pass in which nothing changes.
    pub(crate) fn advance(&mut self, to: SimTime) {
        let span = to.since(self.now);
        let running = |life: &Life| matches!(life.place, Place::Running { .. });
        let done: Vec<(JobId, Duration)> = self
            .lives
            .iter()
            .filter(|(_, life)| running(life))
            .map(|(job, life)| (*job, self.pace(life).work_in(span)))
            .collect();
        for (job, work) in done {
            let life = self.life(job);
            life.left = life.left.saturating_sub(work);
        }
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
    }

    pub(crate) fn is_ended(&self, job: JobId) -> bool {
        matches!(self.lives[&job].place, Place::Ended { .. })
    }

    /// Takes memory, does not run yet.
    pub(crate) fn enter(&mut self, job: JobId, placement: &Placement) {
        let life = self.life(job);
        life.placement = placement.clone();
        life.place = Place::Frozen;
        self.note_memory();
    }

    /// Runs from now on.
    pub(crate) fn thaw(&mut self, job: JobId) {
        let since = self.now;
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
    }

    /// Whether any job runs.
    pub(crate) fn is_idle(&self) -> bool {
        !self.lives.values().any(|life| matches!(life.place, Place::Running { .. }))
    }

    /// What `jobs` have on the node where they have most, and in all.
    pub(crate) fn bytes_of(&self, jobs: impl Iterator<Item = JobId> + Clone) -> (Bytes, Bytes) {
        let on = |node: NodeId| jobs.clone().map(|job| self.lives[&job].memory_on(node)).sum::<Bytes>();
        let by_node = || self.cluster.nodes().map(|(node, _)| on(node));
        (by_node().max().unwrap_or_default(), by_node().sum())
    }

    /// What was measured of the jobs that ended.
    pub(crate) fn times(&self) -> Vec<JobTimes> {
        self.lives.values().filter_map(Life::times).collect()
    }

    fn life(&mut self, job: JobId) -> &mut Life {
        self.lives.get_mut(&job).expect("only submitted jobs are decided about")
    }

    fn stop(&mut self, job: JobId) {
        let to = self.now;
        let life = self.life(job);
        if let Place::Running { since } = life.place {
            life.active.push(Span { from: since, to });
        }
    }

    fn pace(&self, life: &Life) -> Slowdown {
        let on = |node: NodeId| {
            let here = || self.lives.values().filter(|life| life.takes_memory());
            let ranks = here()
                .filter(|life| matches!(life.place, Place::Running { .. }))
                .map(|life| life.placement.count_on(node))
                .sum();
            let memory = here().map(|life| life.memory_on(node)).sum();
            self.cost.slowdown(ranks, memory, self.cluster.capacity(node))
        };
        life.placement.nodes().map(on).fold(Slowdown::NONE, Slowdown::max)
    }

    fn note_memory(&mut self) {
        for (node, peak) in (0..).map(NodeId).zip(&mut self.memory_peak) {
            let here = self.lives.values().filter(|life| life.takes_memory());
            *peak = (*peak).max(here.map(|life| life.memory_on(node)).sum());
        }
    }
}

impl Life {
    const fn takes_memory(&self) -> bool {
        matches!(self.place, Place::Running { .. } | Place::Frozen)
    }

    fn memory_on(&self, node: NodeId) -> Bytes {
        self.spec.memory_of(self.placement.count_on(node))
    }

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
