//! Jobs with nodes of their own (`policy: batch`): a [queue](crate::spaceshare::queue) of space sharing
//! decides which waiting jobs start, an [allocator](crate::spaceshare::allocate) on which nodes.
//!
//! The matrix has one row. Queue and machine follow the scheduler's own state, which is compared with theirs
//! whenever jobs may start; so a job that ends, is cancelled, held or displaced needs no case of its own:
//!
//! ```text
//!   in the scheduler's queue         ─▶ waits in the queue
//!   in the row                       ─▶ runs, and holds its nodes on the machine
//!   held                             ─▶ neither: others may have its nodes
//!   about to come back, or parked    ─▶ its nodes are closed as they become free, until it has all of them
//!   on a node that is down
//!   node down                        ─▶ closed
//! ```
//! Where nodes are closed or opened, or jobs run that this queue has not started, both are built anew.
//!
//! The cluster may be divided into node sets, which groups use by the hours of the day. The core has no
//! clock: its settings say which time of the day time 0 was, and a change of the hours is a timer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use super::{Scheduler, hold::Held};
use crate::{
    Assignment, Bytes, Cluster, Decision, JobId, JobSpec, Landing, MemoryRule, NodeId, Placement, SimTime,
    TimerId,
    placement::{Shape, ranks_that_fit, spread},
    spaceshare::{
        allocate::Request,
        choice::QueueName,
        machine::Machine,
        queue::{QueueId, QueueOrder, QueuedJob},
        sharing::SpaceSharing,
    },
    timeshare::packing,
};

/// The queue of the entries that close nodes, which are no jobs.
const NO_QUEUE: QueueId = QueueId(u16::MAX);
const NEVER: SimTime = SimTime(u64::MAX);

/// Why a job waits for nodes of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWait {
    pub queue: QueueName,
    /// The group whose nodes it gets, where the cluster is divided.
    pub group: Option<String>,
    /// The nodes that it needs.
    pub needs: u32,
    /// The nodes that no job has; of its group, at these hours.
    pub free: u32,
    /// The hours of its group that hold the job have not come yet.
    pub opens: Option<Opening>,
    /// Jobs that came before it, and may use nodes of its group.
    pub ahead: u32,
    /// It starts by then, provided that jobs keep their time limits; `None` where it has no reservation, or
    /// parked jobs come back, with which reservations do not reckon.
    pub starts_by: Option<SimTime>,
}

/// When a group gets other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    pub at: SimTime,
    /// The same as the time of the day, since midnight.
    pub clock: Duration,
}

impl NodeWait {
    /// That its group has too few nodes at these hours, and when it has enough, in words.
    #[must_use]
    pub fn hours(&self) -> Option<String> {
        let Opening { clock, .. } = self.opens?;
        let (hour, minute) = (clock.as_secs() / 3600, clock.as_secs() / 60 % 60);
        Some(format!("group {} begins at {hour}:{minute:02}", self.group.as_deref().unwrap_or_default()))
    }
}

/// Queue and machine.
#[derive(Clone, Debug)]
pub(super) struct Space {
    sharing: SpaceSharing,
    nodes: u32,
    machine: Machine,
    order: Box<dyn QueueOrder>,
    /// The waiting jobs, in the order in which the queue got them.
    waiting: Vec<QueuedJob>,
    holders: BTreeMap<JobId, Holder>,
    /// Nodes on which no job may start.
    closed: BTreeSet<NodeId>,
    /// When the last timer fires.
    wake: Option<SimTime>,
}

#[derive(Clone, Debug)]
struct Holder {
    placement: Placement,
    queue: QueueId,
    /// The latest end, by its limit.
    end: SimTime,
}

/// What the scheduler wants of queue and machine.
struct Wanted {
    waiting: Vec<QueuedJob>,
    holders: BTreeMap<JobId, Holder>,
    closed: BTreeSet<NodeId>,
}

