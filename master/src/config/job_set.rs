//! The job set that a run file means: cluster, settings and jobs, checked and complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use coswitch_daemon::node::Tier;
use coswitch_dispatcher::{
    protocol::{Delivery, Wait},
    provisioning::{hosts::Host, slurm::Allocation},
    watch::Heartbeats,
};
use coswitch_policies::{
    Alternate, AutoQuantum, Bytes, Capacity, Cluster, Estimate, JobId, JobSpec, NodeId, Oracle, Packing,
    Policy, Rate, Residency, Rotation, SchedulerConfig, ShortOfMemory, SimTime, SwitchOrder,
    local::{Technique, explicit::PowerWeight},
    placement::Shape,
    spaceshare::{
        choice::{AllocatorName, QueueName},
        queue::QueueId,
        sharing::{NodeSets, SpaceSharing},
    },
};
use coswitch_report::words::span;
use serde::{Deserialize, Serialize};

use super::{
    choice::{Encryption, ParkMethod},
    owner::Owner,
};

/// The most nodes of a cluster.
pub const NODES_MAX: u32 = 64;
/// The most jobs of one run.
pub const JOBS_MAX: u32 = 1000;
/// The highest priority of a job, and with a minus the lowest.
pub const PRIORITY_MAX: i32 = 1000;
/// The most ranks of one job.
pub const RANKS_MAX: u32 = 1024;

/// A run file, read and checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSet {
    /// The name of the run: the file's name without its extension.
    pub name: String,
    /// The run file.
    pub file: PathBuf,
    pub cluster: ClusterConfig,
    pub scheduler: Settings,
    /// The jobs, numbered from 0 in the order of the file.
    pub jobs: Vec<Job>,
}

/// The nodes of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterConfig {
    pub nodes: u32,
    /// Node `i` is host `i`.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// Node `i` is host `i` of this allocation of Slurm. With neither hosts nor an allocation the nodes are
    /// virtual, all on this machine.
    #[serde(default)]
    pub allocation: Option<Allocation>,
    /// Memory that each node offers to jobs.
    pub memory: Capacity,
    /// The nodes that were asked for their memory, because the run file does not say it.
    #[serde(default)]
    pub memory_asked: BTreeSet<NodeId>,
    /// How fast node `i` is by the fastest one; empty where all are equally fast.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub power: Vec<PowerWeight>,
    /// The rate of a node's link; `None` is full speed.
    pub rate: Option<Rate>,
    /// Of messages between nodes; `None`: on between machines, off between virtual nodes.
    #[serde(default)]
    pub encryption: Option<Encryption>,
    /// Memory of a node for pages on their way to its store; `None` leaves the size to the node.
    pub arena: Option<Bytes>,
    /// The directories for images, in the order of use; none is `/var/lib/coswitch`.
    pub store: Vec<Tier>,
    /// How many other nodes hold a copy of each sealed snapshot.
    #[serde(default)]
    pub copies: u32,
    /// After so long a silence a node counts as lost.
    #[serde(default = "lost_after")]
    pub lost_after: Duration,
    /// By which way nodes are heard.
    #[serde(default)]
    pub heartbeats: Heartbeats,
    /// After so long a silence of the master a node ends its jobs.
    #[serde(default = "stop_after")]
    pub stop_after: Duration,
    /// Of one node; `None`: jobs that stay in memory are not checkpointed.
    #[serde(default = "mean_time_between_failures")]
    pub mean_time_between_failures: Option<Duration>,
}

/// The default of `cluster.mean_time_between_failures`.
pub(crate) const fn mean_time_between_failures() -> Option<Duration> {
    Some(Duration::from_secs(7 * 24 * 60 * 60))
}

/// The default of `cluster.lost_after`.
pub(crate) const fn lost_after() -> Duration {
    Duration::from_secs(10 * 60)
}

/// The default of `cluster.stop_after`.
pub(crate) const fn stop_after() -> Duration {
    Duration::from_secs(24 * 60 * 60)
}

