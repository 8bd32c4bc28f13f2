//! What a run file means: the cluster, the settings and the jobs, checked, with nothing left to look up.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use coswitch_daemon::node::Tier;
use coswitch_policies::{
    Alternate, AutoQuantum, Bytes, Estimate, JobId, JobSpec, Oracle, Packing, Policy, Rate, Residency,
    SchedulerConfig, SimTime, SwitchOrder,
};
use serde::{Deserialize, Serialize};

use super::choice::{Park, Wait};

/// A run file, understood and checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSet {
    /// The name of the run: the file's name without its ending.
    pub name: String,
    /// The file it was read from.
    pub file: PathBuf,
    /// The machines.
    pub cluster: Cluster,
    /// How they are shared.
    pub scheduler: Settings,
    /// The jobs, numbered from 0 in the order of the file.
    pub jobs: Vec<Job>,
}

/// The machines of a run: virtual nodes of this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// How many.
    pub nodes: u32,
    /// What one of them may hold of jobs.
    pub memory: Bytes,
    /// The rate of a node's link; full speed where none.
    pub rate: Option<Rate>,
    /// What stands ready on a node for pages on their way to its store; the nodes choose where none.
    pub arena: Option<Bytes>,
    /// The directories for images, in the order of use; `/var/tmp` where none.
    pub store: Vec<Tier>,
}

/// How the machines are shared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The limits under which the matrix is filled.
    pub policy: Policy,
    /// How long a slot stays active; with `auto` at least.
    pub quantum: Duration,
    /// Where coswitch chooses the quantum: within which bounds.
    pub auto: Option<AutoQuantum>,
    /// The order of the steps of a switch.
    pub switching: SwitchOrder,
    /// How early a prefetch begins.
    pub oracle: Oracle,
    /// Where jobs wait for their turns.
    pub residency: Residency,
    /// What is assumed of the jobs' memory.
    #[serde(default)]
    pub needs: Estimate,
    /// How a job leaves memory.
    pub park: Park,
    /// The most jobs in one cell; no limit but memory where none.
    pub max_per_cell: Option<u32>,
    /// How jobs that come together are given their slots.
    #[serde(default)]
    pub packing: Packing,
    /// Which jobs go on in the slots of others.
    #[serde(default)]
    pub alternate: Alternate,
}

/// One job; `count` alike in the file are so many of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// Its name, unique in the run.
    pub name: String,
    /// The program: an absolute path to an executable file.
    pub program: PathBuf,
    /// The program's arguments, without its name.
    pub arguments: Vec<String>,
    /// The number of MPI ranks.
    pub ranks: u32,
    /// The working set of one rank.
    pub memory: Bytes,
    /// When it is submitted, from the start of the run.
    pub arrival: SimTime,
    /// Environment variables for the ranks, on top of coswitch's own.
    pub env: BTreeMap<String, String>,
    /// The working directory of the ranks, absolute.
    pub cwd: PathBuf,
    /// How long it takes alone, where the file says so.
    pub alone: Option<Duration>,
    /// What its ranks do while they wait.
    pub wait: Wait,
}

impl Job {
    /// The job as the scheduler sees it.
    pub fn spec(&self) -> JobSpec {
        let Self { id, name, ranks, memory, arrival, .. } = self.clone();
        JobSpec { id, name: name.into(), ranks, memory_per_rank: memory, arrival }
    }

    /// The working set of the whole job.
    pub fn memory_total(&self) -> Bytes {
        Bytes(self.memory.0.saturating_mul(self.ranks.into()))
    }
}

impl JobSet {
    /// The machines as the scheduler sees them.
    pub fn cluster(&self) -> coswitch_policies::Cluster {
        coswitch_policies::Cluster::uniform(self.cluster.nodes, self.cluster.memory)
    }

    /// The settings as the scheduler takes them.
    pub fn scheduler_config(&self) -> SchedulerConfig {
        let Settings {
            policy,
            quantum,
            auto,
            switching,
            oracle,
            residency,
            needs,
            max_per_cell,
            packing,
            alternate,
            ..
        } = self.scheduler.clone();
        SchedulerConfig {
            max_per_cell,
            switching,
            oracle,
            residency,
            estimate: needs,
            auto,
            packing,
            alternate,
            ..SchedulerConfig::new(policy, quantum)
        }
    }

    /// The jobs as the scheduler sees them.
    pub fn specs(&self) -> Vec<JobSpec> {
        self.jobs.iter().map(Job::spec).collect()
    }

    /// The working sets of all jobs together.
    pub fn memory_total(&self) -> Bytes {
        self.jobs.iter().map(Job::memory_total).sum()
    }

    /// What all nodes together may hold.
    pub fn capacity_total(&self) -> Bytes {
        Bytes(self.cluster.memory.0.saturating_mul(self.cluster.nodes.into()))
    }
}
