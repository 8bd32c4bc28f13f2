//! Writes the journal of a run.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use coswitch_ckpt::private;
use coswitch_report::journal::{JournalError, RunEvent};

/// Appends events to a journal.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Creates the journal at `path`, where nothing may be.
    ///
    /// # Errors
    /// Where the file exists or cannot be created.
    pub fn create(path: &Path) -> Result<Self, JournalError> {
        let file = private::create(path).map_err(|cause| JournalError::Io { path: path.into(), cause })?;
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

#[cfg(test)]
mod tests {
    use coswitch_policies::{JobId, Placement, SimTime, SlotId};
    use coswitch_report::journal::{Event, JobOutcome, read};

    use super::*;

    #[test]
    fn events_are_read_back_in_the_order_of_writing() {
        let kinds = [
            Event::JobLaunched { job: JobId(1), placement: Placement::from_shares(&[1, 1]) },
            Event::SlotStarted { slot: SlotId(0), jobs: vec![JobId(1)], ends: Some(SimTime(9)) },
            Event::JobFinished { job: JobId(1), outcome: JobOutcome::Exit(3), last_output: "oh\n".into() },
        ];
        let events: Vec<_> = (0..).zip(kinds).map(|(at, kind)| RunEvent { at: SimTime(at), kind }).collect();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut writer = Writer::create(&path).unwrap();
        events.iter().for_each(|event| writer.append(event).unwrap());
        assert!(Writer::create(&path).is_err(), "a journal is never continued by another run");
        assert_eq!(read(&path).unwrap(), events);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(r#"{"at":0,"kind":"job-launched","job":1,"placement":"#), "{text}");
    }
}
