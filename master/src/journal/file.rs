//! The file that a journal is: written line by line, read as a whole.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

use thiserror::Error;

use super::RunEvent;

/// What the journal is called in the directory of its run.
pub const FILE_NAME: &str = "journal.jsonl";

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
    use super::{
        super::{Event, JobOutcome},
        *,
    };
    use coswitch_policies::{JobId, Placement, SimTime, SlotId};

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
