//! Hostile ranks: whatever a rank tries ends its own job at most, with a reason in the journal. The jobs
//! beside it verify their results, no node is lost, the run ends in time, and nothing is left.
//!
//! The attacks are those of the example program `hostile`, whose table says how the job of each must end.
//! Those of a group run one after the other, a few at a time, in one run on two virtual nodes.

use std::{fs, process::Command, time::Duration};

use coswitch_ckpt::Criu;
use coswitch_daemon::serve::try_criu;
use coswitch_examples::Program;
use coswitch_report::journal::{Event, JobOutcome};
use coswitch_tests::{
    master::{Ended, Master},
    parts,
};
use nix::unistd::dup;

/// Whose the attackers are; the bystanders are root's. Those at ports are root's as well: ranks of other
/// users reach none.
const ATTACKER: &str = "nobody";
const AT_PORTS: &str = "network";
/// For all attacks of a group.
const LIMIT: Duration = Duration::from_secs(120);
/// Of the attacks of a group, one begins after the other.
const BEGIN_EVERY_MS: usize = 350;

/// A line of the program's table.
#[derive(Debug)]
struct Attack {
    name: String,
    group: String,
    needs: String,
    end: String,
    /// Each of them will do; none: any.
    reasons: Vec<String>,
}

impl Attack {
    fn may_run(&self) -> bool {
        match self.needs.as_str() {
            "nothing" | "user" => true,
            // It has a test of its own.
            "limits" => false,
            other => panic!("{} needs {other}", self.name),
        }
    }

    /// What is wrong with the end of its job.
    fn check(&self, outcome: &JobOutcome) -> Result<(), String> {
        let said = match outcome {
            JobOutcome::Exit(code) => format!("exit code {code}"),
            JobOutcome::Signal(signal) => format!("signal {signal}"),
            JobOutcome::Failed(reason) => reason.clone(),
        };
        let is_well = *outcome == JobOutcome::Exit(0);
        let has_reason =
            self.reasons.is_empty() || self.reasons.iter().any(|reason| said.contains(reason.as_str()));
        let is_right = match self.end.as_str() {
            "fails" => !is_well && has_reason && !said.is_empty() && !said.contains("time limit"),
            "ends-well" => is_well,
            _ => !said.is_empty(),
        };
        if is_right { Ok(()) } else { Err(format!("{}: {said}", self.name)) }
    }
}

fn attacks() -> Vec<Attack> {
    let listed = Command::new(parts::programs().path(Program::Hostile)).arg("--list").output();
    let listed = String::from_utf8(listed.expect("hostile starts").stdout).expect("plain text");
    let attack = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [name, group, needs, end, reason, what] = columns[..] else { panic!("columns of {line}") };
        assert!(!what.is_empty(), "{name} does not say what it tries");
        let reasons = reason.split('|').filter(|reason| !reason.is_empty()).map(str::to_owned).collect();
        let [name, group, needs, end] = [name, group, needs, end].map(str::to_owned);
        Attack { name, group, needs, end, reasons }
    };
    listed.lines().map(attack).collect()
}

/// Jobs that verify their results, before and beside the attacks.
const BYSTANDERS: &str = r#"
  - name: bystander-ring
    command: ["{bin}/ring-check", --rounds, "300", --max-bytes, 256KiB]
    ranks: 4
    memory: 80MiB
  - name: bystander-heat
    command: ["{bin}/heat", --memory, 24MiB, --seconds, "1"]
    ranks: 2
    memory: 60MiB
"#;
const BYSTANDER_NAMES: [&str; 2] = ["bystander-ring", "bystander-heat"];

fn outcome(ended: &Ended, job: &str) -> JobOutcome {
    serde_json::from_value(ended.job(job)["outcome"].clone()).expect("the report has its outcome")
}

