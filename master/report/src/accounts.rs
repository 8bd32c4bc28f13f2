//! Accounts of jobs: what each has used, for the database of a cluster. A fold over the journal, of which the
//! sum of a compacted journal is a part.
//!
//! A job has its account when it has ended: by itself, or with its cluster.

use std::{collections::BTreeMap, fmt, time::Duration};

use coswitch_policies::{Bytes, JobId, NodeId, Placement, SimTime};
use serde::{Deserialize, Serialize};

use crate::{
    fold::{Folder, JobFold},
    journal::{Event, JobMemory, JobOutcome, RunOutcome, SwitchStep},
    lives::{LifeStage, Lives},
    pairs,
};

/// How a job has ended, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountState {
    /// Every rank exited with code 0.
    Done,
    /// A rank failed, or coswitch could not run the job.
    Failed,
    /// Its user ended it.
    Cancelled,
    /// It was ended at its time limit.
    TimedOut,
    /// Its cluster ended before it.
    Interrupted,
}

impl AccountState {
    pub const ALL: [Self; 5] = [Self::Done, Self::Failed, Self::Cancelled, Self::TimedOut, Self::Interrupted];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed-out",
            Self::Interrupted => "interrupted",
        }
    }

    fn of(outcome: Option<&JobOutcome>) -> Self {
        match outcome {
            None => Self::Interrupted,
            Some(outcome) if outcome.is_success() => Self::Done,
            Some(outcome) if outcome.is_cancelled() => Self::Cancelled,
            Some(outcome) if outcome.is_at_time_limit() => Self::TimedOut,
            Some(_) => Self::Failed,
        }
    }
}

impl fmt::Display for AccountState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// What a job that has ended has used. Dates are since 1970, and `None` where the journal does not tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAccount {
    /// The name of the cluster's directories, which no other cluster of the machine has.
    pub cluster: String,
    pub job: JobId,
    pub name: String,
    /// By number; `None` in journals before version 22.
    pub user: Option<u32>,
    /// The node group and the queue, where the cluster is divided.
    pub group: Option<String>,
    pub queue: Option<String>,
    pub ranks: u32,
    pub submitted: Option<Duration>,
    /// When it ran first; `None` as well where it never did.
    pub began: Option<Duration>,
    pub ended: Option<Duration>,
    /// `None` where its cluster ended before it.
    pub outcome: Option<JobOutcome>,
    /// With processes in the memory of its nodes.
    pub in_memory: Duration,
    /// With ranks that compute.
    pub running: Duration,
    /// How often a switch has stopped it.
    pub switches: u32,
    /// How often it came back from a snapshot.
    pub restores: u32,
    /// What it has computed again.
    pub repeated: Duration,
    /// The nodes that it has used, in their order.
    pub uses: Vec<NodeUse>,
}

/// What a job has used on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUse {
    pub node: NodeId,
    /// The most ranks that it had there at once.
    pub ranks: u32,
    /// The most memory that it held there at once, as sampled.
    pub memory_peak: Bytes,
    /// Written by dumps, and read by restores.
    pub bytes_out: Bytes,
    pub bytes_in: Bytes,
    /// As its control group has counted; `None` in journals that lack it.
    pub processor: Option<Duration>,
}

impl JobAccount {
    #[must_use]
    pub fn state(&self) -> AccountState {
        AccountState::of(self.outcome.as_ref())
    }

    /// Over all nodes: the sum of the most on each.
    #[must_use]
    pub fn memory_peak(&self) -> Bytes {
        self.sum(|used| used.memory_peak)
    }

    #[must_use]
    pub fn bytes_out(&self) -> Bytes {
        self.sum(|used| used.bytes_out)
    }

    #[must_use]
    pub fn bytes_in(&self) -> Bytes {
        self.sum(|used| used.bytes_in)
    }

    /// Over all nodes; `None` where that of one is not known.
    #[must_use]
    pub fn processor(&self) -> Option<Duration> {
        (!self.uses.is_empty()).then(|| self.uses.iter().map(|used| used.processor).sum())?
    }

