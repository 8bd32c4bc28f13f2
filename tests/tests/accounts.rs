//! The accounts of a cluster: each job that has ended has one row, whatever has happened to its masters.

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path, process::Command, time::Duration};

use coswitch_report::journal::{Event, RunEvent};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::{Answered, Master},
    parts,
    seed::{seed, span},
    serving::{ENDLESS, HEAT, accepted, check_right, serve, serve_with, state, submit, wait_served},
};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Two jobs of 90 MiB on each node do not fit together.
const CLUSTER: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 400ms, residency: none}
"#;

/// Jobs end while masters come and go.
const ROOMY: &str = r#"
cluster: {nodes: 2, memory: 400MiB, store: "{store}"}
scheduler: {policy: hybrid, quantum: 1s}
"#;

/// Jobs that end in three ways.
const RUN: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 800ms, residency: none}
jobs:
  - {name: heat, command: ["{bin}/heat", --memory, 40MiB, --seconds, "2"], ranks: 2, memory: 90MiB, count: 2}
  - {name: wrong, command: ["{bin}/heat", --no-such], ranks: 2, memory: 10MiB}
  - name: late
    command: ["{bin}/ring-check", --rounds, "100000000"]
    ranks: 2
    memory: 10MiB
    time_limit: 1s
"#;

/// One node is for short jobs.
const PARTITIONS: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}"}
scheduler:
  policy: batch
  queue: easy
  partitions: [{name: long, nodes: [1], time_limit: 10min}, {name: short, nodes: [0], time_limit: 1s}]
jobs:
  - name: endless
    command: ["{bin}/ring-check", --rounds, "100000000"]
    ranks: 2
    memory: 10MiB
    partition: short
  - {name: heat, command: ["{bin}/heat", --memory, 40MiB, --seconds, "2"], ranks: 2, memory: 45MiB}
"#;

/// A master lives at most so long.
const LIFE: Duration = Duration::from_secs(5);
const KILLS: usize = 6;
const CLEAN_LIMIT: Duration = Duration::from_secs(8);
/// A program that ends at once.
const SHORT: &[&str] = &["{bin}/heat", "--memory", "4MiB", "--seconds", "0"];
/// A user that every machine has.
const NOBODY: u32 = 65534;

fn listed(answer: &Answered) -> Vec<Value> {
    assert_eq!(answer.code, Some(0), "{answer:?}");
    answer.json["jobs"].as_array().expect("a list of jobs").clone()
}

/// What `coswitch accounts` says of a directory.
fn of_directory(directory: &Path, options: &[&str]) -> Answered {
    let program = Command::new(parts::coswitch())
        .args(["--output", "json", "accounts"])
        .arg(directory)
        .args(options)
        .output()
        .expect("coswitch starts");
    Answered {
        code: program.status.code(),
        json: serde_json::from_slice(&program.stdout).unwrap_or_default(),
        stdout: String::from_utf8_lossy(&program.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&program.stderr).into_owned(),
    }
}

fn names(jobs: &[Value]) -> Vec<&str> {
    let mut names: Vec<&str> = jobs.iter().map(|job| job["name"].as_str().expect("a name")).collect();
    names.sort_unstable();
    names
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is a number"))
}

/// How long the turns of a job took, by the journal's own lines.
fn ran(report: &Value, name: &str) -> f64 {
    let jobs = report["jobs"].as_array().expect("jobs");
    let job = jobs.iter().find(|job| job["name"] == name).expect("the job");
    number(&job["run_s"])
}

fn finished(events: &[RunEvent]) -> usize {
    events.iter().filter(|event| matches!(event.kind, Event::JobFinished { .. })).count()
}

