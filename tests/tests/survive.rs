//! Ranks and launchers survive their daemon, which is killed: what is whole goes on where it was, and the
//! rest from its snapshots. Nothing stays for ever.

use std::{
    env, fs,
    time::{Duration, Instant},
};

use coswitch_policies::JobId;
use coswitch_report::journal::{Event, JobOutcome, RunEvent};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::Master,
    seed::{Seed, seed, span},
    serving::{
        CLEAN_LIMIT, ENDLESS, HEAT, accepted, check_right, end, queue, serve, state, submit, switches,
        wait_served,
    },
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// All ranks are on one node.
const ALONE: &str = r#"
cluster: {nodes: 1, memory: 400MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 60s}
"#;
/// Two jobs of two ranks do not fit together.
const ALONE_AND_NARROW: &str = r#"
cluster: {nodes: 1, memory: 250MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 400ms, residency: none}
"#;
/// Two jobs fit, and take turns.
const TURNS: &str = r#"
cluster: {nodes: 2, memory: 300MiB, stop_after: 6s, store: "{store}"}
scheduler: {policy: gang, quantum: 2s}
"#;
const LONG: &[&str] = &["{bin}/heat", "--memory", "40MiB", "--seconds", "6"];
const KILLS: usize = 6;
const PAUSE: Duration = Duration::from_millis(2500);

fn count(events: &[RunEvent], is: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is(&event.kind)).count()
}

fn survived(events: &[RunEvent]) -> usize {
    count(events, |event| matches!(event, Event::JobSurvived { .. }))
}

fn repeated(events: &[RunEvent]) -> usize {
    count(events, |event| matches!(event, Event::JobRepeats { .. } | Event::JobDisplaced { .. }))
}

fn backs(events: &[RunEvent]) -> usize {
    count(events, |event| matches!(event, Event::NodeBack { .. }))
}

fn signal_daemons(master: &Master, signal: Signal) -> usize {
    let daemons = master.processes("coswitchd");
    daemons.iter().filter(|pid| kill(Pid::from_raw(pid.cast_signed()), signal).is_ok()).count()
}

fn kill_daemons(master: &Master) -> usize {
    signal_daemons(master, Signal::SIGKILL)
}