    fn sum(&self, of: impl Fn(&NodeUse) -> Bytes) -> Bytes {
        self.uses.iter().fold(Bytes(0), |sum, used| sum.saturating_add(of(used)))
    }
}

/// The accounts in the making.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AccountsFold {
    /// The date of time 0.
    time_0: Option<Duration>,
    #[serde(with = "pairs")]
    jobs: BTreeMap<JobId, Making>,
    /// Of jobs that are not listed any more, and are not in the database yet.
    unlisted: Vec<JobAccount>,
}

/// The account of one job in the making.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Making {
    name: String,
    user: Option<u32>,
    group: Option<String>,
    queue: Option<String>,
    ranks: u32,
    submitted: Option<Duration>,
    began: Option<Duration>,
    ended: Option<Duration>,
    switches: u32,
    repeated: Duration,
    #[serde(with = "pairs")]
    nodes: BTreeMap<NodeId, Part>,
}

/// A job on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    used: NodeUse,
    /// The present control group, and its last counter.
    group: u64,
    counted: Duration,
}

impl Part {
    const fn on(node: NodeId) -> Self {
        let (bytes, processor) = (Bytes(0), None);
        let used =
            NodeUse { node, ranks: 0, memory_peak: bytes, bytes_out: bytes, bytes_in: bytes, processor };
        Self { used, group: 0, counted: Duration::ZERO }
    }

    fn on_memory(&mut self, used: Bytes) {
        self.used.memory_peak = self.used.memory_peak.max(used);
    }

    fn on_processor(&mut self, group: u64, counted: Duration) {
        let before = if group == self.group { self.counted } else { Duration::ZERO };
        *self.used.processor.get_or_insert_default() += counted.saturating_sub(before);
        (self.group, self.counted) = (group, counted.max(before));
    }
}

impl Making {
    fn part(&mut self, node: NodeId) -> &mut Part {
        self.nodes.entry(node).or_insert_with(|| Part::on(node))
    }

    fn place(&mut self, ranks: impl Iterator<Item = NodeId>) {
        let mut counts: BTreeMap<NodeId, u32> = BTreeMap::new();
        ranks.for_each(|node| *counts.entry(node).or_default() += 1);
        for (node, count) in counts {
            let used = &mut self.part(node).used;
            used.ranks = used.ranks.max(count);
        }
    }
}

impl AccountsFold {
    /// `lives` are those before the event.
    pub(super) fn on_event(&mut self, at: SimTime, event: &Event, lives: &Lives) {
        let date = self.date(at);
        match event {
            Event::DateKnown { time_0 } => self.time_0 = Some(*time_0),
            Event::JobAccepted { job, name, user, ranks, group, queue, submitted } => {
                let submitted = self.date(*submitted);
                let job = self.job(*job);
                job.name.clone_from(name);
                (job.user, job.ranks) = (Some(*user), *ranks);
                (job.group, job.queue) = (group.clone(), queue.clone());
                // A new master says it again, perhaps by another clock.
                job.submitted = job.submitted.or(submitted);
            }
            Event::JobSubmitted { job, name, ranks, .. } => {
                let job = self.job(*job);
                job.name.clone_from(name);
                job.ranks = *ranks;
                job.submitted = job.submitted.or(date);
            }
            Event::JobLaunched { job, placement } => self.job(*job).place(placement.by_rank()),
            Event::JobMoved { job, placement, .. } => self.job(*job).place(placement.iter().copied()),
            Event::JobRunning { job } => {
                let job = self.job(*job);
                job.began = job.began.or(date);
            }
            Event::MasterReplaced { jobs, .. } => {
                for adopted in jobs {
                    let nodes: &Placement = &adopted.placement;
                    self.job(adopted.job.id).place(nodes.by_rank());
                }
            }
            Event::SwitchStarted { outgoing, .. } => {
                for job in outgoing.iter().filter(|job| lives.runs(**job)) {
                    self.job(*job).switches += 1;
                }
            }
            Event::StepDone { job, node, step: SwitchStep::Dump, bytes, .. } => {
                let out = &mut self.job(*job).part(*node).used.bytes_out;
                *out = out.saturating_add(*bytes);
            }
            Event::StepDone { job, node, step: SwitchStep::Restore, bytes, .. } => {
                let back = &mut self.job(*job).part(*node).used.bytes_in;
                *back = back.saturating_add(*bytes);
            }
            Event::MemorySample { node, by_job, .. } => {
                for JobMemory { job, used, .. } in by_job {
                    self.job(*job).part(*node).on_memory(*used);
                }
            }
            Event::JobProcessed { job, node, group, used } => {
                self.job(*job).part(*node).on_processor(*group, *used);
            }
            Event::JobRepeats { job, work } => self.job(*job).repeated += *work,
            Event::JobFinished { job, .. } => self.job(*job).ended = date,
            Event::RunEnded { outcome } if ends_jobs(*outcome) => {
                self.jobs.values_mut().for_each(|job| job.ended = job.ended.or(date));
            }
            _ => {}
        }
    }

