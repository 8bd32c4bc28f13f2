//! Tests of the start and end of applications, with programs that do not use MPI.

use std::{
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, symlink},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use coswitch_launcher::{
    Reply, StartError,
    protocol::{ExitStatus, LauncherCommand, LauncherEvent},
};
use coswitch_ring::Segment;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::harness::{LAUNCHER, Node, Setup, eventually, exited, processes_in, ranks_with};

const SUCCESS: ExitStatus = ExitStatus::Exited(0);
const KILLED: ExitStatus = ExitStatus::Signaled(9);

#[test]
fn ranks_that_succeed_are_reported_and_their_output_is_kept() {
    let setup = Setup::sh(2, "echo out $PMI_RANK of $PMI_SIZE; echo err $COSWITCH_LOCAL >&2; pwd");
    for rank in 0..2 {
        fs::write(setup.path(&format!("rank-{rank}.out")), "earlier\n").unwrap();
    }
    let mut node = setup.launch(&[0, 1]);
    let events = node.events_to_end();
    assert_eq!(events[0], LauncherEvent::Ready);
    assert_eq!(ranks_with(&events, &SUCCESS), [0, 1].into());
    assert_eq!(setup.read("rank-1.out"), format!("earlier\nout 1 of 2\n{}\n", setup.dir.path().display()));
    assert_eq!((setup.read("rank-0.err"), setup.read("rank-1.err")), ("err 0\n".into(), "err 1\n".into()));
    assert_eq!(setup.read("launcher.log"), "");
}

#[test]
fn a_rank_has_its_users_umask_and_its_output_is_private() {
    let setup = Setup::sh(1, "umask; : > made; mkdir made-too");
    let (segment, mut spec) = setup.prepare(&[0]);
    spec.umask = 0o027;
    let events = Node::start(segment, &spec).unwrap().events_to_end();
    assert_eq!(ranks_with(&events, &SUCCESS), [0].into());
    assert_eq!(setup.read("rank-0.out"), "0027\n");
    let mode = |name: &str| fs::metadata(setup.path(name)).unwrap().mode() & 0o7777;
    assert_eq!(["made", "made-too"].map(mode), [0o640, 0o750]);
    assert_eq!(["rank-0.out", "rank-0.err", "launcher.log"].map(mode), [0o600; 3]);
}

