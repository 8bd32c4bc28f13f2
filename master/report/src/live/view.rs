//! The current state of a run: its jobs, its slot and its switch.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{Bytes, Class, JobId, NodeId, Residence, SlotId};

use crate::journal::{Event, JobMemory, JobOutcome, RunEvent, SwitchStep};

/// The current state of a run.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub jobs: BTreeMap<JobId, JobView>,
    /// The slot that has its turn, and its set.
    slot: Option<(SlotId, Vec<JobId>)>,
    /// The outgoing and the incoming jobs of the current switch.
    switch: Option<[Vec<JobId>; 2]>,
}

/// The current state of a job.
#[derive(Clone, Debug, Default)]
pub struct JobView {
    pub name: String,
    pub state: JobState,
    memory: BTreeMap<NodeId, Bytes>,
    /// The last dump or restore, until the job runs again.
    moved: Moved,
    /// The last line that the job wrote.
    output: String,
    /// `None` until the job was measured.
    class: Option<Class>,
}

/// The bytes that a dump or restore moved on all nodes, and how long the slowest node took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moved {
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

/// ` at 200MiB/s`; empty where the time is 0.
pub(super) fn rate(bytes: Bytes, took: Duration) -> String {
    if took.is_zero() {
        return String::new();
    }
    let per_second = Bytes((bytes.0 as f64 / took.as_secs_f64()) as u64);
    format!(" at {per_second}/s")
}

/// What a job does now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JobState {
    /// The job waits for its first turn.
    #[default]
    Waiting,
    /// The job is on its way into memory.
    Entering,
    Running,
    /// The job is on its way out of memory.
    Leaving,
    /// The job is in memory and waits for its turn.
    Suspended,
    /// The job is out of memory.
    Parked,
    Ended(JobOutcome),
}

impl JobState {
    pub(super) fn word(&self) -> &'static str {
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
    /// Applies an event.
    pub fn on_event(&mut self, RunEvent { kind, .. }: &RunEvent) {
        match kind {
            Event::JobSubmitted { job, name, .. } => self.job(*job).name.clone_from(name),
            Event::JobLaunched { job, .. } => self.job(*job).state = JobState::Entering,
            Event::JobRunning { job } => {
                self.moves(*job, JobState::Running);
                self.job(*job).moved = Moved::default();
            }
            Event::SlotStarted { slot, jobs, .. } => self.slot = Some((*slot, jobs.clone())),
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
                // A job that is in memory and not yet resumed was prefetched.
                for job in incoming {
                    if self.job(job).state == JobState::Entering {
                        self.moves(job, JobState::Suspended);
                    }
                }
            }
            Event::StepDone {
                job,
                step: SwitchStep::Dump | SwitchStep::Restore,
                began,
                ended,
                bytes,
                ..
            } => {
                let job = self.job(*job);
                job.moved = job.moved.and(*bytes, ended.since(*began));
            }
            Event::StepDone { job, step: SwitchStep::Release, .. } => self.moves(*job, JobState::Parked),
            Event::JobDisplaced { job, residence } => {
                let state =
                    if *residence == Residence::Parked { JobState::Parked } else { JobState::Waiting };
                self.moves(*job, state);
            }
            Event::JobFinished { job, outcome, .. } => {
                self.job(*job).state = JobState::Ended(outcome.clone())
            }
            Event::MemorySample { node, by_job, .. } => {
                for job in self.jobs.values_mut() {
                    job.memory.remove(node);
                }
                for JobMemory { job, used, .. } in by_job {
                    self.job(*job).memory.insert(*node, *used);
                }
            }
            Event::JobMeasured { job, communication, .. } => {
                let class = &mut self.job(*job).class;
                *class = Some(class.unwrap_or_default().after(*communication));
            }
            Event::Output { job, line } => self.job(*job).output.clone_from(line),
            Event::RunStarted { .. }
            | Event::DateKnown { .. }
            | Event::JobProcessed { .. }
            | Event::JobScheduled { .. }
            | Event::JobAccepted { .. }
            | Event::StepDone { .. }
            | Event::TurnsForeseen { .. }
            | Event::MasterReplaced { .. }
            | Event::JobHeld { .. }
            | Event::JobsPrioritized { .. }
            | Event::JobsLimited { .. }
            | Event::JobsGrouped { .. }
            | Event::JobReleased { .. }
            | Event::TimerFired { .. }
            | Event::Progress { .. }
            | Event::Warning { .. }
            | Event::NodeWasSilent { .. }
            | Event::NodeLost { .. }
            | Event::NodeBack { .. }
            | Event::DaemonReplaced { .. }
            | Event::NodeDrained { .. }
            | Event::NodeUndrained { .. }
            | Event::ProgramSent { .. }
            | Event::JobSurvived { .. }
            | Event::JobRepeats { .. }
            | Event::JobCheckpointed { .. }
            | Event::JobNotCheckpointed { .. }
            | Event::JobsStoodStill { .. }
            | Event::JobResident { .. }
            | Event::JobFootprint { .. }
            | Event::RunningStopped { .. }
            | Event::NodeUnderPressure { .. }
            | Event::SetSplit(_)
            | Event::JobOutgrew { .. }
            | Event::JobCommunicated { .. }
            | Event::SnapshotStored { .. }
            | Event::JobCopied { .. }
            | Event::JobMoved { .. }
            | Event::SlicesBegun { .. }
            | Event::SlicesUsed { .. }
            | Event::SlicesBalanced { .. }
            | Event::MachineUsed(_)
            | Event::RunEnded { .. }
            | Event::Summed { .. } => {}
        }
    }

    fn job(&mut self, job: JobId) -> &mut JobView {
        self.jobs.entry(job).or_default()
    }

    /// Sets the state of a job that has not ended.
    fn moves(&mut self, job: JobId, state: JobState) {
        let job = self.job(job);
        if !matches!(job.state, JobState::Ended(_)) {
            job.state = state;
        }
    }

    /// The current switch, or the slot that runs.
    pub fn headline(&self) -> String {
        match (&self.switch, &self.slot) {
            (Some([outgoing, incoming]), _) => {
                format!("switching: out {}; in {}", self.names(outgoing), self.names(incoming))
            }
            (None, Some((slot, jobs))) => format!("{slot} runs: {}", self.names(jobs)),
            (None, None) => "starting".into(),
        }
    }

    /// The job's name in the run file, or its number.
    pub fn name(&self, job: JobId) -> String {
        self.jobs
            .get(&job)
            .filter(|job| !job.name.is_empty())
            .map_or_else(|| job.to_string(), |job| job.name.clone())
    }

    /// The names of `jobs`, or a dash.
    pub(super) fn names(&self, jobs: &[JobId]) -> String {
        let names: Vec<_> = jobs.iter().map(|job| self.name(*job)).collect();
        if names.is_empty() { "-".into() } else { names.join(", ") }
    }
}

