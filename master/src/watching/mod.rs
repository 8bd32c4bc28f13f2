//! What is known of a cluster by whoever watches it: its answers and its events in, a picture of the present
//! out. Pure.
//!
//! `coswitch top` and the live page of `coswitch serve --http` draw the same picture. Times of the watcher
//! are durations since it began; times of the cluster are since the cluster's start.

#[cfg(test)]
pub(crate) mod example;

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{Bytes, ForeseenTurn, JobId, NodeId, Purpose, SimTime, SwitchStep};
use coswitch_report::journal::{Event, RunEvent};
use serde::Serialize;

use crate::api::{ClusterStatus, Queue, SwitchStatus, Timetable};

/// After so long without an answer it is said that there is none.
const SILENCE: Duration = Duration::from_secs(5);
/// The cluster is asked so often, and sooner where an event changes what is to come.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(2);
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(300);

/// What the cluster answers when it is asked how it is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Status {
    pub(crate) cluster: ClusterStatus,
    pub(crate) queue: Queue,
    pub(crate) timetable: Timetable,
}

/// A switch under way, or the last one.
#[derive(Clone, Debug)]
pub(crate) struct SwitchView {
    pub(crate) status: SwitchStatus,
    /// How far each job is on each of its nodes, step by step.
    pub(crate) steps: BTreeMap<(JobId, SwitchStep), BTreeMap<NodeId, Progress>>,
    pub(crate) ended: Option<SwitchEnd>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchEnd {
    pub(crate) at: SimTime,
    pub(crate) exposed: Duration,
    pub(crate) bytes_out: Bytes,
    pub(crate) bytes_in: Bytes,
}

/// How far a step is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Moved { bytes: Bytes, total: Bytes },
    Done,
}

/// What is known.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) status: Status,
    /// When that was heard.
    heard: Duration,
    /// When anything was heard of the cluster.
    contact: Duration,
    /// Since when there is no connection, and why.
    pub(crate) lost: Option<(Duration, String)>,
    pub(crate) memory: BTreeMap<NodeId, Bytes>,
    pub(crate) switch: Option<SwitchView>,
    /// The latest event that a user should know, in words.
    pub(crate) latest: Option<(SimTime, String)>,
}

impl Watched {
    pub(crate) fn new(at: Duration, status: Status) -> Self {
        let mut watched = Self {
            status: status.clone(),
            heard: at,
            contact: at,
            lost: None,
            memory: BTreeMap::new(),
            switch: None,
            latest: None,
        };
        watched.on_status(at, status);
        watched
    }

    /// Takes an answer, heard at `at`.
    pub(crate) fn on_status(&mut self, at: Duration, status: Status) {
        let is_another = status.cluster.run != self.status.cluster.run;
        if self.lost.take().is_some() || is_another {
            (self.switch, self.latest) = (None, None);
            self.memory.clear();
        }
        self.memory.extend(status.timetable.memory.iter().map(|memory| (memory.node, memory.used)));
        let known = self.switch.as_ref().filter(|view| view.ended.is_none());
        match (&status.timetable.switch, known.map(|view| view.status.switch)) {
            (Some(under_way), known) if known != Some(under_way.switch) => {
                self.switch =
                    Some(SwitchView { status: under_way.clone(), steps: BTreeMap::new(), ended: None });
            }
            // Its end was missed.
            (None, Some(_)) => self.switch = None,
            _ => {}
        }
        (self.heard, self.contact, self.status) = (at, at, status);
    }

    /// Takes an event, heard at `heard`.
    pub(crate) fn on_event(&mut self, heard: Duration, RunEvent { at, kind }: &RunEvent) {
        self.contact = heard;
        match kind {
            Event::MemorySample { node, used, .. } => drop(self.memory.insert(*node, *used)),
            Event::SwitchStarted { switch, purpose, outgoing, incoming, .. } => {
                let (outgoing, incoming) = (outgoing.clone(), incoming.clone());
                let status =
                    SwitchStatus { switch: *switch, purpose: *purpose, began: *at, outgoing, incoming };
                self.switch = Some(SwitchView { status, steps: BTreeMap::new(), ended: None });
            }
            Event::Progress { job, node, step, bytes, total } => {
                self.note(*job, *node, *step, Progress::Moved { bytes: *bytes, total: *total });
            }
            Event::StepDone { switch, job, node, step, .. } => {
                let is_this = self.switch.as_ref().is_some_and(|view| view.status.switch == *switch);
                if is_this {
                    self.note(*job, *node, *step, Progress::Done);
                }
            }
            Event::SwitchEnded { switch, exposed, bytes_out, bytes_in, .. } => {
                if let Some(view) = self.switch.as_mut().filter(|view| view.status.switch == *switch) {
                    let (exposed, bytes_out, bytes_in) = (*exposed, *bytes_out, *bytes_in);
                    view.ended = Some(SwitchEnd { at: *at, exposed, bytes_out, bytes_in });
                }
            }
            Event::JobFinished { job, outcome, .. } => {
                self.latest = Some((*at, format!("{} ended: {outcome}", self.name(*job))));
            }
            Event::Warning { text } => self.latest = Some((*at, format!("warning: {text}"))),
            _ => {}
        }
    }

