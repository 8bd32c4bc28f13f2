//! Options of a run file, each in a run of its own: what they say is what happens, by the journal.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
    time::Duration,
};

use coswitch_policies::{Bytes, JobId, Placement, Purpose, SimTime, SlotId, SwitchId, SwitchOrder};
use coswitch_report::journal::{Event, RunEvent};
use coswitch_tests::{
    cluster::RUN_LIMIT,
    master::{Ended, Master},
    parts,
    swap::SwapFile,
};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Runs jobs that never end until enough has happened, and interrupts them: so they outlast what is looked at
/// on any machine.
fn run_until(run_file: &str, what: &str, enough: impl Fn(&[RunEvent]) -> bool) -> Ended {
    let mut master = Master::run(run_file);
    master.wait_until(what, RUN_LIMIT, |master| enough(&master.events()));
    master.signal(Signal::SIGINT);
    let ended = master.end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(130), "{ended:?}");
    ended
}

/// The row and the placement of each job.
type Places = BTreeMap<JobId, (SlotId, Placement)>;

/// Those that jobs had when they were launched.
fn launched(events: &[RunEvent]) -> Places {
    let mut placements = BTreeMap::new();
    let mut launched = BTreeMap::new();
    for event in events {
        match &event.kind {
            Event::JobLaunched { job, placement } => drop(placements.insert(*job, placement.clone())),
            Event::SlotStarted { slot, jobs, .. } => {
                let new = jobs.iter().filter_map(|job| Some((*job, placements.remove(job)?)));
                launched.extend(new.map(|(job, placement)| (job, (*slot, placement))));
            }
            _ => {}
        }
    }
    launched
}

/// The same, as `explain` has it, and the number of rows.
fn explained(answer: &Value) -> (Places, usize) {
    let job = |job: &Value| {
        let assigned = serde_json::from_value(job["assigned"].clone()).expect("a row and a placement");
        (serde_json::from_value(job["job"].clone()).expect("a number"), assigned)
    };
    let jobs = answer["jobs"].as_array().expect("jobs").iter().map(job).collect();
    (jobs, answer["sets"].as_array().expect("sets").len())
}

/// The answer of `explain` without a run.
fn explain(run_file: &str) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("jobs.yaml");
    fs::write(&file, run_file).expect("a run file");
    let mut explain = Command::new(parts::coswitch());
    let answer = explain.args(["explain", "--output", "json"]).arg(&file).output().expect("coswitch starts");
    serde_json::from_slice(&answer.stdout).expect("it answers in JSON")
}

/// Jobs of so many ranks of so many MiB, on nodes of 1000 MiB; they go by what they declare.
fn jobs_of(nodes: u32, packing: &str, sizes: &[(u32, u32)]) -> String {
    let mut file = format!(
        "cluster: {{nodes: {nodes}, memory: 1000MiB, store: \"{{store}}\"}}\n\
         scheduler: {{policy: hybrid, quantum: 400ms, needs: declared, packing: {packing}}}\njobs:\n"
    );
    for (number, (ranks, size)) in sizes.iter().enumerate() {
        file.push_str(&format!(
            "  - {{name: ep-{number}, command: [\"{{bin}}/ep\", --class, S, --seconds, \"1.5\"], \
             ranks: {ranks}, memory: {size}MiB}}\n"
        ));
    }
    file
}

/// Runs the jobs and compares their rows and nodes to those of `explain`; returns these, and those that
/// first fit would give.
fn check_packing(nodes: u32, packing: &str, sizes: &[(u32, u32)]) -> [(Places, usize); 2] {
    let master = Master::run(&jobs_of(nodes, packing, sizes));
    let told = explained(&master.ask(&["explain"]));
    let ended = master.end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(launched(&ended.events), told.0, "{packing}: the run does as explained: {:#?}", ended.events);
    [told, explained(&explain(&jobs_of(nodes, "first-fit", sizes)))]
}

#[test]
fn best_fit_packs_as_explained_and_takes_the_fullest_row_that_holds_a_job() {
    let [(jobs, _), (plain, _)] = check_packing(1, "best-fit", &[(1, 650), (1, 360), (1, 360), (1, 200)]);
    assert_eq!(jobs[&JobId(3)].0, jobs[&JobId(1)].0, "beside 720 MiB: {jobs:?}");
    assert_eq!(plain[&JobId(3)].0, plain[&JobId(0)].0, "by first fit beside 650 MiB: {plain:?}");
}

