//! Privacy of a run: no other user can read what its jobs hold in memory and write, a name that somebody has
//! planted beforehand is refused and not followed, and ranks keep the umask of their user.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use coswitch::run_name::RunName;
use coswitch_dispatcher::provisioning::{
    DaemonsRequest, LinkRules, Provisioning, Tier,
    virtual_nodes::{self, VirtualNodes, VirtualRequest},
};
use coswitch_policies::Bytes;
use coswitch_report::journal::Event;
use coswitch_tests::{
    cluster::{RUN_LIMIT, STEP_LIMIT},
    master::Master,
    parts,
};
use nix::sys::{
    signal::Signal,
    stat::{Mode, umask},
};

const NOBODY: u32 = 65534;
/// Neither the usual umask nor that of coswitch, and open to user `nobody`. Both tests work with it.
const USER_UMASK: u32 = 0o032;

/// Two gangs that never end and take turns by images.
const ENDLESS: &str = r#"
cluster: {nodes: 2, memory: 192MiB, store: "{store}"}
scheduler: {policy: gang, quantum: 700ms, switching: sequential, residency: none}
jobs:
  - name: traffic
    command: ["{bin}/ring-check", --rounds, "100000000", --max-bytes, 256KiB]
    ranks: 4
    memory: 80MiB
  - name: cg
    command: ["{bin}/cg", --class, A, --repeat, "100000"]
    ranks: 2
    memory: 90MiB
"#;

/// Reads and lists as user `nobody` each path of its standard input; writes what did not fail for lack of
/// permission.
const PROBE: &str = r#"
while IFS= read -r path; do
    if error=$(head -c 1 -- "$path" 2>&1 >/dev/null); then echo "read $path"
    else case $error in *"Permission denied"*) ;; *) echo "$error" ;; esac; fi
    if ls -- "$path" >/dev/null 2>&1 && [ -d "$path" ]; then echo "listed $path"; fi
done"#;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is our own");
}

/// All files and directories below some, and these themselves. What vanishes meanwhile is left out.
fn walk(roots: &[PathBuf]) -> Vec<(PathBuf, fs::Metadata)> {
    let (mut pending, mut found) = (roots.to_vec(), Vec::new());
    while let Some(path) = pending.pop() {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        let entries = metadata.is_dir().then(|| fs::read_dir(&path).ok()).flatten();
        pending.extend(entries.into_iter().flatten().flatten().map(|entry| entry.path()));
        found.push((path, metadata));
    }
    found
}

