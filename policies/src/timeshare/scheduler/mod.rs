//! The gang scheduler: events in, decisions out. The live master and the simulator run this code.
//!
//! It keeps an Ousterhout [`Matrix`] whose front row has the turn. After every event it *reconciles*: it
//! compares the matrix with the observed residence of each job and plans the difference. Arrivals, ends and
//! failures at any moment, also in the middle of a switch, therefore need no case of their own.
//!
//! ```text
//!            timer fired            SwitchDone / SwitchFailed
//!   turn ───────────────▶ switching ───────────────▶ turn of the next row
//!    │ ▲ job joins: activation ▲                       │ a dump failed: the same row again,
//!    └─┴─ front row empties ───┘                       ▼ at most `switch_failures_max` times
//! ```
//!
//! Fairness: rows take turns in a fixed order that no row overtakes; a turn lasts one quantum of running
//! unless its jobs end earlier; with one row there is no timer. Jobs move only to rows whose turn comes
//! sooner. `paired` may also put a job back in an exchange at the end of a turn, but not again before the job
//! has had its own turn.
//!
//! With `alternate: whole` a job runs on in the turn of another row where that row leaves all its nodes idle:
//! it is a backfilled job, part of the outgoing and of the incoming set, and no switch touches it. It makes
//! way, by a switch of its own, when a job of the row needs one of its nodes.
//!
//! A job out of its turn waits in memory or in the store, as its [`Residency`] says. With
//! [`Prefetch`](crate::SwitchOrder::Prefetch) a switch of its own brings the next row in beside the turn that
//! ends and touches no running job; where memory does not hold what an order needs, the switch is sequential,
//! or the kernel swaps, as [`ShortOfMemory`] says.
//! With [`SchedulerConfig::space`] each job has nodes of its own, and a queue of space sharing says which
//! starts next.
//! With a mean time between failures, jobs that stay in memory are [checkpointed](Decision::Checkpoint).
//! Costs are learned from `SwitchTimed`; with [`AutoQuantum`] they set the slice, and where no slice is long
//! enough, fewer rows take turns.
//!
//! The declared working set of a job is the first estimate. Measurements correct it, and a row that no longer
//! fits is split ([`Decision::Split`](crate::Decision::Split)): at once where the node is under memory
//! pressure, else at the end of the turn.
//!
//! The executor answers every `Switch` once, fires every timer, and reports an abandoned job as `Failed`. It
//! may rely on this: one switch at a time; no decision names a job that has ended; if it keeps to the plan's
//! order, and stops running jobs that exceed their [allowances](Scheduler::allowances), the working sets
//! in memory never exceed a node's capacity (`batch`, `gang`, `hybrid`; not with [`ShortOfMemory::Swap`]).

mod adopt;
mod ahead;
mod allowance;
mod checkpoint;
mod config;
mod correct;
mod down;
mod drain;
mod forecast;
mod hold;
mod mix;
mod oracle;
mod presence;
mod priority;
mod reconcile;
mod residency;
mod rotate;
mod space;
mod state;
mod switch;
#[cfg(test)]
mod tests;
mod timetable;
mod turn;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

pub use allowance::Allowance;
pub use config::{ConfigError, SchedulerConfig, ShortOfMemory};
pub use correct::Estimate;
pub use forecast::{Outlook, Present};
pub use oracle::{AutoQuantum, Oracle};
pub use residency::{Residency, reserve};
pub use rotate::Rotation;
pub use space::{NodeWait, Opening};
pub use state::{JobState, Wanted};
pub use timetable::ForeseenTurn;

use crate::{
    Assignment, Cluster, Communication, Decision, JobId, JobSpec, Landing, Matrix, NodeId, Placement, Policy,
    RejectReason, Residence, SchedulerEvent, SimTime, SwitchPlan, TimerId, Turn,
    spaceshare::queue::QueueId,
    timeshare::packing::{self, DirtyRows, FreedNodes, Packing, pairing::Fractions},
};
use checkpoint::Checkpoints;
use correct::Corrections;
use hold::Held;
use mix::Mixing;
use oracle::Costs;
use presence::Presence;
use priority::Priorities;
use rotate::Ring;
use space::Space;
use state::Entry;
use turn::Running;

