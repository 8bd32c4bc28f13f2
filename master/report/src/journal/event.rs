//! The events of a run.

use std::{collections::BTreeSet, fmt, path::PathBuf, time::Duration};

use coswitch_policies::{
    Adopted, Bytes, Capacity, Epoch, JobId, Misplaced, NodeId, Placement, Policy, Purpose, Residence,
    SchedulerConfig, SimTime, SlotId, Split, SwitchId, SwitchOrder, SwitchStep, TimerId,
    local::{ByKind, Technique, explicit::Slices},
    spaceshare::queue::QueueId,
    timeshare::memory_monitor::Pressure,
    timeshare::packing::pairing::Communication,
};
use serde::{Deserialize, Serialize};

use crate::{Folder, Known};

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEvent {
    /// Time since the start of the run.
    pub at: SimTime,
    #[serde(flatten)]
    pub kind: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    /// The daemons are up; the first event of every run.
    RunStarted {
        version: u32,
        /// The name of the run's directories and cgroups.
        run: String,
        /// The run file's name.
        name: String,
        policy: Policy,
        nodes: u32,
        /// Memory that each node offers to jobs.
        capacity: Capacity,
        /// How long a slot stays active.
        quantum: Duration,
        /// All settings of the scheduler, for a replay of its decisions; older journals lack them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scheduler: Option<SchedulerConfig>,
        /// The scheduler of each node, with its parameters; none: the kernel's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        local: Option<Technique>,
    },
    /// By the clock of this machine, time 0 of the run was so long after 1970. Each master says so as it
    /// begins: the clock may have been set, and a run that was parked has had a pause.
    DateKnown { time_0: Duration },
    /// What all earlier events come to, in their place: the second line of a journal that was compacted.
    Summed {
        /// The number of the archive that has those events; the first is 1.
        archive: u32,
        report: Box<Folder>,
        known: Box<Known>,
    },
    /// A job was taken, for accounts. A new master says so again of each job that has not ended.
    JobAccepted {
        job: JobId,
        name: String,
        /// By number.
        user: u32,
        ranks: u32,
        /// As its user has named them, or the first ones, where the cluster is divided.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<String>,
        submitted: SimTime,
    },
    /// A job was submitted. Jobs that are submitted together have adjacent lines with the same time.
    JobSubmitted {
        job: JobId,
        name: String,
        ranks: u32,
        /// The declared working set of one rank.
        memory: Bytes,
        /// How long the job takes alone, where known.
        alone: Option<Duration>,
    },
    /// A new master has taken over, with a new scheduler. Jobs that no node holds are submitted again.
    MasterReplaced {
        /// Of the new master; the first is 1.
        generation: u64,
        /// How many switches were begun before.
        switches: u32,
        /// What the nodes hold.
        jobs: Vec<Adopted>,
        /// Nodes that are to be empty.
        #[serde(default)]
        drained: BTreeSet<NodeId>,
    },
    /// The user of a job holds it: it leaves memory and has no turns.
    #[serde(rename = "job-hold")]
    JobHeld { job: JobId },
    /// The user of a job releases it.
    JobReleased { job: JobId },
    /// The priorities, other than 0, of the jobs that are submitted next.
    JobsPrioritized { priorities: Vec<(JobId, i32)> },
    /// How long jobs run yet at most, where the queue reckons with that: jobs that are submitted or adopted
    /// next, that are released, or that begin again.
    JobsLimited { left: Vec<(JobId, Duration)> },
    /// The queues of jobs that are submitted or adopted next, where that is not the first.
    JobsGrouped { queues: Vec<(JobId, QueueId)> },
    /// A timer of the scheduler fired.
    TimerFired { timer: TimerId },
    /// A job has its placement, and its processes are being started.
    JobLaunched { job: JobId, placement: Placement },
    /// All ranks of a job run: after its launch, and after each restore.
    JobRunning { job: JobId },
    /// How much a running job communicates by the counters of its driver: once a second for each of its
    /// nodes, smoothed.
    JobMeasured {
        job: JobId,
        /// The share of its time that a rank waits for messages, in thousandths: the mean over the ranks.
        communication: Communication,
        #[serde(default)]
        bytes_per_second: Bytes,
        /// The ranks with new counters.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ranks: Vec<RankMeasured>,
    },
    /// The processor time that the control group of a job on a node has counted: every ten seconds, when the
    /// job was frozen, and when it has ended.
    JobProcessed {
        job: JobId,
        node: NodeId,
        /// A job that comes back from a snapshot has another group, which counts from zero.
        group: u64,
        used: Duration,
    },
    /// What the scheduler of a node has added to the accounts of a job's tasks there since the event before:
    /// every ten seconds, when the job was frozen, and when it has ended.
    JobScheduled { job: JobId, node: NodeId, counted: ByKind },
    /// The turn of a slot began, or its set changed.
    SlotStarted {
        slot: SlotId,
        /// The co-scheduled set.
        jobs: Vec<JobId>,
        /// When the turn ends; `None` where no other slot waits.
        ends: Option<SimTime>,
    },
    /// A turn has begun: the start of the next turn of each waiting job, as the scheduler foresees it.
    TurnsForeseen { turns: Vec<(JobId, SimTime)> },
    /// A switch began. Until it ends, the jobs of both sets do not run; a switch for a prefetch goes on
    /// beside a turn.
    SwitchStarted {
        switch: SwitchId,
        #[serde(default)]
        purpose: Purpose,
        /// The order of its steps.
        #[serde(default)]
        order: SwitchOrder,
        /// The jobs that stop, and suspended jobs that leave memory.
        outgoing: Vec<JobId>,
        /// The outgoing jobs that leave memory; in older journals, which lack this, all of them.
        #[serde(default)]
        parked: Option<Vec<JobId>>,
        incoming: Vec<JobId>,
    },
    /// A step of a switch is over, for one job on one node.
    #[serde(rename = "phase-done")]
    StepDone {
        switch: SwitchId,
        job: JobId,
        node: NodeId,
        #[serde(rename = "phase")]
        step: SwitchStep,
        began: SimTime,
        ended: SimTime,
        /// Bytes moved.
        bytes: Bytes,
    },
    /// A snapshot of a job is complete on a node; older journals lack this.
    SnapshotStored {
        job: JobId,
        node: NodeId,
        /// The directory of `cluster.store` that took it.
        root: PathBuf,
        /// Its size there.
        bytes: Bytes,
    },
    /// A snapshot of a job is on other nodes as well.
    JobCopied {
        job: JobId,
        /// The node that has sealed it.
        node: NodeId,
        /// The nodes that hold its chunks.
        to: Vec<NodeId>,
        /// Its size.
        bytes: Bytes,
        /// From the request until all of it was on their disks.
        took: Duration,
    },
    /// A step of a switch is under way. Not written to the journal.
    Progress {
        job: JobId,
        node: NodeId,
        #[serde(rename = "phase")]
        step: SwitchStep,
        /// Bytes moved so far.
        bytes: Bytes,
        /// Bytes to be moved in all, as far as known.
        total: Bytes,
    },
    /// A job wrote a line. Not written to the journal.
    Output {
        job: JobId,
        /// The last line of its lowest rank.
        line: String,
    },
    /// A switch ended.
    SwitchEnded {
        switch: SwitchId,
        /// How long its restores took; `None` where a job is misplaced.
        #[serde(default)]
        restore: Option<Duration>,
        /// How long no job of the run computed because of the switch.
        exposed: Duration,
        /// Bytes written by dumps.
        bytes_out: Bytes,
        /// Bytes read by restores.
        bytes_in: Bytes,
        /// The jobs that are elsewhere than planned.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[serde(rename = "astray")]
        misplaced: Vec<Misplaced>,
    },
    /// The last counters of a job's drivers, when the job ends.
    JobCommunicated {
        job: JobId,
        /// Messages sent.
        messages: u64,
        /// Payload sent.
        bytes: Bytes,
        /// Time waited for messages, summed over the ranks.
        waiting: Duration,
    },
    /// A job ended.
    JobFinished {
        job: JobId,
        outcome: JobOutcome,
        /// The last lines that the job wrote, where it failed.
        last_output: String,
    },
    /// The resident memory of a job differs from its estimate: it is larger, or it has long been smaller.
    #[serde(rename = "job-held")]
    JobResident {
        job: JobId,
        node: NodeId,
        /// Resident memory there, without file caches.
        #[serde(rename = "held")]
        resident: Bytes,
    },
    /// What a job is known to hold on a node, by which it is planned where jobs wait: while it runs the peak
    /// of the last seconds, afterwards what it holds, or the size of its images.
    JobFootprint {
        job: JobId,
        node: NodeId,
        #[serde(rename = "held")]
        resident: Bytes,
        /// By how much a second it grows while it runs; `None` where it has not run for long enough to tell.
        growth: Option<Bytes>,
        /// Whether it holds just that until it runs again.
        #[serde(default)]
        exact: bool,
    },
    /// The running jobs of a node grew into memory that suspended jobs hold, faster than these could leave:
    /// they are stopped until there is room. Told again every second.
    RunningStopped { node: NodeId },
    /// The jobs of a node exceed its memory, or are about to.
    #[serde(rename = "node-pressed")]
    NodeUnderPressure { node: NodeId, pressure: Pressure },
    /// A set no longer fitted a node, and a job left it.
    SetSplit(Split),
    /// A job takes more than a node offers although it has the node to itself. It runs on.
    JobOutgrew {
        job: JobId,
        node: NodeId,
        /// Resident memory there.
        #[serde(rename = "held")]
        resident: Bytes,
        /// Memory that the node offers.
        capacity: Bytes,
    },
    /// Memory that the jobs of a node hold: where it has changed, or about once a second.
    MemorySample {
        node: NodeId,
        /// The sum over its jobs.
        used: Bytes,
        by_job: Vec<JobMemory>,
        /// How often the node has looked since the sample before; in older journals each look is a sample.
        #[serde(default = "one_look")]
        looks: u32,
        /// The largest sum at any of these looks; 0 in older journals.
        #[serde(default)]
        peak: Bytes,
    },
    /// A node was lost. It is given another daemon; what ran there has ended, unless it has survived.
    NodeLost { node: NodeId, reason: String },
    /// A node that was lost has another daemon, with what the one before had sealed.
    NodeBack { node: NodeId },
    /// A node is to be empty: its jobs leave memory, and it takes no others.
    NodeDrained { node: NodeId },
    /// A drained node takes jobs again.
    NodeUndrained { node: NodeId },
    /// A job has left memory on all of its nodes, because one of them was lost: it is parked at its snapshots
    /// until all of them are back, or is to be launched again.
    JobDisplaced { job: JobId, residence: Residence },
    /// The part of a job on a lost node has moved to another node, by its copy.
    JobMoved {
        job: JobId,
        from: NodeId,
        to: NodeId,
        /// The node of each rank from now on.
        placement: Vec<NodeId>,
    },
    /// The nodes of a job have got its program, which they do not see at its path.
    ProgramSent { job: JobId, bytes: Bytes, took: Duration },
    /// The processes of a job on a node that was lost have survived its daemon. The next one has adopted
    /// them, and the job is where it was.
    JobSurvived { job: JobId, node: NodeId },
    /// A job has gone back to a snapshot, or begins again: so long it had run since.
    JobRepeats { job: JobId, work: Duration },
    /// A job computes, and every node has a snapshot of it, to which it goes back where a node is lost. Its
    /// running time includes the time in which it stood still for that.
    JobCheckpointed {
        job: JobId,
        epoch: Epoch,
        /// Size of the images.
        bytes: Bytes,
        /// Zero where a master before this one has begun it.
        stood_still: Duration,
    },
    /// A job that was to be checkpointed computes without a new snapshot.
    JobNotCheckpointed { job: JobId, reason: String },
    /// A daemon was not heard for a while, and is heard again.
    NodeWasSilent { node: NodeId, silence: Duration },
    /// The ranks on a node were frozen, because their daemon did not hear the master. Their running times
    /// include it.
    JobsStoodStill { node: NodeId, silence: Duration, frozen: Duration },
    /// The daemon of a node was replaced by another program, of this version of coswitch. These jobs stood
    /// still for it; their running times include the pause.
    DaemonReplaced { node: NodeId, version: String, pause: Duration, jobs: Vec<JobId> },
    /// From now on these jobs take slices of this length, row by row, on all nodes at once.
    SlicesBegun { slice: Duration, rows: Vec<BTreeSet<JobId>> },
    /// The warm switches of a node since the event before: their number, the time that they took in all, and
    /// the processor time that jobs used in slices of others.
    SlicesUsed { node: NodeId, switches: u64, took: Duration, overlap: Duration },
    /// DTS in balanced mode: from now on ranks and local tasks have these slices on all nodes, by the load of
    /// local tasks of each node that reports, and the mean of load by power weight, in thousandths of a task.
    SlicesBalanced { loads: Vec<(NodeId, u32)>, load: u32, slices: Slices },
    /// A message for the user; the run goes on.
    Warning { text: String },
    /// Counters of the whole machine over the run, other programs included.
    MachineUsed(MachineUse),
    /// The last event of a run that was not cut off.
    RunEnded { outcome: RunOutcome },
}

