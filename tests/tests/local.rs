//! Node schedulers over real ranks: which rank has the processor, and that every other one gets it too.

use std::{fs, path::Path, time::Duration};

use coswitch_daemon::{kernel::Release, processors};
use coswitch_tests::{cluster::RUN_LIMIT, master::Master};
use serde_json::Value;

/// On each node a rank that sends or answers, and two that compute all the time.
const BESIDE_TWO: &str = r#"
cluster: {nodes: 2, memory: 1GiB, store: "{store}"}
scheduler: {policy: cosched, local: LOCAL}
jobs:
  - {name: answer, ranks: 2, memory: 100MiB, command: ["{bin}/answer", --seconds, "4"]}
  - {name: hog, count: 2, ranks: 2, memory: 100MiB, command: ["{bin}/answer", --only-compute, --seconds, "4"]}
"#;

/// What the last rank of a job says.
fn said(out: &Path, job: &str) -> Value {
    let text = fs::read_to_string(out.join(job).join("rank-1.out")).expect("an output");
    let line = text.lines().find(|line| line.starts_with('{')).expect("a line of JSON");
    serde_json::from_str(line).expect("JSON")
}

/// A weight that is raised is taken back: no rank starves beside one that is called, or woken, all the time.
#[test]
fn no_rank_starves_beside_one_that_messages_favour() {
    for local in ["dcs", "ics", "predictive", "dynamic", "hpdt", "dts", "fcs", "dcs, wait: spin-block"] {
        let master = Master::run(&BESIDE_TWO.replace("LOCAL", local));
        let out = master.out();
        let look = || {
            let answered = said(&out, "answer")["messages"].as_u64().expect("a number");
            assert!(answered > 0, "{local}");
            // Of a processor, and of what the other one has.
            let shares = ["hog-1", "hog-2"].map(|hog| said(&out, hog)["share"].as_f64().expect("a number"));
            let [less, more] = [shares[0].min(shares[1]), shares[0].max(shares[1])];
            assert!(less > 0.1 && less > 0.7 * more, "{shares:?} of a processor under {local}");
        };
        let ended = master.end_with(RUN_LIMIT, Duration::ZERO, look);
        assert_eq!(ended.code, Some(0), "{local}: {}", ended.stderr);
    }
}

/// On each node a rank that computes, and more work of local users than the processor can do.
const BESIDE_LOCAL_TASKS: &str = r#"
cluster: {nodes: 2, memory: 1GiB, store: "{store}"}
scheduler: {policy: cosched, local: LOCAL}
jobs:
  - {name: parallel, ranks: 2, memory: 100MiB, command: ["{bin}/answer", --only-compute, --seconds, "8"]}
  - {name: local, count: COUNT, ranks: 2, memory: 100MiB, command: ["{bin}/local-load", --every, "0.05", --work, "0.1", --seconds, "6"]}
"#;

/// What a rank has of its processor, while others than MPI's want it or not.
fn share_beside(local: &str, count: u32) -> f64 {
    let file = BESIDE_LOCAL_TASKS.replace("LOCAL", local);
    let file = match count {
        0 => file.lines().filter(|line| !line.contains("local-load")).collect::<Vec<_>>().join("\n"),
        _ => file.replace("COUNT", &count.to_string()),
    };
    let master = Master::run(&file);
    let out = master.out();
    let mut share = 0.0;
    let look = || share = said(&out, "parallel")["share"].as_f64().expect("a number");
    let ended = master.end_with(RUN_LIMIT, Duration::ZERO, look);
    assert_eq!(ended.code, Some(0), "{local}: {}", ended.stderr);
    share
}

/// HPDT prefers MPI ranks to local tasks, DTS gives each kind its slice, and its stop mode lets ranks stand
/// still in the local one even where nothing else wants the processor.
#[test]
fn ranks_and_local_tasks_have_what_the_technique_gives_them() {
    let first = share_beside("hpdt", 1);
    assert!(first > 0.75, "{first} before local tasks");
    let half = share_beside("dts-static", 1);
    assert!((0.35..0.7).contains(&half), "{half} in slices as long as those of local tasks");
    let stopped = share_beside("dts-stop", 0);
    assert!((0.4..0.6).contains(&stopped), "{stopped} where the other slices stay idle");
}

/// Under BCS what is sent in a slot goes in the next one.
#[test]
fn messages_between_nodes_wait_for_the_next_slot() {
    let file = r#"
cluster: {nodes: 2, memory: 1GiB, store: "{store}"}
scheduler: {policy: cosched, local: bcs, slice: 20ms}
jobs:
  - {name: pingpong, ranks: 2, memory: 100MiB, command: ["{bin}/grains", --grain, "0.0001", --steps, "100"]}
"#;
    let master = Master::run(file);
    let out = master.out();
    let look = || {
        let text = fs::read_to_string(out.join("pingpong/rank-0.out")).expect("an output");
        let line = text.lines().find(|line| line.starts_with('{')).expect("a line of JSON");
        let said: Value = serde_json::from_str(line).expect("JSON");
        let step = said["step_us"].as_f64().expect("a number");
        assert!(step > 19_000.0, "a step took {step} us");
    };
    let ended = master.end_with(RUN_LIMIT, Duration::ZERO, look);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// Weights compare inside one scheduling group, and some kernels allow none for several processors.
#[test]
fn a_node_whose_ranks_have_groups_of_their_own_is_refused_with_the_reason() {
    let several = BESIDE_TWO.replace("nodes: 2", "nodes: 1").replace("LOCAL", "dcs");
    let ended = Master::run(&several).end(RUN_LIMIT, Duration::ZERO);
    let is_refused = Release::running().is_some_and(Release::lets_groups_starve_others)
        && processors::allowed().is_ok_and(|processors| processors.len() > 1);
    assert_eq!(ended.code == Some(0), !is_refused, "{}", ended.stderr);
    let reason = "give the node one processor, or use a kernel";
    assert_eq!(ended.stderr.contains(reason), is_refused, "{}", ended.stderr);
}
