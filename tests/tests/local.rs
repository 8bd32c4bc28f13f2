//! Node schedulers over real ranks: which rank has the processor, and that every other one gets it too.

use std::{fs, path::Path, process::Command, time::Duration};

use coswitch_daemon::{kernel::Release, processors};
use coswitch_policies::local::explicit::Slices;
use coswitch_report::journal::{Event, RunEvent};
use coswitch_tests::{cluster::RUN_LIMIT, master::Master, parts};
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
    let with_parameters = [
        "{dcs: {slice: 5ms, share: 1ms, credit_max: 10ms}}",
        "{ics: {switches: 5, woken_first: false}}",
        "{predictive: {overtakes_max: 1, past_weight: 0.5}}",
        "{round-robin: {slice: 5ms}}",
        "dcs, wait: spin-block",
    ];
    let words = ["dcs", "ics", "predictive", "dynamic", "hpdt", "dts", "fcs", "round-robin"];
    for local in words.into_iter().chain(with_parameters) {
        let master = Master::run(&BESIDE_TWO.replace("LOCAL", local));
        let out = master.out();
        let look = || {
            let answered = said(&out, "answer")["messages"].as_u64().expect("a number");
            assert!(answered > 0, "{local}");
            // Of what all three have of a processor, and of what the other one has.
            let jobs = ["answer", "hog-1", "hog-2"];
            let shares = jobs.map(|job| said(&out, job)["share"].as_f64().expect("a number"));
            let [less, more] = [shares[1].min(shares[2]), shares[1].max(shares[2])];
            let all: f64 = shares.iter().sum();
            assert!(less > 0.15 * all && less > 0.7 * more, "{shares:?} of a processor under {local}");
        };
        let ended = master.end_with(RUN_LIMIT, Duration::ZERO, look);
        assert_eq!(ended.code, Some(0), "{local}: {}", ended.stderr);
    }
}

/// On each node a rank that computes, and a local task that does so for as long.
const BESIDE_LOCAL_TASK: &str = r#"
cluster: {nodes: 2, memory: 1GiB, store: "{store}"}
scheduler: {policy: cosched, local: LOCAL}
jobs:
  - {name: parallel, ranks: 2, memory: 100MiB, command: ["{bin}/answer", --only-compute, --seconds, "8"]}
  - {name: local, ranks: 2, memory: 50MiB, command: [/bin/sh, -c, "timeout 8 yes > /dev/null; times"]}
"#;

/// What a rank has had of the processor time that it shared with a local task.
fn share_beside_a_local_task(local: &str) -> f64 {
    let mut share = 0.0;
    run_jobs(&BESIDE_LOCAL_TASK.replace("LOCAL", local), |out| share = share_of_last_rank(out));
    share
}

/// The same of the last rank, which runs for eight seconds.
fn share_of_last_rank(out: &Path) -> f64 {
    let parallel = 8.0 * said(out, "parallel")["share"].as_f64().expect("a number");
    let times = fs::read_to_string(out.join("local/rank-1.out")).expect("an output");
    let of_children = times.lines().nth(1).expect("the line of the children").split_whitespace();
    let beside: f64 = of_children.map(seconds).sum();
    parallel / (parallel + beside)
}

/// As the shell writes them: `0m1.23s`.
fn seconds(time: &str) -> f64 {
    let (minutes, seconds) = time.trim_end_matches('s').split_once('m').expect("minutes and seconds");
    let number = |text: &str| text.parse::<f64>().expect("a number");
    60.0 * number(minutes) + number(seconds)
}

/// Runs the jobs of a file to their end, and looks at their outputs.
fn run_jobs(file: &str, look: impl FnOnce(&Path)) -> Vec<RunEvent> {
    let master = Master::run(file);
    let out = master.out();
    let ended = master.end_with(RUN_LIMIT, Duration::ZERO, || look(&out));
    assert_eq!(ended.code, Some(0), "{file}: {}", ended.stderr);
    ended.events
}

