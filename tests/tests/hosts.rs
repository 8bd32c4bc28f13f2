//! Nodes that are machines of their own, reached by ssh.

use coswitch_policies::{Bytes, Capacity};
use coswitch_report::journal::{Event, RunEvent};
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    hosts::{self, Hosts, SILENT},
    master::{Ended, Master},
    serving::{
        CLEAN_LIMIT, HEAT, VERIFIED, accepted, check_right, end, state, submit, switches, wait_served,
    },
};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

const NAMES: [&str; 2] = ["alpha", "beta"];
/// Two jobs of 90 MiB on each node do not fit together.
const CLUSTER: &str = r"
cluster: {nodes: [alpha, {host: beta, address: 10.83.0.2}], memory: 150MiB, arena: 32MiB}
scheduler: {policy: gang, quantum: 400ms, residency: none}
";

fn two_jobs() -> String {
    format!(
        "{CLUSTER}jobs:\n  - {{name: heat, count: 2, ranks: 2, memory: 90MiB, \
         command: [\"{{bin}}/heat\", --memory, 40MiB, --seconds, \"2\"]}}\n"
    )
}

fn took_jobs_out(events: &[RunEvent]) {
    assert!(switches(events) > 2, "{events:?}");
}

/// A run file with the directory that each machine has for itself.
fn with_own(hosts: &Hosts, run_file: &str) -> String {
    run_file.replace("{own}", &hosts.own().display().to_string())
}

fn nothing_is_left(hosts: &Hosts) {
    let left: Vec<_> = (0..NAMES.len()).flat_map(|machine| hosts.left(machine)).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn kill(process: u32) {
    signal::kill(Pid::from_raw(process.cast_signed()), Signal::SIGKILL).expect("it runs");
}

/// A run on hosts that fails before it begins.
fn refused(run_file: &str) -> Ended {
    hosts::beside(&NAMES, |hosts| {
        std::fs::create_dir(hosts.own().join("work")).expect("a directory");
        let run_file = with_own(hosts, run_file);
        let ended = Master::on_hosts(hosts, &["run"], &run_file).end(RUN_LIMIT, CLEAN_LIMIT);
        assert_eq!(ended.code, Some(4), "{}", ended.stderr);
        nothing_is_left(hosts);
        ended
    })
}

#[test]
fn jobs_are_switched_on_hosts_that_had_nothing_and_nothing_is_left_there_but_the_programs() {
    hosts::beside(&NAMES, |hosts| {
        // This machine has no such directory.
        let run_file = two_jobs().replace("arena: 32MiB", "arena: 32MiB, store: \"{own}/store\"");
        for _ in 0..2 {
            let master = Master::on_hosts(hosts, &["run"], &with_own(hosts, &run_file));
            let out = master.out();
            let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || {
                for job in ["heat-1", "heat-2"] {
                    let said = std::fs::read_to_string(out.join(job).join("rank-0.out")).expect("an output");
                    assert!(said.contains(VERIFIED), "{said}");
                }
            });
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            took_jobs_out(&ended.events);
            nothing_is_left(hosts);
        }
    });
}

#[test]
fn a_cluster_of_hosts_outlives_its_master_and_its_sessions_of_ssh() {
    // The next master asks a host for its memory again, which has changed; the cluster is the same.
    let cluster = CLUSTER.replace("[alpha, {host: beta, address: 10.83.0.2}], memory: 150MiB", "NODES");
    let cluster =
        cluster.replace("NODES", "[{host: alpha, memory: 150MiB}, {host: beta, address: 10.83.0.2}]");
    hosts::beside(&NAMES, |hosts| {
        let mut master = Master::on_hosts(hosts, &["serve", "--socket", "serve.sock"], &cluster);
        wait_served(&mut master);
        let mut names = accepted(&submit(&master, &["--name", "first"], HEAT));
        names.extend(accepted(&submit(&master, &["--name", "second"], HEAT)));
        master.wait_until("one to run", STEP_LIMIT, |master| state(master, "first") == "running");
        master.kill();
        assert!((0..NAMES.len()).all(|machine| !hosts.left(machine).is_empty()), "the nodes have files");
        let sessions = master.processes("ssh");
        assert_eq!(sessions.len(), NAMES.len());
        sessions.into_iter().for_each(kill);
        master.start_next();
        wait_served(&mut master);
        assert_eq!(master.user(&["wait"]).code, Some(0));
        names.iter().for_each(|name| check_right(&master, name));
        took_jobs_out(&end(master).events);
        nothing_is_left(hosts);
    });
}

