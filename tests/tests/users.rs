//! Jobs of ordinary users: their ranks have that user's rights and no others, before and after switches, what
//! they write is the user's, and nobody gains anything by changing files between a dump and its restore.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use coswitch_report::journal::Event;
use coswitch_tests::{
    cluster::RUN_LIMIT,
    master::{Answered, Master},
    serving::{VERIFIED, accepted, end, serve, state, switches},
};

const NOBODY: u32 = 65534;
/// Of every Debian.
const DAEMON: u32 = 1;
const ROOT: u32 = 0;

/// Three jobs of 90 MiB on each node, which take turns by images.
const RUN: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 700ms, switching: sequential, residency: none}
jobs:
  - name: nobodys
    user: nobody
    command: ["{bin}/heat", --memory, 40MiB, --seconds, "4"]
    ranks: 2
    memory: 90MiB
  - name: daemons
    user: "1"
    command: ["{bin}/ring-check", --max-bytes, 64KiB, --seconds, "4"]
    ranks: 4
    memory: 45MiB
  - {name: roots, command: ["{bin}/cg", --class, S, --seconds, "4"], ranks: 2, memory: 90MiB}
"#;

/// A field of the status of a process; `None` where it has ended.
fn status(process: u32, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Some(line?.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

/// The switches so far, and whether one is under way: then CRIU may be making a process, which is not yet
/// what it will be.
fn switching(master: &Master) -> (usize, bool) {
    let events = master.events();
    let count = |is: fn(&Event) -> bool| events.iter().filter(|event| is(&event.kind)).count();
    let begun = count(|event| matches!(event, Event::SwitchStarted { .. }));
    (begun, begun > count(|event| matches!(event, Event::SwitchEnded { .. })))
}

/// What the ranks of a program have: ids, capabilities, whether they may gain rights, and how readily the
/// kernel ends them where memory is out.
fn ranks(master: &Master, program: &str) -> Vec<Vec<String>> {
    let of = |process: &u32| {
        let comm = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
        let fields = ["Uid", "Gid", "CapBnd", "CapEff", "NoNewPrivs"].map(|field| status(*process, field));
        let score = fs::read_to_string(format!("/proc/{process}/oom_score_adj")).ok();
        let score = score.map(|text| text.trim().to_owned());
        fields.into_iter().chain([score]).collect::<Option<_>>().filter(|_| comm.trim() == program)
    };
    master.processes(program).iter().filter_map(of).collect()
}

/// Checks each rank that is there between two switches; returns how many were.
fn check_ranks(master: &Master, program: &str, user: u32, score: &str) -> usize {
    let before = switching(master);
    let found = ranks(master, program);
    // Until the journal has what happened meanwhile.
    thread::sleep(Duration::from_millis(50));
    if before.1 || before != switching(master) {
        return 0;
    }
    let ids = [user; 4].map(|id| id.to_string()).join(" ");
    for rank in &found {
        assert_eq!(rank[..2], [ids.clone(), ids.clone()], "{program}");
        let is_confined = rank[2..5] == ["0000000000000000", "0000000000000000", "1"];
        assert_eq!(is_confined, user != ROOT, "{program}: {rank:?}");
        assert_eq!(rank[5], score, "{program}");
    }
    found.len()
}

#[test]
fn ranks_are_their_users_before_and_after_switches() {
    let mut master = Master::run(RUN);
    // What 90 and 45 MiB leave of a node, in thousandths.
    let programs = [("heat", NOBODY, "400"), ("ring-check", DAEMON, "700"), ("cg", ROOT, "400")];
    let seen = std::cell::RefCell::new([0; 3]);
    master.wait_until("some turns", RUN_LIMIT, |master| {
        for (place, (program, user, score)) in programs.into_iter().enumerate() {
            seen.borrow_mut()[place] += check_ranks(master, program, user, score);
        }
        switches(&master.events()) >= 6
    });
    assert!(seen.borrow().iter().all(|ranks| *ranks > 0), "{seen:?}");
    let out = master.out();
    for (job, user, ranks) in [("nobodys", NOBODY, 2), ("daemons", DAEMON, 4), ("roots", ROOT, 2)] {
        assert_eq!(fs::metadata(out.join(job)).expect("its directory").uid(), user, "{job}");
        for rank in 0..ranks {
            let file = fs::metadata(out.join(job).join(format!("rank-{rank}.out"))).expect("its output");
            assert_eq!((file.uid(), file.mode() & 0o777), (user, 0o600), "{job}");
        }
    }
    let ended = master.end_with(RUN_LIMIT, Duration::from_secs(10), || {
        for job in ["nobodys", "daemons", "roots"] {
            let said = fs::read_to_string(out.join(job).join("rank-0.out")).expect("its output");
            assert_eq!(said.matches(VERIFIED).count(), 1, "{job}: {said}");
        }
    });
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

const CLUSTER: &str = r#"
cluster: {nodes: 2, memory: 150MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 800ms, residency: none}
"#;

/// A directory of user `nobody`, who can reach the cluster.
fn home(master: &Master) -> PathBuf {
    let above = master.out().parent().expect("it has a directory").to_owned();
    fs::set_permissions(&above, fs::Permissions::from_mode(0o711)).expect("it is our own");
    let home = above.join("home");
    fs::create_dir(&home).expect("a directory");
    chown(&home, Some(NOBODY), Some(NOBODY)).expect("root may");
    home
}

/// What the cluster answers to user `nobody`.
fn nobody(master: &Master, home: &Path, arguments: &[&str]) -> Answered {
    let own = master.command(arguments);
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(own.get_program());
    command.args(own.get_args()).current_dir(home);
    for (name, value) in own.get_envs() {
        value.map(|value| command.env(name, value));
    }
    Answered::of(&mut command)
}

fn endless(master: &Master, home: &Path, options: &[&str]) -> Answered {
    let program = format!("{}/ring-check", coswitch_tests::parts::program_directory());
    let fixed = ["submit", "-n", "2", "-m", "40MiB"];
    let command = ["--", &program, "--rounds", "100000000", "--max-bytes", "64KiB"];
    nobody(master, home, &[&fixed, options, &command].concat())
}

#[test]
fn a_user_brings_jobs_of_their_own_and_sees_and_ends_no_others() {
    let mut master = serve(CLUSTER);
    let home = home(&master);
    let heat = format!("{}/heat", coswitch_tests::parts::program_directory());
    let roots = accepted(&master.user(&["submit", "-n", "2", "-m", "90MiB", "--", &heat, "--seconds", "3"]));
    let own = nobody(
        &master,
        &home,
        &["submit", "-n", "2", "-m", "90MiB", "--name", "own", "--", &heat, "--seconds", "3"],
    );
    assert_eq!(accepted(&own), ["own"]);
    let refused = endless(&master, &home, &["--priority", "5"]);
    assert!(refused.stderr.contains("only root gives a priority above 0"), "{refused:?}");
    let seen = nobody(&master, &home, &["queue", "--all"]);
    let jobs = seen.json["jobs"].as_array().expect("a list");
    assert_eq!(jobs.iter().map(|job| &job["name"]).collect::<Vec<_>>(), ["own"]);
    assert_eq!(nobody(&master, &home, &["cancel", &roots[0]]).code, Some(2));
    master.wait_until("the ends", RUN_LIMIT, |master| {
        [&roots[0], "own"].iter().all(|job| state(master, job) == "done")
    });
    let said = nobody(&master, &home, &["cat", "own"]);
    assert_eq!(said.stdout.matches(VERIFIED).count(), 1, "{said:?}");
    let output = home.join("coswitch-own/rank-0.out");
    assert_eq!(fs::metadata(&output).expect("in their directory").uid(), NOBODY);
    end(master);
}

#[test]
fn a_link_to_a_secret_in_the_place_of_output_gives_nobody_the_secret() {
    let mut master = serve(CLUSTER);
    let home = home(&master);
    assert_eq!(accepted(&endless(&master, &home, &["--name", "thief"])), ["thief"]);
    master.wait_until("it runs", RUN_LIMIT, |master| state(master, "thief") == "running");
    assert_eq!(nobody(&master, &home, &["park", "thief"]).code, Some(0));
    let output = home.join("coswitch-thief/rank-0.out");
    let secret = home.with_file_name("secret");
    // As long as the output, and with its mode: what CRIU compares.
    fs::copy(&output, &secret).expect("a secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("it is our own");
    let (before, text) =
        (fs::metadata(&secret).expect("it is there"), fs::read(&secret).expect("it is there"));
    fs::remove_file(&output).expect("nobody may");
    symlink(&secret, &output).expect("nobody may");
    nobody(&master, &home, &["resume", "thief"]);
    master.wait_until("its end", RUN_LIMIT, |master| state(master, "thief") == "failed");
    let after = fs::metadata(&secret).expect("it is there");
    assert_eq!((after.uid(), after.ino(), after.mode()), (ROOT, before.ino(), before.mode()));
    assert_eq!(fs::read(&secret).expect("it is there"), text);
    let ended = end(master);
    let why = ended.events.iter().filter_map(|event| match &event.kind {
        Event::JobFinished { .. } => serde_json::to_string(event).ok(),
        _ => None,
    });
    let why = why.collect::<Vec<_>>().join("\n");
    assert!(why.contains("rank-0.out"), "{why}");
}
