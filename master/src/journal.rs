//! The journal of a run: what happened, when, one JSON object a line, appended and flushed as it happens.
//!
//! It is the truth about a run. The report is a fold over it and the live view follows it. Readers skip fields they
//! do not know, and a last line cut short by a crash is not an error.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_policies::{Bytes, JobId, NodeId, Placement, Policy, SimTime, SlotId, SwitchId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What the journal is called in the directory of its run.
pub const FILE_NAME: &str = "journal.jsonl";
/// The version of the journal's format, in its first line.
pub const VERSION: u32 = 1;

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
    },
    /// A job was submitted.
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
    /// The turn of a slot began, or its set changed.
    SlotStarted {
        /// The slot.
        slot: SlotId,
        /// The co-scheduled set.
        jobs: Vec<JobId>,
        /// When the turn ends; open where no other slot waits.
        ends: Option<SimTime>,
    },
    /// A switch began. Until it ends the jobs of both sets do not run.
    SwitchStarted {
        /// The switch.
        switch: SwitchId,
        /// The jobs that leave memory.
        outgoing: Vec<JobId>,
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
        /// How long no job of the run could compute because of it.
        exposed: Duration,
        /// Written by dumps.
        bytes_out: Bytes,
        /// Read by restores.
        bytes_in: Bytes,
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

/// What one job holds of one node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMemory {
    /// The job.
    pub job: JobId,
    /// What it holds.
    pub used: Bytes,
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
    /// coswitch itself failed.
    Aborted,
}

impl Event {
    /// Whether it is of use only while it happens.
    pub const fn is_fleeting(&self) -> bool {
        matches!(self, Self::Progress { .. } | Self::Output { .. })
    }
}

/// Why a journal cannot be read.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The file cannot be read or written.
    #[error("failed to access journal {}: {cause}", .path.display())]
    Io {
        /// The journal.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// A line in the middle of it is no event.
    #[error("line {line} of journal {} is damaged: {cause}", .path.display())]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// The line, from one.
        line: usize,
        /// What is wrong with it.
        cause: serde_json::Error,
    },
}

/// Appends events to a journal.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Opens the journal at `path`, behind what it already holds.
    ///
    /// # Errors
    /// Where the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|cause| JournalError::Io { path: path.into(), cause })?;
        Ok(Self { path: path.into(), file })
    }

    /// Appends `event` in one write, so that a crash leaves whole lines and at most one part of a line.
    ///
    /// # Errors
    /// Where the disk is full or broken.
    pub fn append(&mut self, event: &RunEvent) -> Result<(), JournalError> {
        let mut line = serde_json::to_vec(event).expect("an event can be written as JSON");
        line.push(b'\n');
        self.file.write_all(&line).map_err(|cause| JournalError::Io { path: self.path.clone(), cause })
    }
}

/// The events of the journal at `path`, in order.
///
/// # Errors
/// Where it cannot be read, or a line before the last is no event.
pub fn read(path: &Path) -> Result<Vec<RunEvent>, JournalError> {
    let io = |cause| JournalError::Io { path: path.into(), cause };
    let mut lines = BufReader::new(File::open(path).map_err(io)?).lines().enumerate().peekable();
    let mut events = Vec::new();
    while let Some((index, line)) = lines.next() {
        match serde_json::from_str(&line.map_err(io)?) {
            Ok(event) => events.push(event),
            Err(_) if lines.peek().is_none() => break,
            Err(cause) => return Err(JournalError::Damaged { path: path.into(), line: index + 1, cause }),
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<RunEvent> {
        let placement = Placement::from_shares(&[1, 1]);
        let kinds = [
            Event::JobLaunched { job: JobId(1), placement },
            Event::SlotStarted { slot: SlotId(0), jobs: vec![JobId(1)], ends: Some(SimTime(9)) },
            Event::JobFinished { job: JobId(1), outcome: JobOutcome::Exit(3), last_output: "oh\n".into() },
        ];
        (0..).zip(kinds).map(|(at, kind)| RunEvent { at: SimTime(at), kind }).collect()
    }

    fn write(path: &Path, events: &[RunEvent]) {
        let mut writer = Writer::open(path).unwrap();
        events.iter().for_each(|event| writer.append(event).unwrap());
    }

    #[test]
    fn what_was_written_is_read_back_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        write(&path, &example()[..1]);
        write(&path, &example()[1..]);
        assert_eq!(read(&path).unwrap(), example());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(r#"{"at":0,"kind":"job-launched","job":1,"placement":"#), "{text}");
    }

    #[test]
    fn a_line_cut_short_by_a_crash_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        write(&path, &example());
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();
        assert_eq!(read(&path).unwrap(), example()[..2]);
    }

    #[test]
    fn damage_in_the_middle_is_told_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        write(&path, &example());
        let text = std::fs::read_to_string(&path).unwrap().replacen("slot-started", "slot-smarted", 1);
        std::fs::write(&path, text).unwrap();
        assert!(matches!(read(&path), Err(JournalError::Damaged { line: 2, .. })));
    }

    #[test]
    fn fields_of_a_later_version_are_skipped() {
        let text = r#"{"at":5,"kind":"job-running","job":2,"mood":"good"}"#;
        let event: RunEvent = serde_json::from_str(text).unwrap();
        assert_eq!(event, RunEvent { at: SimTime(5), kind: Event::JobRunning { job: JobId(2) } });
    }
}
