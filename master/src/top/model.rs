//! The state behind `coswitch top`, pure: what the cluster answers, its events and keys in; what is shown
//! out.
//!
//! Times of the terminal are durations since `top` began; times of the cluster are since the cluster's start.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use coswitch_policies::{Bytes, ForeseenTurn, JobId, NodeId, Purpose, SimTime, SwitchStep};
use coswitch_report::journal::{Event, RunEvent};
use serde::Serialize;

use crate::api::{ClusterStatus, JobStatus, Queue, SwitchStatus, Timetable};

/// After so long without an answer it is said that there is none.
const SILENCE: Duration = Duration::from_secs(5);

/// What the cluster answers when it is asked how it is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Status {
    pub(super) cluster: ClusterStatus,
    pub(super) queue: Queue,
    pub(super) timetable: Timetable,
}

/// What the model hears.
#[derive(Clone, Debug)]
pub(super) enum News {
    Status(Box<Status>),
    Event(Box<RunEvent>),
    /// The connection is lost, or could not be made again; why.
    Lost(String),
    Key(Key),
    /// The terminal has another size.
    Resized,
    /// The cluster has ended as it was told to.
    Ended,
    /// A signal tells this process to end.
    Terminated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
    Left,
    Right,
    Sort,
    Help,
    /// Closes the help.
    Back,
}

/// Why `top` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Quit,
    ClusterEnded,
    Terminated,
}

/// By what the jobs are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Number,
    NextTurn,
    State,
    Memory,
    Ran,
}

impl Sort {
    const fn next(self) -> Self {
        match self {
            Self::Number => Self::NextTurn,
            Self::NextTurn => Self::State,
            Self::State => Self::Memory,
            Self::Memory => Self::Ran,
            Self::Ran => Self::Number,
        }
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::NextTurn => "next turn",
            Self::State => "state",
            Self::Memory => "memory",
            Self::Ran => "time run",
        }
    }
}

/// A switch under way, or the last one.
#[derive(Clone, Debug)]
pub(super) struct SwitchView {
    pub(super) status: SwitchStatus,
    /// How far each job is on each of its nodes, step by step.
    pub(super) steps: BTreeMap<(JobId, SwitchStep), BTreeMap<NodeId, Progress>>,
    pub(super) ended: Option<SwitchEnd>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SwitchEnd {
    pub(super) at: SimTime,
    pub(super) exposed: Duration,
    pub(super) bytes_out: Bytes,
    pub(super) bytes_in: Bytes,
}

/// How far a step is on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Moved { bytes: Bytes, total: Bytes },
    Done,
}

/// The state.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) status: Status,
    /// When that was heard.
    heard: Duration,
    /// When anything was heard of the cluster.
    contact: Duration,
    /// Since when there is no connection, and why.
    pub(super) lost: Option<(Duration, String)>,
    pub(super) memory: BTreeMap<NodeId, Bytes>,
    pub(super) switch: Option<SwitchView>,
    /// The latest event that a user should know, in words.
    pub(super) latest: Option<(SimTime, String)>,
    pub(super) sort: Sort,
    /// How many jobs, and nodes, lie before the first one that is shown.
    pub(super) first_job: usize,
    pub(super) first_node: usize,
    pub(super) help: bool,
}

impl Model {
    pub(super) fn new(at: Duration, status: Status) -> Self {
        let mut model = Self {
            status: status.clone(),
            heard: at,
            contact: at,
            lost: None,
            memory: BTreeMap::new(),
            switch: None,
            latest: None,
            sort: Sort::default(),
            first_job: 0,
            first_node: 0,
            help: false,
        };
        model.on_status(at, status);
        model
    }

    /// Takes news; whether all is over.
    pub(super) fn on(&mut self, at: Duration, news: News) -> Option<Over> {
        match news {
            News::Status(status) => self.on_status(at, *status),
            News::Event(event) => {
                self.contact = at;
                self.on_event(&event);
            }
            News::Lost(why) => drop(self.lost.get_or_insert((at, why))),
            News::Key(key) => return self.on_key(key),
            News::Resized => {}
            News::Ended => return Some(Over::ClusterEnded),
            News::Terminated => return Some(Over::Terminated),
        }
        None
    }

