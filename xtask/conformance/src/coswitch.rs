//! Runs tests under `coswitch run`, and runs what a run did not end once more, in smaller runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{
    list::Test,
    run_file::{self, Sharing},
    verdict::Verdict,
};

/// Where the parts are.
pub(crate) struct Place<'a> {
    pub(crate) coswitch: &'a Path,
    pub(crate) suite: &'a Path,
    /// For the runs; those that went wrong stay there.
    pub(crate) work: &'a Path,
}

/// The result of one test.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) restores: u64,
}

/// The results of a batch.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// In the order of the tests.
    pub(crate) outcomes: Vec<Option<Outcome>>,
    /// Runs that ended before their tests had: what each said, and its directory.
    pub(crate) broken: Vec<String>,
}

/// Runs the tests in one run. What does not end in it runs again, by halves.
pub(crate) fn run(place: &Place<'_>, tests: &[&Test], sharing: Sharing, limit: Duration) -> Result<Batch> {
    let (outcomes, broken) =
        run_once(place, tests, sharing, limit * u32::try_from(tests.len())?.clamp(4, 20))?;
    let mut batch = Batch { outcomes, broken: broken.into_iter().collect() };
    let open: Vec<usize> = (0..tests.len()).filter(|at| batch.outcomes[*at].is_none()).collect();
    if let (&[at], 1) = (&open[..], tests.len()) {
        let why = batch.broken.first().cloned().unwrap_or_else(|| "did not end".into());
        batch.outcomes[at] = Some(Outcome { verdict: Verdict::Failed(why), restores: 0 });
        return Ok(batch);
    }
    for half in open.chunks(open.len().div_ceil(2).max(1)) {
        let again: Vec<&Test> = half.iter().map(|at| tests[*at]).collect();
        let retried = run(place, &again, sharing, limit)?;
        half.iter().zip(retried.outcomes).for_each(|(at, outcome)| batch.outcomes[*at] = outcome);
        batch.broken.extend(retried.broken);
    }
    Ok(batch)
}

/// Results of the tests that ended, and why the run did not end all of them.
fn run_once(
    place: &Place<'_>,
    tests: &[&Test],
    sharing: Sharing,
    limit: Duration,
) -> Result<(Vec<Option<Outcome>>, Option<String>)> {
    let dir = new_directory(place.work)?;
    let (file, out, store) = (dir.join("jobs.yaml"), dir.join("out"), dir.join("store"));
    fs::create_dir(&store)?;
    fs::write(&file, run_file::write(tests, place.suite, &dir.join("cwd"), &store, sharing)?)?;
    let output = Command::new(place.coswitch)
        .args(["run", "--quiet", "--output", "json", "--limit", &format!("{}s", limit.as_secs()), "--out"])
        .args([&out, &file])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", place.coswitch.display()))?;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let outcomes: Vec<_> = tests
        .iter()
        .enumerate()
        .map(|(index, test)| {
            let (verdict, restores) = run_file::result(test, index, &report, &out)?;
            Some(Outcome { verdict, restores })
        })
        .collect();
    let is_whole = outcomes.iter().all(Option::is_some) && matches!(output.status.code(), Some(0 | 1));
    if is_whole && outcomes.iter().flatten().all(|outcome| outcome.verdict.is_passed()) {
        fs::remove_dir_all(&dir)?;
        return Ok((outcomes, None));
    }
    fs::write(dir.join("stderr"), &output.stderr)?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let broken = (!is_whole).then(|| format!("{}: {last} ({})", output.status, dir.display()));
    Ok((outcomes, broken))
}

fn new_directory(work: &Path) -> Result<PathBuf> {
    fs::create_dir_all(work)?;
    let dir = (0..).map(|number| work.join(format!("run-{number:04}"))).find(|dir| !dir.exists());
    let dir = dir.context("there are no more numbers")?;
    fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}
