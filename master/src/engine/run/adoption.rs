//! A new master takes over: the jobs of the journal meet what the nodes hold.
//!
//! ```text
//!   journal ─▶ jobs that have not ended ┬ on some node ─▶ dispatchers ask where ─▶ scheduler adopts them
//!                                       └ on none ─────▶ submitted again, after that
//! ```
//! Meanwhile new jobs are taken, and wait.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use coswitch_dispatcher::protocol::{AppOutcome, Held, Inventory, Order, Report};
use coswitch_policies::{Adopted, JobId, NodeId, Placement, Residence, SchedulerEvent, SimTime};
use coswitch_report::journal::Event;

use super::{
    Output, Run, RunSettings,
    records::{Ending, Record},
};
use crate::{config::JobSet, past::Past};

/// What a new master knows before it asks about each job.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Takeover {
    /// Of the new master.
    pub(in crate::engine) generation: u64,
    pub(in crate::engine) past: Past,
    /// By node.
    pub(in crate::engine) held: BTreeMap<NodeId, Vec<Held>>,
    /// Jobs of which a node has copies of other nodes' snapshots.
    pub(in crate::engine) copies: BTreeMap<NodeId, BTreeSet<JobId>>,
    /// Jobs that some node has released, with how they ended.
    pub(in crate::engine) released: BTreeMap<JobId, AppOutcome>,
}

impl Takeover {
    /// # Errors
    /// Where a node's last word on a job cannot be read.
    pub(in crate::engine) fn new(
        generation: u64,
        past: Past,
        inventories: BTreeMap<NodeId, Inventory>,
    ) -> anyhow::Result<Self> {
        let (held, copies, released) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut takeover = Self { generation, past, held, copies, released };
        for (node, Inventory { held, released, copies }) in inventories {
            takeover.held.insert(node, held);
            takeover.copies.insert(node, copies.into_iter().map(|(job, _)| job).collect());
            for (job, word) in released {
                let understood = || format!("failed to understand what {node} says of {job}");
                let outcome: AppOutcome = serde_json::from_str(&word).with_context(understood)?;
                takeover.released.insert(job, outcome);
            }
        }
        Ok(takeover)
    }

    /// The last launch of each job of which some node has a part.
    fn last_launches(&self) -> BTreeMap<JobId, Held> {
        let mut last: BTreeMap<JobId, Held> = BTreeMap::new();
        for held in self.held.values().flatten() {
            let known = last.entry(held.job).or_insert_with(|| held.clone());
            if held.launched > known.launched {
                *known = held.clone();
            }
        }
        // What the journal tells of parts that have moved since the launch is later than what any part says.
        for (job, placement) in &self.past.known.moved {
            if let Some(held) = last.get_mut(job) {
                held.placement.clone_from(placement);
            }
        }
        last
    }

    /// Whether a part belongs to another launch than the last one. A part that has come from a copy does not
    /// say of which launch it is: dispatchers have such parts of the last one alone.
    fn is_stale(node: NodeId, held: &Held, launches: &BTreeMap<JobId, Held>) -> bool {
        let is_other = |last: &Held| held.launched.is_some() && held.launched < last.launched;
        launches.get(&held.job).is_none_or(|last| is_other(last) || !last.placement.contains(&node))
    }
}

/// Until the scheduler has the jobs that the nodes hold.
#[derive(Clone, Debug)]
pub(super) struct Adoption {
    generation: u64,
    switches: u32,
    /// When each job ran last.
    ran_last: BTreeMap<JobId, SimTime>,
    residents: BTreeMap<(JobId, NodeId), coswitch_policies::Bytes>,
    placements: BTreeMap<JobId, Placement>,
    waiting: BTreeSet<JobId>,
    found: BTreeMap<JobId, Residence>,
    /// Jobs to be submitted afterwards.
    later: Vec<JobId>,
}

impl Adoption {
    pub(super) fn submit_later(&mut self, mut jobs: Vec<JobId>) {
        self.later.append(&mut jobs);
    }
}

