//! What the jobs that run said last: the end of the standard output of their rank 0.
//!
//! The files of a job that does not run are left alone: nobody may touch them while it is parked.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use coswitch_policies::JobId;

use super::view::{JobState, View};

const EVERY: Duration = Duration::from_millis(500);
/// No line worth showing is longer.
const BYTES: u64 = 1024;

/// Looks now and then.
#[derive(Debug)]
pub(crate) struct Tails {
    out: PathBuf,
    looked: Option<Instant>,
}

impl Tails {
    /// Of the run whose directory is `out`.
    pub(crate) fn new(out: &Path) -> Self {
        Self { out: out.into(), looked: None }
    }

    /// The last lines, where it is time to look.
    pub(crate) fn look(&mut self, view: &View) -> Vec<(JobId, String)> {
        if self.looked.is_some_and(|at| at.elapsed() < EVERY) {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        let running = view.jobs.iter().filter(|(_, job)| job.state == JobState::Running);
        let line = |name: &str| last_line(&self.out.join(name).join("rank-0.out")).ok().flatten();
        running.filter_map(|(id, job)| Some((*id, line(&job.name)?))).collect()
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
    fn the_last_line_is_found_without_reading_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rank-0.out");
        std::fs::write(&path, "step 1\n".repeat(10_000) + "step \x1b[31m2\n\n").unwrap();
        assert_eq!(last_line(&path).unwrap().as_deref(), Some("step [31m2"));
        std::fs::write(&path, "").unwrap();
        assert_eq!(last_line(&path).unwrap(), None);
    }
}
