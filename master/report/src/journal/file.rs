//! Reads the file of a journal.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use thiserror::Error;

use super::{event::RunEvent, record};

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

/// Reads all events of the journal at `path`. A crash may have cut the last line short, or left zeros in its
/// place; it is left out then.
///
/// # Errors
/// Where the file cannot be read, or a line before the last is damaged.
pub fn read(path: &Path) -> Result<Vec<RunEvent>, JournalError> {
    let io = |cause| JournalError::Io { path: path.into(), cause };
    let mut file = BufReader::new(File::open(path).map_err(io)?);
    let (mut events, mut line) = (Vec::new(), Vec::new());
    while file.read_until(b'\n', &mut line).map_err(io)? > 0 {
        let is_last = file.fill_buf().map_err(io)?.is_empty();
        match record::read(line.strip_suffix(b"\n").unwrap_or(&line)) {
            Ok(event) => events.push(event),
            Err(_) if is_last => break,
            Err(cause) => {
                return Err(JournalError::Damaged { path: path.into(), line: events.len() + 1, cause });
            }
        }
        line.clear();
    }
    Ok(events)
}

/// All events of the journal at `path` that can be read, and the number of lines that cannot.
///
/// # Errors
/// Where the file cannot be read.
pub fn salvage(path: &Path) -> Result<(Vec<RunEvent>, usize), JournalError> {
    let io = |cause| JournalError::Io { path: path.into(), cause };
    let lines = BufReader::new(File::open(path).map_err(io)?).split(b'\n');
    let (mut events, mut damaged) = (Vec::new(), 0);
    for line in lines {
        match record::read(&line.map_err(io)?) {
            Ok(event) => events.push(event),
            Err(_) => damaged += 1,
        }
    }
    Ok((events, damaged))
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

    fn read_text(text: impl AsRef<[u8]>) -> Result<Vec<RunEvent>, JournalError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn a_journal_that_is_cut_at_any_byte_keeps_its_whole_lines() {
        let kinds = ["first", "sécond", "thïrd"].map(|text| Event::Warning { text: text.into() });
        let events: Vec<RunEvent> = kinds.map(|kind| RunEvent { at: SimTime(1), kind }).into();
        let text: Vec<u8> = events.iter().flat_map(record::write).collect();
        for length in 0..=text.len() {
            let cut = &text[..length];
            let ends = cut.iter().filter(|byte| **byte == b'\n').count();
            // A line without its end may be whole.
            let is_whole = text.get(length) == Some(&b'\n');
            let whole = ends + usize::from(is_whole);
            assert_eq!(read_text(cut).unwrap(), events[..whole], "{length} bytes");
            if !is_whole {
                let zeros = [cut, &[0; 100]].concat();
                assert_eq!(read_text(zeros).unwrap(), events[..whole], "{length} bytes and zeros");
            }
        }
    }

    #[test]
    fn damage_in_the_middle_is_reported_with_its_line() {
        assert_eq!(read_text(LINES).unwrap().len(), 3);
        let damaged = read_text(LINES.replacen("slot-started", "slot-smarted", 1));
        assert!(matches!(damaged, Err(JournalError::Damaged { line: 2, .. })));
    }

    #[test]
    fn fields_of_a_later_version_are_skipped() {
        let text = r#"{"at":5,"kind":"job-running","job":2,"mood":"good"}"#;
        let event: RunEvent = serde_json::from_str(text).unwrap();
        assert_eq!(event, RunEvent { at: SimTime(5), kind: Event::JobRunning { job: JobId(2) } });
    }
}
