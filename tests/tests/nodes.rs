//! Daemons are killed at any instant: they are started again, and all jobs end with right results.

use std::{env, fs, path::Path, time::Duration};

use coswitch_report::journal::{Event, RunEvent};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::Master,
    seed::{Seed, seed, span},
    serving::{
        CLEAN_LIMIT, ENDLESS, HEAT, VERIFIED, accepted, check_right, end, serve, state, submit, switches,
        wait_served,
    },
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Two jobs of 90 MiB on each node do not fit together.
const CLUSTER: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 400ms, residency: none}
"#;
const RUN: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 400ms, residency: none}
jobs:
  - {name: heat, count: 2, ranks: 2, memory: 90MiB, command: ["{bin}/heat", --memory, 40MiB, --seconds, "2"]}
"#;
/// The pause between two kills is at most so long.
const PAUSE: Duration = Duration::from_millis(2500);
/// A daemon takes so long to start, at most.
const START: Duration = Duration::from_millis(600);
/// Of one cluster.
const KILLS: usize = 4;

/// Kills a daemon, where one runs.
fn kill_one(master: &Master, seed: &mut Seed) -> bool {
    let daemons = master.processes("coswitchd");
    let Some(last) = daemons.len().checked_sub(1) else { return false };
    let chosen = daemons[usize::from(last > 0 && seed.chance(500))];
    kill(Pid::from_raw(chosen.cast_signed()), Signal::SIGKILL).is_ok()
}

fn count(events: &[RunEvent], is: fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is(&event.kind)).count()
}

fn lost(events: &[RunEvent]) -> usize {
    count(events, |event| matches!(event, Event::NodeLost { .. }))
}

/// `COSWITCH_KILLS` says how many daemons are killed.
#[test]
fn at_whatever_instant_a_daemon_is_killed_each_job_ends_right() {
    let all: usize = env::var("COSWITCH_KILLS").map_or(KILLS, |text| text.parse().expect("a number"));
    let mut seed = seed();
    let (mut killed, mut noticed) = (0, 0);
    while killed < all {
        let mut master = serve(CLUSTER);
        let mut names = Vec::new();
        for _ in 0..KILLS.min(all - killed) {
            if names.len() < 3 {
                names.extend(accepted(&submit(&master, &[], HEAT)));
            }
            std::thread::sleep(span(&mut seed, PAUSE));
            let with_master = seed.chance(200);
            if with_master {
                master.kill();
            }
            killed += usize::from(kill_one(&master, &mut seed));
            // Both, at times.
            if seed.chance(200) {
                kill_one(&master, &mut seed);
            }
            if with_master {
                master.start_next();
                wait_served(&mut master);
            }
        }
        let waited = master.user(&["wait"]);
        assert_eq!(waited.code, Some(0), "{waited:?}");
        names.iter().for_each(|name| check_right(&master, name));
        noticed += lost(&end(master).events);
    }
    eprintln!("{killed} daemons were killed; masters have noticed {noticed}");
}

/// What a job has written before it begins again is kept beside what it writes then.
#[test]
fn the_output_of_a_job_that_begins_again_is_that_of_one_life() {
    const BEGUN: &str = "echo begun; exec {bin}/heat --memory 40MiB --seconds 2";
    let mut seed = seed();
    let mut master = serve(CLUSTER);
    accepted(&submit(&master, &["--name", "one"], &["/bin/sh", "-c", BEGUN]));
    let file = |master: &Master, name: &str| {
        fs::read_to_string(master.out().join("one").join(name)).unwrap_or_default()
    };
    master.wait_until("both ranks", STEP_LIMIT, |master| {
        (0..2).all(|rank| file(master, &format!("rank-{rank}.out")).contains("begun"))
    });
    assert!(kill_one(&master, &mut seed));
    assert_eq!(master.user(&["wait"]).code, Some(0));
    check_right(&master, "one");
    for rank in 0..2 {
        assert_eq!(file(&master, &format!("rank-{rank}.out")).matches("begun").count(), 1);
        assert!(file(&master, &format!("rank-{rank}.out.foreign-1")).starts_with("begun"));
    }
    assert_eq!(count(&end(master).events, |event| matches!(event, Event::JobLaunched { .. })), 2);
}

