//! Folds the events of a run into its report, in one pass.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use coswitch_policies::{
    Bytes, Capacity, JobId, NodeId, Policy, Purpose, SimTime, SwitchId, SwitchOrder,
    metrics::{self, Metrics, RunTimes, Span},
    spaceshare::sharing::SpaceSharing,
};
use serde::{Deserialize, Serialize};

use crate::{
    accounts::AccountsFold,
    coscheduling::CoschedulingFold,
    forecasts::ForecastFold,
    journal::{Event, JobOutcome, MachineUse, RunEvent, RunOutcome, SwitchStep},
    lives::{Life, LifeStage, Lives, within},
    memory::{outgrew_in_words, split_in_words},
    paging::PagingFold,
    pairs,
    pauses::{
        back_in_words, drained_in_words, lost_in_words, moved_in_words, not_checkpointed_in_words,
        repeats_in_words, replaced_in_words, silence_in_words, standstill_in_words, survived_in_words,
        undrained_in_words, upgraded_in_words,
    },
    report::{JobCommunication, JobReport, JobTimes, NodeMemory, Report, SetReport, StepTotal},
    slices::SlicesFold,
    snapshots::SnapshotsFold,
    summary::{Sentences, Unlisted},
};

/// Folds `events` into a report.
pub fn fold<'a>(events: impl IntoIterator<Item = &'a RunEvent>) -> Report {
    let mut folder = Folder::default();
    for RunEvent { at, kind } in events {
        folder.on_event(*at, kind);
    }
    folder.finish()
}

