//! The simulated cluster: where every job is, how far it got, and who uses which memory.

use std::{collections::BTreeSet, mem, time::Duration};

use coswitch_policies::{
    Bytes, Cluster, Communication, JobId, JobMap, JobSpec, NodeId, Placement, SimTime,
    metrics::{JobTimes, Span},
};

use crate::{
    SimJob,
    cost::{CostModel, Slowdown},
    nodes::Nodes,
};

/// Where a job that lives is. Only `Running` progresses; `Running` and `Frozen` take memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Outside,
    Running { since: SimTime },
    Frozen,
}

/// One job.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    spec: JobSpec,
    work: Duration,
    communication: Option<Communication>,
    /// What was left at that time, and how slowly it runs since then.
    left: Duration,
    left_at: SimTime,
    pace: Slowdown,
    /// When it ends at that pace, while it runs.
    ends: Option<SimTime>,
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
    nodes: Nodes,
    /// Those that have not ended.
    lives: JobMap<Box<Life>>,
    ended: Vec<JobTimes>,
    /// Those that run, by when they end.
    ends: BTreeSet<(SimTime, JobId)>,
    /// Those that run since a moment ago: their ends are still to be found.
    thawed: Vec<JobId>,
    now: SimTime,
}

impl World {
    pub(crate) fn new(cluster: Cluster, cost: CostModel) -> Self {
        Self {
            nodes: Nodes::new(cluster, cost),
            lives: JobMap::default(),
            ended: Vec::new(),
            ends: BTreeSet::new(),
            thawed: Vec::new(),
            now: SimTime::default(),
        }
    }

    pub(crate) fn add(&mut self, job: &SimJob, crashes: bool) {
        let life = Life {
            spec: job.spec.clone(),
            work: job.work,
            communication: job.communication,
            left: job.work,
            left_at: SimTime::default(),
            pace: Slowdown::NONE,
            ends: None,
            dies_at: crashes.then_some(job.work / 2),
            place: Place::Outside,
            placement: Placement::default(),
            active: Vec::new(),
        };
        self.lives.insert(job.spec.id, Box::new(life));
    }

    /// The job was refused.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.lives.remove(job);
    }

    /// The job that ends next by itself, and when; the lowest number where several do.
    pub(crate) fn next_end(&mut self) -> Option<(SimTime, JobId)> {
        let mut affected = self.nodes.affected();
        affected.extend(mem::take(&mut self.thawed));
        affected.sort_unstable();
        affected.dedup();
        affected.into_iter().for_each(|job| self.set_pace(job));
        self.ends.first().copied()
    }

    /// Lets time pass in which nothing changes.
    pub(crate) fn advance(&mut self, to: SimTime) {
        self.now = self.now.max(to);
    }

    /// The job goes on at the pace of its nodes.
    fn set_pace(&mut self, job: JobId) {
        self.settle(job);
        let now = self.now;
        let life = self.lives.get_mut(job).expect("it runs");
        life.pace = self.nodes.pace(&life.placement);
        let to_do = life.left.saturating_sub(life.dies_at.unwrap_or_default());
        let end = now.after(life.pace.time_for(to_do));
        life.ends = Some(end);
        self.ends.insert((end, job));
    }

    /// Counts what the job has done at the pace it had.
    fn settle(&mut self, job: JobId) {
        let now = self.now;
        let life = self.lives.get_mut(job).expect("only submitted jobs are decided about");
        if let Some(end) = life.ends.take() {
            life.left = life.left.saturating_sub(life.pace.work_in(now.since(life.left_at)));
            self.ends.remove(&(end, job));
        }
        life.left_at = now;
    }

    /// The job reached its end, or its crash.
    pub(crate) fn end_by_itself(&mut self, job: JobId) -> Ending {
        let crashed = self.life(job).dies_at.is_some();
        self.end(job);
        if crashed { Ending::Crashed(job) } else { Ending::Finished(job) }
    }

    /// The job is over, wherever it was.
    pub(crate) fn end(&mut self, job: JobId) {
        self.leave(job);
        let life = self.lives.remove(job).expect("it just left");
        self.ended.push(life.times(self.now));
    }

    pub(crate) fn is_ended(&self, job: JobId) -> bool {
        !self.lives.contains(job)
    }

    /// Takes memory, does not run yet.
    pub(crate) fn enter(&mut self, job: JobId, placement: &Placement) {
        let life = self.lives.get_mut(job).expect("only submitted jobs are decided about");
        life.placement = placement.clone();
        life.place = Place::Frozen;
        self.nodes.enter(&life.spec, placement);
    }

    /// Runs from now on.
    pub(crate) fn thaw(&mut self, job: JobId) {
        let since = self.now;
        let life = self.lives.get_mut(job).expect("only submitted jobs are decided about");
        life.place = Place::Running { since };
        self.nodes.run(job, &life.placement, life.communication);
        self.thawed.push(job);
    }

    /// Stops and keeps its memory.
    pub(crate) fn freeze(&mut self, job: JobId) {
        self.stop(job);
        self.life(job).place = Place::Frozen;
    }

    /// Gives its memory back.
    pub(crate) fn leave(&mut self, job: JobId) {
        self.stop(job);
        let life = self.lives.get_mut(job).expect("only submitted jobs are decided about");
        if std::mem::replace(&mut life.place, Place::Outside) != Place::Outside {
            self.nodes.leave(&life.spec, &life.placement);
        }
    }

    /// Whether any job runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.ends.is_empty() && self.thawed.is_empty()
    }

    /// What `jobs` have on the node where they have most, and in all.
    pub(crate) fn bytes_of(&self, jobs: impl Iterator<Item = JobId>) -> (Bytes, Bytes) {
        let lives = jobs.map(|job| &self.lives[job]);
        let blocks = lives.flat_map(|life| life.placement.blocks().iter().map(move |block| (life, block)));
        let mut bytes: Vec<(NodeId, Bytes)> =
            blocks.map(|(life, block)| (block.node, life.spec.memory_of(block.ranks))).collect();
        bytes.sort_unstable();
        let by_node = bytes.chunk_by(|a, b| a.0 == b.0);
        let by_node = by_node.map(|parts| parts.iter().map(|(_, bytes)| *bytes).sum());
        (by_node.max().unwrap_or_default(), bytes.iter().map(|(_, bytes)| *bytes).sum())
    }

    /// The most that working sets took at any instant, by node.
    pub(crate) fn memory_peak(&self) -> Vec<Bytes> {
        self.nodes.peaks()
    }

    /// What was measured of the jobs that ended.
    pub(crate) fn take_times(&mut self) -> Vec<JobTimes> {
        let mut times = mem::take(&mut self.ended);
        times.sort_unstable_by_key(|times| times.job);
        times
    }

    fn life(&mut self, job: JobId) -> &mut Life {
        self.lives.get_mut(job).expect("only submitted jobs are decided about")
    }

    fn stop(&mut self, job: JobId) {
        let to = self.now;
        self.settle(job);
        let life = self.lives.get_mut(job).expect("only submitted jobs are decided about");
        if let Place::Running { since } = life.place {
            life.active.push(Span { from: since, to });
            self.nodes.stop(job, &life.placement, life.communication);
            self.thawed.retain(|thawed| *thawed != job);
        }
    }
}

impl Life {
    fn times(self, finished: SimTime) -> JobTimes {
        JobTimes {
            job: self.spec.id,
            submitted: self.spec.arrival,
            finished,
            active: self.active,
            nodes: self.placement.nodes().collect(),
            alone: Some(self.work),
        }
    }
}
