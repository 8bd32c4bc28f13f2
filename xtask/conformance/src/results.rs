//! The results so far, kept in a file: a run of some directories replaces theirs and leaves the others.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{list::Test, verdict::Verdict};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) tests: BTreeMap<String, TestResult>,
    /// Runs under coswitch that ended before their tests had, by directory of the suite.
    pub(crate) broken: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TestResult {
    pub(crate) group: String,
    pub(crate) of_pool: bool,
    /// Why it was not run.
    pub(crate) left_out: Option<String>,
    pub(crate) tcp: Option<Verdict>,
    pub(crate) alone: Option<Verdict>,
    pub(crate) together: Option<Verdict>,
    /// Restores while it ran together with others.
    pub(crate) restores: u64,
}

impl Results {
    pub(crate) fn load(path: &Path) -> Result<Self> {
        match fs::read(path) {
            Err(_) => Ok(Self::default()),
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{} holds no results: remove it", path.display())),
        }
    }

    /// Replaces the file at once, so that a run that is ended leaves what it has.
    pub(crate) fn store(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec_pretty(self)?)?;
        fs::rename(&new, path).with_context(|| format!("cannot write {}", path.display()))
    }

    pub(crate) fn set(&mut self, test: &Test, change: impl FnOnce(&mut TestResult)) {
        self.tests.entry(test.to_string()).and_modify(change);
    }

    pub(crate) fn forget(&mut self, group: &str) {
        self.tests.retain(|_, test| test.group != group);
        self.broken.remove(group);
    }
}

impl TestResult {
    pub(crate) fn passed_over_tcp(&self) -> bool {
        self.tcp.as_ref().is_some_and(Verdict::is_passed)
    }

    /// Whether coswitch ran it rightly each time.
    pub(crate) fn passed_under_coswitch(&self) -> bool {
        let passed = |verdict: &Option<Verdict>| verdict.as_ref().is_some_and(Verdict::is_passed);
        passed(&self.alone) && passed(&self.together)
    }
}
