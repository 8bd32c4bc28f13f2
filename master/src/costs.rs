//! The costs of a run's switches, fitted from its events and written beside its journal for `coswitch
//! simulate --costs`.

use std::{collections::BTreeMap, io::Write, path::Path, time::Duration};

use anyhow::Context;
use coswitch_ckpt::private;
use coswitch_policies::{Bytes, JobId, NodeId, SimTime, SwitchId};
use coswitch_report::journal::{Event, RunEvent, SwitchStep};
use coswitch_sim::{CostFile, CostStep, Sample};

/// The name of the cost file in the directory of a run.
pub(crate) const FILE_NAME: &str = "costs.yaml";

/// The costs of a run; steps that it never made are left out.
pub(crate) fn measured(events: &[RunEvent]) -> CostFile {
    CostFile { communication: communication(events), ..CostFile::fitted(&samples(events)) }
}

/// The share of its time that each job communicated, by job name: the mean of its measurements.
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

/// Writes the costs of a run into its directory; no file where it launched and moved no job. `cores` are
/// those of a node.
pub(crate) fn store(directory: &Path, events: &[RunEvent], cores: Option<u32>) -> anyhow::Result<()> {
    let costs = measured(events);
    if costs == CostFile::default() {
        return Ok(());
    }
    let costs = CostFile { cores, ..costs };
    let path = directory.join(FILE_NAME);
    let text = serde_yaml::to_string(&costs).context("failed to write costs")?;
    let written = private::overwrite(&path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("failed to write {}", path.display()))
}

/// The steps of a run on each node. A node dumps all jobs of a set in parallel, so their steps count as one.
fn samples(events: &[RunEvent]) -> Vec<Sample> {
    let mut steps: BTreeMap<(SwitchId, NodeId, CostStep), (SimTime, SimTime, Bytes)> = BTreeMap::new();
    let mut launched: BTreeMap<JobId, SimTime> = BTreeMap::new();
    let mut samples = Vec::new();
    for event in events {
        match &event.kind {
            Event::StepDone { switch, node, step, began, ended, bytes, .. } => {
                let Some(step) = cost_step(*step) else { continue };
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

const fn cost_step(step: SwitchStep) -> Option<CostStep> {
    match step {
        SwitchStep::Freeze | SwitchStep::Flush => Some(CostStep::Flush),
        SwitchStep::Dump | SwitchStep::Release => Some(CostStep::Dump),
        SwitchStep::Restore => Some(CostStep::Restore),
        SwitchStep::Launch | SwitchStep::Seal | SwitchStep::Thaw => None,
    }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::Communication;

    use super::*;

    #[test]
    fn the_costs_of_a_run_are_written_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        store(directory.path(), &[], Some(2)).unwrap();
        assert!(!directory.path().join(FILE_NAME).exists(), "a run without events has no costs");
        let done = |step, bytes, millis: u64| Event::StepDone {
            switch: SwitchId(0),
            job: JobId(0),
            node: NodeId(0),
            step,
            began: SimTime(0),
            ended: Duration::from_millis(millis).into(),
            bytes: Bytes::mib(bytes),
        };
        let steps = [
            done(SwitchStep::Flush, 0, 4),
            done(SwitchStep::Dump, 100, 250),
            done(SwitchStep::Restore, 100, 200),
        ];
        let (job, ranks, memory) = (JobId(0), 2, Bytes::mib(1));
        let share = |share| Event::JobMeasured {
            job,
            communication: Communication::per_mille(share),
            bytes_per_second: Bytes(0),
            ranks: vec![],
        };
        let measured_job = [
            Event::JobSubmitted { job, name: "cg-1".into(), ranks, memory, alone: None },
            share(800),
            share(901),
        ];
        let kinds = steps.into_iter().chain(measured_job);
        let events: Vec<RunEvent> = kinds.map(|kind| RunEvent { at: SimTime(0), kind }).collect();
        store(directory.path(), &events, Some(2)).unwrap();
        let text = std::fs::read_to_string(directory.path().join(FILE_NAME)).unwrap();
        let read: CostFile = serde_yaml::from_str(&text).unwrap();
        assert_eq!(read, CostFile { cores: Some(2), ..measured(&events) });
        let model = read.model().unwrap();
        assert_eq!(model.dump.per_second, Bytes::mib(400));
        assert!((read.communication["cg-1"] - 0.851).abs() < 1e-9);
        assert_eq!((model.restore.per_second, model.flush), (Bytes::mib(500), Duration::from_millis(4)));
    }
}