#[test]
fn buddy_packs_as_explained_and_keeps_jobs_to_aligned_blocks() {
    let [(jobs, _), (plain, _)] = check_packing(4, "buddy", &[(1, 600), (2, 300), (2, 450)]);
    let nodes = |jobs: &Places, job| -> Vec<u32> { jobs[&JobId(job)].1.nodes().map(|node| node.0).collect() };
    assert_eq!([1, 2].map(|job| nodes(&jobs, job)), [vec![0, 1], vec![2, 3]]);
    assert_ne!(jobs, plain, "first fit takes the emptiest nodes");
}

#[test]
fn exact_packs_as_explained_and_needs_fewer_rows_than_first_fit() {
    let [(_, rows), (_, plain)] =
        check_packing(1, "exact", &[(1, 600), (1, 550), (1, 300), (1, 200), (1, 150), (1, 150)]);
    assert_eq!((rows, plain), (2, 3));
}

#[test]
fn whole_alternation_lets_a_job_go_on_where_its_node_is_idle() {
    let master = Master::run(
        r#"
cluster: {nodes: 2, memory: 128MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 500ms, alternate: whole, switching: sequential, residency: none}
jobs:
  - {name: left, command: ["{bin}/ep", --class, S, --seconds, "2"], ranks: 1, memory: 90MiB}
  - {name: right, command: ["{bin}/ep", --class, S, --seconds, "2"], ranks: 1, memory: 89MiB}
  - {name: later, command: ["{bin}/ep", --class, S, --seconds, "2"], ranks: 1, memory: 88MiB}
"#,
    );
    let answer = master.ask(&["explain"]);
    let ended = master.end(RUN_LIMIT, Duration::ZERO);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let rows = answer["sets"].as_array().unwrap();
    let backfilled: Vec<JobId> = rows
        .iter()
        .flat_map(|set| serde_json::from_value::<Vec<JobId>>(set["fillers"].clone()).unwrap())
        .collect();
    let [alternates] = backfilled[..] else { panic!("one job is backfilled: {answer}") };
    let mut turns_of_others = 0;
    let first_end = ended.events.iter().position(|event| matches!(event.kind, Event::JobFinished { .. }));
    for event in &ended.events[..first_end.unwrap()] {
        match &event.kind {
            Event::SwitchStarted { outgoing, .. } => {
                assert!(!outgoing.contains(&alternates), "no switch touches it: {event:?}");
            }
            Event::SlotStarted { jobs, .. } if !jobs.contains(&JobId(0)) || !jobs.contains(&JobId(1)) => {
                turns_of_others += u32::from(jobs.len() == 2 && jobs.contains(&alternates));
            }
            _ => {}
        }
    }
    assert!(turns_of_others >= 2, "{alternates} goes on in turns of the other row: {:#?}", ended.events);
    let name = ["left", "right", "later"][alternates.0 as usize];
    assert_eq!(ended.job(name)["restores"], 0);
    assert_eq!(ended.job(name)["parked_s"].as_f64(), Some(0.0));
}

/// A mean, smoothed as RFC 6298 does, in nanoseconds; the scheduler goes by it.
fn smoothed(mean: Option<u64>, value: u64) -> u64 {
    mean.map_or(value, |mean| (7 * mean + value) / 8)
}

/// MiB of each job in the test of the oracle, on each node.
const PREFETCHED: u64 = 75;

/// Each job is brought back beside the one that runs, which memory holds; the third has to leave first.
const ORACLE: &str = r#"
cluster: {nodes: 2, memory: 160MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 2s, switching: prefetch, oracle: exact, needs: declared}
jobs:
  - {name: cg, command: ["{bin}/cg", --class, W, --repeat, "100000"], ranks: 2, memory: 75MiB, count: 3}
"#;