/// The scheduler of one cluster.
#[derive(Clone, Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    matrix: Matrix,
    jobs: BTreeMap<JobId, Entry>,
    /// Jobs without a row, first come first served.
    queue: VecDeque<JobId>,
    /// Jobs that their users hold.
    held: BTreeMap<JobId, Held>,
    /// Nodes that are lost, and nodes that are to be empty: none of them takes jobs.
    lost: BTreeSet<NodeId>,
    drained: BTreeSet<NodeId>,
    /// Jobs that could not leave a drained node.
    stuck: BTreeSet<JobId>,
    priorities: Priorities,
    /// Since the rows were last put in order.
    priorities_changed: bool,
    /// How long jobs run yet at most, where that is known.
    limits: BTreeMap<JobId, Duration>,
    /// The queues of jobs, where that is not the first.
    homes: BTreeMap<JobId, QueueId>,
    /// Where jobs have nodes of their own.
    space: Option<Box<Space>>,
    /// Jobs in memory against jobs that should be there.
    presence: Presence,
    /// Abandoned jobs whose end is not reported yet.
    dying: BTreeSet<JobId>,
    /// Jobs of which a node was lost: until they are where they are wanted, no failure is theirs.
    disturbed: BTreeSet<JobId>,
    /// The one switch under way.
    under_way: Option<SwitchPlan>,
    /// The turn of the front row, from the moment its first job runs.
    running: Option<Running>,
    /// A job left a row, and its capacity was not offered to later rows yet.
    capacity_freed: bool,
    /// Rows that may take jobs of later rows.
    dirty: DirtyRows,
    /// The job that last kept all others from fitting into one row.
    rejection_cause: Option<JobId>,
    /// The measured communication of each job.
    fractions: Fractions,
    mixing: Mixing,
    ring: Ring,
    corrections: Corrections,
    /// Measured costs of switching.
    costs: Costs,
    checkpoints: Checkpoints,
    /// Length of the turn under way.
    slice: Duration,
    /// How many rows take turns, where not all do.
    narrowed: Option<usize>,
    /// `AllDone` was decided, and no job was submitted since.
    done: bool,
    switches: u32,
    timers: u32,
}

impl Scheduler {
    /// A scheduler without jobs.
    ///
    /// # Errors
    /// Where the settings make no sense.
    pub fn new(cluster: Cluster, config: SchedulerConfig) -> Result<Self, ConfigError> {
        config.check(&cluster)?;
        let space = config.space.clone().map(|sharing| Box::new(Space::new(sharing, &cluster)));
        let matrix = Matrix::new(cluster, config.limits());
        let slice = config.quantum;
        Ok(Self {
            config,
            matrix,
            jobs: BTreeMap::new(),
            queue: VecDeque::new(),
            held: BTreeMap::new(),
            lost: BTreeSet::new(),
            drained: BTreeSet::new(),
            stuck: BTreeSet::new(),
            priorities: Priorities::new(),
            priorities_changed: false,
            limits: BTreeMap::new(),
            homes: BTreeMap::new(),
            space,
            presence: Presence::default(),
            dying: BTreeSet::new(),
            disturbed: BTreeSet::new(),
            under_way: None,
            running: None,
            capacity_freed: false,
            dirty: DirtyRows::default(),
            rejection_cause: None,
            fractions: Fractions::default(),
            mixing: Mixing::default(),
            ring: Ring::default(),
            corrections: Corrections::default(),
            costs: Costs::default(),
            checkpoints: Checkpoints::default(),
            slice,
            narrowed: None,
            done: true,
            switches: 0,
            timers: 0,
        })
    }

