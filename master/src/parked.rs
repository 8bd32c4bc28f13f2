//! What `coswitch run --resume` needs of a run whose jobs are parked: `parked.json` in its directory, beside
//! the journal. The images are in the stores of its nodes, and their key is here: it is root's alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    time::Duration,
};

use anyhow::{Context, bail};
use coswitch_ckpt::private;
use coswitch_dispatcher::{protocol::Inventory, provisioning::ClusterKey};
use coswitch_policies::{JobId, NodeId};
use coswitch_report::journal::{Event, RunEvent};
use serde::{Deserialize, Serialize};

use crate::{
    config::JobSet,
    replace::{remove, replace},
};

/// The name of the file in the directory of the run.
pub(crate) const FILE: &str = "parked.json";
const VERSION: u32 = 2;

/// A run whose jobs are parked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Parked {
    version: u32,
    /// The name of the run, which its nodes' directories in the stores carry.
    pub run: String,
    /// Opens the images.
    pub sealing_key: ClusterKey,
    /// Of the last master; the first is 1.
    pub generation: u64,
    /// The time that the run has taken so far.
    pub age: Duration,
    pub job_set: JobSet,
}

impl Parked {
    pub const fn new(
        run: String,
        sealing_key: ClusterKey,
        generation: u64,
        age: Duration,
        job_set: JobSet,
    ) -> Self {
        Self { version: VERSION, run, sealing_key, generation, age, job_set }
    }

    #[must_use]
    pub fn with(self, job_set: JobSet) -> Self {
        Self { job_set, ..self }
    }

    /// # Errors
    /// Where no run is parked in the directory, or by another version of coswitch.
    pub fn read(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(FILE);
        let text = match private::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
                "no run is parked in {}: name the directory (`--out`) of a run that has ended with exit \
                 code 6",
                directory.display()
            ),
            text => text.with_context(|| format!("failed to read {}", path.display()))?,
        };
        let parked: Self = serde_json::from_slice(&text)
            .with_context(|| format!("failed to understand {}", path.display()))?;
        if parked.version != VERSION {
            bail!("{} was written by another version of coswitch", path.display());
        }
        Ok(parked)
    }

    /// Replaces the file in one step.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let path = directory.join(FILE);
        let write = || replace(&path, &serde_json::to_vec(self)?);
        write().map(drop).with_context(|| format!("failed to write {}", path.display()))
    }

    /// The run goes on, or has ended.
    ///
    /// # Errors
    /// Where the file cannot be removed.
    pub fn forget(directory: &Path) -> anyhow::Result<()> {
        remove(&directory.join(FILE)).with_context(|| format!("failed to remove {FILE}"))
    }
}

/// The jobs that hold is on, by the journal.
pub fn held(events: &[RunEvent]) -> BTreeSet<JobId> {
    let mut held = BTreeSet::new();
    for event in events {
        match &event.kind {
            Event::JobHeld { job } => drop(held.insert(*job)),
            Event::JobReleased { job } | Event::JobFinished { job, .. } => drop(held.remove(job)),
            _ => {}
        }
    }
    held
}

/// The nodes that must hold a snapshot of each parked job, by the journal.
pub fn expected(events: &[RunEvent]) -> BTreeMap<JobId, BTreeSet<NodeId>> {
    let mut expected = BTreeMap::new();
    for event in events {
        match &event.kind {
            Event::JobLaunched { job, placement } => {
                expected.insert(*job, placement.by_rank().collect());
            }
            Event::JobMoved { job, placement, .. } => {
                expected.insert(*job, placement.iter().copied().collect());
            }
            Event::JobFinished { job, .. } => drop(expected.remove(job)),
            _ => {}
        }
    }
    expected
}

/// Checks that the nodes hold what they must.
///
/// # Errors
/// Names each job with the nodes that do not hold it.
pub fn check(
    expected: &BTreeMap<JobId, BTreeSet<NodeId>>,
    inventories: &BTreeMap<NodeId, Inventory>,
    name: impl Fn(JobId) -> String,
) -> anyhow::Result<()> {
    let holds = |node: &NodeId, job: JobId| {
        inventories.get(node).is_some_and(|inventory| inventory.held.iter().any(|held| held.job == job))
    };
    let mut lacks = Vec::new();
    for (job, nodes) in expected {
        let lacking: Vec<String> =
            nodes.iter().filter(|node| !holds(node, *job)).map(ToString::to_string).collect();
        if !lacking.is_empty() {
            lacks.push(format!("{} on {}", name(*job), lacking.join(", ")));
        }
    }
    if lacks.is_empty() {
        return Ok(());
    }
    bail!(
        "there is no snapshot of {}: a store has to be a directory that all nodes share, or the run has to \
         be resumed on the machines that have the images; they are left as they are",
        lacks.join("; of ")
    )
}

#[cfg(test)]
mod tests {
    use coswitch_dispatcher::protocol::Held;
    use coswitch_policies::{Placement, SimTime};
    use coswitch_report::journal::JobOutcome;

    use super::*;

    fn events(kinds: Vec<Event>) -> Vec<RunEvent> {
        kinds.into_iter().map(|kind| RunEvent { at: SimTime(0), kind }).collect()
    }

    #[test]
    fn every_job_that_was_launched_and_has_not_ended_is_expected_where_its_ranks_were() {
        let launched = |job, shares: &[u32]| Event::JobLaunched {
            job: JobId(job),
            placement: Placement::from_shares(shares),
        };
        let ended =
            Event::JobFinished { job: JobId(1), outcome: JobOutcome::Exit(0), last_output: String::new() };
        let held_2 = Event::JobHeld { job: JobId(2) };
        let events =
            events(vec![launched(0, &[1, 1]), launched(1, &[1, 1]), ended, launched(2, &[0, 2]), held_2]);
        let expected = expected(&events);
        assert_eq!(expected.keys().copied().collect::<Vec<_>>(), [JobId(0), JobId(2)]);
        assert_eq!(held(&events), BTreeSet::from([JobId(2)]));
        let holds = |job: &u32| Held { job: JobId(*job), launched: Some(1), placement: Vec::new() };
        let holding = |jobs: &[u32]| Inventory {
            held: jobs.iter().map(holds).collect(),
            released: Vec::new(),
            copies: Vec::new(),
        };
        let name = |job: JobId| format!("`job {}`", job.0);
        let whole = BTreeMap::from([(NodeId(0), holding(&[0])), (NodeId(1), holding(&[0, 2]))]);
        check(&expected, &whole, name).unwrap();
        let part = BTreeMap::from([(NodeId(0), holding(&[])), (NodeId(1), holding(&[0]))]);
        let said = check(&expected, &part, name).unwrap_err().to_string();
        assert!(said.contains("`job 0` on node-0; of `job 2` on node-1"), "{said}");
    }

    #[test]
    fn a_directory_without_a_parked_run_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let said = Parked::read(directory.path()).unwrap_err().to_string();
        assert!(said.contains("no run is parked") && said.contains("exit code 6"), "{said}");
    }
}