/// What the events so far come to: a report in the making, which a journal can hold in their place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Folder {
    pub(super) run: String,
    name: String,
    policy: Option<Policy>,
    space: Option<SpaceSharing>,
    nodes: u32,
    capacity: Capacity,
    pub(super) outcome: Option<RunOutcome>,
    #[serde(with = "pairs")]
    pub(super) jobs: BTreeMap<JobId, JobFold>,
    pub(super) unlisted: Unlisted,
    pub(super) lives: Lives,
    pub(super) accounts: AccountsFold,
    #[serde(with = "pairs")]
    switches_begun: BTreeMap<SwitchId, SwitchBegun>,
    /// Time in which a switch kept the nodes from running jobs; switches that overlap count once.
    pub(super) exposed: Duration,
    exposed_until: SimTime,
    switches: u32,
    /// The configured order of switches.
    order: SwitchOrder,
    fallbacks: u32,
    bytes_out: Bytes,
    bytes_in: Bytes,
    #[serde(with = "pairs")]
    memory: BTreeMap<NodeId, (Bytes, u32)>,
    pub(super) paging: PagingFold,
    pub(super) forecasts: ForecastFold,
    totals: BTreeMap<SwitchStep, StepFold>,
    stored: BTreeMap<PathBuf, Bytes>,
    /// Steps of which the hidden part is not in the totals yet.
    steps: Vec<(SwitchStep, Span)>,
    pub(super) outgrown: Sentences,
    pub(super) warnings: Sentences,
    machine: Option<MachineUse>,
    slices: SlicesFold,
    snapshots: SnapshotsFold,
    pub(super) coscheduling: CoschedulingFold,
    /// The time of the last event.
    pub(super) last: SimTime,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct JobFold {
    name: String,
    pub(super) ranks: u32,
    pub(super) memory: Bytes,
    pub(super) submitted: SimTime,
    alone: Option<Duration>,
    pub(super) finished: Option<(SimTime, JobOutcome)>,
    pub(super) restores: u32,
    /// The switch of the last restore.
    restored_by: Option<SwitchId>,
    last_output: String,
    waiting: Duration,
    sent: Bytes,
    communication: Option<JobCommunication>,
    resident: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SwitchBegun {
    at: SimTime,
    /// Whether the switch stops a running job to end a turn.
    stops_a_set: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct StepFold {
    count: u32,
    total: Duration,
    longest: Duration,
    hidden: Duration,
    bytes: Bytes,
}

impl From<StepFold> for StepTotal {
    fn from(StepFold { count, total, longest, hidden, bytes }: StepFold) -> Self {
        Self { count, total, longest, hidden, bytes }
    }
}

impl Folder {
    pub fn on_event(&mut self, at: SimTime, event: &Event) {
        self.last = self.last.max(at);
        match event {
            Event::Summed { report, .. } => self.clone_from(report),
            Event::RunStarted { run, name, policy, nodes, capacity, scheduler, .. } => {
                self.order = scheduler.as_ref().map(|config| config.switching).unwrap_or_default();
                self.space = scheduler.as_ref().and_then(|config| config.space.clone());
                (self.run, self.name) = (run.clone(), name.clone());
                (self.policy, self.nodes, self.capacity) = (Some(*policy), *nodes, capacity.clone());
            }
            Event::JobSubmitted { job, name, ranks, memory, alone } => {
                let job = self.jobs.entry(*job).or_default();
                // A new master submits some again.
                job.submitted = if job.name.is_empty() { at } else { job.submitted };
                (job.name, job.ranks, job.memory) = (name.clone(), *ranks, *memory);
                job.alone = *alone;
            }
            Event::SwitchStarted { switch, purpose, order, outgoing, parked, incoming } => {
                let stops_a_set =
                    *purpose == Purpose::Turn && outgoing.iter().any(|job| self.lives.runs(*job));
                let moves = parked.as_ref().is_some_and(|parked| !parked.is_empty()) && !incoming.is_empty();
                self.fallbacks += u32::from(stops_a_set && moves && *order != self.order);
                self.switches_begun.insert(*switch, SwitchBegun { at, stops_a_set });
            }
            Event::StepDone { switch, job, step, began, ended, bytes, .. } => {
                let total = self.totals.entry(*step).or_default();
                let span = ended.since(*began);
                total.count += 1;
                total.total += span;
                total.longest = total.longest.max(span);
                total.bytes = total.bytes.saturating_add(*bytes);
                self.steps.push((*step, Span { from: *began, to: *ended }));
                let job = self.jobs.entry(*job).or_default();
                if *step == SwitchStep::Restore && job.restored_by < Some(*switch) {
                    job.restored_by = Some(*switch);
                    job.restores += 1;
                }
            }
            Event::SwitchEnded { switch, exposed, bytes_out, bytes_in, .. } => {
                self.bytes_out = self.bytes_out.saturating_add(*bytes_out);
                self.bytes_in = self.bytes_in.saturating_add(*bytes_in);
                if let Some(SwitchBegun { at: from, stops_a_set }) = self.switches_begun.remove(switch) {
                    self.switches += u32::from(stops_a_set);
                    // A switch that only launches jobs follows idle nodes: its time is not a cost of
                    // switching.
                    if stops_a_set || bytes_in.0 > 0 {
                        let to = from.after(*exposed);
                        self.exposed += to.since(from.max(self.exposed_until));
                        self.exposed_until = to.max(self.exposed_until);
                    }
                }
            }
            Event::JobCommunicated { job, bytes, waiting, .. } => {
                let job = self.jobs.entry(*job).or_default();
                (job.waiting, job.sent) = (*waiting, *bytes);
            }
            Event::JobMeasured { job, communication, bytes_per_second, ranks } => {
                let known = &mut self.jobs.entry(*job).or_default().communication;
                known.get_or_insert_default().update(*communication, *bytes_per_second, ranks);
            }
            Event::JobFinished { job, outcome, last_output } => {
                let job = self.jobs.entry(*job).or_default();
                job.finished = Some((at, outcome.clone()));
                job.last_output.clone_from(last_output);
            }
            Event::MemorySample { node, used, by_job, looks, peak: most } => {
                by_job.iter().for_each(|sample| self.paging.on_sample(at, *node, sample));
                let (peak, samples) = self.memory.entry(*node).or_default();
                (*peak, *samples) = ((*peak).max(*used).max(*most), samples.saturating_add(*looks));
            }
            Event::SnapshotStored { root, bytes, .. } => {
                let stored = self.stored.entry(root.clone()).or_default();
                *stored = stored.saturating_add(*bytes);
            }
            Event::JobResident { job, resident, .. } => {
                let job = self.jobs.entry(*job).or_default();
                job.resident = job.resident.max(Some(*resident));
            }
            Event::SetSplit(split) => self.outgrown.push(split_in_words(split, |job| self.name(job))),
            Event::JobOutgrew { job, node, resident, capacity } => {
                self.outgrown.push(outgrew_in_words(&self.name(*job), *node, *resident, *capacity));
            }
            Event::Warning { text } => self.warnings.push(text.clone()),
            Event::NodeLost { node, reason } => self.warnings.push(lost_in_words(*node, reason)),
            Event::DaemonReplaced { node, version, pause, jobs } => {
                self.warnings.push(upgraded_in_words(*node, version, *pause, jobs.len()));
            }
            Event::NodeBack { node } => self.warnings.push(back_in_words(*node)),
            Event::NodeDrained { node } => self.warnings.push(drained_in_words(*node)),
            Event::NodeUndrained { node } => self.warnings.push(undrained_in_words(*node)),
            Event::JobMoved { job, from, to, .. } => {
                let text = moved_in_words(&self.name(*job), *from, *to);
                self.warnings.push(text);
            }
            Event::JobSurvived { job, node } => {
                let text = survived_in_words(&self.name(*job), *node);
                self.warnings.push(text);
            }
            Event::JobRepeats { job, work } => {
                let text = repeats_in_words(&self.name(*job), *work);
                self.warnings.push(text);
            }
            Event::JobNotCheckpointed { job, reason } => {
                self.warnings.push(not_checkpointed_in_words(&self.name(*job), reason));
            }
            Event::NodeWasSilent { node, silence } => self.warnings.push(silence_in_words(*node, *silence)),
            Event::JobsStoodStill { node, silence, frozen } => {
                self.warnings.push(standstill_in_words(*node, *silence, *frozen));
            }
            Event::SlicesBegun { slice, rows } => {
                self.slices.on_begun(*slice, rows.len());
            }
            Event::SlicesUsed { switches, took, overlap, .. } => {
                self.slices.on_used(*switches, *took, *overlap);
            }
            Event::JobScheduled { job, node, counted } => {
                self.coscheduling.on_counted(*job, *node, *counted);
            }
            Event::MachineUsed(used) => self.machine = Some(*used),
            Event::RunEnded { outcome } => self.outcome = Some(*outcome),
            Event::MasterReplaced { generation, jobs, .. } => {
                self.outcome = None;
                // The switch of the master before has no end.
                self.switches_begun.clear();
                self.warnings.push(replaced_in_words(*generation, jobs.len()));
            }
            Event::DateKnown { .. }
            | Event::JobProcessed { .. }
            | Event::JobAccepted { .. }
            | Event::JobLaunched { .. }
            | Event::ProgramSent { .. }
            | Event::JobCheckpointed { .. }
            | Event::JobDisplaced { .. }
            | Event::JobCopied { .. }
            | Event::JobRunning { .. }
            | Event::SlotStarted { .. }
            | Event::TurnsForeseen { .. }
            | Event::JobHeld { .. }
            | Event::JobsPrioritized { .. }
            | Event::JobsLimited { .. }
            | Event::JobsGrouped { .. }
            | Event::JobReleased { .. }
            | Event::TimerFired { .. }
            | Event::NodeUnderPressure { .. }
            | Event::JobFootprint { .. }
            | Event::RunningStopped { .. }
            | Event::SlicesBalanced { .. }
            | Event::Progress { .. }
            | Event::Output { .. } => {}
        }
        self.accounts.on_event(at, event, &self.lives);
        self.lives.on_event(at, event);
        self.forecasts.on_event(at, event);
        self.snapshots.on_event(event);
    }

    fn name(&self, job: JobId) -> String {
        self.jobs.get(&job).map_or_else(|| job.to_string(), |job| job.name.clone())
    }

    /// Adds up the parts in which some job computed of the steps that were over by `until`.
    pub(super) fn add_hidden(&mut self, until: SimTime) {
        let computing = self.lives.computing();
        for (step, span) in self.steps.extract_if(.., |(_, span)| span.to <= until) {
            let hidden: Duration = within(span, &computing).map(|part| part.length()).sum();
            self.totals.entry(step).or_default().hidden += hidden;
        }
    }

    /// The report.
    #[must_use]
    pub fn finish(mut self) -> Report {
        self.add_hidden(SimTime(u64::MAX));
        let times = self.times();
        let measured = metrics::measure(&times, metrics::SLOWDOWN_FLOOR);
        let metrics = self.unlisted.reckoned_in(&times, measured);
        Report {
            set: self.set(&metrics),
            jobs: self.jobs.iter().map(|(id, job)| self.job_report(*id, job, &metrics)).collect(),
            unlisted: self.unlisted.jobs,
            memory: self.node_memory(),
            nodes_scheduled: self.coscheduling.nodes(self.last),
            run: self.run,
            name: self.name,
            policy: self.policy,
            space: self.space.clone(),
            nodes: self.nodes,
            capacity: self.capacity.clone(),
            outcome: self.outcome,
            steps: self.totals.into_iter().map(|(step, total)| (step, total.into())).collect(),
            stored: self.stored,
            forecasts: self.forecasts.finish(),
            outgrown: self.outgrown.finish(),
            warnings: self.warnings.finish(),
            machine: self.machine,
            slices: self.slices.finish(),
            checkpoints: self.snapshots.checkpoints(),
            copies: self.snapshots.copies(),
        }
    }

    fn times(&self) -> RunTimes {
        let jobs = self.jobs.iter().filter_map(|(id, job)| {
            let (finished, _) = job.finished.as_ref()?;
            Some(metrics::JobTimes {
                job: *id,
                submitted: job.submitted,
                finished: *finished,
                active: self.lives.jobs[id].spans(LifeStage::Running).collect(),
                nodes: self.lives.jobs[id].placement.nodes().collect(),
                alone: job.alone,
            })
        });
        // Only the length counts.
        let exposed = Span { from: SimTime(0), to: SimTime(0).after(self.exposed) };
        RunTimes { nodes: self.nodes, jobs: jobs.collect(), switches: vec![exposed] }
    }

    fn set(&self, metrics: &Metrics) -> SetReport {
        SetReport {
            makespan: metrics.makespan,
            utilisation: metrics.utilisation,
            switches: self.switches,
            fallbacks: self.fallbacks,
            exposed: metrics.exposed,
            overhead: metrics.overhead,
            bytes_out: self.bytes_out,
            bytes_in: self.bytes_in,
            memory_total: self
                .jobs
                .values()
                .map(JobFold::working_set)
                .sum::<Bytes>()
                .saturating_add(self.unlisted.memory),
            relative_makespan: metrics.tradeoff.relative_makespan,
            spread: metrics.tradeoff.spread,
            tradeoff: metrics.tradeoff.sum(),
        }
    }

    fn node_memory(&self) -> Vec<NodeMemory> {
        let of = |(node, (peak, samples)): (&NodeId, &(Bytes, u32))| NodeMemory {
            node: *node,
            peak: *peak,
            capacity: self.capacity.on(*node),
            samples: *samples,
        };
        self.memory.iter().map(of).collect()
    }

    fn job_report(&self, id: JobId, job: &JobFold, metrics: &Metrics) -> JobReport {
        let times = metrics.jobs.iter().find(|times| times.job == id);
        let parked = self.lives.jobs.get(&id).map(out_of_memory).unwrap_or_default();
        JobReport {
            job: id,
            name: job.name.clone(),
            ranks: job.ranks,
            outcome: job.finished.as_ref().map(|(_, outcome)| outcome.clone()),
            times: times.map(|times| JobTimes {
                wait: times.wait,
                run: times.run,
                suspended: times.parked.saturating_sub(parked),
                parked: times.parked.min(parked),
                turnaround: times.turnaround,
                alone: times.alone,
                slowdown: times.slowdown,
            }),
            restores: job.restores,
            waiting: job.waiting,
            declared: job.memory,
            resident: job.resident,
            paging: self.paging.of(id),
            tasks: self.coscheduling.of(id),
            communication: job.communication.clone(),
            sent: job.sent,
            last_output: job.last_output.clone(),
        }
    }
}

impl JobFold {
    /// The declared one of all of its ranks.
    pub(super) fn working_set(&self) -> Bytes {
        Bytes(self.memory.0.saturating_mul(self.ranks.into()))
    }
}

fn out_of_memory(life: &Life) -> Duration {
    life.spans(LifeStage::Parked).map(|span| span.length()).sum()
}

#[cfg(test)]
pub(super) mod tests {
    use coswitch_policies::{Class, Communication, Placement};

    use super::*;
    use crate::journal::{RankMeasured, VERSION};

    const A: JobId = JobId(0);
    const B: JobId = JobId(1);

    fn at(seconds: u64, kind: Event) -> RunEvent {
        RunEvent { at: Duration::from_secs(seconds).into(), kind }
    }

    fn submitted(job: JobId, alone: u64) -> Event {
        let (name, alone) = (job.to_string(), Some(Duration::from_secs(alone)));
        Event::JobSubmitted { job, name, ranks: 2, memory: Bytes::mib(300), alone }
    }

    fn launched(job: JobId) -> Event {
        Event::JobLaunched { job, placement: Placement::from_shares(&[1, 1]) }
    }

    fn switch(number: u32, outgoing: &[JobId], incoming: &[JobId]) -> Event {
        Event::SwitchStarted {
            switch: SwitchId(number),
            purpose: Purpose::Turn,
            order: SwitchOrder::Sequential,
            outgoing: outgoing.into(),
            parked: None,
            incoming: incoming.into(),
        }
    }

    fn switched(number: u32, exposed: u64, mib: u64) -> Event {
        let (switch, exposed) = (SwitchId(number), Duration::from_secs(exposed));
        let bytes = Bytes::mib(mib);
        let (restore, misplaced) = (None, Vec::new());
        Event::SwitchEnded { switch, restore, exposed, bytes_out: bytes, bytes_in: bytes, misplaced }
    }

    fn finished(job: JobId) -> Event {
        Event::JobFinished { job, outcome: JobOutcome::Exit(0), last_output: String::new() }
    }

    fn sample(used: u64) -> Event {
        Event::MemorySample {
            node: NodeId(0),
            used: Bytes::mib(used),
            by_job: vec![],
            looks: 10,
            peak: Bytes::mib(used + 5),
        }
    }

    /// A runs from 0 to 10 s and from 25 to 30 s, B from 12 to 23 s; each switch exposes 2 s.
    pub(crate) fn two_jobs_in_turn() -> Vec<RunEvent> {
        let started = Event::RunStarted {
            version: VERSION,
            run: "r".into(),
            name: "two".into(),
            policy: Policy::Gang,
            nodes: 2,
            capacity: Capacity::OfAll(Bytes::mib(400)),
            quantum: Duration::from_secs(10),
            scheduler: None,
            local: None,
        };
        vec![
            at(0, started),
            at(0, submitted(A, 15)),
            at(0, submitted(B, 10)),
            at(0, switch(0, &[], &[A])),
            at(0, launched(A)),
            at(0, Event::JobRunning { job: A }),
            at(0, switched(0, 1, 0)),
            at(5, sample(310)),
            at(10, switch(1, &[A], &[B])),
            at(12, launched(B)),
            at(12, Event::JobRunning { job: B }),
            at(12, switched(1, 2, 600)),
            at(15, sample(390)),
            at(23, switch(2, &[B], &[A])),
            at(25, Event::JobRunning { job: A }),
            at(25, switched(2, 2, 600)),
            at(30, finished(A)),
            at(30, finished(B)),
            at(30, Event::RunEnded { outcome: RunOutcome::Done }),
        ]
    }

    #[test]
    fn the_times_of_a_switched_job_follow_its_turns() {
        let report = fold(&two_jobs_in_turn());
        let a = report.jobs[0].times.as_ref().unwrap();
        let seconds = [a.wait, a.run, a.suspended, a.parked, a.turnaround].map(|span| span.as_secs());
        assert_eq!(seconds, [0, 15, 2, 13, 30]);
        assert_eq!(a.slowdown, Some(2.0));
        let b = report.jobs[1].times.as_ref().unwrap();
        assert_eq!([b.wait, b.run].map(|span| span.as_secs()), [12, 11]);
    }

    #[test]
    fn a_launch_on_idle_nodes_is_not_a_switch_and_exposes_nothing() {
        let set = fold(&two_jobs_in_turn()).set;
        assert_eq!((set.switches, set.exposed.as_secs(), set.makespan.as_secs()), (2, 4, 30));
        assert!((set.relative_makespan.unwrap() - 30.0 / 25.0).abs() < 1e-12);
        assert_eq!(set.memory_total, Bytes::mib(1200));
    }

    #[test]
    fn a_step_is_hidden_while_a_job_computes() {
        let (switch, job, node, bytes) = (SwitchId(0), A, NodeId(0), Bytes(0));
        let seconds = |n| SimTime::from(Duration::from_secs(n));
        let (began, ended, step) = (seconds(8), seconds(24), SwitchStep::Seal);
        let mut events = two_jobs_in_turn();
        events.insert(15, at(24, Event::StepDone { switch, job, node, step, began, ended, bytes }));
        let seal = fold(&events).steps[&SwitchStep::Seal].clone();
        assert_eq!((seal.total.as_secs(), seal.hidden.as_secs()), (16, 2 + 11));
    }

    #[test]
    fn the_snapshots_in_each_directory_of_the_store_are_summed() {
        let stored = |root: &str, mib| {
            let (job, node) = (A, NodeId(0));
            at(26, Event::SnapshotStored { job, node, root: root.into(), bytes: Bytes::mib(mib) })
        };
        let events = [stored("/dev/shm", 10), stored("/var/tmp", 30), stored("/dev/shm", 5)];
        let stored: Vec<_> = fold(&events).stored.into_values().collect();
        assert_eq!(stored, [Bytes::mib(15), Bytes::mib(30)]);
    }

    #[test]
    fn the_class_of_a_job_comes_with_the_last_measurement_of_each_rank() {
        let measured = |seconds, rank, thousandths| {
            let (communication, bytes_per_second) = (Communication::per_mille(thousandths), Bytes(7));
            let ranks = vec![RankMeasured { rank, communication, bytes_per_second }];
            at(seconds, Event::JobMeasured { job: A, communication, bytes_per_second, ranks })
        };
        let mut events = two_jobs_in_turn();
        events.splice(9..9, [measured(6, 1, 900), measured(7, 0, 520), measured(8, 1, 100)]);
        let report = fold(&events);
        let known = report.jobs[0].communication.as_ref().unwrap();
        assert_eq!((known.class, known.changes, known.share), (Class::Compute, 2, 100));
        let ranks: Vec<_> = known.ranks.iter().map(|rank| (rank.rank, rank.communication.get())).collect();
        assert_eq!(ranks, [(0, 520), (1, 100)]);
        assert_eq!(report.jobs[1].communication, None);
    }

    #[test]
    fn the_peak_of_a_node_is_its_largest_sample() {
        let memory = &fold(&two_jobs_in_turn()).memory[0];
        assert_eq!((memory.peak, memory.samples), (Bytes::mib(395), 20));
        assert!(memory.is_within());
    }

    #[test]
    fn a_journal_cut_off_gives_a_report_of_its_events() {
        let events = two_jobs_in_turn();
        let report = fold(&events[..9]);
        assert_eq!(report.outcome, None);
        assert!(report.jobs.iter().all(|job| job.times.is_none()));
    }
}