impl Run {
    /// Goes on with a run whose master has gone. `set` has no jobs: those of the past count.
    ///
    /// # Errors
    /// Where the scheduler refuses its settings, or a job that is on the nodes.
    pub(in crate::engine) fn resume_run(
        set: JobSet,
        settings: RunSettings,
        takeover: Takeover,
    ) -> anyhow::Result<Self> {
        let mut launches = takeover.last_launches();
        let Takeover { generation, past, held, copies, released } = takeover;
        let name = set.name.clone();
        let mut run = Self::before_first_event(JobSet { jobs: Vec::new(), ..set }, settings)?;
        let known = &past.known;
        run.now = known.last;
        (run.forgotten, run.numbered) = (known.last_forgotten(), known.last_job());
        if !known.began {
            run.tell_start(name);
        }
        run.tell_date();
        run.last_switch = coswitch_policies::SwitchId(known.switches);
        run.drained = known.drained.iter().map(|node| (*node, Vec::new())).collect();
        let mut adoption = Adoption {
            generation,
            switches: known.switches,
            ran_last: known.ran_last.clone(),
            residents: known.residents.clone(),
            placements: BTreeMap::new(),
            waiting: BTreeSet::new(),
            found: BTreeMap::new(),
            later: Vec::new(),
        };
        for (id, (job, record)) in past.records() {
            let has_ended = record.ended.is_some();
            run.jobs.insert(id, job);
            run.records.insert(id, record);
            if has_ended {
                continue;
            }
            run.all_done = false;
            // The master before may have died between its answer and the journal.
            run.tell_accepted(id);
            let placement = launches.get(&id).map(|launch| by_node(&launch.placement));
            match (placement, released.get(&id)) {
                (None, None) => adoption.later.push(id),
                // No node holds it any more: its ranks were where they were.
                (placement, ended) => {
                    let placement = placement.unwrap_or_else(|| run.everywhere());
                    if ended == Some(&AppOutcome::Stopped) {
                        run.records.entry(id).or_default().ending.get_or_insert(Ending::Cancelled);
                    }
                    run.check_stays(id)?;
                    adoption.waiting.insert(id);
                    run.launched.insert(id);
                    let mut spec = run.launch_spec(id, &placement);
                    if let Some(launch) = launches.get(&id) {
                        // A part that has moved has not left its ranks.
                        spec.placement.clone_from(&launch.placement);
                    }
                    adoption.placements.insert(id, placement);
                    run.outputs.push(Output::Adopt(id, Box::new(spec), ended.cloned()));
                }
            }
        }
        // First, so that no node describes a part of an earlier launch.
        launches.retain(|job, _| run.records.get(job).is_some_and(|record| record.ended.is_none()));
        let stale = held.into_iter().flat_map(|(node, held)| held.into_iter().map(move |held| (node, held)));
        let stale = stale.filter(|(node, held)| Takeover::is_stale(*node, held, &launches));
        let release = stale.map(|(node, held)| Output::Release(node, held.job));
        let copies = copies.into_iter().flat_map(|(node, jobs)| jobs.into_iter().map(move |job| (node, job)));
        let is_over = |job: &JobId| !run.launched.contains(job);
        let void: Vec<_> = copies.filter(|(_, job)| is_over(job)).collect();
        let drop_copies = void.into_iter().map(|(node, job)| Output::DropCopies(node, job));
        let first: Vec<Output> = release.chain(drop_copies).collect();
        run.outputs.splice(0..0, first);
        // The allowances of the master before do not bind.
        (0..run.cluster.nodes).for_each(|node| run.tell_allowance(NodeId(node)));
        run.adoption = Some(adoption);
        Ok(run)
    }

    /// A job that nodes hold must not be lost because its master has other settings now.
    fn check_stays(&self, id: JobId) -> anyhow::Result<()> {
        let job = &self.jobs[&id];
        let space = self.scheduler.config().space.as_ref();
        let queue = space.and_then(|space| job.home(space).ok()).unwrap_or_default();
        if let Some(reason) = self.scheduler.never_fits(&job.spec(), queue) {
            bail!(
                "`{}` ({id}) is on the nodes, and the settings of the scheduler refuse it now: {reason}. \
                 Take over with the settings that the cluster had, and change them when it has ended",
                job.name
            );
        }
        Ok(())
    }

    fn everywhere(&self) -> Placement {
        Placement::from_shares(&vec![1; self.cluster.nodes as usize])
    }

