//! What is known of a run at this moment: its jobs, its slot, the steps under way.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{Bytes, Class, JobId, NodeId, SlotId};

use crate::journal::{Event, JobOutcome, Phase, RunEvent};

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// What the run is called.
    pub(crate) run: String,
    /// Each job.
    pub(crate) jobs: BTreeMap<JobId, JobView>,
    /// The slot that has its turn.
    pub(crate) slot: Option<SlotView>,
    /// The switch under way: what leaves and what comes in.
    pub(crate) switch: Option<[Vec<JobId>; 2]>,
}

/// One job.
#[derive(Debug, Default)]
pub(crate) struct JobView {
    /// Its name.
    pub(crate) name: String,
    /// What it does.
    pub(crate) state: JobState,
    /// What it holds, on each node.
    pub(crate) memory: BTreeMap<NodeId, Bytes>,
    /// What its last dump or restore moved, and how fast; until it runs again.
    pub(crate) moved: Moved,
    /// The last line it wrote.
    pub(crate) line: String,
    /// What it was seen to do, once it was.
    pub(crate) class: Option<Class>,
}

/// The slot that has its turn.
#[derive(Debug)]
pub(crate) struct SlotView {
    /// Which.
    pub(crate) slot: SlotId,
    /// Its set.
    pub(crate) jobs: Vec<JobId>,
}

/// What a dump or restore moved on all nodes together, and how long the slowest took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    bytes: Bytes,
    took: Duration,
}

impl Moved {
    fn and(self, bytes: Bytes, took: Duration) -> Self {
        Self { bytes: self.bytes.saturating_add(bytes), took: self.took.max(took) }
    }

    fn in_words(self) -> Option<String> {
        (self.bytes.0 > 0).then(|| format!("moved {}{}", self.bytes, rate(self.bytes, self.took)))
    }
}

/// ` at 200MiB/s`, where it took any time.
pub(crate) fn rate(bytes: Bytes, took: Duration) -> String {
    if took.is_zero() {
        return String::new();
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "shown only"
    )]
    let per_second = Bytes((bytes.0 as f64 / took.as_secs_f64()) as u64);
    format!(" at {per_second}/s")
}

/// What a job does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum JobState {
    /// It waits for its first turn.
    #[default]
    Waiting,
    /// It is on its way into memory.
    Entering,
    /// Its ranks run.
    Running,
    /// It is on its way out of memory.
    Leaving,
    /// It is in memory and waits for its turn.
    Suspended,
    /// It has images and no processes.
    Parked,
    /// It ended.
    Ended(JobOutcome),
}

impl JobState {
    /// In a word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Entering => "entering",
            Self::Running => "running",
            Self::Leaving => "leaving",
            Self::Suspended => "suspended",
            Self::Parked => "parked",
            Self::Ended(JobOutcome::Exit(0)) => "done",
            Self::Ended(_) => "FAILED",
        }
    }
}

impl View {
    /// Takes in what happened.
    pub(crate) fn on_event(&mut self, RunEvent { kind, .. }: &RunEvent) {
        match kind {
            Event::RunStarted { run, .. } => self.run.clone_from(run),
            Event::JobSubmitted { job, name, .. } => self.job(*job).name.clone_from(name),
            Event::JobLaunched { job, .. } => self.job(*job).state = JobState::Entering,
            Event::JobRunning { job } => {
                self.moves(*job, JobState::Running);
                self.job(*job).moved = Moved::default();
            }
            Event::SlotStarted { slot, jobs, .. } => {
                self.slot = Some(SlotView { slot: *slot, jobs: jobs.clone() });
            }
            Event::SwitchStarted { outgoing, parked, incoming, .. } => {
                let parks = |job: &JobId| parked.as_ref().is_none_or(|parked| parked.contains(job));
                let state = |job| if parks(job) { JobState::Leaving } else { JobState::Suspended };
                outgoing.iter().for_each(|job| self.moves(*job, state(job)));
                incoming.iter().for_each(|job| self.moves(*job, JobState::Entering));
                outgoing.iter().chain(incoming).for_each(|job| self.job(*job).moved = Moved::default());
                self.switch = Some([outgoing.clone(), incoming.clone()]);
            }
            Event::SwitchEnded { .. } => {
                let [_, incoming] = self.switch.take().unwrap_or_default();
                // Brought in ahead of its turn.
                for job in incoming {
                    if self.job(job).state == JobState::Entering {
                        self.moves(job, JobState::Suspended);
                    }
                }
            }
            Event::PhaseDone { job, phase: Phase::Dump | Phase::Restore, began, ended, bytes, .. } => {
                let job = self.job(*job);
                job.moved = job.moved.and(*bytes, ended.since(*began));
            }
            Event::PhaseDone { job, phase: Phase::Release, .. } => self.moves(*job, JobState::Parked),
            Event::JobFinished { job, outcome, .. } => {
                self.job(*job).state = JobState::Ended(outcome.clone())
            }
            Event::MemorySample { node, by_job, .. } => {
                for job in self.jobs.values_mut() {
                    job.memory.remove(node);
                }
                for held in by_job {
                    self.job(held.job).memory.insert(*node, held.used);
                }
            }
            Event::JobMeasured { job, communication, .. } => {
                let class = &mut self.job(*job).class;
                *class = Some(class.unwrap_or_default().after(*communication));
            }
            Event::Output { job, line } => self.job(*job).line.clone_from(line),
            Event::PhaseDone { .. }
            | Event::TimerFired { .. }
            | Event::Progress { .. }
            | Event::Warning { .. }
            | Event::JobHeld { .. }
            | Event::NodePressed { .. }
            | Event::SetSplit(_)
            | Event::JobOutgrew { .. }
            | Event::JobCommunicated { .. }
            | Event::SnapshotStored { .. }
            | Event::MachineUsed(_)
            | Event::RunEnded { .. } => {}
        }
    }