/// `COSWITCH_KILLS` says how many masters are killed.
#[test]
fn at_whatever_instant_masters_are_killed_each_job_is_accounted_for_once() {
    let kills: usize = env::var("COSWITCH_KILLS").map_or(KILLS, |text| text.parse().expect("a number"));
    let mut seed = seed();
    // The journal is compacted again and again.
    let mut master = serve_with(&["--journal-max", "8KiB"], ROOMY);
    let mut submitted = Vec::new();
    for _ in 0..kills {
        wait_served(&mut master);
        let first: Vec<String> = accepted(&submit(&master, &[], HEAT));
        let short = accepted(&submit(&master, &["--name", "short"], SHORT));
        submitted.extend(first.into_iter().chain(short));
        std::thread::sleep(span(&mut seed, LIFE));
        master.kill();
        let jobs = listed(&of_directory(&master.out(), &[]));
        assert_eq!(jobs.len(), finished_once(&jobs), "{jobs:?}");
        if seed.chance(300) {
            // Whoever has done that: the journal knows it all.
            drop(fs::remove_file(master.out().join("accounts.db")));
        }
        master.start_next();
    }
    wait_served(&mut master);
    assert_eq!(master.user(&["wait"]).code, Some(0));
    submitted.iter().for_each(|name| check_right_or_short(&master, name));
    let mut expected: Vec<&str> = submitted.iter().map(String::as_str).collect();
    expected.sort_unstable();
    let all = |master: &Master| listed(&master.user(&["accounts"]));
    master.wait_until("the last rows", STEP_LIMIT, |master| all(master).len() == expected.len());
    let jobs = all(&master);
    assert_eq!(names(&jobs), expected);
    assert!(jobs.iter().all(|job| job["state"] == "done" && job["uid"] == 0 && job["user"] == "root"));
    let sums = master.user(&["accounts", "--by", "user"]);
    let sum = &sums.json["sums"][0];
    assert_eq!((&sum["of"], sum["jobs"].as_u64()), (&"root".into(), Some(expected.len() as u64)));
    let running: f64 = jobs.iter().map(|job| number(&job["running_s"])).sum();
    assert!((number(&sum["running_s"]) - running).abs() < 1e-6, "{sums:?} {running}");
    let out = master.out();
    master.signal(Signal::SIGTERM);
    let mut kept = Vec::new();
    let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || kept = listed(&of_directory(&out, &[])));
    // A number may lose its last digit on its way through the socket.
    let same = |(kept, told): (&Value, &Value)| {
        kept["job"] == told["job"]
            && ["running_s", "in_memory_s", "ended"]
                .iter()
                .all(|field| (number(&kept[field]) - number(&told[field])).abs() < 1e-5)
    };
    assert_eq!(kept.len(), jobs.len());
    assert!(kept.iter().zip(&jobs).all(same), "without a master: {kept:?}, with one: {jobs:?}");
    let report = ended.report.expect("a report");
    for job in jobs.iter().filter(|job| job["name"] != "short") {
        let name = job["name"].as_str().expect("a name");
        let (of_report, of_account) = (ran(&report, name), number(&job["running_s"]));
        assert!((of_report - of_account).abs() < 1e-6, "{name}: {of_report} {of_account}");
    }
}

/// How many different jobs these are.
fn finished_once(jobs: &[Value]) -> usize {
    let mut numbers: Vec<u64> = jobs.iter().map(|job| job["job"].as_u64().expect("a number")).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len()
}

fn check_right_or_short(master: &Master, name: &str) {
    match name.starts_with("short") {
        true => assert_eq!(state(master, name), "done", "{name}"),
        false => check_right(master, name),
    }
}

#[test]
fn a_run_says_what_each_job_has_used_and_how_it_ended() {
    let master = Master::run(RUN);
    let out = master.out();
    let (mut jobs, mut failed, mut mode) = (Vec::new(), Vec::new(), 0);
    let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || {
        jobs = listed(&of_directory(&out, &[]));
        failed = listed(&of_directory(&out, &["--state", "failed"]));
        mode = fs::metadata(out.join("accounts.db")).expect("a database").permissions().mode() & 0o777;
    });
    assert_eq!(mode, 0o600);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert_eq!(names(&jobs), ["heat-1", "heat-2", "late", "wrong"]);
    assert_eq!(names(&failed), ["wrong"]);
    assert_ne!(failed[0]["exit_code"], 0);
    let job = |name: &str| jobs.iter().find(|job| job["name"] == name).expect("it is listed");
    assert_eq!(job("late")["state"], "timed-out", "{jobs:?}");
    assert_eq!(job("late")["reason"], "it ran for its time limit of 1 s");
    let finished = finished(&ended.events);
    assert_eq!(jobs.len(), finished);
    for name in ["heat-1", "heat-2"] {
        let job = job(name);
        assert_eq!((job["nodes"].as_u64(), job["ranks"].as_u64()), (Some(2), Some(2)));
        assert!(number(&job["switches"]) >= 1.0, "they took turns: {job}");
        assert!(number(&job["bytes_out"]) > 80e6 && number(&job["bytes_in"]) > 80e6, "{job}");
        assert!(number(&job["memory_peak"]) > 80e6, "{job}");
        let (running, in_memory) = (number(&job["running_s"]), number(&job["in_memory_s"]));
        let report = ran(ended.report.as_ref().expect("a report"), name);
        assert!((report - running).abs() < 1e-6 && in_memory >= running, "{job} {report}");
        // Each rank computes for two seconds of processor time, whatever has been switched meanwhile.
        let processor = number(&job["processor_s"]);
        assert!((4.0..12.0).contains(&processor), "{job}");
        let uses = job["uses"].as_array().expect("its nodes");
        let of_nodes: f64 = uses.iter().map(|used| number(&used["processor_s"])).sum();
        assert!((of_nodes - processor).abs() < 1e-6, "{job}");
        assert!(number(&job["submitted"]) <= number(&job["began"]));
        assert!(number(&job["began"]) < number(&job["ended"]));
    }
}