impl Space {
    pub(super) fn new(sharing: SpaceSharing, cluster: &Cluster) -> Self {
        let nodes = u32::try_from(cluster.len()).unwrap_or(u32::MAX);
        Self {
            nodes,
            machine: sharing.machine(nodes),
            order: sharing.order(),
            sharing,
            waiting: Vec::new(),
            holders: BTreeMap::new(),
            closed: BTreeSet::new(),
            wake: None,
        }
    }

    /// See [`SpaceSharing::rank_of`].
    pub(super) fn rank_of(&self, queue: QueueId) -> i32 {
        self.sharing.rank_of(queue)
    }

    /// The most nodes that a job of this queue may have, where it cannot have as many as it needs. In a group
    /// it may lie closer than in the whole cluster.
    pub(super) fn too_wide(
        &self,
        job: &JobSpec,
        shape: Shape,
        queue: QueueId,
        node: Bytes,
        rule: MemoryRule,
    ) -> Option<u32> {
        let most = self.sharing.largest_job(self.nodes, queue);
        let needs = match self.sharing.sets {
            None => Some(shape),
            Some(_) => Shape::on_empty(job, &Cluster::uniform(most, node), rule),
        };
        needs.is_none_or(|needs| needs.width > most).then_some(most)
    }

    /// The most nodes that a job of this queue may have while others are `down`; `None` where the cluster is
    /// not divided.
    fn widest(&self, queue: QueueId, down: &BTreeSet<NodeId>) -> Option<u32> {
        self.sharing.sets.as_ref()?;
        let most = self.without(down).largest_now(self.sharing.group_of(queue));
        Some(self.sharing.within(queue, most))
    }

    /// The machine without jobs, and without the nodes that are `down`.
    fn without(&self, down: &BTreeSet<NodeId>) -> Machine {
        let mut empty = self.sharing.machine(self.nodes);
        for node in down {
            let unit = self.sharing.unit_of(*node);
            assert!(empty.claim(closing(*node), std::iter::once(unit)), "no job has it");
        }
        empty
    }

    /// Brings queue and machine to what is wanted: first the ends, then the arrivals. Returns whether that
    /// changed anything.
    fn follow(&mut self, now: SimTime, wanted: Wanted) -> bool {
        let is_known = |(job, holder): (&JobId, &Holder)| {
            self.holders.get(job).is_some_and(|known| known.placement == holder.placement)
        };
        if wanted.closed != self.closed || !wanted.holders.iter().all(is_known) {
            self.rebuild(now, wanted);
            return true;
        }
        let mut changed = false;
        let gone = self.holders.keys().filter(|job| !wanted.holders.contains_key(job));
        for job in gone.copied().collect::<Vec<_>>() {
            changed = true;
            self.holders.remove(&job);
            self.machine.release(job);
            self.order.on_end(now, job);
        }
        let stay: BTreeSet<JobId> = wanted.waiting.iter().map(|job| job.job).collect();
        for job in self.waiting.extract_if(.., |job| !stay.contains(&job.job)) {
            changed = true;
            assert!(self.order.withdraw(job.job), "it waits");
        }
        // A job that overtakes others goes in before them.
        let same = self.waiting.iter().zip(&wanted.waiting).take_while(|(a, b)| a == b).count();
        for job in self.waiting.drain(same..) {
            changed = true;
            assert!(self.order.withdraw(job.job), "it waits");
        }
        for job in wanted.waiting.into_iter().skip(same) {
            changed = true;
            self.submit(job);
        }
        changed
    }