/// How the jobs share the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub policy: Policy,
    /// The order in which waiting jobs start, under `batch`.
    #[serde(default)]
    pub queue: QueueName,
    /// The nodes that a job gets, under `batch`.
    #[serde(default)]
    pub allocator: AllocatorName,
    /// How the cluster is divided, under `batch`.
    #[serde(default)]
    pub sets: Option<Box<NodeSets>>,
    /// How long a slot stays active; the minimum where `auto` is set.
    pub quantum: Duration,
    /// The bounds within which coswitch chooses the quantum.
    pub auto: Option<AutoQuantum>,
    /// The same, also where the quantum is given: for advice.
    pub auto_bounds: AutoQuantum,
    /// The order of the steps of a switch.
    pub switching: SwitchOrder,
    /// What a switch does where memory does not hold what that needs.
    #[serde(default)]
    pub short_of_memory: ShortOfMemory,
    pub oracle: Oracle,
    /// Where jobs wait for their turns.
    pub residency: Residency,
    /// How the memory of jobs is estimated.
    #[serde(default)]
    pub needs: Estimate,
    pub park: ParkMethod,
    /// The most jobs in one cell; `None` is as many as fit in memory.
    pub max_per_cell: Option<u32>,
    /// The most jobs that users may have wait to begin; `None`: as many as a cluster has jobs.
    #[serde(default)]
    pub max_queued: Option<u32>,
    /// The most of one user other than root; `None`: half of all.
    #[serde(default)]
    pub max_queued_per_user: Option<u32>,
    /// How long jobs run at most.
    #[serde(default)]
    pub time_limits: TimeLimits,
    /// How jobs that are submitted together get their slots.
    #[serde(default)]
    pub packing: Packing,
    /// What is exchanged at the end of a turn.
    #[serde(default)]
    pub rotation: Rotation,
    /// Which jobs are backfilled into the slots of others.
    #[serde(default)]
    pub alternate: Alternate,
    /// Jobs that are in memory together take turns of this length, or have slots of this length for the node
    /// schedulers.
    #[serde(default)]
    pub slice: Option<Duration>,
    /// By which the ranks of a node are favoured; none: by the kernel's own.
    #[serde(default)]
    pub local: Option<Technique>,
    /// How ranks wait for messages, where their job does not say.
    #[serde(default)]
    pub wait: Wait,
}

/// The limits on the running time of all jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeLimits {
    /// Of a job that has none of its own.
    pub usual: Option<Duration>,
    /// No job has a longer one.
    pub longest: Option<Duration>,
}

impl TimeLimits {
    /// The time limit of a job, by its own, which is [allowed](Self::check), and that of its queue.
    #[must_use]
    pub fn of(&self, own: Option<Duration>, queue: Option<Duration>) -> Option<Duration> {
        let usual = queue.or(self.usual).or(self.longest);
        own.or_else(|| usual.map(|usual| self.longest.map_or(usual, |longest| usual.min(longest))))
    }

    /// # Errors
    /// Where the limit is longer than that of any job, in words.
    pub fn check(&self, own: Option<Duration>) -> Result<(), String> {
        match (own, self.longest) {
            (Some(own), Some(longest)) if own > longest => Err(format!(
                "a time limit of {} is longer than that of any job here, {} (`time_limit_max`)",
                span(own),
                span(longest)
            )),
            _ => Ok(()),
        }
    }
}

/// One job; a `count` of n in the file makes n of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    /// Unique in the run.
    pub name: String,
    /// The program: an absolute path to an executable file.
    pub program: PathBuf,
    /// How the nodes get it.
    #[serde(default)]
    pub delivery: Delivery,
    /// The program's arguments, without its name.
    pub arguments: Vec<String>,
    pub ranks: u32,
    /// The declared working set of one rank.
    pub memory: Bytes,
    /// The time of submission, from the start of the run.
    pub arrival: SimTime,
    /// Jobs of the same file that come first; it is submitted when they have ended well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<JobId>,
    /// Environment variables for the ranks, on top of coswitch's own.
    pub env: BTreeMap<String, String>,
    /// The working directory of the ranks, absolute.
    pub cwd: PathBuf,
    /// How long the job takes alone, where known.
    pub alone: Option<Duration>,
    /// It is ended when it has run for so long.
    #[serde(default)]
    pub time_limit: Option<Duration>,
    /// Whose it is; `None`: root's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// How its ranks wait for messages; `None`: as the scheduler says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// Jobs of the highest priority take turns; the others wait, or run beside them.
    #[serde(default)]
    pub priority: i32,
    /// The node group and the queue that it names, where the cluster is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

/// What a job's name looks like: it becomes part of paths (directories, cgroups, shared memory).
pub(super) const NAME_HELP: &str =
    "begin with a letter or digit; then letters, digits, `-`, `_`, `.`; up to 64";

pub(super) fn is_job_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    starts_well && name.len() <= 64 && name.chars().all(plain)
}

