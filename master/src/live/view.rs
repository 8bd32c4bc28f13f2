//! What is known of a run at this moment: its jobs, its slot, the steps under way.

use std::collections::BTreeMap;

use coswitch_policies::{Bytes, JobId, NodeId, SlotId};

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
    /// The last line it wrote.
    pub(crate) line: String,
}

/// The slot that has its turn.
#[derive(Debug)]
pub(crate) struct SlotView {
    /// Which.
    pub(crate) slot: SlotId,
    /// Its set.
    pub(crate) jobs: Vec<JobId>,
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
            Event::JobRunning { job } => self.job(*job).state = JobState::Running,
            Event::SlotStarted { slot, jobs, .. } => {
                self.slot = Some(SlotView { slot: *slot, jobs: jobs.clone() });
            }
            Event::SwitchStarted { outgoing, incoming, .. } => {
                outgoing.iter().for_each(|job| self.moves(*job, JobState::Leaving));
                incoming.iter().for_each(|job| self.moves(*job, JobState::Entering));
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
            Event::Output { job, line } => self.job(*job).line.clone_from(line),
            Event::PhaseDone { .. }
            | Event::Progress { .. }
            | Event::SwitchEnded { .. }
            | Event::Warning { .. }
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
        format!("{:8} {held:>9}  {}", self.state.word(), self.line.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coswitch_policies::{SimTime, SwitchId};

    const A: JobId = JobId(0);

    fn after(kinds: Vec<Event>) -> View {
        let mut view = View::default();
        kinds.into_iter().for_each(|kind| view.on_event(&RunEvent { at: SimTime(0), kind }));
        view
    }

    fn leaving() -> Event {
        Event::SwitchStarted { switch: SwitchId(1), outgoing: vec![A], incoming: vec![] }
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
    fn a_job_that_ended_while_it_was_switched_out_stays_ended() {
        let outcome = JobOutcome::Exit(0);
        let ended = Event::JobFinished { job: A, outcome, last_output: String::new() };
        let view = after(vec![leaving(), ended, released()]);
        assert_eq!(view.jobs[&A].state.word(), "done");
    }
}
