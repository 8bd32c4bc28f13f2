//! Dumps and restores a launched process tree repeatedly, in the middle of its PMI conversation. Needs CRIU.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use coswitch_ckpt::{Criu, DumpRequest, RestoreRequest, SegmentFile};
use coswitch_launcher::protocol::{ExitStatus, LauncherCommand, LauncherEvent};
use nix::{sys::wait::WaitStatus, unistd::Pid};

use crate::harness::{Node, Setup, TIMEOUT, eventually, exited, namespace_of, processes_in};

/// Sends PMI requests without pause, so that at any instant a request or an answer is under way.
const CHATTER: &str = r#"
    ask() {
        echo "$1" >&$PMI_FD
        read -r -u $PMI_FD answer
        [[ $answer == $2 ]] || { echo "$1: $answer" >&2; exit 1; }
    }
    ask "cmd=init pmi_version=1 pmi_subversion=1" "*rc=0"
    for ((i = 0; i < 400; i++)); do
        ask "cmd=put kvsname=k key=a$i value=$PMI_RANK.$i" "cmd=put_result rc=0*"
        ask "cmd=get kvsname=k key=a$i" "*value=?.$i"
        echo $i
        sleep 0.002
    done
    ask "cmd=barrier_in" "cmd=barrier_out*"
    ask "cmd=get kvsname=k key=far" "*value=away"
    ask "cmd=finalize" "cmd=finalize_ack*"
"#;

/// A cgroup of the unified hierarchy that freezes the process tree.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Self {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let unified = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let mount = unified.and_then(|line| line.split(' ').nth(1)).expect("cgroup v2 is mounted");
        let path = PathBuf::from(format!("{mount}/coswitch-launcher-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn freeze(&self) {
        fs::write(self.0.join("cgroup.freeze"), "1").unwrap();
        let frozen = || fs::read_to_string(self.0.join("cgroup.events")).unwrap().contains("frozen 1");
        eventually("frozen", frozen);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        fs::write(self.0.join("cgroup.kill"), "1").unwrap();
        eventually("an empty cgroup", || fs::remove_dir(&self.0).is_ok());
    }
}

fn dump(criu: &Criu, group: &Group, setup: &Setup, node: &mut Node, cycle: usize) {
    group.freeze();
    let request = DumpRequest {
        root: Pid::from_raw(node.pid),
        freeze_cgroup: group.0.clone(),
        segment: Some(SegmentFile::at(&setup.path("segment-0")).unwrap()),
        arena: None,
        images_dir: setup.path(&format!("images-{cycle}")),
        pages_dir: setup.path(&format!("images-{cycle}")),
        work_dir: setup.path(&format!("work-{cycle}")),
        stays: false,
        confined: false,
        timeout: TIMEOUT,
    };
    criu.dump(&request).unwrap_or_else(|error| panic!("cycle {cycle}: {error}"));
    assert!(matches!(node.reap(), WaitStatus::Signaled(..)), "CRIU kills the dumped processes");
}

fn restore(criu: &Criu, group: &Group, setup: &Setup, node: &mut Node, cycle: usize) {
    let request = RestoreRequest {
        images_dir: setup.path(&format!("images-{cycle}")),
        work_dir: setup.path(&format!("work-{cycle}")),
        cgroups: vec![group.0.clone()],
        segment: None,
        outputs: Vec::new(),
        pages: None,
        arena: None,
        leave_stopped: true,
        user: None,
        timeout: TIMEOUT,
    };
    let restored = criu.restore(&request).unwrap_or_else(|error| panic!("cycle {cycle}: {error}"));
    node.on_restored(restored.root.as_raw(), namespace_of(restored.root.as_raw()).unwrap());
    restored.resume().unwrap();
}

#[test]
fn launched_tree_continues_after_dumps_at_any_instant() {
    let criu = Criu::locate().expect("CRIU is set up by `cargo xtask setup`");
    let group = Group::new("image");
    let setup = Setup::new(3, &["bash", "-c", CHATTER]);
    let (segment, mut spec) = setup.prepare(&[0, 1]);
    spec.cgroup_procs = vec![group.0.join("cgroup.procs")];
    let mut node = Node::start(segment, &spec).unwrap();
    assert_eq!(node.next(), LauncherEvent::Ready);

    let deadline = Instant::now() + TIMEOUT;
    let (mut cycle, mut fence) = (0, None);
    while fence.is_none() {
        assert!(Instant::now() < deadline, "the ranks reach their barrier: {}", setup.read("rank-0.err"));
        std::thread::sleep(Duration::from_millis(20 + 17 * (cycle as u64 % 7)));
        dump(&criu, &group, &setup, &mut node, cycle);
        restore(&criu, &group, &setup, &mut node, cycle);
        cycle += 1;
        fence = node.poll();
    }
    assert!(cycle >= 5, "{cycle} cycles");
    let Some(LauncherEvent::Fence { sequence: 1, puts }) = fence else { panic!("{fence:?}") };
    assert_eq!(puts.len(), 800);

    // The other nodes may reach the barrier first: a message of the daemon is received after the restore.
    dump(&criu, &group, &setup, &mut node, cycle);
    node.send(&LauncherCommand::FenceDone { sequence: 1, puts: vec![("far".into(), "away".into())] });
    restore(&criu, &group, &setup, &mut node, cycle);
    let mut events = node.events_to_end();
    events.sort_by_key(|event| matches!(event, LauncherEvent::RankExited { rank: 1, .. }));
    assert_eq!(
        events,
        [0, 1].map(|rank| exited(rank, ExitStatus::Exited(0))),
        "{}",
        setup.read("rank-0.err")
    );
    let all: String = (0..400).map(|line| format!("{line}\n")).collect();
    assert_eq!([setup.read("rank-0.out"), setup.read("rank-1.out")], [all.clone(), all]);
    assert_eq!(setup.read("launcher.log"), "");
}

#[test]
fn restored_tree_dies_with_its_daemon() {
    let criu = Criu::locate().expect("CRIU is set up by `cargo xtask setup`");
    let group = Group::new("death");
    let setup = Setup::sh(2, "exec sleep 1000");
    let (segment, mut spec) = setup.prepare(&[0, 1]);
    spec.cgroup_procs = vec![group.0.join("cgroup.procs")];
    let mut node = Node::start(segment, &spec).unwrap();
    assert_eq!(node.next(), LauncherEvent::Ready);
    node.wait_for_processes(3);
    dump(&criu, &group, &setup, &mut node, 0);

    // A shell takes the role of the next daemon, so that it can be killed.
    let restore =
        "restore -d --restore-sibling --manage-cgroups=ignore --network-lock nftables -o restore.log";
    let script = format!("\"$0\" {restore} -D \"$1\" -W \"$2\" --pidfile pid && echo back; read forever");
    let mut daemon = Command::new("sh");
    daemon.args(["-c", &script]).arg(criu.program()).args([setup.path("images-0"), setup.path("work-0")]);
    let daemon = daemon.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut daemon = daemon.unwrap();
    let mut answer = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    assert_eq!(answer, "back\n", "{}", setup.read("work-0/restore.log"));
    let pid = setup.read("work-0/pid").trim().parse().unwrap();
    let namespace = namespace_of(pid).unwrap();
    assert_eq!(processes_in(namespace).len(), 3);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    eventually("no process is left", || processes_in(namespace).is_empty());
}
