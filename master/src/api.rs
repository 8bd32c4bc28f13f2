//! What users ask of a cluster that `coswitch serve` holds, and what it answers. The run core answers
//! ([`crate::engine`]), [`crate::serve`] carries, [`crate::client`] asks.

use std::{fmt, path::PathBuf, time::Duration};

use coswitch_policies::{Bytes, ForeseenTurn, JobId, NodeId, Outlook, Policy, Purpose, SimTime, SwitchId};
use coswitch_report::{
    journal::{JobMemory, JobOutcome},
    words::span,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{ClusterConfig, Job};

/// A user, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct User(pub u32);

impl User {
    pub const ROOT: Self = Self(0);

    /// The user of a job that `submitter` brings.
    #[must_use]
    pub fn of(job: &Job, submitter: Self) -> Self {
        job.owner.as_ref().map_or(submitter, |owner| Self(owner.ids.uid))
    }
}

/// A job and its terms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// Its number and its arrival are the cluster's to give.
    pub job: Job,
    /// It begins when these have succeeded.
    #[serde(default)]
    pub after: Vec<JobId>,
    /// It is ended when it has run for so long; the time in which it is parked does not count. `None`: as the
    /// job says.
    #[serde(default)]
    pub time_limit: Option<Duration>,
}

/// A job that the cluster has taken, as a later master has to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    pub user: User,
    pub submitted: SimTime,
    /// With its number and its name.
    pub job: Job,
    pub after: Vec<JobId>,
    pub time_limit: Option<Duration>,
}

impl Submission {
    /// The time limit of the job: that of these terms, else its own.
    pub fn limit(&self) -> Option<Duration> {
        self.time_limit.or(self.job.time_limit)
    }
}

impl Accepted {
    /// A job that the run file names.
    pub fn of_file(job: &Job) -> Self {
        let (user, submitted) = (User::of(job, User::ROOT), job.arrival);
        Self { user, submitted, job: job.clone(), after: job.after.clone(), time_limit: job.time_limit }
    }
}

/// What a user asks.
#[derive(Clone, Debug)]
pub enum Request {
    Cluster,
    Submit(Vec<Submission>),
    /// The jobs that have not ended; or all.
    Jobs {
        all: bool,
    },
    /// Answered when the job has ended.
    Wait(JobId),
    Cancel(JobId),
    /// Answered when nothing of the job is in memory.
    Park(JobId),
    Resume(JobId),
    Why(JobId),
    /// Answered when no job is in memory on the node.
    Drain(NodeId),
    Undrain(NodeId),
    /// The turns for so long ahead, the switch under way, and the memory of the nodes.
    Timetable {
        ahead: Duration,
    },
    /// Replaces the daemons of these nodes, or of all, by the installed program; answered when that is done.
    /// `dry_run`: says what would be replaced.
    Upgrade {
        nodes: Vec<NodeId>,
        dry_run: bool,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Cluster(Box<ClusterStatus>),
    Submitted(Vec<Submitted>),
    Jobs(Queue),
    Job(Box<JobStatus>),
    Why(Reason),
    Node(NodeStatus),
    Timetable(Timetable),
    Upgraded(Vec<NodeUpgrade>),
    Refused(Refusal),
}

/// What a user needs to know of the cluster before submitting a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    pub version: String,
    pub run: String,
    pub policy: Policy,
    pub quantum: Duration,
    pub cluster: ClusterConfig,
}

/// A job that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    pub job: JobId,
    /// Its name, which no other job of the cluster has.
    pub name: String,
}

/// The jobs of a user. All times are since the cluster's start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    pub now: SimTime,
    pub jobs: Vec<JobStatus>,
    /// Nodes that take no jobs: they are lost, or drained.
    #[serde(default)]
    pub lost: Vec<NodeId>,
    #[serde(default)]
    pub drained: Vec<NodeId>,
}

/// Where a job is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// Not begun: for room, for its first turn, or for other jobs to end.
    Waiting,
    /// Its ranks compute.
    Running,
    /// Between turns, in memory.
    Suspended,
    /// Between turns, in the store.
    Parked,
    /// Without turns, until its user resumes it: it has never begun, or it is in the store.
    Held,
    /// Every rank exited with code 0.
    Done,
    Failed,
    /// Its user ended it.
    Cancelled,
}

impl JobState {
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Parked => "parked",
            Self::Held => "held",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

/// A job as its user sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobStatus {
    pub job: JobId,
    pub name: String,
    pub user: User,
    pub state: JobState,
    pub ranks: u32,
    /// The working set of a rank.
    pub memory: Bytes,
    #[serde(default)]
    pub priority: i32,
    pub submitted: SimTime,
    pub began: Option<SimTime>,
    pub ended: Option<SimTime>,
    pub outcome: Option<JobOutcome>,
    /// For how long it has run: its turns together.
    pub ran: Duration,
    pub time_limit: Option<Duration>,
    /// Jobs that have to succeed first.
    pub after: Vec<JobId>,
    /// What it may expect, by the cluster's own scheduler.
    #[serde(flatten)]
    pub outlook: Outlook,
    /// The group whose nodes it gets, where the cluster is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Which hours it waits for, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens: Option<String>,
    /// The directory of `rank-N.out` and `rank-N.err`.
    pub output: PathBuf,
}

