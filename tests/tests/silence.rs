//! Hosts that are silent for a time: the network breaks without a word, or a daemon stands still.

use std::{thread, time::Duration};

use coswitch_daemon::virtual_net;
use coswitch_policies::NodeId;
use coswitch_report::journal::{Event, RunEvent};
use coswitch_tests::{
    cluster::STEP_LIMIT,
    hosts::{self, Hosts},
    master::Master,
    seed::{seed, span},
    serving::{HEAT, accepted, check_right, end, submit, switches, wait_served},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const NAMES: [&str; 2] = ["alpha", "beta"];
/// Two jobs of 90 MiB on each node do not fit together.
const CLUSTER: &str = "
cluster: {nodes: [alpha, beta], memory: 150MiB, arena: 32MiB, lost_after: 11s}
scheduler: {policy: gang, quantum: 400ms, residency: none}
";
/// A host that could not be reached is tried again within a minute.
const BACK_LIMIT: Duration = Duration::from_secs(180);

fn lost(events: &[RunEvent], node: u32) -> bool {
    events
        .iter()
        .any(|event| matches!(event.kind, Event::NodeLost { node: lost, .. } if lost == NodeId(node)))
}

fn back(events: &[RunEvent], node: u32) -> bool {
    events.iter().any(|event| matches!(event.kind, Event::NodeBack { node: back } if back == NodeId(node)))
}

/// Two jobs take turns when `silence` begins; it goes on until `is_noticed`, and then a little longer. Both
/// jobs end with right results, and nothing is left.
fn jobs_survive(
    silence: impl Fn(&Hosts, bool) + Sync,
    is_noticed: fn(&[RunEvent]) -> bool,
    is_over: fn(&[RunEvent]) -> bool,
) {
    hosts::beside(&NAMES, |hosts| {
        let mut master = Master::on_hosts(hosts, &["serve", "--socket", "serve.sock"], CLUSTER);
        wait_served(&mut master);
        let names: Vec<String> = (0..2).flat_map(|_| accepted(&submit(&master, &[], HEAT))).collect();
        master.wait_until("a switch", STEP_LIMIT, |master| switches(&master.events()) > 0);
        let mut seed = seed();
        thread::sleep(span(&mut seed, Duration::from_secs(1)));
        silence(hosts, true);
        master.wait_until("somebody to notice", STEP_LIMIT, |master| is_noticed(&master.events()));
        thread::sleep(span(&mut seed, Duration::from_secs(3)));
        silence(hosts, false);
        master.wait_until("its end", BACK_LIMIT, |master| is_over(&master.events()));
        assert_eq!(master.user(&["wait"]).code, Some(0));
        names.iter().for_each(|name| check_right(&master, name));
        end(master);
        let left: Vec<_> = (0..NAMES.len()).flat_map(|machine| hosts.left(machine)).collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn a_host_that_is_cut_off_from_all_is_lost_and_its_jobs_go_on_with_it() {
    let is_noticed = |events: &[RunEvent]| lost(events, 1);
    jobs_survive(|hosts, is_cut| hosts.cut_off(1, is_cut), is_noticed, |events| back(events, 1));
}

#[test]
fn a_daemon_that_stands_still_for_too_long_is_replaced_and_does_no_harm_afterwards() {
    let stop = |hosts: &Hosts, stands: bool| {
        if stands {
            kill(Pid::from_raw(hosts.daemon(1).cast_signed()), Signal::SIGSTOP).expect("it runs");
        }
    };
    // The next daemon ends it: nobody has to wake it.
    jobs_survive(stop, |events| lost(events, 1), |events| back(events, 1));
}

/// The master hears both of them.
#[test]
fn two_hosts_that_do_not_hear_each_other_are_started_again_when_they_do() {
    let beta = virtual_net::address(NodeId(1)).to_string();
    let part = |hosts: &Hosts, is_parted: bool| {
        let act = if is_parted { "add" } else { "del" };
        hosts.run(0, &["ip", "route", act, "blackhole", &beta]);
    };
    let is_any = |events: &[RunEvent]| lost(events, 0) || lost(events, 1);
    let is_over = |events: &[RunEvent]| {
        let (mut down, mut up) = (0, 0);
        for event in events {
            match event.kind {
                Event::NodeLost { .. } => down += 1,
                Event::NodeBack { .. } => up += 1,
                _ => {}
            }
        }
        down > 0 && down == up
    };
    jobs_survive(part, is_any, is_over);
}