#[test]
fn exact_oracle_begins_a_prefetch_by_the_mean_of_the_restores_before() {
    let prefetches = |events: &[RunEvent]| {
        let ahead = |event: &&RunEvent| match &event.kind {
            Event::SwitchStarted { purpose, incoming, .. } => {
                *purpose == Purpose::Ahead && !incoming.is_empty()
            }
            _ => false,
        };
        events.iter().filter(ahead).count() >= 5
    };
    let ended = run_until(ORACLE, "prefetches", prefetches);
    let mut mean: Option<u64> = None;
    let (mut ends, mut ahead): (Option<SimTime>, u32) = (None, 0);
    let mut under_way = BTreeMap::new();
    for RunEvent { at, kind } in &ended.events {
        match kind {
            Event::SlotStarted { ends: until, .. } => ends = *until,
            Event::SwitchStarted { switch, purpose, parked, incoming, .. } => {
                under_way.insert(*switch, incoming.len() as u64);
                let parked = parked.as_ref().map_or(0, Vec::len) as u64;
                let (Purpose::Ahead, Some(mean), Some(ends)) = (purpose, mean, ends) else { continue };
                let lead = Duration::from_nanos(mean * PREFETCHED * (parked + incoming.len() as u64));
                assert!(*at >= ends.before(lead), "{switch} begins {at:?}, {lead:?} before {ends:?}");
                ahead += u32::from(!incoming.is_empty());
            }
            Event::SwitchEnded { switch, restore: Some(took), .. } => {
                let jobs = under_way.remove(switch).expect("it began");
                mean = Some(smoothed(mean, took.as_nanos() as u64 / (PREFETCHED * jobs)));
            }
            _ => {}
        }
    }
    assert!(ahead >= 2, "{ahead} prefetches began with a measured restore: {:#?}", ended.events);
}

/// The share is large, so that slices stay short.
const AUTO: &str = r#"
cluster: {nodes: 2, memory: 128MiB, store: "{store}"}
scheduler:
  {policy: gang, quantum: auto, overhead: 40%, quantum_max: 5min, switching: sequential, residency: none}
jobs:
  - {name: cg, command: ["{bin}/cg", --class, W, --repeat, "100000"], ranks: 2, memory: 100MiB, count: 2}
"#;

#[test]
fn auto_quantum_follows_the_measured_cost_of_a_switch() {
    let turns = |events: &[RunEvent]| {
        let turn = |event: &&RunEvent| matches!(event.kind, Event::SlotStarted { ends: Some(_), .. });
        events.iter().filter(turn).count() >= 7
    };
    let ended = run_until(AUTO, "turns", turns);
    let mut mean: Option<u64> = None;
    let mut launches = BTreeSet::new();
    let mut slices = Vec::new();
    let mut last: Option<SwitchId> = None;
    for RunEvent { at, kind } in &ended.events {
        match kind {
            Event::JobLaunched { .. } => drop(last.map(|switch| launches.insert(switch))),
            Event::SwitchStarted { switch, .. } => last = Some(*switch),
            Event::SwitchEnded { switch, exposed, .. } if !launches.contains(switch) => {
                mean = Some(smoothed(mean, exposed.as_nanos() as u64));
                slices.push(None);
            }
            Event::SlotStarted { ends: Some(ends), .. } => {
                let wanted = mean.map_or(0, |mean| mean * 10 / 4).max(1_000_000_000);
                if let Some(slice @ None) = slices.last_mut() {
                    *slice = Some((ends.since(*at).as_nanos() as u64, wanted));
                }
            }
            _ => {}
        }
    }
    let slices: Vec<_> = slices.into_iter().flatten().collect();
    assert!(slices.len() >= 2, "{slices:?}: {:#?}", ended.events);
    assert!(slices.iter().all(|(slice, wanted)| slice == wanted), "(slice, by the costs): {slices:?}");
    let warnings = ended.report.unwrap()["warnings"].to_string();
    assert!(!warnings.contains("quantum"), "it needs no advice: {warnings}");
}

/// Both jobs fit a node only one at a time.
const SUSPENDED: &str = r#"
cluster: {nodes: 2, memory: 128MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 2s, park: suspend}
jobs:
  - {name: heat, command: ["{bin}/heat", --memory, 90MiB, --seconds, "3"], ranks: 2, memory: 120MiB, count: 2}
"#;

#[test]
fn suspended_jobs_stay_in_memory_where_it_is_short_and_the_kernel_swaps() {
    let _swap = SwapFile::of(Bytes::mib(512));
    let master = Master::run(SUSPENDED);
    let out = master.out();
    let warned = |answer: &Value| {
        let text = answer["warnings"].to_string();
        assert!(
            text.contains("together they need 240MiB on node-0 of 128MiB (and too much on 1 more node)")
                && text.contains("the kernel will swap"),
            "{text}"
        );
    };
    warned(&master.ask(&["check"]));
    warned(&master.ask(&["explain"]));
    let ended = master.end_with(RUN_LIMIT, Duration::ZERO, || {
        for job in ["heat-1", "heat-2"] {
            let said = fs::read_to_string(out.join(job).join("rank-0.out")).unwrap_or_default();
            assert!(said.contains("VERIFICATION SUCCESSFUL"), "{job} said {said:?}");
        }
    });
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report = ended.report.as_ref().unwrap();
    warned(report);
    assert!(report["set"]["switches"].as_u64().unwrap() >= 2, "they take turns: {report}");
    for event in &ended.events {
        match &event.kind {
            Event::SwitchStarted { parked, .. } => assert_eq!(*parked, Some(vec![]), "{event:?}"),
            Event::MemorySample { peak, .. } => assert!(*peak <= Bytes::mib(128), "{event:?}"),
            _ => {}
        }
    }
    let swapped = report["machine"]["swapped_out"].as_u64().unwrap();
    assert!(swapped >= 64 << 20, "the kernel swaps: {}", Bytes(swapped));
}