const fn one_look() -> u32 {
    1
}

/// How much one rank communicates, smoothed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMeasured {
    pub rank: u32,
    /// The share of its time that it waits for messages, in thousandths.
    pub communication: Communication,
    pub bytes_per_second: Bytes,
}

/// Memory that one job holds on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMemory {
    pub job: JobId,
    pub used: Bytes,
    /// In swap, besides.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub swapped: Bytes,
    /// Page faults that waited for a disk, since its group on the node was made.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub major_faults: u64,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Counters of a machine over a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineUse {
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    pub swapped_in: Bytes,
    pub swapped_out: Bytes,
    /// Time in which some process waited for memory (pressure stall information); `None` where the kernel
    /// lacks it.
    pub memory_stall: Option<Duration>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobOutcome {
    /// All ranks exited; the largest of their exit codes.
    Exit(i32),
    /// This signal killed a rank.
    Signal(i32),
    /// coswitch ended the job, or could not start it.
    Failed(String),
}

/// Why a job was ended early, as in the journals of all versions.
const CANCELLED: &str = "cancelled";
const TIME_LIMIT: &str = "it ran for its time limit of ";

impl JobOutcome {
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Exit(0))
    }

    /// Its user has ended the job.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::Failed(CANCELLED.into())
    }

    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Failed(why) if why == CANCELLED)
    }

    /// The job has run for as long as it may.
    #[must_use]
    pub fn at_time_limit(limit: Duration) -> Self {
        Self::Failed(format!("{TIME_LIMIT}{} s", limit.as_secs_f64()))
    }

    #[must_use]
    pub fn is_at_time_limit(&self) -> bool {
        matches!(self, Self::Failed(why) if why.starts_with(TIME_LIMIT))
    }
}

impl fmt::Display for JobOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(0) => f.write_str("ok"),
            Self::Exit(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "killed by signal {signal}"),
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunOutcome {
    /// Every job exited with code 0.
    Done,
    /// Every job ended, and at least one failed.
    JobsFailed,
    /// The user stopped the run.
    Interrupted,
    /// The run reached its time limit.
    TimedOut,
    /// coswitch itself failed.
    Aborted,
    /// The nodes are taken away: every job that had not ended is parked, and the run can be resumed.
    Parked,
}

impl Event {
    /// Whether only the live view uses the event: it is not written to the journal.
    pub const fn is_live_only(&self) -> bool {
        matches!(self, Self::Progress { .. } | Self::Output { .. })
    }
}