    fn date(&self, at: SimTime) -> Option<Duration> {
        self.time_0.map(|time_0| time_0 + at.since(SimTime(0)))
    }

    fn job(&mut self, job: JobId) -> &mut Making {
        self.jobs.entry(job).or_default()
    }
}

/// Whether a run that ends so ends the jobs that have not ended. After the other ones it may go on.
pub(super) const fn ends_jobs(outcome: RunOutcome) -> bool {
    !matches!(outcome, RunOutcome::Parked | RunOutcome::Aborted)
}

impl Folder {
    /// The account of a job that has ended.
    #[must_use]
    pub fn account(&self, id: JobId) -> Option<JobAccount> {
        let job = self.jobs.get(&id).cloned().unwrap_or_default();
        // Late news of a job that is not listed any more make no account.
        let making = self.accounts.jobs.get(&id).filter(|making| !making.name.is_empty())?;
        let has_ended = job.finished.is_some() || self.outcome.is_some_and(ends_jobs);
        has_ended.then(|| self.account_of(id, &job, making))
    }

    /// The accounts of all jobs that have ended, but for those of which only totals are left.
    pub fn accounts(&self) -> impl Iterator<Item = JobAccount> {
        let listed = self.accounts.jobs.keys().filter_map(|job| self.account(*job));
        self.accounts.unlisted.iter().cloned().chain(listed)
    }

    /// Forgets accounts of jobs that are not listed, unless they are needed yet.
    pub fn keep_accounts(&mut self, is_needed: impl Fn(JobId) -> bool) {
        self.accounts.unlisted.retain(|account| is_needed(account.job));
    }

    /// The job will not be listed any more.
    pub(super) fn unlist_account(&mut self, id: JobId) {
        let account = self.account(id);
        self.accounts.jobs.remove(&id);
        self.accounts.unlisted.extend(account);
    }

