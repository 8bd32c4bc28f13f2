//! Pairing by live measurements: sets packed by memory alone are mixed once the jobs' communication is known.

use std::{collections::BTreeSet, time::Duration};

use coswitch_policies::JobId;
use coswitch_report::journal::{Event, JobOutcome};
use coswitch_tests::{cluster::RUN_LIMIT, master::Master};

/// Jobs 0 and 1 wait for a slow link most of the time, jobs 2 and 3 never. Two jobs fit a node, and by the
/// order of the file equal ones are packed together.
const ALIKE: &str = r#"
cluster: {nodes: 2, memory: 128MiB, network: {rate: 100Mbit}, store: "{store}"}
scheduler: {policy: paired, quantum: 2500ms}
jobs:
  - name: talks
    command: ["{bin}/cg", --class, A, --seconds, "4"]
    ranks: 2
    memory: 60MiB
    count: 2
  - name: computes
    command: ["{bin}/ep", --class, W, --seconds, "7"]
    ranks: 2
    memory: 60MiB
    count: 2
"#;

#[test]
fn jobs_that_compute_are_paired_with_jobs_that_communicate() {
    let ended = Master::run(ALIKE).end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for name in ["talks-1", "talks-2", "computes-1", "computes-2"] {
        assert_eq!(ended.job(name)["outcome"], serde_json::to_value(JobOutcome::Exit(0)).unwrap());
    }
    // The median: on a busy machine a rank may wait once for another that has no processor.
    let share_of = |job: u32| {
        let share = move |kind: &Event| match kind {
            Event::JobMeasured { job: of, communication, .. } if of.0 == job => Some(communication.get()),
            _ => None,
        };
        let mut shares: Vec<_> = ended.events.iter().filter_map(|event| share(&event.kind)).collect();
        shares.sort_unstable();
        shares.get(shares.len() / 2).copied().unwrap_or_default()
    };
    let (talks, computes) = (share_of(0), share_of(2));
    assert!(talks > 600 && computes < 400, "measured {talks} and {computes} per mille");
    let sets: Vec<BTreeSet<u32>> = ended
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            Event::SlotStarted { jobs, .. } if jobs.len() == 2 => {
                Some(jobs.iter().map(|JobId(job)| *job).collect())
            }
            _ => None,
        })
        .collect();
    let mixed = |set: &BTreeSet<u32>| set.range(..2).count() == 1;
    assert!(!mixed(&sets[0]), "at first packed by memory alone: {sets:?}");
    assert!(sets.iter().any(mixed), "later mixed by measurements: {sets:?}");
}