/// A node holds one of the jobs at a time, and what the other comes with goes into swap space.
const OVERLAPPED: &str = r#"
cluster: {nodes: 1, memory: 160MiB, arena: 160MiB, store: "{store}"}
scheduler:
  policy: gang
  quantum: 2s
  switching: prefetch
  residency: none
  needs: declared
  short_of_memory: swap
jobs:
  - {name: heat, command: ["{bin}/heat", --memory, 96MiB, --seconds, "4"], ranks: 1, memory: 140MiB, count: 2}
"#;

#[test]
fn prefetch_beyond_memory_keeps_its_order_and_the_kernel_swaps() {
    let _swap = SwapFile::of(Bytes::mib(512));
    let master = Master::run(OVERLAPPED);
    let out = master.out();
    let ended = master.end_with(RUN_LIMIT, Duration::ZERO, || {
        for job in ["heat-1", "heat-2"] {
            let said = fs::read_to_string(out.join(job).join("rank-0.out")).unwrap_or_default();
            assert!(said.contains("VERIFICATION SUCCESSFUL"), "{job} said {said:?}");
        }
    });
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let (mut kept, mut ahead, mut left) = (0, 0, 0);
    for event in &ended.events {
        match &event.kind {
            Event::SwitchStarted { purpose: Purpose::Turn, order, outgoing, .. } if !outgoing.is_empty() => {
                assert_eq!(*order, SwitchOrder::Prefetch, "{event:?}");
                kept += 1;
            }
            Event::SwitchStarted { purpose: Purpose::Ahead, incoming, outgoing, .. } => {
                ahead += incoming.len();
                left += outgoing.len();
            }
            Event::MemorySample { peak, .. } => assert!(*peak <= Bytes::mib(160), "{event:?}"),
            _ => {}
        }
    }
    assert!(kept >= 2 && ahead >= 1 && left >= 1, "{kept} {ahead} {left}: {:#?}", ended.events);
    let report = ended.report.unwrap();
    assert!(report["warnings"].to_string().contains("a set and the next need 280MiB on node-0"), "{report}");
    let swapped = report["machine"]["swapped_out"].as_u64().unwrap();
    assert!(swapped >= 16 << 20, "the kernel swaps: {}", Bytes(swapped));
    let of_jobs = report["jobs"].as_array().unwrap().iter().map(|job| job["swapped"].as_u64().unwrap());
    assert!(of_jobs.sum::<u64>() > 0, "{report}");
}

/// Jobs that never end; a switch dumps and restores processes, which takes longer than 20 ms.
const HASTY: &str = r#"
cluster: {nodes: 2, memory: 128MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 200ms, switching: sequential, residency: none}
jobs:
  - {name: cg, command: ["{bin}/cg", --class, A, --repeat, "100000"], ranks: 2, memory: 110MiB, count: 2}
"#;

#[test]
fn quantum_that_is_short_for_a_switch_is_warned_of_once() {
    let of_quantum = |event: &RunEvent| match &event.kind {
        Event::Warning { text } => text.contains("`quantum: auto` would take about"),
        _ => false,
    };
    let warned = |events: &[RunEvent]| {
        let rest = events.iter().skip_while(|event| !of_quantum(event));
        rest.filter(|event| matches!(event.kind, Event::SwitchEnded { .. })).count() >= 4
    };
    let ended = run_until(HASTY, "the warning and more switches", warned);
    assert_eq!(ended.events.iter().filter(|event| of_quantum(event)).count(), 1, "{:#?}", ended.events);
    let warnings = ended.report.expect("a report")["warnings"].to_string();
    assert!(warnings.contains("quantum of 200 ms") && warnings.contains("would take about"), "{warnings}");
}
