//! The journal of a run: what happened, when, one JSON object a line, appended as it happens.
//!
//! It is the truth about a run. The report is a fold over it and the live view follows it. Readers skip fields they
//! do not know, and a last line cut short by a crash is not an error. The events are here, their file in [`file`].

mod file;

use std::{fmt, path::PathBuf, time::Duration};

use coswitch_policies::{
    Bytes, JobId, Misplaced, NodeId, Placement, Policy, Purpose, SchedulerConfig, SimTime, SlotId, Split,
    SwitchId, SwitchOrder, TimerId, timeshare::memory_monitor::Pressure,
    timeshare::packing::pairing::Communication,
};
use serde::{Deserialize, Serialize};

pub use file::{FILE_NAME, JournalError, Writer, read};

/// The version of the journal's format, in its first line. Since 2 it tells timers, and everything the scheduler was asked about stands at
/// the instant at which it was asked. Since 3 it tells what jobs turn out to hold, and classes of communication decide what is news.
pub const VERSION: u32 = 3;

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEvent {
    /// When, from the start of the run.
    pub at: SimTime,
    /// What.
    #[serde(flatten)]
    pub kind: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Event {
    /// The daemons are up; the first event of every run.
    RunStarted {
        /// The format of the journal.
        version: u32,
        /// What the run's directories are called.
        run: String,
        /// The run file's name.
        name: String,
        /// The limits of the matrix.
        policy: Policy,
        /// How many nodes.
        nodes: u32,
        /// What one node may hold of jobs.
        capacity: Bytes,
        /// How long a slot stays active.
        quantum: Duration,
        /// All settings of the scheduler, so that its decisions can be made again; not in older journals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scheduler: Option<SchedulerConfig>,
    },
    /// A job was submitted. Those that came together stand together, at one instant.
    JobSubmitted {
        /// The job.
        job: JobId,
        /// Its name.
        name: String,
        /// Its ranks.
        ranks: u32,
        /// The working set of one rank.
        memory: Bytes,
        /// How long it takes alone, where known.
        alone: Option<Duration>,
    },
    /// A timer of the scheduler fired.
    TimerFired {
        /// Which.
        timer: TimerId,
    },
    /// A job has its place, and its processes are being started.
    JobLaunched {
        /// The job.
        job: JobId,
        /// Where its ranks run.
        placement: Placement,
    },
    /// All ranks of a job run: after its launch, and after each restore.
    JobRunning {
        /// The job.
        job: JobId,
    },
    /// What share of its time a running job communicates, as its driver counts it; once a second for each of its nodes. All smoothed.
    JobMeasured {
        /// The job.
        job: JobId,
        /// The share, in thousandths: the mean over its ranks.
        communication: Communication,
        /// Payload that it sends in a second.
        #[serde(default)]
        bytes_per_second: Bytes,
        /// The ranks of which there is news.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ranks: Vec<RankMeasured>,
    },
    /// The turn of a slot began, or its set changed.
    SlotStarted {
        /// The slot.
        slot: SlotId,
        /// The co-scheduled set.
        jobs: Vec<JobId>,
        /// When the turn ends; open where no other slot waits.
        ends: Option<SimTime>,
    },
    /// A switch began. Until it ends the jobs of both sets do not run, unless it is carried out beside a turn.
    SwitchStarted {
        /// The switch.
        switch: SwitchId,
        /// What it is for.
        #[serde(default)]
        purpose: Purpose,
        /// In which order its steps are done.
        #[serde(default)]
        order: SwitchOrder,
        /// The jobs that stop, or were suspended and leave memory.
        outgoing: Vec<JobId>,
        /// Those of them that leave memory; all, where it is not told.
        #[serde(default)]
        parked: Option<Vec<JobId>>,
        /// The jobs that come in.
        incoming: Vec<JobId>,
    },
    /// A step of a switch is over, for one job on one node.
    PhaseDone {
        /// The switch.
        switch: SwitchId,
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// Which step.
        phase: Phase,
        /// When it began.
        began: SimTime,
        /// When it ended.
        ended: SimTime,
        /// What it moved.
        bytes: Bytes,
    },
    /// A snapshot of a job is whole on a node; not in older journals.
    SnapshotStored {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// The directory of `cluster.store` that took it.
        root: PathBuf,
        /// What it takes there.
        bytes: Bytes,
    },
    /// A step of a switch is under way. For the live view; left out of the journal.
    Progress {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// Which step.
        phase: Phase,
        /// Moved so far.
        bytes: Bytes,
        /// To be moved in all, as far as known.
        total: Bytes,
    },
    /// A job wrote a line. For the live view; left out of the journal.
    Output {
        /// The job.
        job: JobId,
        /// The last line its lowest rank wrote.
        line: String,
    },
    /// A switch ended.
    SwitchEnded {
        /// The switch.
        switch: SwitchId,
        /// How long its restores took, where all went well.
        #[serde(default)]
        restore: Option<Duration>,
        /// How long no job of the run could compute because of it.
        exposed: Duration,
        /// Written by dumps.
        bytes_out: Bytes,
        /// Read by restores.
        bytes_in: Bytes,
        /// The jobs that are elsewhere than planned.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[serde(rename = "astray")]
        misplaced: Vec<Misplaced>,
    },
    /// What the ranks of a job that ends have sent and waited, as their drivers had counted last.
    JobCommunicated {
        /// The job.
        job: JobId,
        /// Messages sent.
        messages: u64,
        /// Payload sent.
        bytes: Bytes,
        /// Time waited for messages, of all ranks together.
        waiting: Duration,
    },
    /// A job ended, one way or the other.
    JobFinished {
        /// The job.
        job: JobId,
        /// How.
        outcome: JobOutcome,
        /// The last lines it wrote, told where it failed.
        last_output: String,
    },
    /// A job holds other than what is assumed of it: more, or for long less.
    JobHeld {
        /// The job.
        job: JobId,
        /// Where.
        node: NodeId,
        /// How much, caches of files not counted.
        held: Bytes,
    },
    /// The jobs of a node are about to exceed its memory, or do.
    NodePressed {
        /// Which.
        node: NodeId,
        /// By what it shows.
        pressure: Pressure,
    },
    /// A set no longer fitted a node, and a job left it.
    SetSplit(Split),
    /// A job alone takes all that a node offers. It is let run.
    JobOutgrew {
        /// The job.
        job: JobId,
        /// Where.
        node: NodeId,
        /// How much it holds there.
        held: Bytes,
        /// What the node offers.
        capacity: Bytes,
    },
    /// What a node's jobs hold of its memory.
    MemorySample {
        /// The node.
        node: NodeId,
        /// In all.
        used: Bytes,
        /// Each job that holds any.
        by_job: Vec<JobMemory>,
    },
    /// Something the user should know, and the run goes on.
    Warning {
        /// What.
        text: String,
    },
    /// What the whole machine did during the run, other programs included.
    MachineUsed(MachineUse),
    /// The last event of a run that was not cut off.
    RunEnded {
        /// How.
        outcome: RunOutcome,
    },
}

/// A step of a switch, for one job on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Start the processes for the first time.
    Launch,
    /// Stop the ranks.
    Freeze,
    /// Drain the network with markers.
    Flush,
    /// Write the image; the job leaves memory.
    Dump,
    /// Wait until the memory is back.
    Release,
    /// Make the snapshot durable, after the switch.
    Seal,
    /// Read the image; the job is back in memory, stopped.
    Restore,
    /// Let the ranks go on.
    Thaw,
}

