//! A cluster that stays (`coswitch serve`): users bring jobs at any time, follow them and end them.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    time::Duration,
};

use coswitch_report::journal::Event;
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::{Answered, Master},
    parts,
    seed::{seed, span},
    serving::{
        ENDLESS, HEAT, VERIFIED, accepted, check_right, end, queue, serve, state, submit, switches,
        wait_served,
    },
};
use serde_json::Value;

/// Two jobs of 90 MiB on each node do not fit together.
const CLUSTER: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 800ms, residency: none}
"#;

/// Appended to the run file of a cluster.
const MORE: &str = "
jobs:
  - name: heat
    command: [BIN/heat, --memory, 40MiB, --seconds, '2']
    ranks: 2
    memory: 90MiB
";

/// The first event of a kind that the cluster tells who follows it.
fn follow(master: &Master) -> impl FnMut(&str) -> Value + use<> {
    let mut stream = UnixStream::connect(master.socket()).expect("the cluster listens");
    stream.set_read_timeout(Some(RUN_LIMIT)).expect("a time-out");
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: coswitch\r\n\r\n").expect("it is asked");
    let mut lines = BufReader::new(stream).lines();
    move |kind| {
        let mut events = lines.by_ref().map(|line| line.expect("a line"));
        let events = events.by_ref().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        events.into_iter().find(|event| event["kind"] == kind).expect("there is such an event")
    }
}

/// What the cluster answers to a plain HTTP request.
fn ask(master: &Master, path: &str) -> String {
    exchange(master, &format!("GET {path} HTTP/1.1\r\nhost: coswitch\r\nconnection: close\r\n\r\n"))
}

fn post(master: &Master, path: &str, body: &str) -> String {
    let head = "host: coswitch\r\nconnection: close\r\ncontent-type: application/json";
    let length = body.len();
    exchange(master, &format!("POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}"))
}

