//! How long switches take: read from a file, or fitted from the journal of a run on the machine itself.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::Context;
use coswitch_policies::{Bytes, JobId, NodeId, SimTime, SwitchId};
use coswitch_sim::{CostFile, CostModel, CostStep, Sample};

use crate::{
    cli::Failure,
    journal::{self, Event, Phase, RunEvent},
};

/// The costs at `path`; about those of CRIU with warm memory where there is none.
pub(super) fn load(path: Option<&Path>) -> Result<CostModel, Failure> {
    let Some(path) = path else { return Ok(CostModel::default()) };
    let failed = || format!("failed to read the costs in {}", path.display());
    read(path).with_context(failed).map_err(Failure::Workload)
}

fn read(path: &Path) -> anyhow::Result<CostModel> {
    if path.is_dir() {
        let samples = samples(&journal::read(&path.join(journal::FILE_NAME))?);
        anyhow::ensure!(!samples.is_empty(), "the run of that journal never switched");
        return Ok(CostModel::default().fitted(&samples));
    }
    let file: CostFile = serde_yaml::from_str(&std::fs::read_to_string(path)?)?;
    Ok(file.model()?)
}

/// The steps of a run, as a node sees them: all jobs of a set are dumped side by side, so theirs are one step.
fn samples(events: &[RunEvent]) -> Vec<Sample> {
    let mut steps: BTreeMap<(SwitchId, NodeId, CostStep), (SimTime, SimTime, Bytes)> = BTreeMap::new();
    let mut launched: BTreeMap<JobId, SimTime> = BTreeMap::new();
    let mut samples = Vec::new();
    for event in events {
        match &event.kind {
            Event::PhaseDone { switch, node, phase, began, ended, bytes, .. } => {
                let Some(step) = step_of(*phase) else { continue };
                let all = steps.entry((*switch, *node, step)).or_insert((*began, *ended, Bytes(0)));
                *all = (all.0.min(*began), all.1.max(*ended), all.2.saturating_add(*bytes));
            }
            Event::JobLaunched { job, .. } => drop(launched.insert(*job, event.at)),
            Event::JobRunning { job } => {
                if let Some(from) = launched.remove(job) {
                    let took = event.at.since(from);
                    samples.push(Sample { step: CostStep::Launch, bytes: Bytes(0), took });
                }
            }
            _ => {}
        }
    }
    let sample = |((_, _, step), (from, to, bytes)): (_, (SimTime, SimTime, Bytes))| {
        let took: Duration = to.since(from);
        Sample { step, bytes, took }
    };
    samples.extend(steps.into_iter().map(sample));
    samples
}

const fn step_of(phase: Phase) -> Option<CostStep> {
    match phase {
        Phase::Freeze | Phase::Flush => Some(CostStep::Flush),
        Phase::Dump | Phase::Release => Some(CostStep::Dump),
        Phase::Restore => Some(CostStep::Restore),
        Phase::Launch | Phase::Seal | Phase::Thaw => None,
    }
}
