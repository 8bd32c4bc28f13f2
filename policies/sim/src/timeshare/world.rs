//! Simulated cluster: where each job is, how far it got, and what each node holds.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    mem,
    time::Duration,
};

use coswitch_policies::{
    Bytes, Cluster, JobId, JobSpec, NodeId, Placement, SimTime,
    metrics::{JobTimes, Span},
    timeshare::memory_monitor::{JobSample, Stage},
};

use crate::{
    SimJob,
    timeshare::{
        cost::{CostModel, Habits},
        memory::{Look, MemoryCurve},
        nodes::Nodes,
    },
};

/// The residence of a job that has not ended. Only `Running` progresses; `Running` and `Frozen` take memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Outside,
    Running { since: SimTime },
    Frozen,
}

/// When a job ends that does not run.
const NEVER: SimTime = SimTime(u64::MAX);

#[derive(Clone, Debug)]
struct Life {
    placement: Placement,
    place: Place,
    /// Nanoseconds of work that were left at `left_at` until it ends or crashes, and the demand on its nodes
    /// since then.
    left: u64,
    left_at: SimTime,
    demand: u64,
    /// When it ends at that pace, while it runs.
    ends: SimTime,
    /// The earliest entry for it in the queue of ends; not later than `ends`.
    queued: SimTime,
    spec: JobSpec,
    /// What each rank holds, and by the work that is done.
    held: Bytes,
    memory: Option<MemoryCurve>,
    work: Duration,
    habits: Habits,
    /// Half-way through its work.
    crashes: bool,
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
    /// The jobs that have not ended.
    lives: BTreeMap<JobId, Life>,
    ended: Vec<JobTimes>,
    /// Expected ends. An end that becomes later keeps its entry, and is queued anew when that is due.
    ends: BinaryHeap<Reverse<(SimTime, JobId)>>,
    /// How many jobs run whose ends are known.
    ending: usize,
    /// Jobs that just began to run: their ends are still to be computed.
    thawed: Vec<JobId>,
    /// Nodes whose running jobs are stopped for want of memory.
    stopped: BTreeSet<NodeId>,
    now: SimTime,
}

impl World {
    pub(crate) fn new(cluster: Cluster, cost: CostModel) -> Self {
        Self {
            nodes: Nodes::new(cluster, cost),
            lives: BTreeMap::new(),
            ended: Vec::new(),
            ends: BinaryHeap::new(),
            ending: 0,
            thawed: Vec::new(),
            stopped: BTreeSet::new(),
            now: SimTime::default(),
        }
    }

    pub(crate) fn add(&mut self, job: &SimJob, crashes: bool) {
        let left = if crashes { job.work - job.work / 2 } else { job.work };
        let life = Life {
            placement: Placement::default(),
            place: Place::Outside,
            left: SimTime::from(left).0,
            left_at: SimTime::default(),
            demand: 0,
            ends: NEVER,
            queued: NEVER,
            spec: job.spec.clone(),
            held: job.memory.as_ref().map_or(job.spec.memory_per_rank, |memory| memory.at(Duration::ZERO)),
            memory: job.memory.clone(),
            work: job.work,
            habits: Habits { processors: job.processors, communication: job.communication },
            crashes,
            active: Vec::new(),
        };
        self.lives.insert(job.spec.id, life);
    }