/// As the shutdown of their machines does; waits until they have ended.
fn terminate_daemons(master: &Master) {
    let before = master.processes("coswitchd");
    assert_eq!(signal_daemons(master, Signal::SIGTERM), before.len());
    let began = Instant::now();
    while master.processes("coswitchd").iter().any(|pid| before.contains(pid)) {
        assert!(began.elapsed() < STEP_LIMIT, "they do not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Submits a job of two nodes, and parks it; its snapshot is sealed.
fn park_one(master: &mut Master) {
    accepted(&submit(master, &["--name", "one"], LONG));
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "one") == "running");
    assert_eq!(master.user(&["park", "one"]).code, Some(0));
    let is_stored = |event: &Event| matches!(event, Event::SnapshotStored { .. });
    master.wait_until("the seal", STEP_LIMIT, |master| count(&master.events(), is_stored) == 2);
}

fn kill_one(master: &Master, seed: &mut Seed) {
    let daemons = master.processes("coswitchd");
    let Some(last) = daemons.len().checked_sub(1) else { return };
    let chosen = daemons[usize::from(last > 0 && seed.chance(500))];
    let _ = kill(Pid::from_raw(chosen.cast_signed()), Signal::SIGKILL);
}

fn sorted(mut pids: Vec<u32>) -> Vec<u32> {
    pids.sort_unstable();
    pids
}

fn ranks(master: &Master) -> Vec<u32> {
    sorted(master.processes("heat"))
}

/// Launchers and ranks, and what CRIU has been asked to do.
fn processes(master: &Master) -> usize {
    ["coswitch-launch", "heat", "ring-check", "criu"].iter().map(|name| master.processes(name).len()).sum()
}

#[test]
fn ranks_on_one_node_go_on_and_nothing_is_repeated() {
    let mut seed = seed();
    let mut master = serve(ALONE);
    accepted(&submit(&master, &["--name", "one"], LONG));
    master.wait_until("both ranks", STEP_LIMIT, |master| {
        state(master, "one") == "running" && ranks(master).len() == 2
    });
    let before = ranks(&master);
    for times in 1..=2 {
        std::thread::sleep(span(&mut seed, Duration::from_millis(600)));
        assert_eq!(kill_daemons(&master), 1);
        master.wait_until("the next daemon", STEP_LIMIT, |master| survived(&master.events()) == times);
        assert_eq!(ranks(&master), before, "they are the same processes");
        assert_eq!(state(&master, "one"), "running");
        // The next master goes on with it, and with its survival.
        master.kill();
        master.start_next();
        wait_served(&mut master);
    }
    let waited = master.user(&["wait"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    check_right(&master, "one");
    let events = end(master).events;
    assert_eq!((survived(&events), repeated(&events)), (2, 0));
}

/// What has survived is cut, dumped and restored as before.
#[test]
fn a_job_that_has_survived_is_parked_and_comes_back() {
    let mut master = serve(ALONE);
    accepted(&submit(&master, &["--name", "one"], LONG));
    master.wait_until("both ranks", STEP_LIMIT, |master| {
        state(master, "one") == "running" && ranks(master).len() == 2
    });
    kill_daemons(&master);
    master.wait_until("the next daemon", STEP_LIMIT, |master| survived(&master.events()) == 1);
    assert_eq!(master.user(&["park", "one"]).code, Some(0));
    master.wait_until("it to leave memory", STEP_LIMIT, |master| ranks(master).is_empty());
    assert_eq!(master.user(&["resume", "one"]).code, Some(0));
    let waited = master.user(&["wait"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    check_right(&master, "one");
    assert_eq!(repeated(&end(master).events), 0);
}

/// The one job that is suspended, while the other one runs.
fn suspended(master: &Master) -> Option<String> {
    let jobs = queue(master);
    let is = |job: &&serde_json::Value, word: &str| job["state"] == word;
    jobs.iter().find(|job| is(job, "running"))?;
    let suspended = jobs.iter().find(|job| is(job, "suspended"))?;
    Some(suspended["name"].as_str()?.to_owned())
}

#[test]
fn a_suspended_job_of_two_nodes_goes_on_from_its_cut() {
    let mut master = serve(TURNS);
    let names = ["job-0", "job-1"];
    names.iter().for_each(|name| drop(accepted(&submit(&master, &["--name", name], LONG))));
    master.wait_until("a turn", STEP_LIMIT, |master| suspended(master).is_some());
    let name = suspended(&master).expect("it was just there");
    let job = JobId(u32::from(name == "job-1"));
    let before = ranks(&master);
    assert_eq!(before.len(), 4);
    kill_one(&master, &mut seed());
    let is_its = |event: &Event| matches!(event, Event::JobSurvived { job: its, .. } if *its == job);
    master.wait_until("it to be found", STEP_LIMIT, |master| count(&master.events(), is_its) == 1);
    let after = ranks(&master);
    assert!(before.iter().filter(|pid| after.contains(pid)).count() >= 2, "{before:?} {after:?}");
    let waited = master.user(&["wait"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    names.iter().for_each(|name| check_right(&master, name));
    let events = end(master).events;
    let goes_back = |event: &Event| match event {
        Event::JobRepeats { job: its, .. } | Event::JobDisplaced { job: its, .. } => *its == job,
        _ => false,
    };
    assert_eq!(count(&events, goes_back), 0, "the suspended one repeats nothing");
}

#[test]
fn the_end_of_a_job_is_known_that_ends_without_a_daemon() {
    let mut master = serve(ALONE);
    accepted(&submit(&master, &["--name", "right"], HEAT));
    let fails: &[&str] = &["/bin/sh", "-c", "sleep 2; exit 3"];
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "right") == "running");
    for (name, command) in [("right", None), ("wrong", Some(fails))] {
        if let Some(command) = command {
            accepted(&submit(&master, &["--name", name], command));
            master.wait_until("it to run", STEP_LIMIT, |master| state(master, name) == "running");
        }
        // A daemon would be started again at once.
        master.kill();
        assert_eq!(kill_daemons(&master), 1);
        let began = Instant::now();
        while !master.processes("coswitch-launch").is_empty() {
            assert!(began.elapsed() < RUN_LIMIT, "the launcher does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
        master.start_next();
        wait_served(&mut master);
    }
    master.wait_until("both ends", STEP_LIMIT, |master| {
        state(master, "right") == "done" && state(master, "wrong") == "failed"
    });
    check_right(&master, "right");
    let events = end(master).events;
    assert_eq!(repeated(&events), 0);
    let launched = count(&events, |event| matches!(event, Event::JobLaunched { .. }));
    assert_eq!(launched, 2, "neither was launched again");
    let is_its = |event: &Event| matches!(event, Event::JobFinished { outcome: JobOutcome::Exit(3), .. });
    assert_eq!(count(&events, is_its), 1);
}

/// `COSWITCH_KILLS` says how many daemons are killed.
#[test]
fn at_whatever_instant_the_daemon_of_one_node_is_killed_each_job_ends_right() {
    let all: usize = env::var("COSWITCH_KILLS").map_or(KILLS, |text| text.parse().expect("a number"));
    let mut seed = seed();
    let (mut killed, mut whole, mut parked) = (0, 0, 0);
    while killed < all {
        let master = serve(ALONE_AND_NARROW);
        let mut names = Vec::new();
        for _ in 0..KILLS.min(all - killed) {
            if names.len() < 3 {
                names.extend(accepted(&submit(&master, &[], HEAT)));
            }
            std::thread::sleep(span(&mut seed, PAUSE));
            kill_one(&master, &mut seed);
            killed += 1;
        }
        let waited = master.user(&["wait"]);
        assert_eq!(waited.code, Some(0), "{waited:?}");
        names.iter().for_each(|name| check_right(&master, name));
        let events = end(master).events;
        (whole, parked) = (whole + survived(&events), parked + switches(&events));
        assert!(backs(&events) > 0);
    }
    eprintln!("{killed} daemons were killed: {whole} jobs have survived, {parked} switches");
}

#[test]
fn a_parked_job_goes_on_where_the_daemons_are_terminated() {
    let mut master = serve(TURNS);
    park_one(&mut master);
    terminate_daemons(&master);
    master.wait_until("the next daemons", STEP_LIMIT, |master| backs(&master.events()) >= 2);
    // The next time their master has gone before.
    master.kill();
    terminate_daemons(&master);
    master.start_next();
    wait_served(&mut master);
    assert_eq!(master.user(&["resume", "one"]).code, Some(0));
    let waited = master.user(&["wait"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    check_right(&master, "one");
    let launched = count(&end(master).events, |event| matches!(event, Event::JobLaunched { .. }));
    assert_eq!(launched, 1, "it has gone on from its snapshot");
}

#[test]
fn a_clean_up_removes_what_terminated_daemons_have_left() {
    let mut master = serve(TURNS);
    park_one(&mut master);
    master.kill();
    terminate_daemons(&master);
    let stores = fs::read_dir(master.store()).expect("a directory for snapshots").count();
    assert_eq!(stores, 2, "each node has left its snapshot");
    let cleaned = master.user(&["clean"]);
    assert_eq!(cleaned.code, Some(0), "{cleaned:?}");
    let _ended = master.end(STEP_LIMIT, CLEAN_LIMIT);
}

#[test]
fn processes_that_no_daemon_adopts_are_ended() {
    let mut master = serve(TURNS);
    accepted(&submit(&master, &["--array", "1-2"], ENDLESS));
    master.wait_until("a turn", STEP_LIMIT, |master| suspended(master).is_some());
    master.kill();
    assert_eq!(kill_daemons(&master), 2);
    let killed = Instant::now();
    assert!(processes(&master) >= 4, "they go on");
    while processes(&master) > 0 || !master.processes("coswitch-watch").is_empty() {
        assert!(killed.elapsed() < STEP_LIMIT, "frozen or not, they stay");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(killed.elapsed() > Duration::from_secs(5), "a daemon may still come");
    master.start_next();
    wait_served(&mut master);
    assert_eq!(master.user(&["cancel", "ring-check-1", "ring-check-2"]).code, Some(0));
    end(master);
}

#[test]
fn a_clean_up_ends_what_has_survived() {
    let mut master = serve(&ALONE.replace("nodes: 1,", "nodes: 1, stop_after: 60s,"));
    accepted(&submit(&master, &[], ENDLESS));
    master.wait_until("it to run", STEP_LIMIT, |master| processes(master) >= 3);
    master.kill();
    assert_eq!(kill_daemons(&master), 1);
    assert!(processes(&master) >= 3, "they go on");
    let cleaned = master.user(&["clean"]);
    assert_eq!(cleaned.code, Some(0), "{cleaned:?}");
    let began = Instant::now();
    while processes(&master) > 0 || !master.processes("coswitch-watch").is_empty() {
        assert!(began.elapsed() < STEP_LIMIT, "init has nothing left to reap");
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ended = master.end(STEP_LIMIT, CLEAN_LIMIT);
}