impl ClusterConfig {
    /// Whether messages between nodes are encrypted: where the run file says so, or says nothing and they
    /// leave a machine.
    pub fn encrypts(&self) -> bool {
        self.encryption.map_or(!self.is_virtual(), |encryption| encryption == Encryption::On)
    }

    /// Whether all nodes are on this machine.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.hosts.is_empty() && self.allocation.is_none()
    }

    /// The directories for images that are on this machine.
    pub fn stores_here(&self) -> &[Tier] {
        if self.is_virtual() { &self.store } else { &[] }
    }

    /// The nodes with their memory, as the scheduler sees them.
    #[must_use]
    pub fn capacities(&self) -> Cluster {
        self.memory.cluster(self.nodes)
    }

    /// All nodes, and how fast each is by the fastest one.
    pub fn powers(&self) -> impl Iterator<Item = (NodeId, PowerWeight)> {
        let power = |node: u32| self.power.get(node as usize).copied().unwrap_or_default();
        (0..self.nodes).map(move |node| (NodeId(node), power(node)))
    }

    /// Takes over the memory of nodes that were asked for it in the same cluster before.
    pub fn remember_memory(&mut self, before: &Self) {
        let is_asked = |node| self.memory_asked.contains(&node) && before.memory_asked.contains(&node);
        let memory = |node| if is_asked(node) { before.memory.on(node) } else { self.memory.on(node) };
        self.memory = Capacity::of((0..self.nodes).map(NodeId).map(memory).collect());
    }

    /// The directories of a node for images, in the order of use.
    #[must_use]
    pub fn store_of(&self, node: NodeId) -> &[Tier] {
        let own = self.hosts.get(node.0 as usize).map(|host| &host.store[..]).unwrap_or_default();
        if own.is_empty() { &self.store } else { own }
    }

    /// Why a job cannot have its nodes, if so: its queue, the allocator or its group gives none so many.
    pub fn too_wide_for(&self, job: &Job, space: &SpaceSharing) -> Option<String> {
        let (cluster, rule) = (self.capacities(), Policy::Batch.memory_rule());
        let width = Shape::on_empty(&job.spec(), &cluster, rule)?.width;
        let queue = job.home(space).ok()?;
        let most = space.largest_job(self.nodes, queue);
        let Some(group) = space.group_name(queue) else {
            let allocator = space.allocator;
            let text =
                format!("needs {width} nodes, and the allocator `{allocator}` gives a job {most} at most");
            return (width > most).then(|| format!("the job {text}"));
        };
        // In a group it may lie closer than in the whole cluster.
        let of_group = Cluster::uniform(most, cluster.largest());
        let is_held = most > 0 && Shape::on_empty(&job.spec(), &of_group, rule).is_some();
        (!is_held).then(|| {
            format!("the job needs {width} nodes, and its group `{group}` gives a job {most} at most")
        })
    }

    /// Why the empty cluster cannot run a job, if so.
    pub fn too_small_for(&self, job: &Job, policy: Policy) -> Option<String> {
        let cluster = self.capacities();
        if Shape::on_empty(&job.spec(), &cluster, policy.memory_rule()).is_some() {
            return None;
        }
        if cluster.is_uniform() {
            let ranks_here = job.ranks.div_ceil(self.nodes);
            let needed = Bytes(job.memory.0.saturating_mul(ranks_here.into()));
            return Some(format!(
                "the job is larger than a node: {ranks_here} rank(s) of {} on one node need {needed}, \
                 a node holds {}",
                job.memory,
                cluster.largest()
            ));
        }
        Some(format!(
            "the job is larger than the cluster: {} rank(s) of {} do not fit on {} nodes of {}",
            job.ranks, job.memory, self.nodes, self.memory
        ))
    }
}

impl Settings {
    /// The queue and the allocator, where jobs have nodes of their own.
    pub fn space(&self) -> Option<SpaceSharing> {
        let sets = self.sets.clone();
        (self.policy == Policy::Batch).then(|| SpaceSharing { sets, ..self.undivided() })
    }

    /// How many jobs one user other than root may have wait to begin.
    pub fn most_queued_per_user(&self) -> u32 {
        self.max_queued_per_user.unwrap_or((self.max_queued.unwrap_or(JOBS_MAX) / 2).max(1))
    }

    /// The slices in which all other jobs stand still.
    pub fn warm_slice(&self) -> Option<Duration> {
        self.slice.filter(|_| self.local.is_none())
    }

    /// The queue and the allocator, on one set of nodes.
    pub(super) const fn undivided(&self) -> SpaceSharing {
        SpaceSharing::of(self.queue, self.allocator)
    }
}