    fn rebuild(&mut self, now: SimTime, Wanted { waiting, holders, closed }: Wanted) {
        let before = std::mem::take(&mut self.holders);
        (self.machine, self.order) = (self.sharing.machine(self.nodes), self.sharing.order());
        (self.closed, self.waiting) = (closed, Vec::new());
        for node in self.closed.clone() {
            let closes = self.queued(closing(node), NO_QUEUE, 1, now, Duration::MAX);
            self.hold(now, closes, std::iter::once(node), NEVER);
        }
        for (job, mut holder) in holders {
            if let Some(known) = before.get(&job).filter(|known| known.placement == holder.placement) {
                holder.end = known.end;
            }
            let width = u32::try_from(holder.placement.width()).unwrap_or(u32::MAX);
            let held = self.queued(job, holder.queue, width, now, Duration::MAX);
            self.hold(now, held, holder.placement.nodes(), holder.end);
            self.holders.insert(job, holder);
        }
        waiting.into_iter().for_each(|job| self.submit(job));
    }

    fn hold(&mut self, now: SimTime, job: QueuedJob, nodes: impl Iterator<Item = NodeId>, end: SimTime) {
        // Nodes that a job of an earlier scheduler shares stay with the first.
        if self.machine.claim(job.job, nodes.map(|node| self.sharing.unit_of(node))) {
            self.order.adopt(now, job, end, &self.machine);
        }
    }

    fn submit(&mut self, job: QueuedJob) {
        self.order.submit(job);
        self.waiting.push(job);
    }

    /// The jobs that start now, each with its nodes.
    fn start(&mut self, now: SimTime) -> Vec<(QueuedJob, Vec<NodeId>)> {
        let mut started = Vec::new();
        self.order.start(now, &mut self.machine, &mut started);
        self.waiting.retain(|waiting| started.iter().all(|job| job.job != waiting.job));
        let node = |unit| self.sharing.node_of(unit);
        let nodes = |job: &QueuedJob| self.machine.nodes_of(job.job).into_iter().map(node).collect();
        started.iter().map(|job| (*job, nodes(job))).collect()
    }

    fn is_awake(&self, now: SimTime) -> bool {
        self.wake.is_some_and(|at| at <= now)
    }

    /// A timer, where time alone may let a job start.
    fn set_wake(&mut self, now: SimTime, next: &mut u32) -> Option<Decision> {
        let wake = self.order.next_wake(now, &self.machine).filter(|at| *at > now && *at < NEVER);
        if wake == std::mem::replace(&mut self.wake, wake) {
            return None;
        }
        let timer = TimerId(*next);
        *next += u32::from(wake.is_some());
        wake.map(|at| Decision::SetTimer { timer, at })
    }

    /// Whether the nodes that are not `down` grant the request when all of them are free, at some hours.
    fn could_grant(&self, now: SimTime, down: &BTreeSet<NodeId>, nodes: u32, queue: QueueId) -> bool {
        let mut trial = self.without(down);
        let group = self.sharing.group_of(queue);
        let hours = std::iter::once(now).chain(trial.next_change(now)).collect::<Vec<_>>();
        hours.into_iter().any(|at| trial.place(at, JobId(0), group, Request::nodes(nodes)))
    }

    /// When other hours come that hold the request, where these do not.
    fn opens(&self, now: SimTime, job: &QueuedJob) -> Option<Opening> {
        let at = self.machine.next_change(now)?;
        let waits = !self.machine.can_hold_at(now, job.group, job.request);
        let clock = self.machine.calendar().time_of_day(at);
        (waits && self.machine.can_hold_at(at, job.group, job.request)).then_some(Opening { at, clock })
    }

    fn queued(
        &self,
        job: JobId,
        queue: QueueId,
        nodes: u32,
        submitted: SimTime,
        limit: Duration,
    ) -> QueuedJob {
        let group = self.sharing.group_of(queue);
        QueuedJob { job, queue, group, request: Request::nodes(nodes), submitted, limit }
    }
}

/// The entry of the machine that closes a node.
const fn closing(node: NodeId) -> JobId {
    JobId(u32::MAX - node.0)
}

