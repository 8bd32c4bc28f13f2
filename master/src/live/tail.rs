//! The last line of output of each running job, from the standard output of its rank 0.
//!
//! Only files of running jobs are opened: the files of a parked job must stay untouched.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use coswitch_policies::{JobId, SimTime};
use coswitch_report::{
    journal::{Event, RunEvent},
    live::{JobState, View},
};

const EVERY: Duration = Duration::from_millis(500);
/// How much of the end of a file is read.
const BYTES: u64 = 1024;

/// Reads the last lines at intervals.
#[derive(Debug)]
pub(crate) struct Tails {
    out: PathBuf,
    polled: Option<Instant>,
    lines: BTreeMap<JobId, String>,
}

impl Tails {
    /// For the run in the directory `out`.
    pub(crate) fn new(out: &Path) -> Self {
        Self { out: out.into(), polled: None, lines: BTreeMap::new() }
    }

    /// Reads the last lines, if the interval has passed.
    pub(crate) fn poll(&mut self, view: &View) {
        if self.polled.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        self.polled = Some(Instant::now());
        let running = view.jobs.iter().filter(|(_, job)| job.state == JobState::Running);
        for (id, job) in running {
            let line = last_line(&self.out.join(&job.name).join("rank-0.out"));
            self.lines.extend(line.ok().flatten().map(|line| (*id, line)));
        }
    }

    /// Puts the last lines into `view`.
    pub(crate) fn show_in(&self, view: &mut View) {
        for (job, line) in &self.lines {
            let kind = Event::Output { job: *job, line: line.clone() };
            view.on_event(&RunEvent { at: SimTime(0), kind });
        }
    }
}

fn last_line(path: &Path) -> io::Result<Option<String>> {
    let mut file = File::open(path)?;
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(end.saturating_sub(BYTES)))?;
    let mut bytes = Vec::new();
    file.take(BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    Ok(line.map(|line| line.chars().filter(|c| !c.is_control()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_found_at_the_end_of_a_long_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rank-0.out");
        std::fs::write(&path, "step 1\n".repeat(10_000) + "step \x1b[31m2\n\n").unwrap();
        assert_eq!(last_line(&path).unwrap().as_deref(), Some("step [31m2"));
        std::fs::write(&path, "").unwrap();
        assert_eq!(last_line(&path).unwrap(), None);
    }
}
