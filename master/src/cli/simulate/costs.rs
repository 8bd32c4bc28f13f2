//! How long switches take: read from a file, as `coswitch run` writes one into its directory, or fitted from a journal.

use std::path::Path;

use anyhow::Context;
use coswitch_sim::{CostFile, CostModel};

use crate::{cli::Failure, costs, journal};

/// The costs at `path`, and what is told there of jobs; about those of CRIU with warm memory where there is none.
pub(in crate::cli) fn load(path: Option<&Path>) -> Result<(CostModel, CostFile), Failure> {
    let Some(path) = path else { return Ok(Default::default()) };
    let failed = || format!("failed to read the costs in {}", path.display());
    read(path).with_context(failed).map_err(Failure::Workload)
}

fn read(path: &Path) -> anyhow::Result<(CostModel, CostFile)> {
    let kept = path.join(costs::FILE_NAME);
    let file = match path.is_dir() {
        true if !kept.exists() => {
            let measured = costs::measured(&journal::read(&path.join(journal::FILE_NAME))?);
            anyhow::ensure!(measured != CostFile::default(), "the run of that journal never switched");
            measured
        }
        directory => {
            let path = if directory { &kept } else { path };
            serde_yaml::from_str(&std::fs::read_to_string(path)?)?
        }
    };
    Ok((file.model()?, file))
}