impl Phase {
    /// The step as the live view says it.
    pub const fn doing(self) -> &'static str {
        match self {
            Self::Launch => "launching",
            Self::Freeze => "freezing",
            Self::Flush => "flushing",
            Self::Dump => "dumping",
            Self::Release => "releasing",
            Self::Seal => "sealing",
            Self::Restore => "restoring",
            Self::Thaw => "thawing",
        }
    }
}

/// How much one rank communicates, smoothed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankMeasured {
    /// The rank.
    pub rank: u32,
    /// The share of its time that it waits for messages, in thousandths.
    pub communication: Communication,
    /// Payload that it sends in a second.
    pub bytes_per_second: Bytes,
}

/// What one job holds of one node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMemory {
    /// The job.
    pub job: JobId,
    /// What it holds.
    pub used: Bytes,
}

/// What a machine has done, from one moment to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineUse {
    /// Page faults that had to wait for a disk.
    pub major_faults: u64,
    /// Read from swap.
    pub swapped_in: Bytes,
    /// Written to swap.
    pub swapped_out: Bytes,
    /// Time some process was held up for want of memory (pressure stall information); `None` where the kernel does not
    /// tell.
    pub memory_stall: Option<Duration>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobOutcome {
    /// All ranks exited by themselves; the largest of their exit codes.
    Exit(i32),
    /// A rank was killed by this signal.
    Signal(i32),
    /// coswitch ended it, or could not start it.
    Failed(String),
}

impl JobOutcome {
    /// Whether the job did what it was to do.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Exit(0))
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
    /// The user stopped it.
    Interrupted,
    /// It took longer than it was given.
    TimedOut,
    /// coswitch itself failed.
    Aborted,
}

impl Event {
    /// Whether it is of use only while it happens.
    pub const fn is_fleeting(&self) -> bool {
        matches!(self, Self::Progress { .. } | Self::Output { .. })
    }
}
