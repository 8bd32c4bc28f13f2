//! Jobs that need more memory than declared: their set is split before the node runs out of memory, and the
//! run reports it.

use std::{collections::BTreeSet, fs, process::Command, time::Duration};

use coswitch_policies::{Bytes, JobId, Split};
use coswitch_report::journal::{Event, JobOutcome};
use coswitch_tests::{cluster::RUN_LIMIT, master::Master, parts};

/// Two jobs that grow from 12 to 154 MiB per rank, each rank on a node of its own, and one that stays within
/// its declaration. As declared all fit.
const TOO_SMALL: &str = r#"
cluster: {nodes: 2, memory: 256MiB, store: "{store}"}
scheduler: {policy: hybrid, quantum: 2s, switching: sequential}
jobs:
  - name: grows
    command: ["{python}", "-c", "{grow}"]
    ranks: 2
    memory: 70MiB
    count: 2
  - name: steady
    command: ["{bin}/ring-check", --seconds, "2", --max-bytes, 64KiB]
    ranks: 2
    memory: 55MiB
"#;

/// Allocates 2 MiB every tenth of a second, up to 142 MiB, and then checks all of it.
const GROW: &str = "import time\\n\
    from mpi4py import MPI\\n\
    world, kept = MPI.COMM_WORLD, []\\n\
    for step in range(1, 72):\\n\
    \x20   kept.append(bytes([step]) * (2 << 20))\\n\
    \x20   assert world.allreduce(step) == step * world.size\\n\
    \x20   time.sleep(0.1)\\n\
    assert all(part.count(step) == 2 << 20 for step, part in enumerate(kept, 1))\\n\
    print('VERIFICATION SUCCESSFUL', world.allreduce(len(kept)), flush=True)";

#[test]
fn set_that_outgrows_its_node_is_split_before_memory_runs_out() {
    let python = parts::python().display().to_string();
    let master = Master::run(&TOO_SMALL.replace("{python}", &python).replace("{grow}", GROW));
    let out = master.out();
    let mut again = None;
    let ended = master.end_with(RUN_LIMIT, Duration::ZERO, || {
        for job in ["grows-1", "grows-2", "steady"] {
            let said = fs::read_to_string(out.join(job).join("rank-0.out")).unwrap_or_default();
            assert!(said.contains("VERIFICATION SUCCESSFUL"), "{job} said {said:?}");
        }
        again = Command::new(parts::coswitch()).arg("simulate").arg(&out).output().ok();
    });
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for name in ["grows-1", "grows-2", "steady"] {
        assert_eq!(ended.job(name)["outcome"], serde_json::to_value(JobOutcome::Exit(0)).unwrap());
    }
    let splits: Vec<(usize, &Split)> = ended
        .events
        .iter()
        .enumerate()
        .filter_map(|(line, event)| match &event.kind {
            Event::SetSplit(split) => Some((line, split)),
            _ => None,
        })
        .collect();
    let growers = |jobs: &[JobId]| jobs.iter().filter(|job| job.0 < 2).count();
    let apart = splits.iter().find(|(_, split)| growers(&[split.job, split.moved.job]) > 0);
    let (line, split) = *apart.unwrap_or_else(|| panic!("no set was split: {ended:?}"));
    assert!(split.resident > Bytes::mib(70) && split.capacity == Bytes::mib(256), "{split:?}");
    // From the end of the switch that evicts the job, or of the last one under way, no node uses more than
    // its memory.
    let settled = line + ended.events[line..].iter().position(switch_ended).expect("it was taken out");
    for event in &ended.events[settled..] {
        if let Event::MemorySample { used, .. } = &event.kind {
            assert!(*used <= Bytes::mib(256), "{event:?}");
        }
    }
    let sets: Vec<BTreeSet<u32>> = ended
        .events
        .iter()
        .filter_map(|event| match &event.kind {
            Event::SlotStarted { jobs, .. } => Some(jobs.iter().map(|job| job.0).collect()),
            _ => None,
        })
        .collect();
    assert!(sets.iter().any(|set| set.range(..2).count() == 2), "as declared they fit: {sets:?}");
    let report = ended.report.as_ref().unwrap();
    let said = report["outgrown"].as_array().unwrap();
    assert!(said.iter().any(|text| text.as_str().is_some_and(|text| text.contains("grew to"))), "{said:?}");
    assert!(report["set"]["switches"].as_u64().unwrap() >= 1, "{report:?}");
    assert!(ended.job("grows-1")["held"].as_u64() > Some(Bytes::mib(70).0), "{report:?}");
    let again = again.expect("coswitch starts");
    assert!(again.status.success(), "decided otherwise: {}", String::from_utf8_lossy(&again.stderr));
}

#[test]
fn job_too_large_for_its_node_fails_with_the_reason_and_the_others_continue() {
    let master = Master::run(
        r#"
cluster: {nodes: 1, memory: 128MiB, store: "{store}"}
scheduler: {policy: hybrid, quantum: 2s}
jobs:
  - name: glutton
    command: [python3, -c, "kept = [b'a' * (1 << 20) for _ in range(300)]"]
    ranks: 1
    memory: 40MiB
  - {name: modest, command: ["{bin}/ep", --class, S], ranks: 1, memory: 40MiB}
"#,
    );
    let ended = master.end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let outcome = ended.job("glutton")["outcome"].to_string();
    assert!(
        outcome.contains("rank 0 was killed by the kernel: the memory of its node was used up"),
        "{outcome}"
    );
    assert_eq!(ended.job("modest")["outcome"], serde_json::to_value(JobOutcome::Exit(0)).unwrap());
}

fn switch_ended(event: &coswitch_report::journal::RunEvent) -> bool {
    matches!(event.kind, Event::SwitchEnded { .. })
}