#[test]
fn a_partition_has_nodes_of_its_own_and_ends_its_jobs_at_its_time_limit() {
    let master = Master::run(PARTITIONS);
    let out = master.out();
    let mut jobs = Vec::new();
    let ended =
        master.end_with(RUN_LIMIT, CLEAN_LIMIT, || jobs = listed(&of_directory(&out, &["--job", "endless"])));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let [endless] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((&endless["group"], &endless["state"]), (&"short".into(), &"timed-out".into()));
    assert_eq!(endless["reason"], "it ran for its time limit of 1 s");
    assert_eq!(endless["uses"][0]["node"], 0);
    assert!((1.0..3.0).contains(&number(&endless["running_s"])), "{endless}");
    assert_eq!(ended.job("heat")["outcome"], serde_json::json!({ "exit": 0 }), "{:?}", ended.report);
    let launches = ended.events.iter().filter_map(|event| match &event.kind {
        Event::JobLaunched { job, placement } => {
            Some((job.0, placement.nodes().map(|node| node.0).collect()))
        }
        _ => None,
    });
    let mut launches: Vec<(u32, Vec<u32>)> = launches.collect();
    launches.sort_unstable();
    assert_eq!(launches, [(0, vec![0]), (1, vec![1])]);
}

/// A command of another user, who cannot read what root keeps.
fn as_nobody(master: &Master, arguments: &[&str]) -> Answered {
    let program = master.out().with_file_name("coswitch-of-nobody");
    if !program.exists() {
        fs::copy(parts::coswitch(), &program).expect("a copy");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("others may run it");
    }
    let answer = Command::new("setpriv")
        .args(["--reuid", &NOBODY.to_string(), "--regid", &NOBODY.to_string(), "--clear-groups", "--"])
        .arg(program)
        .args(["--output", "json"])
        .args(arguments)
        .env("COSWITCH_SOCKET", master.socket())
        .output()
        .expect("setpriv starts");
    Answered {
        code: answer.status.code(),
        json: serde_json::from_slice(&answer.stdout).unwrap_or_default(),
        stdout: String::from_utf8_lossy(&answer.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&answer.stderr).into_owned(),
    }
}

#[test]
fn users_see_their_own_jobs_alone_and_what_is_cancelled_or_interrupted_counts_too() {
    let mut master = serve(CLUSTER);
    accepted(&submit(&master, &["--name", "done"], SHORT));
    accepted(&submit(&master, &["--name", "cancelled"], ENDLESS));
    accepted(&submit(&master, &["--name", "interrupted"], ENDLESS));
    master.wait_until("a turn", RUN_LIMIT, |master| state(master, "cancelled") == "running");
    assert_eq!(master.user(&["cancel", "cancelled"]).code, Some(0));
    assert_eq!(master.user(&["wait", "done"]).code, Some(0));
    let all = |master: &Master| listed(&master.user(&["accounts"]));
    master.wait_until("two rows", STEP_LIMIT, |master| all(master).len() == 2);
    let only = |options: &[&str]| {
        let jobs = listed(&master.user(&[&["accounts"], options].concat()));
        names(&jobs).into_iter().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(only(&["--state", "cancelled"]), ["cancelled"]);
    assert_eq!(only(&["--job", "0"]), ["done"]);
    assert_eq!(only(&["--since", "1h", "--user", "root"]), ["cancelled", "done"]);
    assert_eq!(only(&["--until", "1h"]), [] as [&str; 0]);
    assert_eq!(only(&["--user", "nobody"]), [] as [&str; 0]);
    let bad = master.user(&["accounts", "--state", "late"]);
    assert!(bad.code == Some(2) && bad.stderr.contains("timed-out"), "{bad:?}");
    // Another user reaches the socket.
    let directory = master.out().parent().expect("a directory").to_path_buf();
    for (path, mode) in [(master.socket(), 0o666), (directory, 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode");
    }
    assert_eq!(listed(&as_nobody(&master, &["accounts"])), [] as [Value; 0]);
    assert_eq!(listed(&as_nobody(&master, &["accounts", "--user", "root"])), [] as [Value; 0]);
    let out = master.out();
    let file = as_nobody(&master, &["accounts", &out.display().to_string()]);
    assert_eq!(file.code, Some(2), "the directory is root's: {file:?}");
    // The file is damaged when nobody has it any more.
    master.signal(Signal::SIGTERM);
    let mut jobs = Vec::new();
    let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || {
        fs::write(out.join("accounts.db"), "no database at all").expect("it is written");
        let damaged = of_directory(&out, &[]);
        assert!(damaged.stderr.contains("--rebuild"), "{damaged:?}");
        let rebuilt = of_directory(&out, &["--rebuild"]);
        assert_eq!((rebuilt.code, rebuilt.json["jobs"].as_u64()), (Some(0), Some(3)), "{rebuilt:?}");
        let after = of_directory(&out, &[]);
        assert!(!after.stderr.contains("--rebuild"), "{after:?}");
        assert_eq!(listed(&after), listed(&damaged));
        jobs = listed(&after);
    });
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(names(&jobs), ["cancelled", "done", "interrupted"]);
    let last = jobs.iter().find(|job| job["name"] == "interrupted").expect("it is listed");
    assert_eq!(last["state"], "interrupted");
    assert!(number(&last["running_s"]) > 0.0, "{last}");
}