fn exchange(master: &Master, request: &str) -> String {
    let mut stream = UnixStream::connect(master.socket()).expect("the cluster listens");
    stream.write_all(request.as_bytes()).expect("it is asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn jobs_come_while_others_run_and_each_is_right() {
    let master = serve(CLUSTER);
    assert!(queue(&master).is_empty());
    let mut event = follow(&master);
    let mut names = accepted(&submit(&master, &["--alone", "2s"], HEAT));
    assert_eq!(event("job-launched")["job"], 0);
    names.extend(accepted(&submit(&master, &["--array", "1-2"], HEAT)));
    // A run file's jobs; its cluster and scheduler are another's.
    let file = fs::read_to_string(master.out().with_file_name("jobs.yaml")).expect("the run file");
    let bin = parts::program_directory();
    let path = master.out().with_file_name("more.yaml");
    fs::write(&path, format!("{file}\n{}", MORE.replace("BIN", &bin))).expect("a run file");
    names.extend(accepted(&master.user(&["submit", &path.display().to_string()])));
    assert_eq!(names, ["heat", "heat-1", "heat-2", "heat-3"], "each has a name of its own");
    let waited = master.user(&["wait"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    for name in &names {
        let said = master.user(&["cat", name]).stdout;
        assert_eq!(said.matches(VERIFIED).count(), 1, "{name}: {said}");
        assert_eq!(state(&master, name), "done");
    }
    let metrics = ask(&master, "/metrics");
    for line in ["coswitch_jobs_ended_total{outcome=\"succeeded\"} 4", "coswitch_jobs{state=\"running\"} 0"] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    let ended = end(master);
    assert!(switches(&ended.events) >= 4, "they took turns: {}", switches(&ended.events));
    assert_eq!(ended.job("heat-2")["outcome"], serde_json::json!({ "exit": 0 }), "{:?}", ended.report);
}

#[test]
fn each_waiting_job_has_a_next_turn_and_a_reason() {
    let mut master = serve(CLUSTER);
    let endless = &["{bin}/ring-check", "--rounds", "100000000", "--max-bytes", "64KiB"];
    let names = accepted(&submit(&master, &["--array", "1-3"], endless));
    master.wait_until("turns", RUN_LIMIT, |master| switches(&master.events()) >= 4);
    let jobs = queue(&master);
    let next: Vec<u64> = jobs.iter().map(|job| job["runs_from"].as_u64().expect("a next turn")).collect();
    assert_eq!(next.len(), 3);
    let reasons: Vec<Answered> = names.iter().map(|name| master.user(&["why", name])).collect();
    assert!(reasons.iter().all(|reason| reason.code == Some(0)), "{reasons:?}");
    let texts = reasons.iter().map(|reason| reason.json["text"].as_str().expect("a sentence"));
    assert!(texts.into_iter().any(|text| text.contains("slot-1")), "{reasons:?}");
    // Two are ended in the middle of all this, the third by its limit, and nothing is left.
    let cancelled = master.user(&["cancel", "0", "ring-check-2"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    assert_eq!(state(&master, "ring-check-2"), "cancelled");
    let limited = submit(&master, &["--time-limit", "1s", "--name", "short", "--wait"], endless);
    assert_eq!(limited.code, Some(1), "{limited:?}");
    assert!(limited.json[0]["outcome"]["failed"].as_str().expect("why").contains("its time limit of 1 s"));
    assert_eq!(end(master).job("ring-check-3")["outcome"], Value::Null, "it was running when all ended");
}

#[test]
fn a_job_follows_another_and_its_end_is_waited_for() {
    let master = serve(CLUSTER);
    accepted(&submit(&master, &["--name", "first"], HEAT));
    accepted(&submit(&master, &["--name", "then", "--after", "first"], HEAT));
    assert_eq!(state(&master, "then"), "waiting");
    let waiting = master.command(&["wait", "then"]).stdout(Stdio::piped()).spawn().expect("coswitch starts");
    let failing = submit(&master, &["--name", "failing", "--wait"], &["{bin}/heat", "--no-such"]);
    assert_eq!(failing.code, Some(1), "{failing:?}");
    let never = submit(&master, &["--name", "never", "--after", "failing", "--wait"], HEAT);
    assert_eq!(never.code, Some(1), "{never:?}");
    let waited = waiting.wait_with_output().expect("it ends");
    assert!(waited.status.success(), "{waited:?}");
    let (first, then) = (queue(&master).swap_remove(0), queue(&master).swap_remove(1));
    assert!(then["began"].as_u64() >= first["ended"].as_u64(), "{first} {then}");
    end(master);
}

#[test]
fn what_is_asked_wrongly_is_refused_and_nothing_is_lost() {
    let master = serve(CLUSTER);
    accepted(&submit(&master, &[], HEAT));
    let cases: [(&[&str], i32, &str); 8] = [
        (&["submit"], 2, "required"),
        (&["submit", "no-such.yaml"], 2, "No such file"),
        (&["submit", "--ranks", "2", "--memory", "1MiB", "--", "no-such-program"], 2, "no program"),
        (&["submit", "--ranks", "2", "--memory", "1GiB", "--", "/bin/true"], 2, "larger than a node"),
        (&["submit", "--ranks", "2", "--memory", "1MiB", "--array", "3-1", "--", "/bin/true"], 2, "1-8"),
        (&["wait", "no-such"], 2, "no job called `no-such`"),
        (&["cat", "heat", "--rank", "7"], 2, "has 2 ranks"),
        (&["queue", "--socket", "no-such.sock"], 4, "no cluster is served at no-such.sock"),
    ];
    for (arguments, code, part) in cases {
        let answer = master.user(arguments);
        assert_eq!(answer.code, Some(code), "{arguments:?}: {answer:?}");
        assert!(answer.stderr.contains(part), "{arguments:?}: {answer:?}");
    }
    // A second master on the same socket.
    let mut second = master.command(&["serve", "--quiet", "--out", "other", "jobs.yaml"]);
    let second = second.output().expect("coswitch starts");
    assert_eq!(second.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&second.stderr).contains("a cluster is served"), "{second:?}");
    assert_eq!(master.user(&["wait"]).code, Some(0), "the job goes on");
    end(master);
}

#[test]
fn a_full_queue_refuses_a_whole_array_and_takes_jobs_again_when_one_has_begun() {
    let mut master = serve(&CLUSTER.replace("residency: none", "max_queued: 2, residency: none"));
    accepted(&submit(&master, &["--name", "first"], HEAT));
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "first") == "running");
    let refused = submit(&master, &["--array", "1-3", "--name", "many"], HEAT);
    assert_eq!(refused.code, Some(7), "{refused:?}");
    let why = &refused.json["why"];
    let counts = ["waiting", "jobs", "most"].map(|field| why[field].as_u64());
    assert_eq!((&why["refused"], counts), (&"queue-full".into(), [Some(0), Some(3), Some(2)]));
    assert!(refused.stderr.contains("at most 2 may (`max_queued`)"), "{refused:?}");
    assert_eq!(queue(&master).len(), 1, "none of them was taken");
    // The same in HTTP.
    let mut names = accepted(&submit(&master, &["--array", "1-2", "--name", "two"], HEAT));
    let job = r#"[{"job": {"id": 0, "name": "late", "program": "/bin/true", "arguments": [], "ranks": 1,
        "memory": 1, "arrival": 0, "env": {}, "cwd": "/", "alone": null, "wait": "block"}}]"#;
    let answer = post(&master, "/v1/jobs", job);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains(r#""refused":"queue-full""#), "{answer}");
    // They all begin in their turns, and then there is room again.
    master.wait_until("all of them to begin", RUN_LIMIT, |master| {
        queue(master).iter().all(|job| !job["began"].is_null())
    });
    names.extend(accepted(&submit(&master, &["--name", "last"], HEAT)));
    assert_eq!(master.user(&["wait"]).code, Some(0));
    names.iter().for_each(|name| check_right(&master, name));
    end(master);
}