#[test]
fn slices_have_the_lengths_of_the_run_file() {
    let share = share_beside_a_local_task("{dts: {mode: static, parallel: 20ms, local: 60ms}}");
    assert!((0.15..0.4).contains(&share), "{share} in slices a third as long as those of local tasks");
}

/// On each node a rank that computes for eight seconds; beside the second one five local tasks do so as well,
/// and nothing is left to do for four seconds afterwards.
const LOADED_ON_ONE_NODE: &str = r#"
cluster: {nodes: 2, memory: 1GiB, store: "{store}"}
scheduler:
  policy: cosched
  local: {dts: {mode: balanced, sample_every: 100ms, samples: 5, past_weight: 0, threshold: 0.5}}
jobs:
  - {name: parallel, ranks: 2, memory: 100MiB, command: ["{bin}/answer", --only-compute, --seconds, "8"]}
  - name: local
    ranks: 2
    memory: 50MiB
    command:
      - /bin/sh
      - -c
      - |
        if [ $PMI_RANK = 0 ]; then sleep 12; exit; fi
        for task in 1 2 3 4 5; do timeout 8 yes > /dev/null & done
        wait
        times
        sleep 4
"#;

/// Balanced DTS: the nodes report their loads, and the mean of both sets the slices of both.
#[test]
fn slices_follow_the_mean_load_of_all_nodes() {
    let mut share = 0.0;
    let events = run_jobs(LOADED_ON_ONE_NODE, |out| share = share_of_last_rank(out));
    let balanced = |event: &RunEvent| match &event.kind {
        Event::SlicesBalanced { loads, load, slices } => {
            Some((loads.iter().map(|(_, load)| *load).collect::<Vec<_>>(), *load, *slices))
        }
        _ => None,
    };
    let told: Vec<(Vec<u32>, u32, Slices)> = events.iter().filter_map(balanced).collect();
    for (loads, load, slices) in &told {
        assert_eq!(loads.len(), 2, "{told:?}");
        assert!(loads.iter().sum::<u32>().div_ceil(2).abs_diff(*load) <= 1, "{told:?}");
        // A thousandth is a step of the table where it passes a border.
        let near = [load.saturating_sub(1), load + 1].map(|load| f64::from(load) / 1000.0);
        let table = near.map(|load| Slices::for_load(load, Duration::from_millis(100)));
        assert!(table.contains(slices), "{told:?}");
    }
    let is_loaded = |(loads, ..): &&(Vec<u32>, u32, Slices)| loads[0] < 500 && loads[1] > 3500;
    let (_, load, slices) = told.iter().find(is_loaded).unwrap_or_else(|| panic!("no load: {told:?}"));
    assert!((1700..=2800).contains(load) && slices.local >= Duration::from_millis(40), "{told:?}");
    let (_, last, _) = told.last().expect("the first slices");
    assert!(*last <= 500, "the local tasks have ended: {told:?}");
    // By its own load the node would give the rank a tenth, and before it has one nine.
    assert!((0.3..0.75).contains(&share), "{share} of the processor: {told:?}");
}

#[test]
fn ranks_go_before_local_tasks_or_share_with_them_as_the_technique_says() {
    let first = share_beside_a_local_task("hpdt");
    assert!(first > 0.75, "{first} before local tasks");
    let half = share_beside_a_local_task("dts-static");
    assert!((0.35..0.65).contains(&half), "{half} in slices as long as those of local tasks");
}

