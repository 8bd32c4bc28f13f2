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
    for local in ["dcs", "ics", "predictive", "dynamic", "dcs, wait: spin-block"] {
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