    /// There is no connection from `at` on.
    pub(crate) fn on_lost(&mut self, at: Duration, why: String) {
        self.lost.get_or_insert((at, why));
    }

    fn note(&mut self, job: JobId, node: NodeId, step: SwitchStep, progress: Progress) {
        if let Some(view) = self.switch.as_mut().filter(|view| view.ended.is_none()) {
            let nodes = view.steps.entry((job, step)).or_default();
            if nodes.get(&node) != Some(&Progress::Done) {
                nodes.insert(node, progress);
            }
        }
    }

    /// The present of the cluster. It stands still while there is no connection.
    pub(crate) fn now(&self, at: Duration) -> SimTime {
        let at = self.lost.as_ref().map_or(at, |(since, _)| (*since).min(at));
        self.status.timetable.now.after(at.saturating_sub(self.heard))
    }

    /// Whether the turn has begun: not while the switch that leads to it takes longer than was foreseen.
    pub(crate) fn has_begun(&self, turn: &ForeseenTurn, now: SimTime) -> bool {
        let under_way = self.switch.as_ref().filter(|view| view.ended.is_none()).map(|view| &view.status);
        let leads_here = |status: &SwitchStatus| status.purpose == Purpose::Turn && turn.from >= status.began;
        turn.from <= now && !under_way.is_some_and(leads_here)
    }

    /// For how long the cluster has not answered, where that is long.
    pub(crate) fn silence(&self, at: Duration) -> Option<Duration> {
        let silence = at.saturating_sub(self.contact);
        (self.lost.is_some() || silence >= SILENCE).then_some(silence)
    }

    pub(crate) fn name(&self, job: JobId) -> String {
        let known = self.status.queue.jobs.iter().find(|status| status.job == job);
        known.map_or_else(|| job.to_string(), |status| status.name.clone())
    }

    /// The name of a node: its host's, where it is one.
    pub(crate) fn node_name(&self, node: NodeId) -> String {
        let host = self.status.cluster.cluster.hosts.get(node.0 as usize);
        host.map_or_else(|| node.to_string(), |host| host.name.clone())
    }
}

/// How far a step of a job is on its nodes: `dump ✓`, `dump 45MiB of 100MiB`, `thaw 1 of 2 nodes`.
pub(crate) fn step_in_words(step: SwitchStep, nodes: &BTreeMap<NodeId, Progress>) -> String {
    let done = nodes.values().filter(|progress| **progress == Progress::Done).count();
    if done == nodes.len() {
        return format!("{} ✓", verb(step));
    }
    let moved = nodes.values().filter_map(|progress| match progress {
        Progress::Moved { bytes, total } => Some((bytes.0, total.0)),
        Progress::Done => None,
    });
    let (bytes, total) = moved.fold((0, 0), |(bytes, total), (b, t)| (bytes + b, total + t.max(b)));
    match total {
        0 => format!("{} {done} of {} nodes", verb(step), nodes.len()),
        total => format!("{} {} of {}", verb(step), Bytes(bytes), Bytes(total)),
    }
}

/// The step as a verb.
pub(crate) const fn verb(step: SwitchStep) -> &'static str {
    match step {
        SwitchStep::Launch => "launch",
        SwitchStep::Freeze => "freeze",
        SwitchStep::Flush => "flush",
        SwitchStep::Dump => "dump",
        SwitchStep::Release => "release",
        SwitchStep::Seal => "seal",
        SwitchStep::Restore => "restore",
        SwitchStep::Thaw => "thaw",
    }
}

/// Whether an event changes what is to come, so that the cluster is to be asked again soon.
pub(crate) const fn changes_what_comes(event: &Event) -> bool {
    matches!(
        event,
        Event::JobSubmitted { .. }
            | Event::JobRunning { .. }
            | Event::JobFinished { .. }
            | Event::JobHeld { .. }
            | Event::JobReleased { .. }
            | Event::SlotStarted { .. }
            | Event::SwitchStarted { .. }
            | Event::SwitchEnded { .. }
            | Event::SetSplit(_)
            | Event::JobMoved { .. }
            | Event::NodeDrained { .. }
            | Event::NodeUndrained { .. }
            | Event::MasterReplaced { .. }
    )
}