/// What is counted of ranks and of local tasks is in the report; what was decided is on its page.
#[test]
fn a_report_has_the_accounts_of_tasks_and_a_picture_of_decisions() {
    let file = r#"
cluster: {nodes: 2, memory: 1GiB, store: "{store}"}
scheduler: {policy: cosched, local: dcs}
jobs:
  - {name: answer, ranks: 2, memory: 100MiB, command: ["{bin}/answer", --seconds, "4"]}
  - {name: hog, ranks: 2, memory: 100MiB, command: ["{bin}/answer", --only-compute, --seconds, "4"]}
  - {name: local, ranks: 2, memory: 50MiB, command: [/bin/sh, -c, "timeout 7 yes > /dev/null; true"]}
"#;
    let master = Master::run(file);
    let (out, mut page) = (master.out(), String::new());
    let ended = master.end_with(RUN_LIMIT, Duration::ZERO, || {
        let html = out.join("page.html");
        let made = Command::new(parts::coswitch()).arg("report").arg(&out).arg("--html").arg(&html).output();
        let made = made.expect("coswitch runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        page = fs::read_to_string(&html).expect("a page");
    });
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let report = ended.report.expect("a report");
    let tasks = |job: usize, kind: &str| report["jobs"][job]["tasks"][kind].clone();
    let number = |of: &Value, name: &str| of[name].as_f64().unwrap_or_else(|| panic!("{name} of {of}"));
    // Of three tasks on each of two nodes for four seconds, and of one for three more.
    let all = [tasks(0, "ranks"), tasks(1, "ranks"), tasks(2, "local")];
    let executed: f64 = all.iter().map(|tasks| number(tasks, "executed_s")).sum();
    assert!((8.0..17.0).contains(&executed), "{executed} s of {all:?}");
    for (tasks, most) in all.iter().zip([6.0, 6.0, 14.0]) {
        let (used, resident) = (number(tasks, "processor_s"), number(tasks, "resident"));
        assert!(used > 0.1 * most && used < most && resident > 1e5, "{tasks}");
    }
    let degree = number(&all[0], "coscheduling");
    assert!(degree > 0.0 && (degree + number(&all[0], "thrashing") - 1.0).abs() < 1e-9, "{all:?}");
    assert!(number(&all[1], "ready_s") > 1.0, "{all:?}");
    let nodes = report["nodes_scheduled"].as_array().expect("two nodes");
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    for node in nodes {
        assert!((0.3..1.2).contains(&number(node, "local_load")), "{node}");
    }
    for part in ["What node schedulers decided before the end of", "on node-1 ", "local (local) ", "hog "] {
        assert!(page.contains(part), "{part} of the page");
    }
}

/// A rank that does not communicate is CS in its trial slots, and then DC; without classes nothing is said.
#[test]
fn a_report_has_the_slots_of_ranks_by_class() {
    let file = r#"
cluster: {nodes: 2, memory: 1GiB, store: "{store}"}
scheduler: {policy: cosched, local: LOCAL}
jobs:
  - {name: alone, ranks: 2, memory: 100MiB, command: ["{bin}/grains", --pattern, none, --seconds, "5"]}
  - {name: local, ranks: 2, memory: 50MiB, command: [/bin/sh, -c, "timeout 5 yes > /dev/null; true"]}
"#;
    let tasks = |local: &str| {
        let ended = Master::run(&file.replace("LOCAL", local)).end(RUN_LIMIT, Duration::ZERO);
        assert_eq!(ended.code, Some(0), "{local}: {}", ended.stderr);
        let report = ended.report.expect("a report");
        [(0, "ranks"), (1, "local")].map(|(job, kind)| report["jobs"][job]["tasks"][kind].clone())
    };
    let [ranks, local] = tasks("fcs");
    let slots = |class: &str| ranks["slots"][class].as_u64().unwrap_or_else(|| panic!("{ranks}"));
    let [coscheduled, frustrated, other] = ["coscheduled", "frustrated", "dont_care"].map(slots);
    assert!((2..20).contains(&coscheduled) && other > 2 * (coscheduled + frustrated), "{ranks}");
    assert!(local["executed_s"].is_number() && local["slots"].is_null(), "{local}");
    let [ranks, _] = tasks("round-robin");
    assert!(ranks["executed_s"].is_number() && ranks["slots"].is_null(), "{ranks}");
}

/// In stop mode ranks stand still in the slices of local tasks, although nothing else wants the processor.
#[test]
fn a_stopped_rank_leaves_its_processor_idle() {
    let file = BESIDE_LOCAL_TASK.replace("LOCAL", "dts-stop");
    let alone: Vec<&str> = file.lines().filter(|line| !line.contains("name: local")).collect();
    run_jobs(&alone.join("\n"), |out| {
        let share = said(out, "parallel")["share"].as_f64().expect("a number");
        assert!((0.02..0.6).contains(&share), "{share} of a processor");
    });
}

/// Two ranks send to each other after each grain; other jobs may follow.
const GRAINS: &str = r#"
cluster: {nodes: 2, memory: 1GiB, store: "{store}"}
scheduler: {policy: cosched, local: LOCAL, slice: 20ms}
jobs:
  - {name: grains, ranks: 2, memory: 100MiB, command: ["{bin}/grains", --grain, "0.0001", --steps, "50"]}
"#;
/// It has ranks on the same nodes for as long as the other job takes.
const BESIDE_GRAINS: &str =
    r#"  - {name: sleep, ranks: 2, memory: 50MiB, command: [/bin/sh, -c, "sleep 8"]}"#;

/// What a step takes, in milliseconds.
fn step_under(local: &str, beside: &str) -> f64 {
    let mut step = 0.0;
    run_jobs(&format!("{}{beside}\n", GRAINS.replace("LOCAL", local)), |out| {
        let text = fs::read_to_string(out.join("grains/rank-0.out")).expect("an output");
        let line = text.lines().find(|line| line.starts_with('{')).expect("a line of JSON");
        let said: Value = serde_json::from_str(line).expect("JSON");
        step = said["step_us"].as_f64().expect("a number") / 1000.0;
    });
    step
}

/// Under BCS what is sent goes after the next exchange, of which a slot may have several. In the dedicated
/// mode that is so only beside another job.
#[test]
fn messages_between_nodes_wait_for_the_next_exchange() {
    let step = step_under("bcs", "");
    assert!(step > 19.0, "a step took {step} ms");
    let step = step_under("{bcs: {exchanges: 10}}", "");
    assert!((1.9..19.0).contains(&step), "a step took {step} ms, with exchanges each 2 ms");
    let step = step_under("{bcs: {dedicated: true}}", "");
    assert!(step < 10.0, "a step took {step} ms alone in the dedicated mode");
    let step = step_under("{bcs: {dedicated: true}}", BESIDE_GRAINS);
    assert!(step > 19.0, "a step took {step} ms beside a job in the dedicated mode");
}

/// Under BCS messages of any sender are received in the same order in each run, although the senders take
/// longer or shorter by chance. The slot is long against that.
#[test]
fn messages_come_in_the_same_order_in_each_run() {
    let head = "cluster: {nodes: 4, memory: 1GiB, store: \"{store}\"}\n\
                scheduler: {policy: cosched, local: bcs, slice: 200ms}\njobs:\n";
    let job = |run: u32| {
        let after = if run > 0 { format!("after: [run-{}], ", run - 1) } else { String::new() };
        format!(
            "  - {{name: run-{run}, {after}ranks: 4, memory: 50MiB, \
             command: [\"{{bin}}/order\", --rounds, \"4\", --work, \"0.0005\"]}}\n"
        )
    };
    let file: String = [head.to_owned()].into_iter().chain((0..4).map(job)).collect();
    run_jobs(&file, |out| {
        let order = |run: u32| {
            let text = fs::read_to_string(out.join(format!("run-{run}/rank-0.out"))).expect("an output");
            let line = text.lines().find(|line| line.starts_with('{')).expect("a line of JSON");
            serde_json::from_str::<Value>(line).expect("JSON")["order"].clone()
        };
        let orders: Vec<Value> = (0..4).map(order).collect();
        assert!(orders.iter().all(|order| *order == orders[0]), "{orders:?}");
    });
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
