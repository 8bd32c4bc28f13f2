//! What a journal tells the next master: the jobs of a cluster, and what became of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coswitch_policies::{Bytes, JobId, NodeId, Residence, SimTime};
use serde::{Deserialize, Serialize};

use crate::{
    journal::{Event, JobOutcome, RunEvent},
    pairs,
};

/// Of the jobs that have ended so many are known: the last ones.
pub const ENDED_KEPT: usize = 10_000;

/// What is known of a cluster's jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// The journal has its beginning: a master may have died before that was written.
    pub began: bool,
    #[serde(with = "pairs")]
    pub jobs: BTreeMap<JobId, JobKnown>,
    /// Jobs that ended before those.
    forgotten: Numbers,
    /// When each job ran last.
    #[serde(with = "pairs")]
    pub ran_last: BTreeMap<JobId, SimTime>,
    /// Measurements that differ from what jobs declare.
    #[serde(with = "pairs")]
    pub residents: BTreeMap<(JobId, NodeId), Bytes>,
    /// Nodes that are to be empty.
    pub drained: BTreeSet<NodeId>,
    /// The node of each rank, of jobs of which a part has moved since their launch.
    #[serde(with = "pairs")]
    pub moved: BTreeMap<JobId, Vec<NodeId>>,
    /// How many switches were begun.
    pub switches: u32,
    /// The time of the last event.
    pub last: SimTime,
    running: BTreeSet<JobId>,
    /// A new master has begun, and has not said yet which jobs run.
    is_between_masters: bool,
}

/// What is known of a job besides its specification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobKnown {
    pub began: Option<SimTime>,
    /// Its turns before the present one.
    pub ran: Duration,
    pub runs_since: Option<SimTime>,
    /// Its user holds it.
    pub held: bool,
    pub ended: Option<(SimTime, JobOutcome)>,
}

impl JobKnown {
    fn begins_running(&mut self, at: SimTime) {
        self.began.get_or_insert(at);
        self.runs_since.get_or_insert(at);
    }

    fn stops_running(&mut self, at: SimTime) {
        self.ran += self.runs_since.take().map_or(Duration::ZERO, |since| at.since(since));
    }
}

impl Known {
    pub fn of<'a>(events: impl IntoIterator<Item = &'a RunEvent>) -> Self {
        let mut known = Self::default();
        events.into_iter().for_each(|event| known.on_event(event));
        known
    }

    pub fn has_ended(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.ended.is_some())
    }

    /// Whether a job ended so long ago that nothing else is known of it.
    pub fn has_forgotten(&self, job: JobId) -> bool {
        self.forgotten.contains(job)
    }

    /// The last of the jobs that are forgotten.
    pub fn last_forgotten(&self) -> Option<JobId> {
        self.forgotten.last()
    }

    /// The highest number that a job has had.
    pub fn last_job(&self) -> Option<JobId> {
        self.last_forgotten().max(self.jobs.last_key_value().map(|(job, _)| *job))
    }

    /// Forgets all jobs that have ended except for the last so many.
    pub fn sum_up(&mut self, kept: usize) {
        let ended = self.jobs.iter().filter_map(|(id, job)| Some((job.ended.as_ref()?.0, *id)));
        let mut ended: Vec<(SimTime, JobId)> = ended.collect();
        ended.sort_unstable();
        for (_, id) in &ended[..ended.len().saturating_sub(kept)] {
            self.jobs.remove(id);
            self.forgotten.insert(*id);
        }
    }

    pub fn on_event(&mut self, RunEvent { at, kind }: &RunEvent) {
        let at = *at;
        self.last = self.last.max(at);
        // Whether they ran on while there was no master, the new one finds out.
        if !self.is_between_masters {
            self.ran_last.extend(self.running.iter().map(|job| (*job, at)));
        }
        match kind {
            Event::DateKnown { .. } => self.is_between_masters = !self.running.is_empty(),
            Event::Summed { known, .. } => self.clone_from(known),
            Event::RunStarted { .. } => self.began = true,
            Event::JobRunning { job } => {
                self.running.insert(*job);
                self.job(*job).begins_running(at);
            }
            Event::MasterReplaced { jobs, .. } => {
                let runs = jobs.iter().filter(|adopted| adopted.at == Residence::Running);
                let runs: BTreeSet<JobId> = runs.map(|adopted| adopted.job.id).collect();
                let stopped = std::mem::replace(&mut self.running, runs);
                for job in stopped.difference(&self.running.clone()) {
                    let last = self.ran_last.get(job).copied().unwrap_or_default();
                    self.job(*job).stops_running(last);
                }
                for job in self.running.clone() {
                    self.job(job).begins_running(at);
                }
                self.is_between_masters = false;
            }
            Event::SwitchStarted { switch, outgoing, .. } => {
                self.switches = self.switches.max(switch.0 + 1);
                outgoing.iter().for_each(|job| self.stop(*job, at));
            }
            Event::JobDisplaced { job, .. } => self.stop(*job, at),
            Event::JobMoved { job, placement, .. } => {
                self.moved.insert(*job, placement.clone());
            }
            Event::JobLaunched { job, .. } => drop(self.moved.remove(job)),
            Event::JobHeld { job } => self.job(*job).held = true,
            Event::JobReleased { job } => self.job(*job).held = false,
            Event::NodeDrained { node } => drop(self.drained.insert(*node)),
            Event::NodeUndrained { node } => drop(self.drained.remove(node)),
            Event::JobResident { job, node, resident } => {
                self.residents.insert((*job, *node), *resident);
            }
            Event::JobFinished { job, outcome, .. } => {
                self.stop(*job, at);
                self.ran_last.remove(job);
                self.moved.remove(job);
                self.residents.retain(|(other, _), _| other != job);
                self.job(*job).ended = Some((at, outcome.clone()));
            }
            _ => {}
        }
    }

    fn stop(&mut self, job: JobId, at: SimTime) {
        self.running.remove(&job);
        self.job(job).stops_running(at);
    }

    fn job(&mut self, job: JobId) -> &mut JobKnown {
        self.jobs.entry(job).or_default()
    }
}