    fn on_status(&mut self, at: Duration, status: Status) {
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
        self.first_job = self.first_job.min(self.status.queue.jobs.len().saturating_sub(1));
    }

    fn on_event(&mut self, RunEvent { at, kind }: &RunEvent) {
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

    fn note(&mut self, job: JobId, node: NodeId, step: SwitchStep, progress: Progress) {
        if let Some(view) = self.switch.as_mut().filter(|view| view.ended.is_none()) {
            let nodes = view.steps.entry((job, step)).or_default();
            if nodes.get(&node) != Some(&Progress::Done) {
                nodes.insert(node, progress);
            }
        }
    }

    fn on_key(&mut self, key: Key) -> Option<Over> {
        const PAGE: usize = 10;
        let last_job = self.status.queue.jobs.len().saturating_sub(1);
        let last_node = (self.status.cluster.cluster.nodes as usize).saturating_sub(1);
        match key {
            Key::Quit => return Some(Over::Quit),
            Key::Up => self.first_job = self.first_job.saturating_sub(1),
            Key::PageUp => self.first_job = self.first_job.saturating_sub(PAGE),
            Key::Down => self.first_job = (self.first_job + 1).min(last_job),
            Key::PageDown => self.first_job = (self.first_job + PAGE).min(last_job),
            Key::Left => self.first_node = self.first_node.saturating_sub(1),
            Key::Right => self.first_node = (self.first_node + 1).min(last_node),
            Key::Sort => (self.sort, self.first_job) = (self.sort.next(), 0),
            Key::Help => self.help = !self.help,
            Key::Back => self.help = false,
        }
        None
    }

    /// The present of the cluster. It stands still while there is no connection.
    pub(super) fn now(&self, at: Duration) -> SimTime {
        let at = self.lost.as_ref().map_or(at, |(since, _)| (*since).min(at));
        self.status.timetable.now.after(at.saturating_sub(self.heard))
    }

    /// Whether the turn has begun: not while the switch that leads to it takes longer than was foreseen.
    pub(super) fn has_begun(&self, turn: &ForeseenTurn, now: SimTime) -> bool {
        let under_way = self.switch.as_ref().filter(|view| view.ended.is_none()).map(|view| &view.status);
        let leads_here = |status: &SwitchStatus| status.purpose == Purpose::Turn && turn.from >= status.began;
        turn.from <= now && !under_way.is_some_and(leads_here)
    }

    /// For how long the cluster has not answered, where that is long.
    pub(super) fn silence(&self, at: Duration) -> Option<Duration> {
        let silence = at.saturating_sub(self.contact);
        (self.lost.is_some() || silence >= SILENCE).then_some(silence)
    }

    pub(super) fn name(&self, job: JobId) -> String {
        let known = self.status.queue.jobs.iter().find(|status| status.job == job);
        known.map_or_else(|| job.to_string(), |status| status.name.clone())
    }

    /// The name of a node: its host's, where it is one.
    pub(super) fn node_name(&self, node: NodeId) -> String {
        let host = self.status.cluster.cluster.hosts.get(node.0 as usize);
        host.map_or_else(|| node.to_string(), |host| host.name.clone())
    }

    /// The jobs in the order in which they are shown.
    pub(super) fn sorted_jobs(&self) -> Vec<&JobStatus> {
        let mut jobs: Vec<&JobStatus> = self.status.queue.jobs.iter().collect();
        match self.sort {
            Sort::Number => {}
            Sort::NextTurn => {
                jobs.sort_by_key(|job| {
                    job.outlook.runs_from.map_or((true, SimTime(0)), |from| (false, from))
                });
            }
            Sort::State => jobs.sort_by_key(|job| job.state as u8),
            Sort::Memory => jobs.sort_by_key(|job| Reverse(job.memory.0.saturating_mul(job.ranks.into()))),
            Sort::Ran => jobs.sort_by_key(|job| Reverse(job.ran)),
        }
        jobs
    }
}
