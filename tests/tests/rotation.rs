//! `rotation: job` with real programs: each exchange takes one job out, and the others run on meanwhile.

use std::{collections::BTreeSet, time::Duration};

use coswitch_policies::{JobId, Purpose};
use coswitch_report::journal::Event;
use coswitch_tests::{cluster::RUN_LIMIT, master::Master};

/// Two of the four fit on a node at once.
const RING: &str = r#"
cluster: {nodes: 2, memory: 200MiB, store: "{store}"}
scheduler: {policy: hybrid, quantum: 2s, rotation: job, residency: none, switching: sequential}
jobs:
  - name: ep
    command: ["{bin}/ep", --class, S, --seconds, "4"]
    ranks: 2
    memory: 100MiB
    count: 4
"#;

#[test]
fn one_job_is_exchanged_at_a_time_while_the_others_run_on_and_verify() {
    let ended = Master::run(RING).end_with(RUN_LIMIT, Duration::ZERO, || {});
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (mut running, mut exchanges, mut ended_jobs) = (BTreeSet::<JobId>::new(), 0, 0);
    for event in &ended.events {
        match event.kind.clone() {
            Event::JobRunning { job } => drop(running.insert(job)),
            Event::JobFinished { job, outcome, .. } => {
                assert!(outcome.is_success(), "{event:?}");
                running.remove(&job);
                ended_jobs += 1;
            }
            Event::SwitchStarted { purpose: Purpose::Turn, outgoing, incoming, .. }
                if !outgoing.is_empty() =>
            {
                // Where a job has ended, another one comes beside.
                assert!(outgoing.len() == 1 && incoming.len() <= 1 + ended_jobs, "{event:?}");
                running.remove(&outgoing[0]);
                exchanges += running.len();
            }
            _ => {}
        }
    }
    assert!(exchanges >= 4, "{exchanges} exchanges beside a job that ran on: {ended:?}");
}