/// Numbers of jobs, as ranges: few, where nearly all of those before some number are among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Numbers(#[serde(with = "pairs")] BTreeMap<JobId, JobId>);

impl Numbers {
    fn insert(&mut self, job: JobId) {
        let before = self.0.range(..job).next_back().filter(|(_, last)| last.0 + 1 == job.0);
        let first = before.map_or(job, |(first, _)| *first);
        let last = self.0.remove(&JobId(job.0 + 1)).unwrap_or(job);
        self.0.insert(first, last);
    }

    fn contains(&self, job: JobId) -> bool {
        self.0.range(..=job).next_back().is_some_and(|(_, last)| job <= *last)
    }

    fn last(&self) -> Option<JobId> {
        self.0.last_key_value().map(|(_, last)| *last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(at: u64, job: u32) -> RunEvent {
        let (job, outcome) = (JobId(job), JobOutcome::Exit(0));
        RunEvent { at: SimTime(at), kind: Event::JobFinished { job, outcome, last_output: String::new() } }
    }

    #[test]
    fn the_jobs_that_ended_last_are_known_and_the_others_are_not_forgotten_to_have_been() {
        let mut known = Known::of(&[3, 0, 1, 5, 2].map(|job| finished(u64::from(job) + 10, job)));
        known.sum_up(2);
        assert_eq!(known.jobs.keys().copied().collect::<Vec<_>>(), [JobId(3), JobId(5)]);
        let forgotten: Vec<u32> = (0..7).filter(|job| known.has_forgotten(JobId(*job))).collect();
        assert_eq!((forgotten, known.last_forgotten()), (vec![0, 1, 2], Some(JobId(2))));
        assert_eq!(known.forgotten.0.len(), 1);
    }

    /// It would never be forgotten otherwise.
    #[test]
    fn what_has_moved_of_a_job_is_known_until_it_ends() {
        let (job, from, to) = (JobId(1), NodeId(0), NodeId(1));
        let kind = Event::JobMoved { job, from, to, placement: vec![to] };
        let mut known = Known::of(&[RunEvent { at: SimTime(1), kind }]);
        assert_eq!(known.moved.len(), 1);
        known.on_event(&finished(2, 1));
        assert!(known.moved.is_empty());
    }
}