impl Job {
    /// The queue in which the job waits.
    ///
    /// # Errors
    /// Where it names one that there is not.
    pub fn home(&self, space: &SpaceSharing) -> Result<QueueId, String> {
        let (group, queue) = (self.group.as_deref(), self.queue.as_deref());
        match &space.sets {
            Some(sets) => sets.layout.home(queue, group).map_err(|error| error.to_string()),
            None if group.is_some() || queue.is_some() => {
                let named = if group.is_some() { "group" } else { "queue" };
                Err(format!("the job names a {named}, and the cluster is not divided (`scheduler.sets`)"))
            }
            None => Ok(QueueId(0)),
        }
    }

    /// The longest that its queue lets a job run.
    pub fn longest(&self, space: &SpaceSharing) -> Option<Duration> {
        let queue = self.home(space).ok()?;
        space.sets.as_ref()?.layout.queues.get(usize::from(queue.0))?.longest()
    }

    /// The longest that the job runs, as far as backfilling may rely on it.
    pub fn runs_at_most(&self) -> Option<Duration> {
        self.time_limit.or(self.alone)
    }

    /// The job as the scheduler sees it.
    pub fn spec(&self) -> JobSpec {
        let Self { id, name, ranks, memory, arrival, .. } = self.clone();
        JobSpec { id, name: name.into(), ranks, memory_per_rank: memory, arrival }
    }

    /// Whether a job that no run file describes can be one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        if !is_job_name(&self.name) {
            return Err(format!("`{}` cannot name a job: {NAME_HELP}", self.name));
        }
        if self.priority.abs() > PRIORITY_MAX {
            let priority = self.priority;
            return Err(format!(
                "its priority is {priority}: it lies between -{PRIORITY_MAX} and {PRIORITY_MAX}"
            ));
        }
        if !(1..=RANKS_MAX).contains(&self.ranks) {
            return Err(format!("it has {} ranks: a job has 1 to {RANKS_MAX}", self.ranks));
        }
        if self.memory == Bytes(0) {
            return Err("a rank without memory cannot run".into());
        }
        let (program, cwd) = (&self.program, &self.cwd);
        if !program.is_absolute() || !cwd.is_absolute() {
            return Err("its program and its directory have to be absolute paths".into());
        }
        Ok(())
    }

    /// The working set of the whole job.
    pub fn memory_total(&self) -> Bytes {
        Bytes(self.memory.0.saturating_mul(self.ranks.into()))
    }
}

impl JobSet {
    /// The cluster as the scheduler sees it.
    pub fn cluster(&self) -> Cluster {
        self.cluster.capacities()
    }

    /// The settings as the scheduler takes them.
    pub fn scheduler_config(&self) -> SchedulerConfig {
        let space = self.scheduler.space();
        let Settings {
            policy,
            quantum,
            auto,
            switching,
            short_of_memory,
            oracle,
            residency,
            needs,
            park,
            max_per_cell,
            packing,
            rotation,
            alternate,
            ..
        } = self.scheduler.clone();
        let residency = if park == ParkMethod::Suspend { Residency::Always } else { residency };
        // Page-out leaves no snapshots.
        let between_failures = self.cluster.mean_time_between_failures;
        let mean_time_between_failures = between_failures.filter(|_| park != ParkMethod::PageOut);
        SchedulerConfig {
            mean_time_between_failures,
            max_per_cell,
            switching,
            short_of_memory,
            oracle,
            residency,
            estimate: needs,
            auto,
            packing,
            // Of other policies that the file is tried under, each exchanges sets.
            rotation: if policy == Policy::Hybrid { rotation } else { Rotation::Set },
            alternate,
            space,
            ..SchedulerConfig::new(policy, quantum)
        }
    }

    /// The jobs as the scheduler sees them.
    pub fn specs(&self) -> Vec<JobSpec> {
        self.jobs.iter().map(Job::spec).collect()
    }

    /// The queue in which each job waits.
    pub fn queues(&self) -> BTreeMap<JobId, QueueId> {
        let space = self.scheduler.space();
        let home = |job: &Job| space.as_ref().and_then(|space| job.home(space).ok()).unwrap_or_default();
        self.jobs.iter().map(|job| (job.id, home(job))).collect()
    }

    /// The working sets of all jobs together.
    pub fn memory_total(&self) -> Bytes {
        self.jobs.iter().map(Job::memory_total).sum()
    }

    /// The memory that all nodes offer together.
    pub fn capacity_total(&self) -> Bytes {
        self.cluster.memory.total(self.cluster.nodes)
    }
}
