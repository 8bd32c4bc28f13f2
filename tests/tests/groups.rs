//! A cluster that is divided into node sets, which groups use by the hours of the day.

use std::time::{Duration, SystemTime};

use coswitch_policies::{NodeId, SimTime};
use coswitch_report::journal::Event;
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::{Answered, Master},
    serving::{HEAT, accepted, check_right, end, queue, state, submit, wait_served},
};

/// By day the group `night` has no nodes.
const CLUSTER: &str = r#"
cluster: {nodes: 4, memory: 150MiB, store: "{store}"}
scheduler:
  policy: batch
  queue: aging
  allocator: m2db
  sets:
    - {name: always, nodes: [2, node-0]}
    - {name: late, width: 2}
  groups:
    - {name: day, sets: [always]}
    - {name: night, prime: [], sets: [late]}
  prime_time: {from: 9, to: 17}
"#;

const DAY: u64 = 24 * 3600;
const FIVE: u64 = 17 * 3600;

/// A time zone in which it is five o'clock in so many seconds.
fn zone(seconds: u64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970").as_secs();
    // How far it is west of Greenwich: less than a day.
    let west = (now % DAY + DAY - (FIVE - seconds)) % DAY;
    let (sign, west) = if west > DAY / 2 { ("-", DAY - west) } else { ("", west) };
    format!("<TEST>{sign}{:02}:{:02}:{:02}", west / 3600, west / 60 % 60, west % 60)
}

/// When the hours change, and when and where `late` was launched.
fn hours_and_launch(master: &Master) -> (SimTime, Option<(SimTime, Vec<NodeId>)>) {
    let (mut change, mut launch) = (None, None);
    for event in master.events() {
        match event.kind {
            Event::RunStarted { scheduler: Some(config), .. } => {
                let sets = config.space.and_then(|space| space.sets).expect("the cluster is divided");
                assert_eq!(sets.nodes, [2, 0, 1, 3].map(NodeId));
                let until = Duration::from_secs(FIVE).checked_sub(sets.start.since_midnight);
                change = Some(SimTime::from(until.expect("it was before five")));
            }
            Event::JobLaunched { placement, .. } if placement.nodes().any(|node| node == NodeId(1)) => {
                launch = Some((event.at, placement.nodes().collect()));
            }
            _ => {}
        }
    }
    (change.expect("the run has started"), launch)
}

#[test]
fn a_job_of_a_group_starts_when_its_hours_begin_and_not_before() {
    let mut master =
        Master::in_environment(&[("TZ", zone(45))], &["serve", "--socket", "serve.sock"], CLUSTER);
    wait_served(&mut master);
    accepted(&submit(&master, &["--name", "late", "--group", "night"], HEAT));
    accepted(&submit(&master, &["--name", "now"], HEAT));
    master.wait_until("the job of the day", STEP_LIMIT, |master| state(master, "now") != "waiting");
    assert_eq!(state(&master, "late"), "waiting");
    let why = master.user(&["why", "late"]).json["text"].to_string();
    assert!(why.contains("group night begins at 17:00: it needs 2 nodes of the group `night`"), "{why}");
    let late = queue(&master).swap_remove(0);
    assert_eq!((&late["group"], &late["opens"]), (&"night".into(), &"group night begins at 17:00".into()));
    assert!(late["runs_from"].is_u64(), "it is foreseen: {late}");
    // Another master has the hours from the same clock.
    master.kill();
    master.start_next();
    wait_served(&mut master);
    let (change, launch) = hours_and_launch(&master);
    assert!(launch.is_none(), "the hours change at {change:?}: {launch:?}");
    assert_eq!(master.user(&["wait", "late", "now"]).code, Some(0));
    let (change, launch) = hours_and_launch(&master);
    let (at, nodes) = launch.expect("it was launched");
    // Clocks are read when a master begins, and need not agree to the millisecond.
    let (from, to) = (change.0.saturating_sub(200_000_000), change.after(Duration::from_secs(10)));
    assert!((from..to.0).contains(&at.0), "{at:?}, and the hours change at {change:?}");
    assert_eq!(nodes, [1, 3].map(NodeId));
    ["late", "now"].iter().for_each(|name| check_right(&master, name));
    end(master);
}

#[test]
fn a_job_that_no_group_can_hold_is_refused_with_the_reason() {
    // At night.
    let mut master =
        Master::in_environment(&[("TZ", zone(0))], &["serve", "--socket", "serve.sock"], CLUSTER);
    wait_served(&mut master);
    let of = |options: &[&str], ranks: &str| -> Answered {
        let first = ["submit", "--ranks", ranks, "--memory", "90MiB"];
        master.user(&[&first, options, &["--", "/bin/true"]].concat())
    };
    let cases: [(&[&str], &str, &str); 4] = [
        (&["--group", "noon"], "2", "there is no group `noon`; there are day, night"),
        (&["--queue", "noon"], "2", "there is no queue `noon`; there are day, night"),
        (
            &["--queue", "day", "--group", "night"],
            "2",
            "has the nodes of the group `day`, not those of `night`",
        ),
        (&["--group", "night"], "3", "needs 3 nodes, and its group `night` gives a job 2 at most"),
    ];
    for (options, ranks, part) in cases {
        let answer = of(options, ranks);
        assert_eq!(answer.code, Some(2), "{options:?}: {answer:?}");
        assert!(answer.stderr.contains(part), "{options:?}: {answer:?}");
    }
    // A node of its set is drained: it waits until that takes jobs again.
    assert_eq!(master.user(&["drain", "3"]).code, Some(0));
    accepted(&submit(&master, &["--name", "night", "--group", "night"], HEAT));
    let day = submit(&master, &["--name", "day", "--wait"], HEAT);
    assert_eq!(day.code, Some(0), "{day:?}");
    assert_eq!(state(&master, "night"), "waiting");
    let why = master.user(&["why", "night"]).json["text"].to_string();
    assert!(why.contains("node-3, which is drained"), "{why}");
    assert_eq!(master.user(&["undrain", "3"]).code, Some(0));
    let waited = master.user(&["wait", "night"]);
    assert_eq!(waited.code, Some(0), "{waited:?}");
    ["night", "day"].iter().for_each(|name| check_right(&master, name));
    let events = end(master).events;
    assert!(events.iter().all(|event| event.at < SimTime::from(RUN_LIMIT)));
}
