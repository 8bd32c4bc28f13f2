//! The history of a run: steps, switches, samples and sets over time, the source of charts, stories and
//! traces.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{
    Bytes, Capacity, JobId, Limits, NodeId, Policy, SchedulerConfig, SimTime, SwitchId, SwitchOrder,
    metrics::Span,
};

use crate::{
    journal::{Event, JobMemory, RunEvent, SwitchStep},
    lives::{LifeStage, Lives},
};

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) nodes: u32,
    pub(super) capacity: Capacity,
    pub(super) quantum: Duration,
    pub(super) policy: Option<Policy>,
    pub(super) config: Option<SchedulerConfig>,
    pub(super) jobs: BTreeMap<JobId, JobHistory>,
    pub(super) lives: Lives,
    pub(super) steps: Vec<StepHistory>,
    pub(super) switches: Vec<SwitchHistory>,
    pub(super) samples: BTreeMap<NodeId, Vec<Sample>>,
    /// The time of the last event.
    pub(super) end: SimTime,
}

#[derive(Clone, Debug, Default)]
pub(super) struct JobHistory {
    pub(super) name: String,
    /// The declared working set of one rank.
    pub(super) memory: Bytes,
    /// Every measurement of the share of its time that the job communicated, in thousandths.
    pub(super) communication: Vec<u16>,
}

/// A step of a switch, for one job on one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepHistory {
    pub(super) switch: SwitchId,
    pub(super) job: JobId,
    pub(super) node: NodeId,
    pub(super) step: SwitchStep,
    pub(super) span: Span,
    pub(super) bytes: Bytes,
}

#[derive(Clone, Debug)]
pub(super) struct SwitchHistory {
    pub(super) switch: SwitchId,
    pub(super) order: SwitchOrder,
    pub(super) span: Span,
    pub(super) outgoing: Vec<JobId>,
    pub(super) incoming: Vec<JobId>,
    pub(super) exposed: Duration,
    pub(super) bytes_out: Bytes,
    pub(super) bytes_in: Bytes,
}

/// The memory of a node's jobs at one instant.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: SimTime,
    pub(super) used: Bytes,
    pub(super) by_job: Vec<JobMemory>,
}

impl History {
    pub(super) fn of(events: &[RunEvent]) -> Self {
        let mut history = Self::default();
        for RunEvent { at, kind } in events {
            history.on_event(*at, kind);
        }
        history.lives.cut_off(history.end);
        history
    }

    pub(super) fn on_event(&mut self, at: SimTime, event: &Event) {
        self.end = self.end.max(at);
        self.lives.on_event(at, event);
        match event {
            Event::RunStarted { policy, nodes, capacity, quantum, scheduler, .. } => {
                (self.nodes, self.capacity, self.quantum) = (*nodes, capacity.clone(), *quantum);
                (self.policy, self.config) = (Some(*policy), scheduler.clone());
            }
            Event::JobSubmitted { job, name, memory, .. } => {
                let job = self.jobs.entry(*job).or_default();
                (job.name, job.memory) = (name.clone(), *memory);
            }
            Event::JobMeasured { job, communication, .. } => {
                self.jobs.entry(*job).or_default().communication.push(communication.get());
            }
            Event::SwitchStarted { switch, order, outgoing, incoming, .. } => {
                self.switches.push(SwitchHistory {
                    switch: *switch,
                    order: *order,
                    span: Span { from: at, to: at },
                    outgoing: outgoing.clone(),
                    incoming: incoming.clone(),
                    exposed: Duration::ZERO,
                    bytes_out: Bytes(0),
                    bytes_in: Bytes(0),
                });
            }
            Event::SwitchEnded { exposed, bytes_out, bytes_in, .. } => {
                // At most one switch is under way at a time.
                if let Some(switch) = self.switches.last_mut() {
                    switch.span.to = at;
                    (switch.exposed, switch.bytes_out, switch.bytes_in) = (*exposed, *bytes_out, *bytes_in);
                }
            }
            Event::StepDone { switch, job, node, step, began, ended, bytes } => {
                self.steps.push(StepHistory {
                    switch: *switch,
                    job: *job,
                    node: *node,
                    step: *step,
                    span: Span { from: *began, to: (*ended).max(*began) },
                    bytes: *bytes,
                });
            }
            Event::MemorySample { node, used, by_job, .. } => {
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

    /// The job's name in the run file, or its number.
    pub(super) fn name(&self, job: JobId) -> String {
        self.jobs
            .get(&job)
            .map(|job| job.name.clone())
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| job.to_string())
    }

    /// The memory that a job declared for its ranks on `node`; 0 where it was never placed.
    pub(super) fn declared_on(&self, job: JobId, node: NodeId) -> Bytes {
        let (Some(of), Some(life)) = (self.jobs.get(&job), self.lives.jobs.get(&job)) else {
            return Bytes(0);
        };
        Bytes(of.memory.0.saturating_mul(life.placement.count_on(node).into()))
    }

    /// The sets of jobs that ran together, with their spans: in order, without gaps from the first to the
    /// last event.
    pub(super) fn sets(&self) -> Vec<(Span, Vec<JobId>)> {
        let mut changes: Vec<(SimTime, JobId, bool)> = Vec::new();
        for (job, life) in &self.lives.jobs {
            for span in life.spans(LifeStage::Running).filter(|span| span.from < span.to) {
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
