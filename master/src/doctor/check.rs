//! One check of the machine, and all of them together.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::mpi::{self, Judged};
use crate::config::Job;

/// One check of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked.
    pub name: String,
    #[serde(rename = "state")]
    pub verdict: Verdict,
    pub found: String,
    /// How to repair it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Whether a run works with what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Ok,
    /// A run works, but something will be slower or missing.
    Warning,
    /// A run does not work.
    Lacking,
}

impl Check {
    pub(super) fn ok(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Ok, found: found.into(), remedy: None }
    }

    pub(super) fn warning(
        name: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Warning, remedy: Some(remedy.into()), ..Self::ok(name, found) }
    }

    pub(super) fn lacking(
        name: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Lacking, remedy: Some(remedy.into()), ..Self::ok(name, found) }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.verdict {
            Verdict::Ok => "ok     ",
            Verdict::Warning => "warning",
            Verdict::Lacking => "LACKING",
        };
        write!(f, "{mark}  {}: {}", self.name, self.found)?;
        self.remedy.iter().try_for_each(|remedy| write!(f, "\n         -> {remedy}"))
    }
}

/// All checks of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Findings {
    fit: bool,
    checks: Vec<Check>,
    /// The check of each program, which `checks` has as well.
    #[serde(skip)]
    programs: Vec<Judged>,
}

impl Findings {
    pub(super) fn new(mut checks: Vec<Check>, programs: Vec<Judged>) -> Self {
        checks.extend(programs.iter().filter_map(|program| program.check.clone()));
        Self { fit: checks.iter().all(|check| check.verdict != Verdict::Lacking), checks, programs }
    }

    /// The same with one more.
    #[must_use]
    pub fn and(mut self, check: Option<Check>) -> Self {
        self.fit &= check.as_ref().is_none_or(|check| check.verdict != Verdict::Lacking);
        self.checks.extend(check);
        self
    }

    /// Makes the loader find coswitch's MPI library for jobs whose own cannot be used; returns what a user
    /// should know of it.
    #[must_use]
    pub fn prepare(&self, jobs: &mut [Job]) -> Vec<&Check> {
        let replaced: BTreeMap<_, _> = self
            .programs
            .iter()
            .filter_map(|program| Some((program.job.as_str(), program.search_path.as_ref()?)))
            .collect();
        for job in jobs {
            if let Some(path) = replaced.get(job.name.as_str()) {
                job.env.insert(mpi::SEARCH_PATH.into(), (*path).clone());
            }
        }
        let told = self.programs.iter().filter(|program| program.search_path.is_some());
        told.filter_map(|program| program.check.as_ref()).collect()
    }

    /// Whether job sets can be run on this machine.
    pub const fn is_fit(&self) -> bool {
        self.fit
    }

    /// The checks that a run would fail at.
    pub fn lacks(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.verdict == Verdict::Lacking)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.checks.iter().try_for_each(|check| writeln!(f, "{check}"))?;
        match self.lacks().count() {
            0 => f.write_str("\nthis machine can run job sets"),
            1 => f.write_str("\nthis machine lacks 1 thing"),
            lacks => write!(f, "\nthis machine lacks {lacks} things"),
        }
    }
}
