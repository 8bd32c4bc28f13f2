//! `coswitch compare`, as it is called and as it answers.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// A call: a file of `examples/paper/`, with words of it replaced.
pub(crate) struct Call<'a> {
    pub(crate) file: &'a str,
    pub(crate) replaced: &'a [(&'a str, &'a str)],
    pub(crate) policies: &'a str,
    /// As of the file where empty.
    pub(crate) switching: &'a str,
}

/// What an arm came to, as `coswitch compare --output json` tells it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Arm {
    pub(crate) policy: String,
    pub(crate) switching: Option<String>,
    pub(crate) done: u32,
    pub(crate) timed_out: u32,
    pub(crate) failed: u32,
    pub(crate) makespan: Option<Spread>,
    /// By the sum of the times alone: the paper's slowdown by ideal sequential batch scheduling.
    pub(crate) relative_makespan: Option<f64>,
    pub(crate) spread: Option<f64>,
    pub(crate) tradeoff: Option<f64>,
    pub(crate) exposed_s: Option<f64>,
    pub(crate) waiting: Option<f64>,
    pub(crate) major_faults: Option<f64>,
}

/// In seconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

#[derive(Deserialize)]
struct Answer {
    arms: Vec<Arm>,
}

impl Call<'_> {
    /// Runs it; everything is in a directory that is gone afterwards.
    pub(crate) fn compare(&self, repeat: u32, limit: &str) -> Result<Vec<Arm>> {
        let own = std::env::current_exe().context("failed to find this program")?;
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/paper");
        let path = examples.join(self.file);
        let mut text =
            fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        for (word, instead) in self.replaced {
            ensure!(text.contains(word), "{} does not say `{word}`", path.display());
            text = text.replace(word, instead);
        }
        let dir = tempfile::tempdir_in("/var/tmp").context("failed to make a directory")?;
        let programs =
            examples.join("../mpi/bin").canonicalize().context("failed to find the example programs")?;
        let file = dir.path().join(self.file);
        fs::write(&file, text.replace("../mpi/bin", &programs.display().to_string()))?;
        let mut command = Command::new(own.with_file_name("coswitch"));
        command.args(["compare", "--quiet", "--output", "json", "--policies", self.policies]);
        command
            .args(["--repeat", &repeat.to_string(), "--limit", limit, "--out"])
            .arg(dir.path().join("runs"));
        if !self.switching.is_empty() {
            command.args(["--switching", self.switching]);
        }
        let output =
            command.arg(&file).stderr(Stdio::inherit()).output().context("failed to start coswitch")?;
        // 1: a job failed, which the arms tell.
        ensure!(matches!(output.status.code(), Some(0 | 1)), "coswitch compare ended with {}", output.status);
        let answer: Answer = serde_json::from_slice(&output.stdout).context("the comparison is no JSON")?;
        Ok(answer.arms)
    }
}

impl Arm {
    pub(crate) fn name(&self) -> String {
        self.switching
            .as_ref()
            .map_or_else(|| self.policy.clone(), |order| format!("{}, {order}", self.policy))
    }

    /// Seconds; without end where no run was done.
    pub(crate) fn makespan(&self) -> f64 {
        self.makespan.map_or(f64::INFINITY, |makespan| makespan.median)
    }

    /// See [`Arm::relative_makespan`]; without end where no run was done.
    pub(crate) fn slowdown(&self) -> f64 {
        self.relative_makespan.unwrap_or(f64::INFINITY)
    }
}