    fn account_of(&self, job: JobId, fold: &JobFold, making: &Making) -> JobAccount {
        let life = self.lives.jobs.get(&job);
        let spent = |counts: fn(LifeStage) -> bool| {
            life.map(|life| life.spent(counts, self.last)).unwrap_or_default()
        };
        JobAccount {
            cluster: self.run.clone(),
            job,
            name: making.name.clone(),
            user: making.user,
            group: making.group.clone(),
            queue: making.queue.clone(),
            ranks: making.ranks,
            submitted: making.submitted,
            began: making.began,
            ended: making.ended,
            outcome: fold.finished.as_ref().map(|(_, outcome)| outcome.clone()),
            in_memory: spent(LifeStage::is_in_memory),
            running: spent(|stage| stage == LifeStage::Running),
            switches: making.switches,
            restores: fold.restores,
            repeated: making.repeated,
            uses: making.nodes.values().map(|part| part.used).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{Purpose, SwitchId, SwitchOrder};

    use super::*;
    use crate::{
        Known,
        fold::tests::two_jobs_in_turn,
        journal::{RunEvent, record},
    };

    const A: JobId = JobId(0);
    const B: JobId = JobId(1);
    const TIME_0: Duration = Duration::from_secs(1_000_000);

    fn at(seconds: u64, kind: Event) -> RunEvent {
        RunEvent { at: Duration::from_secs(seconds).into(), kind }
    }

    fn accepted(job: JobId, user: u32) -> Event {
        let (name, submitted) = (job.to_string(), SimTime(0));
        Event::JobAccepted { job, name, user, ranks: 2, group: None, queue: None, submitted }
    }

    fn moved(job: JobId, step: SwitchStep, mib: u64) -> Event {
        let (switch, node, time) = (SwitchId(1), NodeId(1), SimTime(0));
        Event::StepDone { switch, job, node, step, began: time, ended: time, bytes: Bytes::mib(mib) }
    }

    fn processed(job: JobId, group: u64, seconds: u64) -> Event {
        let (node, used) = (NodeId(0), Duration::from_secs(seconds));
        Event::JobProcessed { job, node, group, used }
    }

    fn held(job: JobId, mib: u64) -> Event {
        let (used, node) = (Bytes::mib(mib), NodeId(0));
        let by_job = vec![JobMemory { job, used, swapped: Bytes(0), major_faults: 0 }];
        Event::MemorySample { node, used, by_job, looks: 1, peak: used }
    }

    /// The two jobs in turn, of two users. A works for 9 s in its first turn, and for 5 s in its second one.
    fn events() -> Vec<RunEvent> {
        let mut events = two_jobs_in_turn();
        let of_switch = |at: &RunEvent| matches!(at.kind, Event::SwitchEnded { switch: SwitchId(1), .. });
        let second = events.iter().position(of_switch).unwrap();
        let more = [
            at(12, moved(A, SwitchStep::Dump, 70)),
            at(13, held(B, 80)),
            at(20, held(B, 90)),
            at(22, processed(B, 8, 11)),
        ];
        events.splice(second + 1..second + 1, more);
        let end = events.len() - 3;
        let more = [
            at(25, moved(A, SwitchStep::Restore, 60)),
            at(26, processed(A, 9, 1)),
            at(28, Event::JobRepeats { job: A, work: Duration::from_secs(3) }),
            at(29, held(A, 30)),
            at(30, processed(A, 9, 5)),
        ];
        events.splice(end..end, more);
        let first =
            [at(0, Event::DateKnown { time_0: TIME_0 }), at(0, accepted(A, 1000)), at(0, accepted(B, 1001))];
        events.splice(1..1, first);
        let running = events.iter().position(|event| event.kind == Event::JobRunning { job: A }).unwrap();
        events.splice(running + 1..running + 1, [at(8, processed(A, 7, 8)), at(9, processed(A, 7, 9))]);
        events
    }

    fn fold(events: &[RunEvent]) -> Folder {
        let mut folder = Folder::default();
        events.iter().for_each(|event| folder.on_event(event.at, &event.kind));
        folder
    }

    #[test]
    fn an_account_has_what_its_job_has_used() {
        let account = fold(&events()).account(A).unwrap();
        let dates =
            [account.submitted, account.began, account.ended].map(|date| (date.unwrap() - TIME_0).as_secs());
        assert_eq!((account.user, account.state(), dates), (Some(1000), AccountState::Done, [0, 0, 30]));
        // As the report has it: 15 s in turns, 2 s on its way in, 13 s out of memory.
        let spans = [account.running, account.in_memory, account.repeated].map(|span| span.as_secs());
        assert_eq!(spans, [15, 17, 3]);
        assert_eq!((account.switches, account.restores), (1, 1));
        let sizes = [account.bytes_out(), account.bytes_in(), account.memory_peak()];
        assert_eq!(sizes, [70, 60, 30].map(Bytes::mib));
        let processor = |node: usize| account.uses[node].processor.map(|used| used.as_secs());
        assert_eq!((processor(0), processor(1)), (Some(9 + 5), None), "its second group counts from zero");
        assert_eq!(account.processor(), None, "that of one node is not known");
        let ranks: Vec<_> = account.uses.iter().map(|used| (used.node.0, used.ranks)).collect();
        assert_eq!(ranks, [(0, 1), (1, 1)]);
        let other = fold(&events()).account(B).unwrap();
        assert_eq!((other.user, other.switches, other.memory_peak()), (Some(1001), 1, Bytes::mib(90)));
    }

    #[test]
    fn the_accounts_are_the_same_wherever_the_journal_is_summed_up() {
        let events = events();
        let expected: Vec<JobAccount> = fold(&events).accounts().collect();
        assert_eq!(expected.len(), 2);
        for count in 0..=events.len() {
            for (kept, is_written) in [(10, false), (0, false), (0, true)] {
                let mut report = Box::new(fold(&events[..count]));
                let known = Box::new(Known::of(&events[..count]));
                let written: Vec<JobAccount> = report.accounts().collect();
                report.sum_up(kept);
                report.keep_accounts(|_| !is_written);
                let summed = RunEvent { at: known.last, kind: Event::Summed { archive: 1, report, known } };
                let line = record::write(&summed);
                let mut folder = Folder::default();
                let sum: RunEvent = record::read(line.strip_suffix(b"\n").unwrap()).unwrap();
                std::iter::once(&sum)
                    .chain(&events[count..])
                    .for_each(|event| folder.on_event(event.at, &event.kind));
                let mut accounts: BTreeMap<JobId, JobAccount> = BTreeMap::new();
                let written = if is_written { written } else { Vec::new() };
                accounts.extend(written.into_iter().chain(folder.accounts()).map(|one| (one.job, one)));
                assert_eq!(accounts.into_values().collect::<Vec<_>>(), expected, "{count} {kept}");
            }
        }
    }

    #[test]
    fn a_job_ends_with_its_cluster_unless_the_cluster_goes_on() {
        let mut events = events();
        events.retain(|event| !matches!(event.kind, Event::JobFinished { .. }));
        let states = |outcome| {
            let mut events = events.clone();
            events.last_mut().unwrap().kind = Event::RunEnded { outcome };
            fold(&events).accounts().map(|account| account.state()).collect::<Vec<_>>()
        };
        assert_eq!(states(RunOutcome::Interrupted), [AccountState::Interrupted; 2]);
        assert_eq!(states(RunOutcome::Parked), []);
        let account = fold(&events).account(A).unwrap();
        assert_eq!((account.running.as_secs(), account.outcome), (15, None));
        // Another master has taken over after all.
        let jobs = vec![];
        let (generation, switches, drained) = (2, 3, Default::default());
        events.push(at(31, Event::MasterReplaced { generation, switches, jobs, drained }));
        assert_eq!(fold(&events).accounts().count(), 0);
    }

    #[test]
    fn why_a_job_was_ended_tells_its_state() {
        let state = |outcome: &JobOutcome| AccountState::of(Some(outcome));
        let limit = JobOutcome::at_time_limit(Duration::from_secs(1));
        assert_eq!(limit.to_string(), "failed: it ran for its time limit of 1 s");
        assert_eq!(state(&limit), AccountState::TimedOut);
        assert_eq!(state(&JobOutcome::cancelled()), AccountState::Cancelled);
        assert_eq!(state(&JobOutcome::Failed("no room".into())), AccountState::Failed);
        assert_eq!(state(&JobOutcome::Signal(9)), AccountState::Failed);
    }

    /// Late news of a job whose account was written must not make another one.
    #[test]
    fn late_news_make_no_account() {
        let mut folder = fold(&events());
        folder.sum_up(0);
        folder.keep_accounts(|_| false);
        let switched = Event::SwitchStarted {
            switch: SwitchId(9),
            purpose: Purpose::default(),
            order: SwitchOrder::default(),
            outgoing: vec![],
            parked: None,
            incoming: vec![],
        };
        for kind in [switched, moved(A, SwitchStep::Dump, 1), held(B, 1)] {
            folder.on_event(SimTime(0), &kind);
        }
        folder.on_event(SimTime(0), &Event::RunEnded { outcome: RunOutcome::Done });
        assert_eq!(folder.accounts().count(), 0);
    }
}