    /// Takes `event`, which happened at `now`, and decides what follows. Events about unknown or ended jobs,
    /// stale timers and unknown switches change nothing.
    pub fn on_event(&mut self, now: SimTime, event: SchedulerEvent) -> Vec<Decision> {
        let mut decisions = Vec::new();
        match event {
            SchedulerEvent::Submitted { jobs } => self.on_submitted(now, jobs, &mut decisions),
            SchedulerEvent::Adopted { switches, jobs } => self.on_adopted(switches, jobs, &mut decisions),
            SchedulerEvent::Finished { job } => self.end(job, Residence::Finished),
            SchedulerEvent::Failed { job } => self.end(job, Residence::Failed),
            SchedulerEvent::Measured { job, communication } => self.on_measured(job, communication),
            SchedulerEvent::Resident { job, node, resident } => self.on_resident(job, node, resident),
            SchedulerEvent::Footprint { job, node, resident, growth, exact } => {
                self.on_footprint(job, node, resident, growth, exact)
            }
            SchedulerEvent::RunningStopped { node } => self.on_stopped(node),
            SchedulerEvent::MemoryPressure { node } => self.corrections.on_memory_pressure(node),
            SchedulerEvent::Held { job } => self.hold(job),
            SchedulerEvent::Released { job } => self.release(job),
            SchedulerEvent::Prioritized { priorities } => self.prioritize(priorities),
            SchedulerEvent::TimerFired { timer } => self.on_timer(timer),
            SchedulerEvent::SwitchTimed { switch, restore, exposed } => {
                self.on_timed(switch, restore, exposed)
            }
            SchedulerEvent::SwitchDone { switch } => self.on_switch_over(switch, &[], &mut decisions),
            SchedulerEvent::SwitchFailed { switch, misplaced } => {
                self.on_switch_over(switch, &misplaced, &mut decisions)
            }
            SchedulerEvent::NodeDown { node } => self.on_node_down(node),
            SchedulerEvent::NodeUp { node } => self.on_node_up(node),
            SchedulerEvent::Displaced { job, at } => self.on_displaced(job, at),
            SchedulerEvent::Moved { job, from, to } => self.on_part_moved(job, from, to),
            SchedulerEvent::Limited { left } => self.limit(left),
            SchedulerEvent::Grouped { queues } => self.group(queues),
            SchedulerEvent::Drained { node } => self.drain(node),
            SchedulerEvent::Undrained { node } => self.undrain(node),
            SchedulerEvent::Checkpointed { job, stood_still } => self.on_checkpointed(now, job, stood_still),
            SchedulerEvent::NotCheckpointed { job } => self.on_not_checkpointed(now, job),
        }
        self.reconcile(now, &mut decisions);
        self.plan_checkpoints(now, &mut decisions);
        decisions
    }

    fn on_submitted(&mut self, now: SimTime, jobs: Vec<JobSpec>, decisions: &mut Vec<Decision>) {
        self.done = false;
        self.mixing.on_set_changed();
        let mut accepted = Vec::new();
        for job in jobs {
            match self.refuse(&job) {
                Some(reason) => {
                    // A job of this number that lives keeps its priority.
                    if reason != RejectReason::DuplicateId {
                        self.priorities.remove(&job.id);
                        self.limits.remove(&job.id);
                    }
                    decisions.push(Decision::Rejected { job: job.id, reason });
                }
                None => {
                    self.jobs.insert(job.id, Entry::new(job.clone()));
                    accepted.push(job);
                }
            }
        }
        packing::sort_for_packing(self.config.policy, &self.matrix, &mut accepted);
        if !self.priorities.is_empty() {
            accepted.sort_by_key(|job| Reverse(self.priority(job.id)));
        }
        let movable: BTreeSet<JobId> = accepted.iter().map(|job| job.id).collect();
        self.queue.extend(accepted.iter().map(|job| job.id));
        self.admit(now, decisions);
        // The waiting jobs of this submission are the last of the queue, unless they overtake others.
        let before = match self.priorities.is_empty() {
            true => self.queue.len().saturating_sub(movable.len()),
            false => 0,
        };
        let waiting = (0..).zip(&self.queue).skip(before).filter(|(_, job)| movable.contains(job));
        decisions.extend(waiting.map(|(ahead, &job)| Decision::Queued { job, ahead }));
    }