#[test]
fn a_parked_job_is_out_of_memory_until_it_is_resumed_and_then_ends_right() {
    let mut master = serve(CLUSTER);
    accepted(&submit(&master, &["--name", "parked"], HEAT));
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "parked") == "running");
    let answer = master.user(&["park", "parked"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(state(&master, "parked"), "held");
    assert!(master.processes("heat").is_empty(), "its ranks are gone");
    let why = master.user(&["why", "parked"]);
    assert!(why.stdout.contains("coswitch resume 0"), "{why:?}");
    // Another one has the cluster to itself meanwhile.
    let other = submit(&master, &["--name", "other", "--wait"], HEAT);
    assert_eq!(other.code, Some(0), "{other:?}");
    assert_eq!(state(&master, "parked"), "held");
    assert_eq!(master.user(&["resume", "parked"]).code, Some(0));
    assert_eq!(master.user(&["wait", "parked"]).code, Some(0));
    for name in ["parked", "other"] {
        assert_eq!(master.user(&["cat", name]).stdout.matches(VERIFIED).count(), 1);
    }
    end(master);
}

#[test]
fn a_drained_node_is_empty_and_its_jobs_come_back_with_it() {
    let mut master = serve(CLUSTER);
    accepted(&submit(&master, &["--name", "spread"], HEAT));
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "spread") == "running");
    let answer = master.user(&["drain", "node-1"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!((&answer.json["drained"], &answer.json["waiting"][0]), (&true.into(), &0.into()));
    assert_eq!(state(&master, "spread"), "parked");
    assert!(master.processes("heat").is_empty(), "its ranks are gone");
    let why = master.user(&["why", "spread"]);
    assert!(why.stdout.contains("node-1, which is drained: its snapshot lies there"), "{why:?}");
    let drained = |master: &Master| master.user(&["queue"]).json["drained"].clone();
    assert_eq!(drained(&master), serde_json::json!([1]));
    // A new master knows.
    master.kill();
    master.start_next();
    wait_served(&mut master);
    assert_eq!(drained(&master), serde_json::json!([1]));
    assert_eq!(state(&master, "spread"), "parked");
    let answer = master.user(&["undrain", "1"]);
    assert_eq!(answer.json["drained"], false, "{answer:?}");
    assert_eq!(master.user(&["wait", "spread"]).code, Some(0));
    assert_eq!(master.user(&["cat", "spread"]).stdout.matches(VERIFIED).count(), 1);
    for (node, part) in [("node-7", "from node-0 on"), ("alpha", "no node called `alpha`")] {
        let answer = master.user(&["drain", node]);
        assert_eq!(answer.code, Some(2), "{answer:?}");
        assert!(answer.stderr.contains(part), "{answer:?}");
    }
    end(master);
}

/// Users park, resume and cancel at random instants; what is not cancelled is right.
#[test]
fn whatever_users_do_the_jobs_that_they_leave_are_right() {
    let mut seed = seed();
    let master = serve(CLUSTER);
    let names = accepted(&submit(&master, &["--array", "1-4"], HEAT));
    let mut cancelled = BTreeSet::new();
    for _ in 0..12 {
        std::thread::sleep(span(&mut seed, Duration::from_millis(500)));
        let name = &names[seed.between(0, 3) as usize];
        let verb = ["park", "park", "resume", "cancel"][seed.between(0, 3) as usize];
        let verb = if cancelled.len() == 2 && verb == "cancel" { "park" } else { verb };
        let answer = master.user(&[verb, name]);
        if verb == "cancel" && answer.code == Some(0) {
            cancelled.insert(name.clone());
        }
        // It may have ended before.
        let has_ended = answer.stderr.contains("has ended");
        assert!(answer.code == Some(0) || has_ended, "{verb} {name}: {answer:?}");
    }
    for name in &names {
        let answer = master.user(&["resume", name]);
        assert!(answer.code == Some(0) || answer.stderr.contains("has ended"), "{answer:?}");
    }
    assert_eq!(master.user(&["wait"]).code, Some(0), "what is left succeeds");
    for name in &names {
        // What was cancelled may have ended before.
        let state = state(&master, name);
        if state == "cancelled" {
            assert!(cancelled.contains(name), "{name}");
        } else {
            assert_eq!(state, "done", "{name}");
            assert_eq!(master.user(&["cat", name]).stdout.matches(VERIFIED).count(), 1, "{name}");
        }
    }
    end(master);
}

#[test]
fn an_urgent_job_displaces_others_and_all_of_them_are_right() {
    let mut master = serve(CLUSTER);
    let mut names = accepted(&submit(&master, &["--array", "1-2", "--name", "patient"], HEAT));
    master.wait_until("a turn", RUN_LIMIT, |master| state(master, "patient-1") == "running");
    names.extend(accepted(&submit(&master, &["--priority", "5", "--name", "urgent", "--alone", "2s"], HEAT)));
    // It begins in the middle of a turn, and no other has one until it ends.
    master.wait_until("its turn", RUN_LIMIT, |master| state(master, "urgent") == "running");
    let job = &queue(&master)[2];
    assert_eq!((&job["name"], &job["priority"]), (&"urgent".into(), &5.into()));
    let why = master.user(&["why", "patient-1"]);
    let text = why.json["text"].as_str().expect("a sentence").to_owned();
    // It may have ended by now, on a machine that is slow to ask.
    assert!(
        text.contains("jobs of priority 5 have all turns") || state(&master, "urgent") == "done",
        "{text}"
    );
    let waited = master.user(&["wait"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    for name in &names {
        check_right(&master, name);
    }
    let refused = submit(&master, &["--priority", "1001"], HEAT);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let events = end(master).events;
    let ends = events.iter().filter_map(|event| match &event.kind {
        Event::JobFinished { job, .. } => Some(job.0),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>().first(), Some(&2), "the urgent one came last and ended first");
}

#[test]
fn a_job_follows_a_whole_array() {
    let master = serve(CLUSTER);
    accepted(&submit(&master, &["--array", "1-2", "--name", "all"], HEAT));
    accepted(&submit(&master, &["--name", "then", "--after", "all"], HEAT));
    let then = queue(&master).pop().expect("the last one");
    assert_eq!(then["after"], serde_json::json!([0, 1]));
    let unknown = submit(&master, &["--after", "none"], HEAT);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert_eq!(master.user(&["wait"]).code, Some(0));
    check_right(&master, "then");
    end(master);
}

/// `coswitch top` on a terminal of its own, and what it has written there.
fn top(master: &Master) -> (Child, impl Fn() -> String + use<>) {
    let typescript = master.out().with_file_name("typescript");
    let command = format!(
        "stty rows 24 cols 80; {} top --socket {}",
        parts::coswitch().display(),
        master.socket().display()
    );
    let child = Command::new("script")
        .args(["--quiet", "--flush", "--return", "--command", &command])
        .arg(&typescript)
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("script starts");
    (child, move || String::from_utf8_lossy(&fs::read(&typescript).unwrap_or_default()).into_owned())
}

#[test]
fn top_shows_the_cluster_once_and_on_a_terminal() {
    let mut master = serve(CLUSTER);
    accepted(&submit(&master, &["--name", "endless"], ENDLESS));
    master.wait_until("a turn", RUN_LIMIT, |master| state(master, "endless") == "running");
    let socket = master.socket();
    let once = Command::new(parts::coswitch()).args(["top", "--socket"]).arg(&socket).output();
    let frame = String::from_utf8_lossy(&once.expect("coswitch starts").stdout).into_owned();
    assert!(frame.contains("slot-0") && frame.contains("endless"), "{frame}");
    let answer = master.user(&["top", "--once"]);
    assert_eq!(answer.json["timetable"]["turns"][0]["jobs"][0][0], 0, "{answer:?}");
    let (mut watching, written) = top(&master);
    master.wait_until("a picture", STEP_LIMIT, |_| written().contains("endless"));
    // Its terminal goes away, and it ends. (A child that nobody reaps would count as left behind.)
    watching.kill().expect("it runs");
    watching.wait().expect("it ends");
    end(master);
}