    /// Takes a report about a job that is being adopted; gives others back.
    pub(super) fn on_adoption_report(&mut self, job: JobId, report: Report) -> Option<Report> {
        let Some(adoption) = self.adoption.as_mut().filter(|adoption| adoption.waiting.contains(&job)) else {
            return Some(report);
        };
        match report {
            Report::Running | Report::StillRunning { .. } => adoption.found.insert(job, Residence::Running),
            Report::Suspended | Report::StillSuspended { .. } => {
                adoption.found.insert(job, Residence::Suspended)
            }
            Report::Parked | Report::Displaced { .. } => adoption.found.insert(job, Residence::Parked),
            Report::Unlaunched => {
                self.launched.remove(&job);
                adoption.later.push(job);
                None
            }
            Report::Ended(_) => {
                adoption.waiting.remove(&job);
                return Some(report);
            }
            _ => return Some(report),
        };
        adoption.waiting.remove(&job);
        None
    }

    /// Hands the jobs to the scheduler when it is known where all of them are.
    pub(super) fn finish_adoption(&mut self) {
        let Some(adoption) = self.adoption.take_if(|adoption| adoption.waiting.is_empty()) else { return };
        let Adoption { generation, switches, ran_last, residents, placements, mut found, mut later, .. } =
            adoption;
        // One may have lost a node since it was found, and is to be launched again; and any may have ended.
        later.extend(found.keys().filter(|job| !self.launched.contains(job)));
        found.retain(|job, _| self.launched.contains(job));
        let is_living = |job: &JobId| self.records.get(job).is_some_and(|record| record.ended.is_none());
        found.retain(|job, _| is_living(job));
        later.retain(is_living);
        // The job that has waited longest is next.
        let mut order: Vec<JobId> = found.keys().copied().collect();
        order.sort_by_key(|job| (ran_last.get(job).copied().unwrap_or_default(), *job));
        let adopted = |job: &JobId| {
            let (placement, at, held) = (placements[job].clone(), found[job], self.records[job].held);
            let priority = self.jobs[job].priority;
            Adopted { job: self.jobs[job].spec(), placement, at, held, priority }
        };
        let jobs: Vec<Adopted> = order.iter().map(adopted).collect();
        for job in &later {
            let last = ran_last.get(job).copied().unwrap_or_default();
            self.records.entry(*job).or_default().ended_running(last);
        }
        self.tell_queues(&order);
        self.tell_limits(order);
        let drained = self.drained_nodes();
        self.tell(Event::MasterReplaced {
            generation,
            switches,
            jobs: jobs.clone(),
            drained: drained.clone(),
        });
        for Adopted { job, placement, at, .. } in &jobs {
            let (job, memory) = (job.id, self.jobs[&job.id].memory);
            self.memory.on_launched(job, placement, memory);
            match at {
                Residence::Running => {
                    self.running.insert(job);
                    self.on_began_running(job);
                }
                Residence::Suspended => drop(self.resting.insert(job)),
                _ => {}
            }
            if *at != Residence::Running {
                let last = ran_last.get(&job).copied().unwrap_or_default();
                self.records.entry(job).or_default().ended_running(last);
            }
        }
        drained.into_iter().for_each(|node| self.schedule(SchedulerEvent::Drained { node }));
        self.schedule(SchedulerEvent::Adopted { switches, jobs });
        for ((job, node), resident) in residents {
            if found.contains_key(&job) {
                self.tell(Event::JobResident { job, node, resident });
                self.schedule(SchedulerEvent::Resident { job, node, resident });
            }
        }
        for job in self.records.keys().copied().filter(|job| self.is_cancelled(*job)).collect::<Vec<_>>() {
            self.order(job, Order::End);
        }
        later.sort();
        let now = self.now;
        let (future, due): (Vec<JobId>, Vec<JobId>) =
            later.into_iter().partition(|job| self.jobs[job].arrival > now);
        for job in future {
            self.arrivals.entry(self.jobs[&job].arrival).or_default().push(job);
        }
        self.release(&due);
        let is_asked = |(job, record): (&JobId, &Record)| (!record.parking.is_empty()).then_some(*job);
        let asked: Vec<JobId> = self.records.iter().filter_map(is_asked).collect();
        asked.into_iter().for_each(|job| self.answer_parked(job));
    }

    fn is_cancelled(&self, job: JobId) -> bool {
        let record = &self.records[&job];
        record.ended.is_none() && record.ending.is_some()
    }
}

/// The placement of ranks, given the node of each.
pub(super) fn by_node(by_rank: &[NodeId]) -> Placement {
    let nodes = by_rank.iter().map(|node| node.0 as usize + 1).max().unwrap_or_default();
    let mut shares = vec![0; nodes];
    by_rank.iter().for_each(|node| shares[node.0 as usize] += 1);
    Placement::from_shares(&shares)
}
