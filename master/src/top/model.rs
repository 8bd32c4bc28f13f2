//! The state behind `coswitch top`, pure: what the cluster answers, its events and keys in; what is shown
//! out.

use std::{cmp::Reverse, time::Duration};

use coswitch_policies::SimTime;
use coswitch_report::journal::RunEvent;

use crate::{
    api::JobStatus,
    watching::{Status, Watched},
};

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

/// The state.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) watched: Watched,
    pub(super) sort: Sort,
    /// How many jobs, and nodes, lie before the first one that is shown.
    pub(super) first_job: usize,
    pub(super) first_node: usize,
    pub(super) help: bool,
}

impl Model {
    pub(super) fn new(at: Duration, status: Status) -> Self {
        let watched = Watched::new(at, status);
        Self { watched, sort: Sort::default(), first_job: 0, first_node: 0, help: false }
    }

    /// Takes news; whether all is over.
    pub(super) fn on(&mut self, at: Duration, news: News) -> Option<Over> {
        match news {
            News::Status(status) => {
                self.watched.on_status(at, *status);
                self.first_job = self.first_job.min(self.last_job());
            }
            News::Event(event) => self.watched.on_event(at, &event),
            News::Lost(why) => self.watched.on_lost(at, why),
            News::Key(key) => return self.on_key(key),
            News::Resized => {}
            News::Ended => return Some(Over::ClusterEnded),
            News::Terminated => return Some(Over::Terminated),
        }
        None
    }

    fn last_job(&self) -> usize {
        self.watched.status.queue.jobs.len().saturating_sub(1)
    }

    fn on_key(&mut self, key: Key) -> Option<Over> {
        const PAGE: usize = 10;
        let last_job = self.last_job();
        let last_node = (self.watched.status.cluster.cluster.nodes as usize).saturating_sub(1);
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

    /// The jobs in the order in which they are shown.
    pub(super) fn sorted_jobs(&self) -> Vec<&JobStatus> {
        let mut jobs: Vec<&JobStatus> = self.watched.status.queue.jobs.iter().collect();
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
