//! The file `docs/paper/results.json`: all measurements, enough to draw and judge them again.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{arm::Arm, experiments::Experiment, work::Work};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Results {
    #[serde(rename = "parts")]
    pub(super) experiments: BTreeMap<Experiment, Measured>,
}

/// Raised when an experiment's jobs, slots or numbers of jobs change: older results then say so.
pub(super) const SHAPE: u32 = 4;

/// The results of one experiment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Measured {
    /// [`SHAPE`] when it was measured.
    #[serde(default)]
    pub(super) shape: u32,
    /// Repetitions that were asked for.
    pub(super) repeat: u32,
    /// Seconds after which a run was ended.
    pub(super) limit_s: f64,
    pub(super) took_s: f64,
    /// Load average over a minute, before.
    pub(super) load: f64,
    /// What the jobs of all its groups do, by time.
    #[serde(default)]
    pub(super) work: Vec<Work>,
    pub(super) groups: Vec<Group>,
    pub(super) curves: Vec<Curve>,
    /// Why curves are missing.
    pub(super) problem: Option<String>,
}

/// Policies beside each other on one job set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) arms: Vec<Arm>,
    /// Why arms are missing.
    pub(super) problem: Option<String>,
}

/// Points of a curve: a place, and a number for each repetition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(f64, Vec<f64>)>,
}

impl Results {
    /// Reads the results of earlier calls, if any.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let Ok(text) = fs::read(path) else { return Ok(Self::default()) };
        serde_json::from_slice(&text).with_context(|| format!("failed to read {}", path.display()))
    }

    /// Replaces the file by rename, so that it can always be read.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("json.new");
        let saved = fs::write(&new, serde_json::to_string_pretty(self)? + "\n");
        saved
            .and_then(|()| fs::rename(&new, path))
            .with_context(|| format!("failed to write {}", path.display()))
    }
}

impl Measured {
    /// Whether nothing failed in it, and it is the experiment of today.
    pub(super) fn is_whole(&self) -> bool {
        self.shape == SHAPE
            && self.problem.is_none()
            && self.groups.iter().all(|group| group.problem.is_none())
    }

    pub(super) fn arms(&self, group: &str) -> &[Arm] {
        self.groups.iter().find(|of| of.name == group).map_or(&[], |group| &group.arms)
    }

    /// An arm, by a part of its name.
    pub(super) fn arm(&self, group: &str, name: &str) -> Option<&Arm> {
        self.arms(group).iter().find(|arm| arm.name().contains(name))
    }
}
