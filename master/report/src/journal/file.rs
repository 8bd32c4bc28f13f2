//! Reads the file of a journal.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_policies::SimTime;
use thiserror::Error;

use super::{
    event::{Event, RunEvent},
    record,
};

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
    /// The line that stands for all that was before cannot be read.
    #[error(
        "line {line} of journal {0} is damaged, which sums up all that was before: {cause}; put the newest \
         archive ({0}.N) in its place, with the lines after this one at its end",
        .path.display()
    )]
    DamagedSum { path: PathBuf, line: usize, cause: serde_json::Error },
}

/// Where the archive of this number of the journal at `path` is.
#[must_use]
pub fn archive(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// The archive that is missing before these events: they begin with what it came to.
#[must_use]
pub fn missing_archive(events: &[RunEvent]) -> Option<(u32, SimTime)> {
    match events.get(1)? {
        RunEvent { at, kind: Event::Summed { archive, .. } } => Some((*archive, *at)),
        _ => None,
    }
}

/// Reads all events of the journal at `path` and of its archives, as far back as there are any. A crash may
/// have cut the last line short, or left zeros in its place; it is left out then.
///
/// # Errors
/// Where a file cannot be read, or a line before the last is damaged.
pub fn read(path: &Path) -> Result<Vec<RunEvent>, JournalError> {
    let mut events = read_file(path)?;
    while let Some((number, _)) = missing_archive(&events) {
        let before = archive(path, number);
        if !before.exists() {
            break;
        }
        // The first two lines stand for these.
        let later = events.split_off(2);
        events = read_file(&before)?;
        events.extend(later);
    }
    Ok(events)
}

fn read_file(path: &Path) -> Result<Vec<RunEvent>, JournalError> {
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

/// All events of the file of the journal at `path` that can be read, and the number of lines that cannot.
///
/// # Errors
/// As [`each`].
pub fn salvage(path: &Path) -> Result<(Vec<RunEvent>, usize), JournalError> {
    let mut events = Vec::new();
    let damaged = each(path, |event| events.push(event))?;
    Ok((events, damaged))
}

/// Passes all events of the file of the journal at `path` on that can be read; the number of lines that
/// cannot.
///
/// # Errors
/// Where the file cannot be read, or the line that sums up all that was before.
pub fn each(path: &Path, mut on_event: impl FnMut(RunEvent)) -> Result<usize, JournalError> {
    let io = |cause| JournalError::Io { path: path.into(), cause };
    let lines = BufReader::new(File::open(path).map_err(io)?).split(b'\n');
    let mut damaged = 0;
    for (number, line) in (1..).zip(lines) {
        let line = line.map_err(io)?;
        match record::read(&line) {
            Ok(event) => on_event(event),
            Err(cause) if sums_up(&line) => {
                return Err(JournalError::DamagedSum { path: path.into(), line: number, cause });
            }
            Err(_) => damaged += 1,
        }
    }
    Ok(damaged)
}

fn sums_up(line: &[u8]) -> bool {
    const KIND: &[u8] = br#""kind":"summed""#;
    line.split(|byte| *byte == b',').nth(1) == Some(KIND)
}

#[cfg(test)]
mod tests {
    use coswitch_policies::JobId;

    use super::*;

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
