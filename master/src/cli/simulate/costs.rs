//! Reads the costs of switches from a cost file, as `coswitch run` writes, or fits them to the journal of a
//! run.

use std::path::Path;

use anyhow::Context;
use coswitch_report::journal;
use coswitch_sim::{CostFile, CostModel};

use crate::{cli::Failure, costs};

/// The costs at `path`, and the file itself for the communication of jobs; without a path the costs of CRIU
/// with warm memory.
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