/// A daemon may wake beside that of the next master.
#[test]
fn a_daemon_that_a_dead_master_has_started_removes_nothing_of_the_next_one() {
    let mut seed = seed();
    let mut master = serve(CLUSTER);
    let names = accepted(&submit(&master, &["--array", "1-2"], HEAT));
    for _ in 0..10 {
        kill_one(&master, &mut seed);
        std::thread::sleep(span(&mut seed, START));
        master.kill();
        master.start_next();
        wait_served(&mut master);
    }
    let waited = master.user(&["wait"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    names.iter().for_each(|name| check_right(&master, name));
    end(master);
}

/// The outputs of a run's jobs are right.
fn check_outputs(out: &Path) {
    for job in ["heat-1", "heat-2"] {
        let said = fs::read_to_string(out.join(job).join("rank-0.out")).expect("an output");
        assert_eq!(said.matches(VERIFIED).count(), 1, "{job}: {said}");
    }
}

#[test]
fn a_run_goes_on_where_it_loses_a_daemon() {
    let mut seed = seed();
    let mut master = Master::run(RUN);
    master.wait_until("a switch", STEP_LIMIT, |master| switches(&master.events()) > 0);
    std::thread::sleep(span(&mut seed, Duration::from_secs(1)));
    assert!(kill_one(&master, &mut seed));
    let out = master.out();
    let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || check_outputs(&out));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(lost(&ended.events), 1);
    assert!(count(&ended.events, |event| matches!(event, Event::JobRepeats { .. })) > 0);
}

/// A job with a sealed snapshot goes back to it, and one that uses other nodes never notices.
#[test]
fn sealed_work_survives_all_daemons_and_the_master() {
    let mut master = serve(CLUSTER);
    accepted(&submit(&master, &["--name", "sealed"], HEAT));
    master.wait_until("it to run", STEP_LIMIT, |master| state(master, "sealed") == "running");
    assert_eq!(master.user(&["park", "sealed"]).code, Some(0));
    let is_stored = |event: &Event| matches!(event, Event::SnapshotStored { .. });
    master.wait_until("the seal", STEP_LIMIT, |master| count(&master.events(), is_stored) == 2);
    master.kill();
    for daemon in master.processes("coswitchd") {
        kill(Pid::from_raw(daemon.cast_signed()), Signal::SIGKILL).expect("it runs");
    }
    master.start_next();
    wait_served(&mut master);
    assert_eq!(master.user(&["resume", "sealed"]).code, Some(0));
    assert_eq!(master.user(&["wait"]).code, Some(0));
    check_right(&master, "sealed");
    let launches = count(&end(master).events, |event| matches!(event, Event::JobLaunched { .. }));
    assert_eq!(launches, 1, "it has gone on where it was");
}

#[test]
fn a_daemon_that_is_lost_again_and_again_leaves_nothing_behind() {
    let mut master = serve(CLUSTER);
    accepted(&submit(&master, &["--array", "1-2"], ENDLESS));
    master.wait_until("a switch", RUN_LIMIT, |master| switches(&master.events()) >= 1);
    let is_back = |event: &Event| matches!(event, Event::NodeBack { .. });
    for lost_before in 0..2 {
        // A daemon that dies before it is back is the same loss.
        master.wait_until("the node", RUN_LIMIT, |master| count(&master.events(), is_back) == lost_before);
        let mut seed = seed();
        assert!(kill_one(&master, &mut seed));
        master.wait_until("its loss", STEP_LIMIT, |master| lost(&master.events()) > lost_before);
    }
    master.wait_until("a job to run", RUN_LIMIT, |master| {
        ["ring-check-1", "ring-check-2"].iter().any(|name| state(master, name) == "running")
    });
    assert_eq!(master.user(&["cancel", "ring-check-1"]).code, Some(0));
    assert_eq!(master.user(&["cancel", "ring-check-2"]).code, Some(0));
    end(master);
}
