//! What a run needs of the machine, looked at before anything is started.
//!
//! [`facts`] looks (the thin shell), [`verdict`] judges (pure), and a [`Check`] is one judgement as a value. `run` and
//! `doctor` make the same checks.

mod command;
mod facts;
mod mpi;
mod verdict;

use std::{fmt, io};

use serde::Serialize;

use coswitch_daemon::node::Tier;

use crate::{cli::Answer, config::Job};

/// One judgement about the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: String,
    /// Whether a run can do with it.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Whether a run can do with what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Yes.
    Ok,
    /// Yes, but something will be slower or missing.
    Warning,
    /// No.
    Lacking,
}

impl Check {
    fn ok(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self { name: name.into(), state: State::Ok, found: found.into(), remedy: None }
    }

    fn warning(name: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Warning, remedy: Some(remedy.into()), ..Self::ok(name, found) }
    }

    fn lacking(name: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Lacking, remedy: Some(remedy.into()), ..Self::ok(name, found) }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.state {
            State::Ok => "ok     ",
            State::Warning => "warning",
            State::Lacking => "LACKING",
        };
        write!(f, "{mark}  {}: {}", self.name, self.found)?;
        self.remedy.iter().try_for_each(|remedy| write!(f, "\n         -> {remedy}"))
    }
}

/// All judgements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Findings {
    fit: bool,
    checks: Vec<Check>,
}

impl Findings {
    fn new(checks: Vec<Check>) -> Self {
        Self { fit: checks.iter().all(|check| check.state != State::Lacking), checks }
    }

    /// Whether job sets can be run here.
    pub const fn is_fit(&self) -> bool {
        self.fit
    }

    /// What keeps them from it.
    pub fn lacks(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.state == State::Lacking)
    }
}

impl Answer for Findings {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        self.checks.iter().try_for_each(|check| writeln!(out, "{check}"))?;
        let lacks = self.lacks().count();
        match lacks {
            0 => writeln!(out, "\nthis machine can run job sets"),
            1 => writeln!(out, "\nthis machine lacks 1 thing"),
            _ => writeln!(out, "\nthis machine lacks {lacks} things"),
        }
    }
}

/// Looks at this machine, at the directories for images (none: the usual one), and at the programs of `jobs`.
pub fn examine(jobs: &[Job], pages_out: bool, stores: &[Tier]) -> Findings {
    let mut stores: Vec<_> = stores.iter().map(|tier| tier.root.clone()).collect();
    if stores.is_empty() {
        stores.push(coswitch_dispatcher::provisioning::STORE.into());
    }
    let mut checks = verdict::judge(&facts::Facts::gather(&stores), pages_out);
    checks.extend(mpi::judge_programs(jobs));
    Findings::new(checks)
}