impl JobView {
    /// State, memory, class, and the last move or the last line of output.
    pub fn in_words(&self) -> String {
        let memory: Bytes = self.memory.values().copied().sum();
        let memory = if memory.0 == 0 { String::new() } else { memory.to_string() };
        let last = self.moved.in_words().unwrap_or_else(|| self.output.trim().into());
        let class = self.class.map_or("", Class::word);
        format!("{:8} {memory:>9}  {class:13}  {last}", self.state.word())
    }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{Communication, Purpose, SimTime, SwitchId, SwitchOrder};

    use super::*;

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
        let (switch, node, step, bytes) = (SwitchId(1), NodeId(0), SwitchStep::Release, Bytes(0));
        Event::StepDone { switch, job: A, node, step, began, ended, bytes }
    }

    #[test]
    fn a_dumped_job_is_parked() {
        let view = after(vec![Event::JobRunning { job: A }, leaving()]);
        assert_eq!(view.jobs[&A].state, JobState::Leaving);
        let view = after(vec![Event::JobRunning { job: A }, leaving(), released()]);
        assert_eq!(view.jobs[&A].state, JobState::Parked);
    }

    #[test]
    fn the_headline_names_the_current_switch_and_then_the_slot() {
        let view = after(vec![leaving(), Event::JobRunning { job: JobId(5) }]);
        assert_eq!(view.headline(), "switching: out job-0; in -");
        let (switch, exposed, bytes_out, bytes_in) = (SwitchId(1), Duration::ZERO, Bytes(0), Bytes(0));
        let (restore, misplaced) = (None, vec![]);
        let ended = Event::SwitchEnded { switch, restore, exposed, bytes_out, bytes_in, misplaced };
        let slot = Event::SlotStarted { slot: SlotId(2), jobs: vec![A], ends: None };
        assert_eq!(after(vec![leaving(), ended, slot]).headline(), "slot-2 runs: job-0");
    }

    #[test]
    fn the_bytes_of_a_dump_are_summed_over_all_nodes() {
        let dump = |node| Event::StepDone {
            switch: SwitchId(1),
            job: A,
            node: NodeId(node),
            step: SwitchStep::Dump,
            began: SimTime(0),
            ended: Duration::from_millis(500).into(),
            bytes: Bytes::mib(50),
        };
        let view = after(vec![leaving(), dump(0), dump(1)]);
        assert_eq!(view.jobs[&A].in_words(), "leaving                            moved 100MiB at 200MiB/s");
    }

    #[test]
    fn a_job_shows_its_measured_class() {
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
    fn a_job_that_ends_while_it_is_switched_out_stays_ended() {
        let outcome = JobOutcome::Exit(0);
        let ended = Event::JobFinished { job: A, outcome, last_output: String::new() };
        let view = after(vec![leaving(), ended, released()]);
        assert_eq!(view.jobs[&A].state.word(), "done");
    }
}
