//! What was measured, as it is kept in `docs/paper/results.json`: enough to draw and judge it again.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{arm::Arm, parts::Part};

/// All of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Results {
    pub(super) parts: BTreeMap<Part, Measured>,
}

/// One part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Measured {
    /// How often everything was to run.
    pub(super) repeat: u32,
    /// A run that took longer was ended, in seconds.
    pub(super) limit_s: f64,
    pub(super) took_s: f64,
    /// The machine's load average over a minute, before.
    pub(super) load: f64,
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
    /// Why there are none.
    pub(super) problem: Option<String>,
}

/// Numbers over something: one for each repetition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(f64, Vec<f64>)>,
}

impl Results {
    /// Those of an earlier call; none where there was none.
    pub(super) fn load(path: &Path) -> Result<Self> {
        let Ok(text) = fs::read(path) else { return Ok(Self::default()) };
        serde_json::from_slice(&text).with_context(|| format!("failed to read {}", path.display()))
    }

    /// By rename, so that there is always one that can be read.
    pub(super) fn save(&self, path: &Path) -> Result<()> {
        let new = path.with_extension("json.new");
        let saved = fs::write(&new, serde_json::to_string_pretty(self)? + "\n");
        saved
            .and_then(|()| fs::rename(&new, path))
            .with_context(|| format!("failed to write {}", path.display()))
    }
}

impl Measured {
    /// Whether nothing failed in it.
    pub(super) fn is_whole(&self) -> bool {
        self.problem.is_none() && self.groups.iter().all(|group| group.problem.is_none())
    }

    pub(super) fn arms(&self, group: &str) -> &[Arm] {
        self.groups.iter().find(|of| of.name == group).map_or(&[], |group| &group.arms)
    }

    /// An arm, by a part of its name.
    pub(super) fn arm(&self, group: &str, name: &str) -> Option<&Arm> {
        self.arms(group).iter().find(|arm| arm.name().contains(name))
    }
}