/// What user `nobody` could read or list of these.
fn readable_by_nobody(paths: impl Iterator<Item = PathBuf>) -> Vec<String> {
    let mut shell = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", PROBE])
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("setpriv starts");
    let mut input = shell.stdin.take().expect("piped");
    let text = paths.map(|path| path.display().to_string() + "\n").collect::<String>();
    let writer = thread::spawn(move || input.write_all(text.as_bytes()));
    let output = shell.wait_with_output().expect("the shell ends");
    writer.join().expect("writing does not panic").expect("the shell reads its input");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn switches(master: &Master) -> usize {
    let moved = |kind: &Event| matches!(kind, Event::SwitchEnded { bytes_out, .. } if bytes_out.0 > 0);
    master.events().iter().filter(|event| moved(&event.kind)).count()
}

fn holds(paths: &[(PathBuf, fs::Metadata)], name: &str) -> bool {
    paths.iter().any(|(path, _)| path.file_name().is_some_and(|found| found == name))
}

/// The umask of a process; `None` where it has ended.
fn umask_of(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

/// The directories of a run of two nodes, which coswitch has made.
fn directories(master: &Master) -> Vec<PathBuf> {
    let name = RunName::of(master.pid()).expect("the master runs").to_string();
    let of_node = |number: u32| {
        let node = format!("{name}-n{number}");
        let own = format!("coswitch-{node}");
        [Path::new("/dev/shm").join(&own), Path::new("/run/coswitch").join(node), master.store().join(own)]
    };
    [&of_node(0)[..], &of_node(1), &[master.out()]].concat()
}

/// Those that are not private files and directories of root.
fn open_ones(found: &[(PathBuf, fs::Metadata)]) -> Vec<String> {
    let is_private = |found: &fs::Metadata| match found.mode() {
        0o040700 | 0o100600 => found.uid() == 0,
        _ => false,
    };
    let open = found.iter().filter(|(_, found)| !is_private(found));
    open.map(|(path, found)| format!("{} {:o} of {}", path.display(), found.mode(), found.uid())).collect()
}

fn all_have_umask(processes: &[u32], wanted: u32) -> bool {
    !processes.is_empty() && processes.iter().all(|pid| umask_of(*pid) == Some(wanted))
}

#[test]
fn nobody_else_reads_what_a_run_with_parked_jobs_has_made_and_ranks_keep_their_umask() {
    umask(Mode::from_bits_truncate(USER_UMASK));
    let mut master = Master::run(ENDLESS);
    let public = master.out().parent().expect("it lies in the directory of the test").to_path_buf();
    // As /var/tmp: whatever is open in there is coswitch's doing.
    [&public, &master.store()].into_iter().for_each(|dir| set_mode(dir, 0o755));
    let control = public.join("control");
    fs::write(&control, "x").expect("a file");
    set_mode(&control, 0o644);
    let roots = directories(&master);

    // Each job has been out and back by then.
    master.wait_until("switches", RUN_LIMIT, |master| switches(master) >= 4);
    let whole = ["pages.cws", "core-1.img", "manifest.json", "segment", "rank-0.out", "store.json"];
    master.wait_until("images", RUN_LIMIT, |_| {
        let found = walk(&roots);
        whole.iter().all(|name| holds(&found, name))
    });
    for _ in 0..10 {
        let found = walk(&roots);
        let paths = found.iter().map(|(path, _)| path.clone()).chain([control.clone()]);
        assert_eq!(readable_by_nobody(paths), [format!("read {}", control.display())]);
        assert_eq!(open_ones(&found), Vec::<String>::new(), "of {}", found.len());
        thread::sleep(Duration::from_millis(100));
    }
    for program in ["ring-check", "cg"] {
        let have_it = |master: &Master| all_have_umask(&master.processes(program), USER_UMASK);
        master.wait_until("ranks with their umask", STEP_LIMIT, have_it);
    }
    assert!(all_have_umask(&master.processes("coswitchd"), 0o077) && all_have_umask(&[master.pid()], 0o077));
    master.signal(Signal::SIGINT);
    assert_eq!(master.end(RUN_LIMIT, Duration::from_secs(10)).code, Some(130));
}

/// A place where user `nobody` has planted something, and the run whose node would use that name.
struct Planted {
    run: String,
    at: PathBuf,
}

impl Drop for Planted {
    fn drop(&mut self) {
        let is_dir = self.at.symlink_metadata().is_ok_and(|found| found.is_dir());
        let _ = if is_dir { fs::remove_dir_all(&self.at) } else { fs::remove_file(&self.at) };
    }
}

/// Starts a node of that run; returns why it did not start. The daemons need a thread of their own, which
/// leaves the network namespace of the process.
fn start(run: &str, store: &Path, logs: &Path) -> String {
    let (run, store, logs) = (run.to_owned(), store.to_owned(), logs.to_owned());
    fs::create_dir(&logs).expect("a directory for logs");
    let parts = parts::installation();
    let started = thread::spawn(move || {
        let nodes = virtual_nodes::equal_nodes(1, Bytes::mib(64), &[Tier::unbounded(store)], None);
        let request = VirtualRequest {
            daemons: DaemonsRequest {
                run,
                nodes: nodes.expect("the kernel names the processors"),
                sealing_key: [7; 32].into(),
                stop_after: coswitch_tests::cluster::STEP_LIMIT,
                standing: false,
                local: None,
                links: LinkRules::default(),
                resumes: false,
                logs,
                installed: parts.into(),
            },
            rate: None,
        };
        VirtualNodes::start(&request).map(drop).map_err(|error| error.to_string())
    });
    let started = started.join().expect("starting does not panic");
    started.expect_err("a planted name is refused")
}

#[test]
fn a_name_that_somebody_has_planted_is_refused_and_never_followed() {
    umask(Mode::from_bits_truncate(USER_UMASK));
    let scratch = tempfile::tempdir().expect("a directory");
    let (store, victim) = (scratch.path().join("store"), scratch.path().join("victim"));
    fs::create_dir(&victim).expect("a directory");
    fs::create_dir(&store).expect("a directory");
    set_mode(&store, 0o1777);
    let run = |number: u32| format!("planted-{}-{number}", std::process::id());
    let name = |number: u32| format!("coswitch-{}-n0", run(number));
    let planted = [
        Planted { run: run(0), at: Path::new("/dev/shm").join(name(0)) },
        Planted { run: run(1), at: store.join(name(1)) },
        Planted { run: run(2), at: store.join(name(2)) },
    ];
    for (number, Planted { run, at }) in planted.iter().enumerate() {
        match number {
            2 => symlink(&victim, at).expect("a link"),
            _ => fs::create_dir(at).expect("a directory"),
        }
        lchown(at, Some(NOBODY), None).expect("root may");
        let logs = scratch.path().join(format!("logs-{number}"));
        let refused = start(run, &store, &logs);
        let names = [at.display().to_string(), "File exists".into()];
        assert!(names.iter().all(|name| refused.contains(name)), "{number}: {refused}");
        let left = at.symlink_metadata().expect("what others have made stays");
        assert!(number == 2 || left.is_dir() && fs::read_dir(at).expect("a directory").count() == 0);
        assert_eq!(fs::read_dir(&victim).expect("a directory").count(), 0);
        let notes = Path::new("/run/coswitch").join(format!("{run}-n0"));
        assert_eq!(notes.symlink_metadata().expect_err("the notes go").kind(), io::ErrorKind::NotFound);
    }
}
