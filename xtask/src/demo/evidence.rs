//! Evidence of a run: its report, its journal, and the output of its jobs.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The line by which every example program says that it has checked its result.
const VERIFIED: &str = "VERIFICATION SUCCESSFUL";

#[derive(Debug, PartialEq)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) exited_well: bool,
    pub(super) verified: bool,
    /// The most it held on any one node.
    pub(super) peak: u64,
    /// The working sets of its ranks.
    pub(super) declared: u64,
}

/// Evidence of the whole run; sizes in bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Evidence {
    pub(super) jobs: Vec<Job>,
    pub(super) nodes: u64,
    pub(super) capacity: u64,
    pub(super) switches: u64,
    /// The most that the jobs of one node held together, over all samples of all nodes.
    pub(super) peak: u64,
    pub(super) samples: u64,
    /// The sum over jobs of the most each held on a node, for the node with the smallest sum.
    pub(super) held_by_all: u64,
}

/// Fold over memory samples.
#[derive(Default)]
struct Memory {
    samples: u64,
    peak: u64,
    by_job: BTreeMap<(u64, u64), u64>,
}

impl Evidence {
    /// Reads a run's directory; `report` is the output of `coswitch --output json report`.
    pub(super) fn collect(out: &Path, report: &str) -> Result<Evidence> {
        let report: Value = serde_json::from_str(report).context("the report is not JSON")?;
        let journal = out.join("journal.jsonl");
        let journal =
            fs::read_to_string(&journal).with_context(|| format!("cannot read {}", journal.display()))?;
        let events = journal.lines().filter_map(|line| serde_json::from_str(line).ok());
        let verified = |job: &str| {
            let output = fs::read_to_string(out.join(job).join("rank-0.out")).unwrap_or_default();
            output.lines().any(|line| line.trim() == VERIFIED)
        };
        Ok(weigh(&report, events, verified))
    }
}

fn weigh(report: &Value, events: impl Iterator<Item = Value>, verified: impl Fn(&str) -> bool) -> Evidence {
    let (mut memory, mut declared) = (Memory::default(), BTreeMap::new());
    for event in events {
        match event["kind"].as_str() {
            Some("memory-sample") => memory.add(&event),
            Some("job-submitted") => {
                declared.insert(number(&event["job"]), number(&event["memory"]) * number(&event["ranks"]));
            }
            _ => {}
        }
    }
    let nodes = number(&report["nodes"]);
    let jobs = report["jobs"].as_array().into_iter().flatten().map(|job| {
        let (id, name) = (number(&job["job"]), job["name"].as_str().unwrap_or_default());
        Job {
            name: name.to_owned(),
            exited_well: job["outcome"]["exit"].as_i64() == Some(0),
            verified: verified(name),
            peak: (0..nodes).map(|node| memory.of(id, node)).max().unwrap_or(0),
            declared: declared.get(&id).copied().unwrap_or(0),
        }
    });
    let jobs: Vec<Job> = jobs.collect();
    let held = |node| memory.by_job.iter().filter(|((_, on), _)| *on == node).map(|(_, most)| most).sum();
    Evidence {
        jobs,
        nodes,
        capacity: number(&report["capacity"]),
        switches: number(&report["set"]["switches"]),
        peak: memory.peak,
        samples: memory.samples,
        held_by_all: (0..nodes).map(held).min().unwrap_or(0),
    }
}

impl Memory {
    /// A sample counts with the node's charge or the sum of its jobs, whichever is more.
    fn add(&mut self, sample: &Value) {
        let node = number(&sample["node"]);
        let mut sum = 0;
        for job in sample["by_job"].as_array().into_iter().flatten() {
            let used = number(&job["used"]);
            let most = self.by_job.entry((number(&job["job"]), node)).or_default();
            *most = used.max(*most);
            sum += used;
        }
        self.samples += 1;
        self.peak = self.peak.max(sum).max(number(&sample["used"]));
    }

    fn of(&self, job: u64, node: u64) -> u64 {
        self.by_job.get(&(job, node)).copied().unwrap_or(0)
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample(node: u64, used: u64, by_job: &[(u64, u64)]) -> Value {
        let by_job: Vec<Value> = by_job.iter().map(|(job, used)| json!({"job": job, "used": used})).collect();
        json!({"kind": "memory-sample", "node": node, "used": used, "by_job": by_job})
    }

    #[test]
    fn peaks_are_taken_over_samples_and_added_over_jobs() {
        let report = json!({
            "nodes": 2, "capacity": 100, "set": {"switches": 3},
            "jobs": [
                {"job": 0, "name": "a", "outcome": {"exit": 0}},
                {"job": 1, "name": "b", "outcome": {"signal": 9}},
            ],
        });
        let events = [
            json!({"kind": "job-submitted", "job": 0, "ranks": 2, "memory": 70}),
            sample(0, 80, &[(0, 75), (1, 1)]),
            sample(0, 60, &[(0, 2), (1, 64)]),
            sample(1, 50, &[(1, 50)]),
        ];
        let evidence = weigh(&report, events.into_iter(), |name| name == "a");
        assert_eq!((evidence.samples, evidence.peak, evidence.switches), (3, 80, 3));
        assert_eq!(evidence.held_by_all, 50, "on node 1; on node 0 it is 75 + 64");
        let a = Job { name: "a".into(), exited_well: true, verified: true, peak: 75, declared: 140 };
        let b = Job { name: "b".into(), exited_well: false, verified: false, peak: 64, declared: 0 };
        assert_eq!(evidence.jobs, [a, b]);
    }
}
