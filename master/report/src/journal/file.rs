//! Reads the file of a journal.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use thiserror::Error;

use super::event::RunEvent;

/// The name of the journal in the directory of its run.
pub const FILE_NAME: &str = "journal.jsonl";

/// Why a journal cannot be read or written.
#[derive(Debug, Error)]
pub enum JournalError {
    #[error("failed to access journal {}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
    /// The disk did not take the last events; the run is over.
    #[error("journal {} could not be written within {limit:?}: its disk is blocked", .path.display())]
    Late { path: PathBuf, limit: Duration },
    /// A line before the last is not an event. Lines count from 1.
    #[error("line {line} of journal {} is damaged: {cause}", .path.display())]
    Damaged { path: PathBuf, line: usize, cause: serde_json::Error },
}

/// Reads all events of the journal at `path`. The last line may be cut short by a crash; it is left out then.
///
/// # Errors
/// Where the file cannot be read, or a line before the last is not an event.
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
    use coswitch_policies::{JobId, SimTime};

    use super::{super::Event, *};

    const LINES: &str = concat!(
        r#"{"at":0,"kind":"job-running","job":1}"#,
        "\n",
        r#"{"at":1,"kind":"slot-started","slot":0,"jobs":[1],"ends":9}"#,
        "\n",
        r#"{"at":2,"kind":"job-held","job":1,"node":0,"held":7}"#,
        "\n"
    );

    fn read_text(text: &str) -> Result<Vec<RunEvent>, JournalError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn a_last_line_cut_short_is_left_out() {
        assert_eq!(read_text(LINES).unwrap().len(), 3);
        assert_eq!(read_text(&LINES[..LINES.len() - 9]).unwrap(), read_text(LINES).unwrap()[..2]);
    }

    #[test]
    fn damage_in_the_middle_is_reported_with_its_line() {
        let damaged = read_text(&LINES.replacen("slot-started", "slot-smarted", 1));
        assert!(matches!(damaged, Err(JournalError::Damaged { line: 2, .. })));
    }

    #[test]
    fn fields_of_a_later_version_are_skipped() {
        let text = r#"{"at":5,"kind":"job-running","job":2,"mood":"good"}"#;
        let event: RunEvent = serde_json::from_str(text).unwrap();
        assert_eq!(event, RunEvent { at: SimTime(5), kind: Event::JobRunning { job: JobId(2) } });
    }
}