fn run(scheduler: &str, attacks: &[Attack]) {
    let job = |(nth, attack): (usize, &Attack)| {
        let (name, arrival) = (&attack.name, nth * BEGIN_EVERY_MS);
        let user = if attack.group == AT_PORTS { "root" } else { ATTACKER };
        format!(
            "  - name: {name}\n    command: [\"{{bin}}/hostile\", --attack, {name}]\n    ranks: 2\n    \
             memory: 60MiB\n    arrival: {arrival}ms\n    time_limit: 40s\n    user: {user}\n"
        )
    };
    let jobs: String = attacks.iter().enumerate().map(job).collect();
    let master = Master::run(&format!(
        "cluster: {{nodes: 2, memory: 6GiB, store: \"{{store}}\"}}\nscheduler: {scheduler}\n\
         jobs:{BYSTANDERS}{jobs}"
    ));
    let out = master.out();
    let ended = master.end_with(LIMIT, Duration::from_secs(2), || {
        for name in BYSTANDER_NAMES {
            let said = fs::read_to_string(out.join(name).join("rank-0.out")).unwrap_or_default();
            assert!(said.contains("VERIFICATION SUCCESSFUL"), "{name} said {said:?}");
        }
    });
    let outcome = |name: &str| outcome(&ended, name);
    for name in BYSTANDER_NAMES {
        assert_eq!(outcome(name), JobOutcome::Exit(0), "{name}: {ended:?}");
    }
    let wrong: Vec<String> =
        attacks.iter().filter_map(|attack| attack.check(&outcome(&attack.name)).err()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{ended:#?}");
    let lost = ended.events.iter().find(|event| matches!(event.kind, Event::NodeLost { .. }));
    assert!(lost.is_none(), "{lost:?}\n{}", ended.stderr);
    let journal = format!("{:?} {:?}", ended.events, ended.report);
    assert!(!journal.contains("root:x:0"), "a file that a rank may not read is in the journal");
}

/// All jobs at once: the attacks of a group beside the bystanders.
fn all_of(group: &str) {
    let attacks: Vec<Attack> =
        attacks().into_iter().filter(|attack| attack.group == group && attack.may_run()).collect();
    assert!(attacks.len() > 4, "there are attacks of the group {group}");
    run("{policy: cosched, wait: spin-block}", &attacks);
}

#[test]
fn a_rank_that_writes_to_its_segment_ends_its_own_job_at_most() {
    all_of("segment");
}

#[test]
fn a_rank_that_forges_messages_of_its_launcher_ends_its_own_job() {
    all_of("messages");
}

#[test]
fn a_rank_that_breaks_the_pmi_protocol_ends_its_own_job_at_most() {
    all_of("pmi");
}

#[test]
fn a_rank_that_abuses_processes_and_signals_ends_its_own_job_at_most() {
    all_of("process");
}

#[test]
fn a_rank_that_replaces_files_ends_its_own_job_at_most() {
    all_of("files");
}

#[test]
fn a_rank_that_attacks_the_ports_of_its_node_stops_nobody() {
    all_of(AT_PORTS);
}

const KNOCKS: &str = r#"
cluster: {nodes: 2, memory: 1GiB, store: "{store}"}
scheduler: {policy: cosched}
jobs:
  - name: knocks
    user: nobody
    command: ["{bin}/hostile", --attack, ports-junk]
    ranks: 2
    memory: 60MiB
"#;

#[test]
fn a_rank_of_an_ordinary_user_reaches_no_port() {
    let mut master = Master::run(KNOCKS);
    master.wait_until("its end", LIMIT, |master| {
        master.events().iter().any(|event| matches!(event.kind, Event::JobFinished { .. }))
    });
    let ended = master.end(LIMIT, Duration::from_secs(2));
    let said = ended.job("knocks")["last_output"].as_str().unwrap_or_default();
    assert!(said.contains("nobody listens here"), "{said}");
}

/// The other job is larger when memory is out, and takes no more than it has said.
const BOMB: &str = r#"
cluster: {nodes: 1, memory: 400MiB, store: "{store}"}
scheduler: {policy: cosched}
jobs:
  - {name: large, command: ["{bin}/heat", --memory, 200MiB, --seconds, "4"], ranks: 1, memory: 230MiB}
  - name: bomb
    user: nobody
    command: ["{bin}/hostile", --attack, memory-bomb]
    ranks: 1
    memory: 100MiB
    arrival: 1500ms
"#;

#[test]
fn a_rank_that_takes_all_memory_ends_its_own_job_and_not_a_larger_one() {
    let master = Master::run(BOMB);
    let ended = master.end(LIMIT, Duration::from_secs(2));
    assert_eq!(outcome(&ended, "large"), JobOutcome::Exit(0), "{}", ended.stderr);
    let bomb = format!("{:?}", outcome(&ended, "bomb"));
    assert!(bomb.contains("memory"), "{bomb}");
}

/// The attack `rseq-section`, as `coswitch doctor` and daemons try it on a CRIU that they do not know.
#[test]
fn no_process_runs_in_the_place_of_this_criu() {
    let criu = Criu::locate().expect("`cargo xtask setup` installs one");
    criu.prepare().expect("the kernel can be probed");
    try_criu(&criu, &parts::installation().launcher).expect("it is closed");
}

/// Whoever starts `doctor` in a container has its session outside, and a file from outside may be open.
#[test]
fn a_criu_is_tried_in_a_container_too() {
    let mut doctor = Command::new("unshare");
    doctor.args(["--pid", "--fork", "--mount-proc"]).arg(parts::coswitch()).arg("doctor");
    let outside = fs::File::open("/dev/null").expect("it is there");
    let inherited = dup(&outside).expect("a descriptor is free");
    let printed = doctor.output().expect("util-linux is installed").stdout;
    drop(inherited);
    let printed = String::from_utf8_lossy(&printed);
    assert!(printed.contains("could not run in its place"), "{printed}");
}

/// The cuts, dumps and restores of these jobs come at any moment of the attack.
const WHILE_SWITCHING: [&str; 10] = [
    "cut-to-half",
    "holes",
    "chunks-free",
    "random-always",
    "end-in-order",
    "message-flood",
    "segment-replaced",
    "stop-itself",
    "see-others",
    "rseq-section",
];

#[test]
fn attacks_of_jobs_that_take_turns_hurt_no_other_job() {
    let is_one = |attack: &Attack| WHILE_SWITCHING.contains(&attack.name.as_str());
    let attacks: Vec<Attack> = attacks().into_iter().filter(is_one).collect();
    assert_eq!(attacks.len(), WHILE_SWITCHING.len());
    let scheduler = "{policy: gang, quantum: 500ms, switching: sequential, residency: none}";
    run(scheduler, &attacks);
}

#[test]
fn there_are_attacks_of_every_kind_and_each_has_a_name_of_its_own() {
    let attacks = attacks();
    let mut names: Vec<&str> = attacks.iter().map(|attack| attack.name.as_str()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count >= 40, "{count} attacks");
    for end in ["fails", "ends-well", "either"] {
        assert!(attacks.iter().any(|attack| attack.end == end), "none {end}");
    }
}