    /// Why `job` can never run, if so.
    fn refuse(&self, job: &JobSpec) -> Option<RejectReason> {
        if self.jobs.contains_key(&job.id) {
            return Some(RejectReason::DuplicateId);
        }
        if job.ranks == 0 {
            return Some(RejectReason::NoRanks);
        }
        self.never_fits(job, self.queue_of(job.id))
    }

    /// Why a job of that queue could never be placed, also on an empty cluster.
    #[must_use]
    pub fn never_fits(&self, job: &JobSpec, queue: QueueId) -> Option<RejectReason> {
        let shape = self.matrix.empty_shape_of(job);
        if let Some(shape) = shape {
            let node = self.matrix.cluster().largest();
            let rule = self.matrix.limits().memory;
            let most = self.space.as_ref().and_then(|space| space.too_wide(job, shape, queue, node, rule));
            return most.map(|most| RejectReason::TooWide { nodes: shape.width, most });
        }
        let nodes = u32::try_from(self.matrix.cluster().len()).unwrap_or(u32::MAX);
        let ranks = job.ranks.div_ceil(nodes);
        Some(RejectReason::TooLarge {
            ranks,
            needs: job.memory_of(ranks),
            has: self.matrix.cluster().largest(),
        })
    }

    /// Moves jobs from the queue into rows: all at once where the number of rows is unlimited, else strictly
    /// in order.
    fn admit(&mut self, now: SimTime, decisions: &mut Vec<Decision>) {
        if self.space.is_some() {
            return self.admit_in_space(now, decisions);
        }
        let first = usize::from(self.front_is_late(now));
        if self.matrix.limits().max_rows.is_none() {
            return self.admit_all(first, decisions);
        }
        self.order_queue();
        // A job that waits for a node keeps no other from running.
        while let Some((at, job, shape)) = self.next_queued() {
            let entry = self.jobs.get_mut(&job).expect("a queued job is known");
            let Some(landing) = packing::pack(&mut self.matrix, &entry.spec, shape, first) else { return };
            let landing = Arc::new(landing);
            entry.landing = Some(Arc::clone(&landing));
            self.presence.on_assigned(job, landing.slot);
            self.queue.remove(at);
            decisions.push(Decision::Admitted { job, landing });
        }
    }

    fn admit_all(&mut self, first: usize, decisions: &mut Vec<Decision>) {
        let jobs = self.take_placeable();
        if jobs.is_empty() {
            return;
        }
        // First fit passes over the active row only; the other packings may pass over any row.
        let skips_rows = self.config.packing != Packing::FirstFit || self.config.policy == Policy::Paired;
        if first > 0 && !skips_rows {
            self.dirty.add(self.matrix.row(0).slot, FreedNodes::Any);
        }
        let fractions = (self.config.policy == Policy::Paired).then_some(&self.fractions);
        for (job, landing) in
            packing::pack_all(&mut self.matrix, &jobs, first, self.config.packing, fractions)
        {
            if skips_rows {
                self.dirty.add_back(landing.slot);
            }
            let landing = Arc::new(landing);
            self.jobs.get_mut(&job).expect("a queued job is known").landing = Some(Arc::clone(&landing));
            self.presence.on_assigned(job, landing.slot);
            decisions.push(Decision::Admitted { job, landing });
        }
    }

    /// Whether a job that joins the active row now has less than half a quantum left there.
    fn front_is_late(&self, now: SimTime) -> bool {
        let waited_for = self.matrix.rows().len() > 1;
        waited_for && self.running.as_ref().is_some_and(|turn| turn.is_late(now, self.slice))
    }