/// The second one is asked for its memory, of which it has more.
#[test]
fn hosts_that_differ_in_memory_processors_and_store_are_used_as_they_are() {
    let nodes = "[{host: alpha, memory: 150MiB, processors: 0, store: \"{own}/store/fast\"}, beta]";
    let cluster = CLUSTER.replace("[alpha, {host: beta, address: 10.83.0.2}], memory: 150MiB", "NODES");
    let cluster = cluster.replace("NODES", nodes);
    let job = "{name: heat, count: 2, ranks: 2, memory: 90MiB, command: [/bin/sh, -c, \
               \"grep Cpus_allowed_list /proc/self/status; exec {bin}/heat --memory 40MiB --seconds 2\"]}";
    hosts::beside(&NAMES, |hosts| {
        let run_file = with_own(hosts, &format!("{cluster}jobs: [{job}]\n"));
        let mut master = Master::on_hosts(hosts, &["run"], &run_file);
        master.wait_until("a switch", STEP_LIMIT, |master| switches(&master.events()) > 0);
        let is_in_own_store = |machine| hosts.left(machine).iter().any(|path| path.ends_with("store/fast"));
        assert!(is_in_own_store(0) && !is_in_own_store(1), "{:?}", hosts.left(0));
        let out = master.out();
        let ended = master.end_with(RUN_LIMIT, CLEAN_LIMIT, || {
            for job in ["heat-1", "heat-2"] {
                let said = std::fs::read_to_string(out.join(job).join("rank-0.out")).expect("an output");
                assert!(said.contains(VERIFIED) && said.starts_with("Cpus_allowed_list:\t0\n"), "{said}");
            }
        });
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let Event::RunStarted { capacity: Capacity::OfEach(memory), .. } = &ended.events[0].kind else {
            panic!("{:?}", ended.events[0]);
        };
        assert!(memory[0] == Bytes::mib(150) && memory[1] > Bytes::mib(180), "{memory:?}");
        // The directory that the file names.
        assert!(hosts.left(0).iter().all(|path| path.ends_with("store/fast")), "{:?}", hosts.left(0));
        assert!(hosts.left(1).is_empty(), "{:?}", hosts.left(1));
    });
}

/// Balanced DTS: of two hosts the slower one has a local task that computes, which counts double.
#[test]
fn the_load_of_a_slower_host_counts_for_more() {
    let run_file = r#"
cluster:
  nodes: [{host: alpha, processors: 0}, {host: beta, address: 10.83.0.2, processors: 0, power: 0.5}]
  memory: 150MiB
  arena: 32MiB
scheduler:
  policy: cosched
  local: {dts: {mode: balanced, sample_every: 50ms, samples: 4, past_weight: 0, threshold: 0.3}}
jobs:
  - name: local
    ranks: 2
    memory: 20MiB
    command: [/bin/sh, -c, "if [ $PMI_RANK = 0 ]; then sleep 7; exit; fi; timeout 7 yes > /dev/null; true"]
"#;
    hosts::beside(&NAMES, |hosts| {
        let ended = Master::on_hosts(hosts, &["run"], run_file).end(RUN_LIMIT, CLEAN_LIMIT);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let balanced = |event: &RunEvent| match &event.kind {
            Event::SlicesBalanced { loads, load, .. } => {
                Some((loads.iter().map(|(_, load)| *load).collect(), *load))
            }
            _ => None,
        };
        let told: Vec<(Vec<u32>, u32)> = ended.events.iter().filter_map(balanced).collect();
        for (loads, load) in &told {
            let [fast, slow] = loads[..] else { panic!("{told:?}") };
            assert!((fast + 2 * slow).div_ceil(2).abs_diff(*load) <= 2, "{told:?}");
        }
        // Of a fast host it would be half a task, which moves nothing.
        assert!(told.iter().any(|(_, load)| (700..=1300).contains(load)), "{told:?}");
    });
}

#[test]
fn a_host_that_lacks_a_processor_is_named() {
    let ended = refused(&two_jobs().replace("[alpha,", "[{host: alpha, processors: 1000},"));
    let says = |what| ended.stderr.contains(what);
    assert!(says("alpha") && says("there is no processor 1000"), "{}", ended.stderr);
}

#[test]
fn a_daemon_that_is_killed_is_started_again_and_leaves_nothing_on_its_host() {
    hosts::beside(&NAMES, |hosts| {
        let mut master = Master::on_hosts(hosts, &["run"], &two_jobs());
        master.wait_until("a switch", STEP_LIMIT, |master| switches(&master.events()) > 0);
        kill(hosts.daemon(1));
        let ended = master.end(RUN_LIMIT, CLEAN_LIMIT);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let is_back = |event: &RunEvent| matches!(event.kind, Event::NodeBack { .. });
        assert!(ended.events.iter().any(is_back), "{:?}", ended.events);
        nothing_is_left(hosts);
    });
}

#[test]
fn a_host_that_does_not_answer_is_named_and_the_others_are_left_as_they_were() {
    let ended = refused(&two_jobs().replace("[alpha,", &format!("[{SILENT},")));
    assert!(ended.stderr.contains(SILENT) && ended.stderr.contains("refused"), "{}", ended.stderr);
}

#[test]
fn a_host_without_the_files_of_a_job_is_named_before_the_job_begins() {
    let ended = refused(&two_jobs().replace("ranks: 2", "cwd: \"{own}/work\", ranks: 2"));
    let says = |what| ended.stderr.contains(what);
    assert!(says("alpha") && says("own/work") && says("all nodes share"), "{}", ended.stderr);
}

#[test]
fn a_host_with_less_memory_than_its_node_is_named() {
    let ended = refused(&two_jobs().replace("memory: 150MiB", "memory: 900TiB"));
    assert!(ended.stderr.contains("this machine has"), "{}", ended.stderr);
}
