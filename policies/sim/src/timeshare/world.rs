//! The simulated cluster: where every job is, how far it got, and who uses which memory.

use std::{cmp::Reverse, collections::BinaryHeap, mem, time::Duration};

use coswitch_policies::{
    Bytes, Cluster, Communication, JobId, JobMap, JobSpec, NodeId, Placement, SimTime,
    metrics::{JobTimes, Span},
};

use crate::{
    SimJob,
    timeshare::{cost::CostModel, nodes::Nodes},
};

/// Where a job that lives is. Only `Running` progresses; `Running` and `Frozen` take memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Outside,
    Running { since: SimTime },
    Frozen,
}

/// An end that is not expected: a job that does not run.
const NEVER: SimTime = SimTime(u64::MAX);

/// How far a job got, and where. Most events ask for nothing else of most jobs: so it is a line of the cache.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Progress {
    placement: Placement,
    /// Nanoseconds that were left at that time until it ends, or dies, and what is asked of its nodes since then.
    left: u64,
    left_at: SimTime,
    asked: u64,
    /// When it ends at that pace, while it runs.
    ends: SimTime,
    /// When to look whether it does; not later.
    looked_at: SimTime,
}

/// One job.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    progress: Progress,
    place: Place,
    spec: JobSpec,
    work: Duration,
    communication: Option<Communication>,
    /// Half-way.
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
    /// Those that have not ended.
    lives: JobMap<Life>,
    ended: Vec<JobTimes>,
    /// Whom to look at when. A pace that changes moves an end; where it is later then, it is found to be when it was expected.
    ends: BinaryHeap<Reverse<(SimTime, JobId)>>,
    /// How many jobs run whose ends are known.
    ending: usize,
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
            ends: BinaryHeap::new(),
            ending: 0,
            thawed: Vec::new(),
            now: SimTime::default(),
        }
    }

    pub(crate) fn add(&mut self, job: &SimJob, crashes: bool) {
        let left = if crashes { job.work - job.work / 2 } else { job.work };
        let progress = Progress {
            placement: Placement::default(),
            left: SimTime::from(left).0,
            left_at: SimTime::default(),
            asked: 0,
            ends: NEVER,
            looked_at: NEVER,
        };
        let life = Life {
            progress,
            place: Place::Outside,
            spec: job.spec.clone(),
            work: job.work,
            communication: job.communication,
            crashes,
            active: Vec::new(),
        };
        self.lives.insert(job.spec.id, life);
    }

    /// The job was refused.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.lives.remove(job);
    }

    /// The job that ends next by itself, and when; the lowest number where several do.
    pub(crate) fn next_end(&mut self) -> Option<(SimTime, JobId)> {
        let mut affected = mem::take(&mut self.thawed);
        self.nodes.affected(&mut affected);
        affected.sort_unstable();
        affected.dedup();
        affected.drain(..).for_each(|job| self.set_pace(job));
        self.thawed = affected;
        loop {
            let Reverse((at, job)) = *self.ends.peek()?;
            let life = self.lives.get_mut(job).filter(|life| life.progress.looked_at == at);
            let ends = life.as_ref().map_or(NEVER, |life| life.progress.ends);
            if ends == at {
                return Some((at, job));
            }
            self.ends.pop();
            if let Some(life) = life {
                life.progress.looked_at = ends;
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
        self.reconcile(job);
        let now = self.now;
        let life = self.lives.get_mut(job).expect("it runs");
        let progress = &mut life.progress;
        progress.asked = self.nodes.asked(&progress.placement);
        let takes = self.nodes.slowdown(progress.asked).time_for(Duration::from_nanos(progress.left));
        let end = now.after(takes).min(SimTime(NEVER.0 - 1));
        progress.ends = end;
        self.ending += 1;
        if end < progress.looked_at {
            progress.looked_at = end;
            self.ends.push(Reverse((end, job)));
        }
    }

    /// Counts what the job has done at the pace it had.
    fn reconcile(&mut self, job: JobId) {
        let now = self.now;
        let life = self.lives.get_mut(job).expect("only submitted jobs are decided about");
        let progress = &mut life.progress;
        if mem::replace(&mut progress.ends, NEVER) != NEVER {
            let pace = self.nodes.slowdown(progress.asked);
            let done = pace.work_in(now.since(progress.left_at));
            progress.left = progress.left.saturating_sub(SimTime::from(done).0);
            self.ending -= 1;
        }
        progress.left_at = now;
    }

    /// The job reached its end, or its crash.
    pub(crate) fn end_by_itself(&mut self, job: JobId) -> Ending {
        let crashed = self.life(job).crashes;
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
        life.progress.placement = placement.clone();
        life.place = Place::Frozen;
        self.nodes.enter(&life.spec, placement);
    }

    /// Runs from now on.
    pub(crate) fn thaw(&mut self, job: JobId) {
        let since = self.now;
        let life = self.lives.get_mut(job).expect("only submitted jobs are decided about");
        life.place = Place::Running { since };
        self.nodes.run(job, &life.progress.placement, life.communication);
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
            self.nodes.leave(&life.spec, &life.progress.placement);
        }
    }

    /// Whether any job runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.ending == 0 && self.thawed.is_empty()
    }

    /// What `jobs` have on the node where they have most, and in all.
    pub(crate) fn bytes_of(&self, jobs: impl Iterator<Item = JobId>) -> (Bytes, Bytes) {
        let lives: Vec<&Life> = jobs.map(|job| &self.lives[job]).collect();
        let nodes = lives.iter().map(|life| life.progress.placement.width()).sum();
        let mut bytes: Vec<(NodeId, Bytes)> = Vec::with_capacity(nodes);
        for life in &lives {
            bytes.extend(
                life.progress.placement.blocks().map(|block| (block.node, life.spec.memory_of(block.ranks))),
            );
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
        self.reconcile(job);
        let life = self.lives.get_mut(job).expect("only submitted jobs are decided about");
        if let Place::Running { since } = life.place {
            life.active.push(Span { from: since, to });
            self.nodes.stop(job, &life.progress.placement, life.communication);
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
            nodes: self.progress.placement.nodes().collect(),
            alone: Some(self.work),
        }
    }
}
