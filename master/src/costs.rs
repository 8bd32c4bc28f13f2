//! How long the steps of a run's switches took: read from its events, fitted, and kept beside its journal for `coswitch simulate
//! --costs`.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::Context;
use coswitch_policies::{Bytes, JobId, NodeId, SimTime, SwitchId};
use coswitch_sim::{CostFile, CostStep, Sample};

use crate::journal::{Event, Phase, RunEvent};

/// What the file of costs in the directory of a run is called.
pub(crate) const FILE_NAME: &str = "costs.yaml";

/// The costs of a run; nothing of the steps that it never made.
pub(crate) fn measured(events: &[RunEvent]) -> CostFile {
    CostFile { communication: communication(events), ..CostFile::fitted(&samples(events)) }
}

/// The share of its time in which each job communicated, by its name: the mean of what was measured, second by second.
fn communication(events: &[RunEvent]) -> BTreeMap<String, f64> {
    let mut seen: BTreeMap<JobId, (u32, u32)> = BTreeMap::new();
    let mut names = BTreeMap::new();
    for event in events {
        match &event.kind {
            Event::JobSubmitted { job, name, .. } => drop(names.insert(*job, name.clone())),
            Event::JobMeasured { job, communication, .. } => {
                let (sum, count) = seen.entry(*job).or_default();
                (*sum, *count) = (*sum + u32::from(communication.get()), *count + 1);
            }
            _ => {}
        }
    }
    let mean = |(sum, count): (u32, u32)| (f64::from(sum) / f64::from(count)).round() / 1000.0;
    seen.into_iter().filter_map(|(job, seen)| Some((names.remove(&job)?, mean(seen)))).collect()
}

/// Writes what a run has cost, on nodes of so many cores, into its directory; nothing where it neither launched nor moved anybody.
pub(crate) fn keep(directory: &Path, events: &[RunEvent], cores: Option<u32>) -> anyhow::Result<()> {
    let costs = measured(events);
    if costs == CostFile::default() {
        return Ok(());
    }
    let costs = CostFile { cores, ..costs };
    let path = directory.join(FILE_NAME);
    let text = serde_yaml::to_string(&costs).context("failed to write costs")?;
    std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))
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

#[cfg(test)]
mod tests {
    use coswitch_policies::Communication;

    use super::*;

    #[test]
    fn what_a_run_has_cost_is_kept_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        keep(directory.path(), &[], Some(2)).unwrap();
        assert!(!directory.path().join(FILE_NAME).exists(), "there is nothing to tell");
        let phase = |phase, bytes, millis: u64| Event::PhaseDone {
            switch: SwitchId(0),
            job: JobId(0),
            node: NodeId(0),
            phase,
            began: SimTime(0),
            ended: Duration::from_millis(millis).into(),
            bytes: Bytes::mib(bytes),
        };
        let steps =
            [phase(Phase::Flush, 0, 4), phase(Phase::Dump, 100, 250), phase(Phase::Restore, 100, 200)];
        let (job, ranks, memory) = (JobId(0), 2, Bytes::mib(1));
        let share = |share| Event::JobMeasured {
            job,
            communication: Communication::per_mille(share),
            bytes_per_second: Bytes(0),
            ranks: vec![],
        };
        let told = [
            Event::JobSubmitted { job, name: "cg-1".into(), ranks, memory, alone: None },
            share(800),
            share(901),
        ];
        let kinds = steps.into_iter().chain(told);
        let events: Vec<RunEvent> = kinds.map(|kind| RunEvent { at: SimTime(0), kind }).collect();
        keep(directory.path(), &events, Some(2)).unwrap();
        let text = std::fs::read_to_string(directory.path().join(FILE_NAME)).unwrap();
        let read: CostFile = serde_yaml::from_str(&text).unwrap();
        assert_eq!(read, CostFile { cores: Some(2), ..measured(&events) });
        let model = read.model().unwrap();
        assert_eq!(model.dump.per_second, Bytes::mib(400));
        assert!((read.communication["cg-1"] - 0.851).abs() < 1e-9);
        assert_eq!((model.restore.per_second, model.flush), (Bytes::mib(500), Duration::from_millis(4)));
    }
}