    /// The job is over: it leaves queue and matrix at once, even during a switch that moves it.
    fn end(&mut self, job: JobId, how: Residence) {
        let Some(entry) = self.jobs.get_mut(&job).filter(|entry| !entry.observed.is_ended()) else { return };
        entry.observed = how;
        entry.landing = None;
        entry.measured = None;
        if self.narrowed.is_some() {
            // Rows that were left out, perhaps because of this job, are tried again.
            self.costs.forget_moving();
        }
        self.presence.on_ended(job);
        self.checkpoints.on_ended(job);
        self.dying.remove(&job);
        self.disturbed.remove(&job);
        self.held.remove(&job);
        self.stuck.remove(&job);
        self.priorities.remove(&job);
        self.limits.remove(&job);
        self.homes.remove(&job);
        self.fractions.forget(job);
        self.mixing.on_set_changed();
        if let Some((slot, assignment)) = self.matrix.end(job) {
            self.dirty.add(slot, FreedNodes::at(&assignment.placement));
            self.capacity_freed = true;
        } else {
            self.queue.retain(|queued| *queued != job);
        }
    }

    fn on_measured(&mut self, job: JobId, communication: Communication) {
        let ended = self.jobs.get(&job).is_some_and(|entry| entry.observed.is_ended());
        if !ended && self.fractions.learn(job, communication) {
            self.mixing.on_news();
        }
    }

    fn on_timer(&mut self, timer: TimerId) {
        if let Some(running) = &mut self.running {
            running.on_timer(timer);
        }
        self.checkpoints.on_timer(timer);
    }
}

/// Read access for `explain`, reports and tests.
impl Scheduler {
    /// The matrix that the scheduler aims at.
    #[must_use]
    pub const fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    #[must_use]
    pub const fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// The switch under way.
    #[must_use]
    pub const fn under_way(&self) -> Option<&SwitchPlan> {
        self.under_way.as_ref()
    }

    /// The turn of the active row, as last decided.
    #[must_use]
    pub fn turn(&self) -> Option<Turn> {
        self.running.as_ref().and_then(Running::turn)
    }

    /// The jobs without a row, the next one first.
    pub fn queue(&self) -> impl Iterator<Item = JobId> + '_ {
        self.queue.iter().copied()
    }

    /// All jobs that were not rejected, ended ones included.
    pub fn jobs(&self) -> impl Iterator<Item = JobState> + '_ {
        self.jobs.values().map(|entry| self.state_of(entry))
    }

    /// Where the job has its row.
    #[must_use]
    pub fn placement_of(&self, job: JobId) -> Option<&Placement> {
        self.matrix.assignment_of(job).map(|assignment| &assignment.placement)
    }

    #[must_use]
    pub fn job(&self, job: JobId) -> Option<JobState> {
        self.jobs.get(&job).map(|entry| self.state_of(entry))
    }

    fn state_of(&self, entry: &Entry) -> JobState {
        let front = self.matrix.front().map(|row| row.slot);
        let wanted = match self.matrix.row_of(entry.spec.id).map(|row| row.slot) {
            _ if entry.abandoned || entry.observed.is_ended() => Wanted::Gone,
            _ if self.held.get(&entry.spec.id).is_some_and(Held::is_by_user) => Wanted::Held,
            None => Wanted::Queued,
            Some(slot) if Some(slot) == front => Wanted::In { slot },
            Some(slot) => Wanted::Out { slot },
        };
        JobState {
            spec: entry.spec.clone(),
            declared: entry
                .measured
                .as_ref()
                .map_or(entry.spec.memory_per_rank, |measured| measured.declared),
            resident: entry.measured.as_ref().map(|measured| measured.resident.clone()).unwrap_or_default(),
            wanted,
            observed: entry.observed,
            landing: entry.landing.as_deref().map(|landing| self.landing_by_now(entry.spec.id, landing)),
        }
    }

    /// How a job came to its present row, given how it came to its first.
    fn landing_by_now(&self, job: JobId, first: &Landing) -> Landing {
        let place = self.matrix.slot_of(job).zip(self.matrix.assignment_of(job));
        match place
            .filter(|(slot, assignment)| (*slot, &assignment.placement) != (first.slot, &first.placement))
        {
            Some((slot, Assignment { placement, .. })) => {
                let beside = packing::beside(&self.matrix, job);
                Landing { slot, placement: placement.clone(), beside, refused_by: Vec::new() }
            }
            None => first.clone(),
        }
    }
}