#[test]
fn output_never_goes_through_a_link() {
    let setup = Setup::sh(1, "echo secret");
    let (segment, spec) = setup.prepare(&[0]);
    fs::write(setup.path("victim"), "mine").unwrap();
    symlink(setup.path("victim"), setup.path("rank-0.out")).unwrap();
    let events = Node::start(segment, &spec).unwrap().events_to_end();
    match &events[..] {
        [LauncherEvent::RankExited { rank: 0, status: ExitStatus::ExecFailed(reason) }] => {
            assert!(reason.contains("rank-0.out") && reason.contains("symbolic links"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(setup.read("victim"), "mine");
}

#[test]
fn missing_program_is_named() {
    let mut node = Setup::new(2, &["/nowhere/program"]).launch(&[0, 1]);
    match &node.events_to_end()[..] {
        [LauncherEvent::RankExited { rank: 0, status: ExitStatus::ExecFailed(reason) }] => {
            assert!(reason.contains("/nowhere/program") && reason.contains("No such file"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn first_rank_ends_if_the_second_cannot_be_started() {
    let setup = Setup::sh(2, "sleep 1000");
    let (segment, mut spec) = setup.prepare(&[0, 1]);
    spec.ranks[1].stdout = setup.path("no/such/directory");
    let events = Node::start(segment, &spec).unwrap().events_to_end();
    assert!(matches!(&events[0], LauncherEvent::RankExited { rank: 1, status: ExitStatus::ExecFailed(_) }));
    assert_eq!(events[1..], [exited(0, KILLED)]);
}

#[test]
fn rank_killed_by_a_signal_is_reported_first_and_the_others_end() {
    let mut node = Setup::sh(3, "test $PMI_RANK = 1 && kill -SEGV $$; sleep 1000").launch(&[0, 1, 2]);
    let events = node.events_to_end();
    assert_eq!(events[..2], [LauncherEvent::Ready, exited(1, ExitStatus::Signaled(11))]);
    assert_eq!(ranks_with(&events, &KILLED), [0, 2].into());
}

#[test]
fn failed_rank_ends_the_others() {
    let mut node = Setup::sh(2, "test $PMI_RANK = 0 && exit 3; sleep 1000").launch(&[0, 1]);
    let events = node.events_to_end();
    assert_eq!(events, [LauncherEvent::Ready, exited(0, ExitStatus::Exited(3)), exited(1, KILLED)]);
}

#[test]
fn rank_that_succeeds_does_not_end_the_others() {
    let mut node = Setup::sh(2, "test $PMI_RANK = 0 && exit 0; sleep 0.3").launch(&[0, 1]);
    assert_eq!(node.events_to_end(), [LauncherEvent::Ready, exited(0, SUCCESS), exited(1, SUCCESS)]);
}

#[test]
fn orphans_of_a_rank_end_with_the_application() {
    let orphan = "trap '' TERM HUP; touch here; exec sleep 1000";
    let script =
        format!("(setsid sh -c \"{orphan}\" &); (exit 0 &); until test -e here; do sleep 0.01; done");
    let mut node = Setup::sh(1, &script).launch(&[0]);
    // `events_to_end` checks that no process is left.
    assert_eq!(node.events_to_end(), [LauncherEvent::Ready, exited(0, SUCCESS)]);
}

#[test]
fn daemon_can_end_an_application() {
    let mut node = Setup::sh(2, "sleep 1000").launch(&[0, 1]);
    assert_eq!(node.next(), LauncherEvent::Ready);
    node.send(&LauncherCommand::Kill);
    assert_eq!(ranks_with(&node.events_to_end(), &KILLED), [0, 1].into());
}

#[test]
fn sigterm_ends_an_application() {
    let mut node = Setup::sh(2, "sleep 1000").launch(&[0, 1]);
    assert_eq!(node.next(), LauncherEvent::Ready);
    kill(Pid::from_raw(node.pid), Signal::SIGTERM).unwrap();
    assert_eq!(ranks_with(&node.events_to_end(), &KILLED), [0, 1].into());
}

#[test]
fn death_of_the_daemon_ends_the_application() {
    let setup = Setup::sh(2, "sleep 1000");
    let (segment, mut spec) = setup.prepare(&[0, 1]);
    // A shell takes the role of the daemon, so that it can be killed.
    let script = "read go; \"$1\" < \"$2\" > \"$3\"; read forever";
    let files = [LAUNCHER.into(), setup.path("spec"), setup.path("reply")];
    let mut daemon = std::process::Command::new("sh");
    daemon.args(["-c", script, "sh"]).args(&files).stdin(Stdio::piped());
    let mut daemon = daemon.spawn().unwrap();
    spec.daemon_pid = daemon.id();
    fs::write(&files[1], serde_json::to_vec(&spec).unwrap()).unwrap();
    daemon.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    eventually("started", || setup.read("reply").ends_with("\"Started\"\n"));
    let Ok(Reply::Born { pid }) = serde_json::from_str(setup.read("reply").lines().next().unwrap()) else {
        panic!("{}", setup.read("reply"))
    };
    let namespace = crate::harness::namespace_of(pid).unwrap();
    eventually("two ranks and their sleeps", || processes_in(namespace).len() >= 3);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    eventually("no process is left", || processes_in(namespace).is_empty());
    drop(segment);
}

#[test]
fn no_rank_starts_for_a_daemon_that_is_not_the_parent() {
    let setup = Setup::sh(1, "echo started");
    let (segment, mut spec) = setup.prepare(&[0]);
    spec.daemon_pid = 1;
    let error = Node::start(segment, &spec).err().expect("refused");
    assert!(matches!(&error, StartError::Refused(reason) if reason.contains("daemon is gone")), "{error}");
    assert_eq!(setup.read("rank-0.out"), "");
}

#[test]
fn failed_start_names_the_missing_file() {
    let setup = Setup::sh(2, "echo started");
    let (segment, good) = setup.prepare(&[0, 1]);
    let refused = |change: &dyn Fn(&mut coswitch_launcher::LauncherSpec), word: &str| {
        let mut spec = good.clone();
        change(&mut spec);
        let error = Node::start(Arc::clone(&segment), &spec).err().expect("refused");
        assert!(matches!(&error, StartError::Refused(reason) if reason.contains(word)), "{word}: {error}");
    };
    refused(&|spec| spec.segment = "/nowhere/segment".into(), "/nowhere/segment");
    refused(&|spec| spec.log = "/nowhere/log".into(), "/nowhere/log");
    refused(&|spec| spec.cgroup_procs = vec!["/nowhere/cgroup.procs".into()], "/nowhere/cgroup.procs");
    refused(&|spec| spec.ranks[1].rank = 0, "local rank 1 that is rank 0");
    assert_eq!(setup.read("rank-0.out"), "");
}

#[test]
fn process_tree_holds_no_descriptor_that_leads_out_and_takes_no_time_when_idle() {
    let setup = Setup::sh(2, "exec sleep 1000");
    let mut node = setup.launch(&[0, 1]);
    assert_eq!(node.next(), LauncherEvent::Ready);
    let pids = node.wait_for_processes(3);
    let open = |pid| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let mut kinds: Vec<String> = fds
            .map(|fd| fs::read_link(fd.unwrap().path()).unwrap().display().to_string())
            .map(|link| link.replace(&setup.dir.path().display().to_string(), ""))
            .map(|link| link.split(":[").next().unwrap().to_owned())
            .collect();
        kinds.sort_unstable();
        kinds
    };
    let own =
        ["/dev/null", "/launcher.log", "/launcher.log", "anon_inode:[eventfd]", "anon_inode:[signalfd]"];
    let own = own.map(|kind| kind.split(":[").next().unwrap().to_owned());
    assert_eq!(open(pids[0]), [&own[..], &["socket".into(), "socket".into()]].concat());
    for (rank, pid) in pids[1..].iter().enumerate() {
        let status = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        eventually("asleep", || status().starts_with("Name:\tsleep\n") && status().contains("State:\tS"));
        let outputs = [format!("/rank-{rank}.err"), format!("/rank-{rank}.out")];
        assert_eq!(
            open(*pid),
            [&["/dev/null".into()][..], &outputs, &["/segment-0".into(), "socket".into()]].concat()
        );
        assert!(status().contains("SigBlk:\t0000000000000000"), "no signal is blocked in a rank");
    }
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", node.pid)).unwrap();
        let words: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        words[11].parse::<u64>().unwrap() + words[12].parse::<u64>().unwrap()
    };
    let before = ticks();
    std::thread::sleep(Duration::from_secs(2));
    assert!(ticks() - before <= 1, "an idle launcher takes no processor time");
}

#[test]
fn application_starts_in_the_given_cgroups() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let v2 = mounts.lines().find_map(|line| line.split(' ').nth(1).filter(|_| line.contains(" cgroup2 ")));
    let group =
        format!("{}/coswitch-launcher-test-{}", v2.expect("cgroup v2 is mounted"), std::process::id());
    fs::create_dir(&group).unwrap();
    let setup = Setup::sh(1, "exec sleep 1000");
    let (segment, mut spec) = setup.prepare(&[0]);
    spec.cgroup_procs = vec![format!("{group}/cgroup.procs").into()];
    let node = Node::start(segment, &spec).unwrap();
    let pids = node.wait_for_processes(2);
    let members = fs::read_to_string(format!("{group}/cgroup.procs")).unwrap();
    drop(node);
    eventually("an empty cgroup", || fs::remove_dir(&group).is_ok());
    assert!(pids.iter().all(|pid| members.lines().any(|line| line == pid.to_string())), "{members}");
}

#[test]
fn invalid_message_in_the_segment_ends_the_application() {
    let setup = Setup::sh(1, "sleep 1000");
    let mut node = setup.launch(&[0]);
    assert_eq!(node.next(), LauncherEvent::Ready);
    let segment = Arc::new(Segment::open(setup.path("segment-0")).unwrap());
    let mut port = coswitch_ring::MessagePort::daemon_side(segment);
    assert!(port.send(&[7, 7, 7]));
    let status = node.reap();
    assert_eq!(status, nix::sys::wait::WaitStatus::Exited(Pid::from_raw(node.pid), 1));
    assert!(processes_in(node.namespace).is_empty());
    assert!(setup.read("launcher.log").contains("message of the daemon"), "{}", setup.read("launcher.log"));
}