impl Scheduler {
    /// Starts jobs on nodes of their own.
    pub(super) fn admit_in_space(&mut self, now: SimTime, decisions: &mut Vec<Decision>) {
        self.order_queue();
        let Some(mut space) = self.space.take() else { return };
        let changed = space.follow(now, self.wanted_in_space(now, &space));
        // The scheduler asks more often than anything happens that the queue knows of.
        let started = if changed || space.is_awake(now) { space.start(now) } else { Vec::new() };
        for (job, nodes) in started {
            let shape = self.shape_in(&space, job.job);
            match shape.and_then(|shape| self.start_in_space(job.job, shape, &nodes, decisions)) {
                Some(placement) => {
                    let (queue, end) = (job.queue, now.after(job.limit));
                    space.holders.insert(job.job, Holder { placement, queue, end });
                }
                None => {
                    space.machine.release(job.job);
                    space.order.on_end(now, job.job);
                }
            }
        }
        decisions.extend(space.set_wake(now, &mut self.timers));
        self.space = Some(space);
    }

    fn wanted_in_space(&self, now: SimTime, space: &Space) -> Wanted {
        let down = self.matrix.down();
        let rows = self.matrix.rows().flat_map(|row| row.assignments());
        let holder = |assignment: &Assignment| {
            let job = assignment.spec.id;
            let (placement, end) = (assignment.placement.clone(), now.after(self.limit_left(job)));
            (job, Holder { placement, queue: self.queue_of(job), end })
        };
        let holders: BTreeMap<JobId, Holder> = rows.map(holder).collect();
        let mut closed: BTreeSet<NodeId> = down.clone();
        for held in self.held.values() {
            if let Held::Returning(assignment) = held {
                closed.extend(assignment.placement.nodes());
            }
        }
        let in_use: BTreeSet<NodeId> = holders.values().flat_map(|holder| holder.placement.nodes()).collect();
        closed.retain(|node| !in_use.contains(node));
        let out = self.out_of_use();
        let request = |job: &JobId| {
            let (width, queue) = (self.shape_in(space, *job)?.width, self.queue_of(*job));
            let is_possible = out.is_empty() || space.could_grant(now, &out, width, queue);
            let arrival = self.jobs[job].spec.arrival;
            is_possible.then(|| space.queued(*job, queue, width, arrival, self.limit_left(*job)))
        };
        Wanted { waiting: self.queue.iter().filter_map(request).collect(), holders, closed }
    }

    /// The nodes that are down, and those that are kept for jobs that wait for one of these. A job that
    /// cannot begin without them must not keep others waiting.
    fn out_of_use(&self) -> BTreeSet<NodeId> {
        let mut out = self.matrix.down().clone();
        if out.is_empty() {
            return out;
        }
        for held in self.held.values() {
            if let Held::Returning(assignment) = held
                && !self.matrix.is_up(&assignment.placement)
            {
                out.extend(assignment.placement.nodes());
            }
        }
        // Others run on some of them, and will leave them.
        let is_used = |node: &NodeId| !self.jobs_on(|other| other == *node).is_empty();
        out.retain(|node| self.matrix.down().contains(node) || !is_used(node));
        out
    }

    /// How a job spreads over the nodes that are up: all, or those of its group.
    fn shape_in(&self, space: &Space, job: JobId) -> Option<Shape> {
        let spec = &self.jobs[&job].spec;
        match space.widest(self.queue_of(job), self.matrix.down()) {
            None => self.matrix.shape_of(spec),
            Some(most) => {
                let cluster = Cluster::uniform(most, self.matrix.cluster().largest());
                Shape::on_empty(spec, &cluster, self.matrix.limits().memory)
            }
        }
    }

    /// The nodes that are down without which a queued job cannot begin; `None` where jobs have no nodes of
    /// their own.
    pub(super) fn missing_in_space(&self, job: JobId) -> Option<Vec<NodeId>> {
        let space = self.space.as_ref()?;
        let (queue, down, out) = (self.queue_of(job), self.matrix.down(), self.out_of_use());
        let holds = |shape: Shape| space.could_grant(SimTime(0), &out, shape.width, queue);
        if self.shape_in(space, job).is_some_and(holds) {
            return Some(Vec::new());
        }
        let group = space.sharing.group_of(queue);
        let is_of_it = |node: &&NodeId| space.machine.may_use(group, space.sharing.unit_of(**node));
        Some(down.iter().filter(is_of_it).copied().collect())
    }