    /// The job was refused.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.lives.remove(&job);
    }

    /// The job that ends next by itself, and when; of several the one with the lowest number.
    pub(crate) fn next_end(&mut self) -> Option<(SimTime, JobId)> {
        let mut affected = mem::take(&mut self.thawed);
        self.nodes.affected(&mut affected);
        affected.sort_unstable();
        affected.dedup();
        affected.drain(..).for_each(|job| self.set_pace(job));
        self.thawed = affected;
        loop {
            let Reverse((at, job)) = *self.ends.peek()?;
            let life = self.lives.get_mut(&job).filter(|life| life.queued == at);
            let ends = life.as_ref().map_or(NEVER, |life| life.ends);
            if ends == at {
                return Some((at, job));
            }
            self.ends.pop();
            if let Some(life) = life {
                life.queued = ends;
                self.ends.extend((ends != NEVER).then_some(Reverse((ends, job))));
            }
        }
    }

    /// Lets time pass in which nothing changes.
    pub(crate) fn advance(&mut self, to: SimTime) {
        self.now = self.now.max(to);
    }

    /// The job goes on at the pace of its nodes.
    fn set_pace(&mut self, job: JobId) {
        self.count_work(job);
        let now = self.now;
        let life = self.lives.get_mut(&job).expect("it runs");
        if self.stopped.iter().any(|node| life.placement.count_on(*node) > 0) {
            return;
        }
        life.demand = self.nodes.demand(&life.placement, life.habits);
        let takes = self.nodes.slowdown(life.demand).time_for(Duration::from_nanos(life.left));
        life.ends = now.after(takes).min(SimTime(NEVER.0 - 1));
        self.ending += 1;
        if life.ends < life.queued {
            life.queued = life.ends;
            self.ends.push(Reverse((life.ends, job)));
        }
    }

    /// Counts the work that the job has done at the pace it had.
    fn count_work(&mut self, job: JobId) {
        let now = self.now;
        let life = life(&mut self.lives, job);
        if mem::replace(&mut life.ends, NEVER) != NEVER {
            let pace = self.nodes.slowdown(life.demand);
            let done = pace.work_in(now.since(life.left_at));
            life.left = life.left.saturating_sub(SimTime::from(done).0);
            self.ending -= 1;
        }
        life.left_at = now;
    }

    /// The job reached its end, or its crash.
    pub(crate) fn end_by_itself(&mut self, job: JobId) -> Ending {
        let crashed = life(&mut self.lives, job).crashes;
        self.end(job);
        if crashed { Ending::Crashed(job) } else { Ending::Finished(job) }
    }

    /// The job is over, wherever it was.
    pub(crate) fn end(&mut self, job: JobId) {
        self.leave(job);
        let life = self.lives.remove(&job).expect("it just left");
        self.ended.push(life.times(self.now));
    }

    pub(crate) fn is_ended(&self, job: JobId) -> bool {
        !self.lives.contains_key(&job)
    }

    /// The job takes memory and does not run yet.
    pub(crate) fn enter(&mut self, job: JobId, placement: &Placement) {
        let life = life(&mut self.lives, job);
        life.placement = placement.clone();
        life.place = Place::Frozen;
        self.nodes.enter(life.held, placement);
    }

    /// The job runs from now on.
    pub(crate) fn thaw(&mut self, job: JobId) {
        let since = self.now;
        let life = life(&mut self.lives, job);
        life.place = Place::Running { since };
        self.nodes.run(job, &life.placement, life.habits);
        self.thawed.push(job);
    }

    /// The job stops and keeps its memory.
    pub(crate) fn freeze(&mut self, job: JobId) {
        self.stop(job);
        life(&mut self.lives, job).place = Place::Frozen;
    }

    /// The job gives its memory back.
    pub(crate) fn leave(&mut self, job: JobId) {
        self.stop(job);
        let life = life(&mut self.lives, job);
        if std::mem::replace(&mut life.place, Place::Outside) != Place::Outside {
            self.nodes.leave(life.held, &life.placement);
        }
    }

    /// Whether any job runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.ending == 0 && self.thawed.is_empty()
    }

    /// The memory of `jobs` on the node where they have most, and in all.
    pub(crate) fn bytes_of(&self, jobs: impl Iterator<Item = JobId>) -> (Bytes, Bytes) {
        let lives: Vec<&Life> = jobs.map(|job| &self.lives[&job]).collect();
        let nodes = lives.iter().map(|life| life.placement.width()).sum();
        let mut bytes: Vec<(NodeId, Bytes)> = Vec::with_capacity(nodes);
        for life in &lives {
            bytes.extend(life.placement.blocks().map(|block| (block.node, life.held.times(block.ranks))));
        }
        bytes.sort_unstable_by_key(|(node, _)| *node);
        let by_node = bytes.chunk_by(|a, b| a.0 == b.0);
        let by_node = by_node.map(|parts| parts.iter().map(|(_, bytes)| *bytes).sum());
        (by_node.max().unwrap_or_default(), bytes.iter().map(|(_, bytes)| *bytes).sum())
    }

    /// The most that working sets took at any instant, by node.
    pub(crate) fn memory_peak(&self) -> Vec<Bytes> {
        self.nodes.peaks()
    }

    /// The times of the jobs that ended.
    pub(crate) fn take_times(&mut self) -> Vec<JobTimes> {
        let mut times = mem::take(&mut self.ended);
        times.sort_unstable_by_key(|times| times.job);
        times
    }

    /// Brings what running jobs hold up to this moment.
    pub(crate) fn measure(&mut self) {
        let runs = |life: &Life| life.memory.is_some() && matches!(life.place, Place::Running { .. });
        let jobs: Vec<JobId> =
            self.lives.iter().filter(|(_, life)| runs(life)).map(|(job, _)| *job).collect();
        jobs.into_iter().for_each(|job| self.measure_job(job));
    }

    fn measure_job(&mut self, job: JobId) {
        let life = life(&mut self.lives, job);
        let Some(memory) = &life.memory else { return };
        let pace = self.nodes.slowdown(life.demand);
        let since = if life.ends == NEVER { Duration::ZERO } else { self.now.since(life.left_at) };
        let left = Duration::from_nanos(life.left).saturating_sub(pace.work_in(since));
        let whole = if life.crashes { life.work - life.work / 2 } else { life.work };
        let held = memory.at(whole.saturating_sub(left));
        let before = mem::replace(&mut life.held, held);
        if before != held {
            self.nodes.leave(before, &life.placement);
            self.nodes.enter(held, &life.placement);
        }
    }

    /// What the jobs of a node hold.
    pub(crate) fn held_on(&self, node: NodeId) -> Bytes {
        self.nodes.held(node)
    }

    /// Samples of the jobs in memory on a node, as its daemon takes them; `frozen`: the stage of one that
    /// does not run.
    pub(crate) fn samples(&self, node: NodeId, frozen: impl Fn(JobId) -> Stage) -> Vec<JobSample> {
        let here = self.lives.iter().filter(|(_, life)| life.placement.count_on(node) > 0);
        let sample = |(job, life): (&JobId, &Life)| {
            let stage = match life.place {
                Place::Outside => return None,
                Place::Running { .. } => Stage::Runs,
                Place::Frozen => frozen(*job),
            };
            let resident = life.held.times(life.placement.count_on(node));
            Some(JobSample { job: *job, resident, major_faults: 0, stage })
        };
        here.filter_map(sample).collect()
    }

    /// What a job holds on each of its nodes.
    pub(crate) fn held_by(&self, job: JobId) -> Vec<(NodeId, Bytes)> {
        let life = &self.lives[&job];
        life.placement.blocks().map(|block| (block.node, life.held.times(block.ranks))).collect()
    }

    /// Stops the running jobs of a node, or lets them go on. Those of other nodes wait for their messages.
    pub(crate) fn on_look(&mut self, node: NodeId, look: Look) {
        let changed = match look {
            Look::Stop => self.stopped.insert(node),
            Look::GoOn => self.stopped.remove(&node),
            Look::Stay => false,
        };
        let jobs = if changed { self.nodes.running(node).to_vec() } else { Vec::new() };
        for job in jobs {
            self.count_work(job);
            self.thawed.push(job);
        }
    }

    pub(crate) const fn cluster(&self) -> &Cluster {
        self.nodes.cluster()
    }

    fn stop(&mut self, job: JobId) {
        let to = self.now;
        self.measure_job(job);
        self.count_work(job);
        let life = life(&mut self.lives, job);
        if let Place::Running { since } = life.place {
            life.active.push(Span { from: since, to });
            self.nodes.stop(job, &life.placement, life.habits);
            self.thawed.retain(|thawed| *thawed != job);
        }
    }
}

fn life(lives: &mut BTreeMap<JobId, Life>, job: JobId) -> &mut Life {
    lives.get_mut(&job).expect("only submitted jobs are decided about")
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