    fn job(&mut self, job: JobId) -> &mut JobView {
        self.jobs.entry(job).or_default()
    }

    /// A job that ended on the way stays ended.
    fn moves(&mut self, job: JobId, state: JobState) {
        let job = self.job(job);
        if !matches!(job.state, JobState::Ended(_)) {
            job.state = state;
        }
    }

    /// The slot that runs, or the switch under way.
    pub(crate) fn headline(&self) -> String {
        match (&self.switch, &self.slot) {
            (Some([outgoing, incoming]), _) => {
                format!("switching: out {}; in {}", self.names(outgoing), self.names(incoming))
            }
            (None, Some(slot)) => format!("{} runs: {}", slot.slot, self.names(&slot.jobs)),
            (None, None) => "starting".into(),
        }
    }

    /// What the user calls a job.
    pub(crate) fn name(&self, job: JobId) -> String {
        self.jobs
            .get(&job)
            .filter(|job| !job.name.is_empty())
            .map_or_else(|| job.to_string(), |job| job.name.clone())
    }

    /// The names of `jobs`, or a dash.
    pub(crate) fn names(&self, jobs: &[JobId]) -> String {
        let names: Vec<_> = jobs.iter().map(|job| self.name(*job)).collect();
        if names.is_empty() { "-".into() } else { names.join(", ") }
    }
}

impl JobView {
    /// What it does, holds and says, in a line.
    pub(crate) fn in_words(&self) -> String {
        let held: Bytes = self.memory.values().copied().sum();
        let held = if held.0 == 0 { String::new() } else { held.to_string() };
        let says = self.moved.in_words().unwrap_or_else(|| self.line.trim().into());
        let class = self.class.map_or("", Class::word);
        format!("{:8} {held:>9}  {class:13}  {says}", self.state.word())
    }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{Communication, Purpose, SwitchOrder};

    use super::*;
    use coswitch_policies::{SimTime, SwitchId};

    const A: JobId = JobId(0);

    fn after(kinds: Vec<Event>) -> View {
        let mut view = View::default();
        kinds.into_iter().for_each(|kind| view.on_event(&RunEvent { at: SimTime(0), kind }));
        view
    }

    fn leaving() -> Event {
        Event::SwitchStarted {
            switch: SwitchId(1),
            purpose: Purpose::Turn,
            order: SwitchOrder::Sequential,
            outgoing: vec![A],
            parked: Some(vec![A]),
            incoming: vec![],
        }
    }

    fn released() -> Event {
        let (began, ended) = (SimTime(0), SimTime(1));
        let (switch, node, phase, bytes) = (SwitchId(1), NodeId(0), Phase::Release, Bytes(0));
        Event::PhaseDone { switch, job: A, node, phase, began, ended, bytes }
    }

    #[test]
    fn a_job_that_was_dumped_is_parked() {
        let view = after(vec![Event::JobRunning { job: A }, leaving()]);
        assert_eq!(view.jobs[&A].state, JobState::Leaving);
        let view = after(vec![Event::JobRunning { job: A }, leaving(), released()]);
        assert_eq!(view.jobs[&A].state, JobState::Parked);
    }

    #[test]
    fn a_switch_under_way_is_told_until_it_ends() {
        let view = after(vec![leaving(), Event::JobRunning { job: JobId(5) }]);
        assert_eq!(view.headline(), "switching: out job-0; in -");
        let (switch, exposed, bytes_out, bytes_in) = (SwitchId(1), Duration::ZERO, Bytes(0), Bytes(0));
        let (restore, misplaced) = (None, vec![]);
        let ended = Event::SwitchEnded { switch, restore, exposed, bytes_out, bytes_in, misplaced };
        let slot = Event::SlotStarted { slot: SlotId(2), jobs: vec![A], ends: None };
        assert_eq!(after(vec![leaving(), ended, slot]).headline(), "slot-2 runs: job-0");
    }

    #[test]
    fn what_a_dump_moved_is_told_over_all_nodes() {
        let dump = |node| Event::PhaseDone {
            switch: SwitchId(1),
            job: A,
            node: NodeId(node),
            phase: Phase::Dump,
            began: SimTime(0),
            ended: Duration::from_millis(500).into(),
            bytes: Bytes::mib(50),
        };
        let view = after(vec![leaving(), dump(0), dump(1)]);
        assert_eq!(view.jobs[&A].in_words(), "leaving                            moved 100MiB at 200MiB/s");
    }

    #[test]
    fn a_job_shows_what_it_was_seen_to_do() {
        let measured = |thousandths| Event::JobMeasured {
            job: A,
            communication: Communication::per_mille(thousandths),
            bytes_per_second: Bytes(0),
            ranks: vec![],
        };
        assert_eq!(after(vec![measured(900), measured(550)]).jobs[&A].class, Some(Class::Communication));
        assert_eq!(after(vec![measured(550)]).jobs[&A].class, Some(Class::Mixed));
    }

    #[test]
    fn a_job_that_ended_while_it_was_switched_out_stays_ended() {
        let outcome = JobOutcome::Exit(0);
        let ended = Event::JobFinished { job: A, outcome, last_output: String::new() };
        let view = after(vec![leaving(), ended, released()]);
        assert_eq!(view.jobs[&A].state.word(), "done");
    }
}