    /// For how long a job may run yet: the most that backfilling has to reckon with.
    fn limit_left(&self, job: JobId) -> Duration {
        self.limits.get(&job).copied().unwrap_or(Duration::MAX)
    }

    /// Gives a job its nodes; `None` where they do not hold it.
    fn start_in_space(
        &mut self,
        job: JobId,
        shape: Shape,
        nodes: &[NodeId],
        decisions: &mut Vec<Decision>,
    ) -> Option<Placement> {
        let (spec, rule) = (self.jobs[&job].spec.clone(), self.matrix.limits().memory);
        let cluster = self.matrix.cluster();
        let holds = |node: &NodeId| (*node, ranks_that_fit(&spec, cluster.capacity(*node), rule));
        let placement = spread(&spec, shape, nodes.iter().take(shape.width as usize).map(holds).collect())?;
        let assignment = Assignment { spec, placement: placement.clone() };
        if self.matrix.rows().len() > 0 && !self.matrix.holds_in_place(0, &assignment) {
            return None;
        }
        if self.matrix.rows().len() == 0 {
            self.matrix.open_row();
        }
        self.matrix.assign(0, assignment);
        self.queue.retain(|queued| *queued != job);
        let slot = self.matrix.row(0).slot;
        let beside = packing::beside(&self.matrix, job);
        let landing =
            Arc::new(Landing { slot, placement: placement.clone(), beside, refused_by: Vec::new() });
        self.jobs.get_mut(&job).expect("a queued job is known").landing = Some(Arc::clone(&landing));
        self.presence.on_assigned(job, slot);
        decisions.push(Decision::Admitted { job, landing });
        Some(placement)
    }

    /// Whether a job that left memory may have its nodes again.
    pub(super) fn may_come_back(&self, assignment: &Assignment) -> bool {
        let is_free = || self.matrix.rows().len() == 0 || self.matrix.holds_in_place(0, assignment);
        self.matrix.is_up(&assignment.placement) && (self.space.is_none() || is_free())
    }

    /// The queue of a job, among those of the settings.
    pub(super) fn queue_of(&self, job: JobId) -> QueueId {
        self.homes.get(&job).copied().unwrap_or_default()
    }

    /// Jobs wait in these queues. They may be submitted later.
    pub(super) fn group(&mut self, queues: Vec<(JobId, QueueId)>) {
        self.homes.extend(queues);
    }

    /// Jobs are to run for so long yet at most. They may be submitted later.
    pub(super) fn limit(&mut self, left: Vec<(JobId, Duration)>) {
        self.limits.extend(left);
    }

    /// What a queued job waits for, where jobs have nodes of their own.
    #[must_use]
    pub fn node_wait(&self, now: SimTime, job: JobId) -> Option<NodeWait> {
        let space = self.space.as_ref()?;
        let place = space.waiting.iter().position(|waiting| waiting.job == job)?;
        let (before, waiting) = (&space.waiting[..place], &space.waiting[place]);
        let competes = |other: &&QueuedJob| space.machine.may_compete(other.group, waiting.group);
        let ahead = before.iter().filter(competes).count();
        let some_return = self.held.values().any(|held| matches!(held, Held::Returning(_)));
        let promised = space.order.promised(now, &space.machine, job);
        let starts_by = promised.filter(|at| *at < NEVER && !some_return);
        Some(NodeWait {
            queue: space.sharing.queue,
            group: space.sharing.group_name(waiting.queue).map(Into::into),
            needs: waiting.request.nodes,
            free: space.machine.free_in(now, waiting.group),
            opens: space.opens(now, waiting),
            ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
            starts_by,
        })
    }
}