impl JobStatus {
    /// When the job runs next, or for how long yet, in words.
    pub(crate) fn next_turn(&self, now: SimTime) -> String {
        let until = self.outlook.runs_until.map(|at| span(at.since(now)));
        match (self.state, self.outlook.runs_from) {
            (state, _) if state.has_ended() => String::new(),
            (JobState::Running, _) => until.map_or("now".into(), |until| format!("now, for {until} yet")),
            (JobState::Held, _) => format!("after `resume {}`", self.job.0),
            (_, Some(from)) => match &self.opens {
                Some(opens) => format!("in {}: {opens}", span(from.since(now))),
                None => format!("in {}", span(from.since(now))),
            },
            (_, None) if !self.after.is_empty() && self.began.is_none() => {
                let after: Vec<String> = self.after.iter().map(|job| job.0.to_string()).collect();
                format!("after {}", after.join(", "))
            }
            (_, None) => self.opens.clone().unwrap_or_else(|| "not known".into()),
        }
    }
}

/// Why a job is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub job: JobId,
    pub name: String,
    pub text: String,
}

/// A node, as its administrator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    pub node: NodeId,
    /// It takes no jobs.
    pub drained: bool,
    /// The jobs that cannot go on before it takes jobs again.
    pub waiting: Vec<JobId>,
}

/// What the cluster does now and next. Jobs are named by their numbers; the names of a user's own are in the
/// [`Queue`]. All times are since the cluster's start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timetable {
    pub now: SimTime,
    /// The present turn, unless a switch is under way, and those that follow it by the cluster's own
    /// scheduler.
    pub turns: Vec<ForeseenTurn>,
    pub switch: Option<SwitchStatus>,
    /// As last heard of each node; a node that was not heard of yet is left out.
    pub memory: Vec<NodeMemory>,
}

/// A switch under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchStatus {
    pub switch: SwitchId,
    pub purpose: Purpose,
    pub began: SimTime,
    /// The jobs that stop or leave memory.
    pub outgoing: Vec<JobId>,
    pub incoming: Vec<JobId>,
}

/// The memory that the jobs of a node hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMemory {
    pub node: NodeId,
    /// The sum over its jobs.
    pub used: Bytes,
    pub by_job: Vec<JobMemory>,
}

/// A node whose daemon was replaced, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeUpgrade {
    pub node: NodeId,
    /// The jobs that ran there, and stood still for that.
    pub jobs: Vec<JobId>,
    /// For so long; `None` where nothing was done.
    pub pause: Option<Duration>,
    /// Of coswitch, from now on.
    pub version: Option<String>,
}

impl Refusal {
    /// Whether the very same request may be granted later, when jobs have begun or ended.
    #[must_use]
    pub const fn is_for_now(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::QueueFull { .. } | Self::OwnQueueFull { .. })
    }
}

/// Why a request was refused. Nothing has changed then, but for an upgrade of several nodes.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(tag = "refused", rename_all = "kebab-case")]
pub enum Refusal {
    /// There is no such job, or it belongs to another user: the answer does not tell which.
    #[error("there is no {job}; `coswitch queue --all` lists your jobs")]
    UnknownJob { job: JobId },
    #[error("{job} has ended: {outcome}")]
    Ended { job: JobId, outcome: String },
    #[error("{job} cannot be parked: {why}")]
    CannotPark { job: JobId, why: String },
    #[error("{node} is not empty: {why}")]
    CannotDrain { node: NodeId, why: String },
    #[error("there is no {node}: the cluster has {nodes} nodes, from node-0 on")]
    UnknownNode { node: NodeId, nodes: u32 },
    #[error("you are user {user}: only user 0, as whom this cluster runs, may ask that")]
    OnlyRoot { user: u32 },
    #[error("job {number} of the submission, `{name}`: {why}; none of them was submitted")]
    BadJob { number: usize, name: String, why: String },
    #[error("the cluster has {living} jobs, and takes at most {most}: try again when some have ended")]
    Full { living: usize, most: usize },
    #[error(
        "{waiting} jobs wait, and at most {most} may (`max_queued`): {jobs} more were not submitted; try \
         again when some have begun"
    )]
    QueueFull { waiting: usize, jobs: usize, most: usize },
    #[error(
        "{waiting} of your jobs wait, and at most {most} may (`max_queued_per_user`): {jobs} more were not \
         submitted; try again when some have begun"
    )]
    OwnQueueFull { waiting: usize, jobs: usize, most: usize },
    /// The head node does not know the user, or not who asks.
    #[error("user {user} is not served: {why}")]
    NotServed { user: u32, why: String },
    #[error("the cluster cannot write jobs down, and takes none: {why}")]
    NotKept { why: String },
    #[error("the daemon of {node} was not replaced: {why}")]
    NotUpgraded {
        node: NodeId,
        why: String,
        /// Nodes whose daemons were replaced before.
        done: Vec<NodeId>,
    },
    #[error("the accounts cannot be read: {why}")]
    NoAccounts { why: String },
    #[error("the cluster is ending")]
    Ending,
    #[error("{why}")]
    BadRequest { why: String },
}
