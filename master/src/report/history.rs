//! A run as it went on: what pictures, words and traces are made of. Pure: one pass over the journal.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{
    Bytes, JobId, Limits, NodeId, Policy, SchedulerConfig, SimTime, SwitchId, SwitchOrder, metrics::Span,
};

use super::lives::{Lives, State};
use crate::journal::{Event, JobMemory, Phase, RunEvent};

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) nodes: u32,
    pub(super) capacity: Bytes,
    pub(super) quantum: Duration,
    pub(super) policy: Option<Policy>,
    pub(super) config: Option<SchedulerConfig>,
    pub(super) jobs: BTreeMap<JobId, Job>,
    pub(super) lives: Lives,
    pub(super) steps: Vec<Step>,
    pub(super) switches: Vec<Switched>,
    pub(super) samples: BTreeMap<NodeId, Vec<Sample>>,
    /// The time of the last event.
    pub(super) end: SimTime,
}

/// What is told of a job once.
#[derive(Debug, Default)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) memory: Bytes,
    /// What share of its time it communicated, each time it was measured, in thousandths.
    pub(super) communication: Vec<u16>,
}

/// A step of a switch, for one job on one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) switch: SwitchId,
    pub(super) job: JobId,
    pub(super) node: NodeId,
    pub(super) phase: Phase,
    pub(super) span: Span,
    pub(super) bytes: Bytes,
}

/// A switch.
#[derive(Debug)]
pub(super) struct Switched {
    pub(super) switch: SwitchId,
    pub(super) order: SwitchOrder,
    pub(super) span: Span,
    pub(super) outgoing: Vec<JobId>,
    pub(super) incoming: Vec<JobId>,
    pub(super) exposed: Duration,
    pub(super) bytes_out: Bytes,
    pub(super) bytes_in: Bytes,
}

/// What the jobs of a node held at one instant.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) at: SimTime,
    pub(super) used: Bytes,
    pub(super) by_job: Vec<JobMemory>,
}

impl History {
    /// The history that `events` tell of.
    pub(super) fn of(events: &[RunEvent]) -> Self {
        let mut history = Self::default();
        for RunEvent { at, kind } in events {
            history.on_event(*at, kind);
        }
        history.lives.cut_off(history.end);
        history
    }

    fn on_event(&mut self, at: SimTime, event: &Event) {
        self.end = self.end.max(at);
        self.lives.on_event(at, event);
        match event {
            Event::RunStarted { policy, nodes, capacity, quantum, scheduler, .. } => {
                (self.nodes, self.capacity, self.quantum) = (*nodes, *capacity, *quantum);
                (self.policy, self.config) = (Some(*policy), scheduler.clone());
            }
            Event::JobSubmitted { job, name, memory, .. } => {
                let job = self.jobs.entry(*job).or_default();
                (job.name, job.memory) = (name.clone(), *memory);
            }
            Event::JobMeasured { job, communication, .. } => {
                self.jobs.entry(*job).or_default().communication.push(communication.get());
            }
            Event::SwitchStarted { switch, order, outgoing, incoming, .. } => self.switches.push(Switched {
                switch: *switch,
                order: *order,
                span: Span { from: at, to: at },
                outgoing: outgoing.clone(),
                incoming: incoming.clone(),
                exposed: Duration::ZERO,
                bytes_out: Bytes(0),
                bytes_in: Bytes(0),
            }),
            Event::SwitchEnded { exposed, bytes_out, bytes_in, .. } => {
                // There is never more than one under way.
                if let Some(switched) = self.switches.last_mut() {
                    switched.span.to = at;
                    (switched.exposed, switched.bytes_out, switched.bytes_in) =
                        (*exposed, *bytes_out, *bytes_in);
                }
            }
            Event::PhaseDone { switch, job, node, phase, began, ended, bytes } => self.steps.push(Step {
                switch: *switch,
                job: *job,
                node: *node,
                phase: *phase,
                span: Span { from: *began, to: (*ended).max(*began) },
                bytes: *bytes,
            }),
            Event::MemorySample { node, used, by_job } => {
                let sample = Sample { at, used: *used, by_job: by_job.clone() };
                self.samples.entry(*node).or_default().push(sample);
            }
            _ => {}
        }
    }

    /// The limits of the matrix.
    pub(super) fn limits(&self) -> Option<Limits> {
        let most = self.config.as_ref().and_then(|config| config.max_per_cell);
        Some(Limits::of(self.policy?, most))
    }

    /// What the user calls a job.
    pub(super) fn name(&self, job: JobId) -> String {
        self.jobs
            .get(&job)
            .map(|job| job.name.clone())
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| job.to_string())
    }

    /// What a job declared to need there; nothing where it was never placed.
    pub(super) fn declared_on(&self, job: JobId, node: NodeId) -> Bytes {
        let (Some(of), Some(life)) = (self.jobs.get(&job), self.lives.jobs.get(&job)) else {
            return Bytes(0);
        };
        Bytes(of.memory.0.saturating_mul(life.placement.count_on(node).into()))
    }

    /// Who ran together, and when: in order, without gaps between the first and the last event.
    pub(super) fn sets(&self) -> Vec<(Span, Vec<JobId>)> {
        let mut changes: Vec<(SimTime, JobId, bool)> = Vec::new();
        for (job, life) in &self.lives.jobs {
            for span in life.spans(State::Running).filter(|span| span.from < span.to) {
                changes.extend([(span.from, *job, true), (span.to, *job, false)]);
            }
        }
        changes.sort_unstable();
        let mut sets = Vec::new();
        let (mut running, mut from) = (Vec::new(), SimTime::default());
        for (at, job, begins) in changes.into_iter().chain([(self.end, JobId(u32::MAX), false)]) {
            if at > from {
                sets.push((Span { from, to: at }, running.clone()));
                from = at;
            }
            running.retain(|other| *other != job);
            if begins {
                running.push(job);
                running.sort_unstable();
            }
        }
        sets
    }
}
