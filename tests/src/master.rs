//! A process of `coswitch run` or `coswitch serve`, started as a user does: run file, signals, report, and
//! the check for leftovers.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        MutexGuard,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use coswitch::{install::Installation, run_name::RunName};
use coswitch_daemon::{cgroup::Hierarchies, node};
use coswitch_report::journal::{self, RunEvent};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::{
    STORE, TestDir,
    hosts::Hosts,
    leftovers::{Leftovers, MARK},
    parts,
};

const RUN_FILE: &str = "jobs.yaml";
const PARTS: &str = "parts";
const POLL: Duration = Duration::from_millis(20);
/// For a user's command: those that wait for jobs take as long as these.
const USER_LIMIT: Duration = Duration::from_secs(300);

/// A running master.
pub struct Master {
    // Dropped in this order: the process ends before its directory is removed.
    process: KillOnDrop,
    _nodes: EndOnDrop,
    program: PathBuf,
    arguments: Vec<String>,
    /// How it reaches other machines.
    ssh: Option<String>,
    test_dir: TestDir,
    leftovers: Leftovers,
    mark: String,
    _turn: MutexGuard<'static, ()>,
}

/// What a user's command printed.
#[derive(Debug)]
pub struct Answered {
    pub code: Option<i32>,
    /// Standard output, where it is JSON.
    pub json: Value,
    pub stdout: String,
    pub stderr: String,
}

impl Answered {
    /// What a command answers.
    ///
    /// # Panics
    /// If it cannot be started, or has no end.
    #[must_use]
    pub fn of(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let running = command.spawn().expect("it starts");
        let pid = Pid::from_raw(running.id().cast_signed());
        let (has_ended, ended) = mpsc::channel();
        let watch = thread::spawn(move || {
            let in_time = ended.recv_timeout(USER_LIMIT).is_ok();
            in_time || kill(pid, Signal::SIGKILL).is_err()
        });
        let answer = running.wait_with_output().expect("it ends");
        let _ = has_ended.send(());
        let in_time = watch.join().expect("the watch does not panic");
        assert!(in_time, "it has not ended within {USER_LIMIT:?}: {command:?}");
        Self {
            code: answer.status.code(),
            json: serde_json::from_slice(&answer.stdout).unwrap_or_default(),
            stdout: String::from_utf8_lossy(&answer.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&answer.stderr).into_owned(),
        }
    }
}

/// Results of a master that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub report: Option<Value>,
    /// Standard error.
    pub stderr: String,
    pub events: Vec<RunEvent>,
    _test_dir: TestDir,
}

impl Master {
    /// Starts a master with a run file. In its text `{bin}` stands for the directory of the example programs
    /// and `{store}` for a directory for snapshots.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn run(run_file: &str) -> Self {
        Self::with_arguments(&["run"], run_file)
    }

    /// As [`Master::run`], with other arguments: `run` and its options, or another command that runs a job
    /// set.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn with_arguments(arguments: &[&str], run_file: &str) -> Self {
        Self::start(&[arguments, &["--quiet"]].concat(), None, None, run_file)
    }

    /// As [`Master::with_arguments`], from a copy of the programs ([`Master::parts`]), which the test may
    /// replace.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn with_own_parts(arguments: &[&str], run_file: &str) -> Self {
        let copied = |test_dir: &TestDir| {
            let parts = test_dir.path().join(PARTS);
            fs::create_dir(&parts).expect("a directory for programs");
            let Installation { daemon, launcher, driver, preload } = parts::installation();
            for part in [parts::coswitch(), daemon, launcher, driver, preload] {
                let name = part.file_name().expect("a program has a name");
                fs::copy(&part, parts.join(name)).expect("a copy of a program");
            }
            parts.join("coswitch")
        };
        Self::start_from(copied, &[arguments, &["--quiet"]].concat(), None, None, run_file)
    }

    /// As [`Master::with_arguments`], with these variables in its environment.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn in_environment(variables: &[(&str, String)], arguments: &[&str], run_file: &str) -> Self {
        let script = |test_dir: &TestDir| {
            let script = test_dir.path().join("coswitch-in-environment");
            let mut text = "#!/bin/sh\n".to_owned();
            for (name, value) in variables {
                text += &format!("export {name}='{value}'\n");
            }
            text += &format!("exec {} \"$@\"\n", parts::coswitch().display());
            fs::write(&script, text).expect("a script");
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it can be executed");
            script
        };
        Self::start_from(script, &[arguments, &["--quiet"]].concat(), None, None, run_file)
    }

    /// As [`Master::with_arguments`], and the master tells its progress on standard error.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn telling(arguments: &[&str], run_file: &str) -> Self {
        Self::start(arguments, None, None, run_file)
    }

    /// As [`Master::run`], with its live view and its log on `stderr`.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn showing(stderr: Stdio, run_file: &str) -> Self {
        Self::start(&["run"], Some(stderr), None, run_file)
    }

    /// As [`Master::with_arguments`], for a run file that names these machines.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn on_hosts(hosts: &Hosts, arguments: &[&str], run_file: &str) -> Self {
        Self::start(&[arguments, &["--quiet"]].concat(), None, Some(hosts.ssh()), run_file)
    }

    /// Without a `stderr` of its own it has a file.
    fn start(arguments: &[&str], stderr: Option<Stdio>, ssh: Option<String>, run_file: &str) -> Self {
        Self::start_from(|_| parts::coswitch(), arguments, stderr, ssh, run_file)
    }

    fn start_from(
        program: impl FnOnce(&TestDir) -> PathBuf,
        arguments: &[&str],
        stderr: Option<Stdio>,
        ssh: Option<String>,
        run_file: &str,
    ) -> Self {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let turn = crate::turn();
        let mark = format!("master-{}-{:03}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        let test_dir = TestDir::new(&mark);
        let dir = test_dir.path();
        let (file, store) = (dir.join(RUN_FILE), dir.join(STORE));
        fs::create_dir(&store).expect("a directory for snapshots");
        let bin = parts::program_directory();
        let text = run_file.replace("{bin}", &bin).replace("{store}", &store.display().to_string());
        fs::write(&file, text).expect("a run file");
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let program = program(&test_dir);
        let process = start(&test_dir, &program, &mark, &arguments, ssh.as_deref(), stderr);
        // The run is named after the process while it lives. A master that has already rejected its run file
        // has no name.
        let name = RunName::of(process.0.id()).map_or_else(|| mark.clone(), |name| name.to_string());
        let leftovers = Leftovers::of(&name, &mark, &[store]);
        let nodes = EndOnDrop(name);
        Self { test_dir, process, _nodes: nodes, program, arguments, ssh, leftovers, mark, _turn: turn }
    }

    /// Kills this master and leaves the cluster without one.
    pub fn kill(&mut self) {
        drop(self.process.0.kill());
        self.process.0.wait().expect("it is a child of the test");
    }

    /// Starts a master by the same command as the one before.
    pub fn start_next(&mut self) {
        self.process =
            start(&self.test_dir, &self.program, &self.mark, &self.arguments, self.ssh.as_deref(), None);
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    #[must_use]
    pub fn processes(&self, name: &str) -> Vec<u32> {
        let is_it =
            |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
        self.leftovers.processes().into_iter().filter(is_it).collect()
    }

    /// The journal so far.
    #[must_use]
    pub fn events(&self) -> Vec<RunEvent> {
        let journal = journal::salvage(&self.out().join(journal::FILE_NAME));
        journal.map(|(events, _)| events).unwrap_or_default()
    }

    /// The directory of the programs, of a master that has its own.
    #[must_use]
    pub fn parts(&self) -> PathBuf {
        self.test_dir.path().join(PARTS)
    }

    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.test_dir.path().join(STORE)
    }

    /// The answer of another command about the run file, in JSON.
    ///
    /// # Panics
    /// If the command fails.
    #[must_use]
    pub fn ask(&self, arguments: &[&str]) -> Value {
        let file = self.test_dir.path().join(RUN_FILE);
        let answer = Command::new(parts::coswitch())
            .args(arguments)
            .args(["--output", "json"])
            .arg(file)
            .current_dir(self.test_dir.path())
            .output()
            .expect("coswitch starts");
        let complaints = String::from_utf8_lossy(&answer.stderr);
        assert!(answer.status.success(), "{arguments:?}: {complaints}");
        serde_json::from_slice(&answer.stdout).expect("it answers in JSON")
    }

    /// What a user's command answers who asks the cluster that this master serves.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn user(&self, arguments: &[&str]) -> Answered {
        Answered::of(&mut self.command(arguments))
    }

    /// A user's command about the cluster that this master serves.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(parts::coswitch());
        command
            .args(["--output", "json"])
            .args(arguments)
            .env("COSWITCH_SOCKET", self.socket())
            .current_dir(self.test_dir.path());
        command
    }

    /// Where this master serves, if it is `serve --socket serve.sock`.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.test_dir.path().join("serve.sock")
    }

    /// Directory of the run's outputs and logs.
    #[must_use]
    pub fn out(&self) -> PathBuf {
        self.test_dir.path().join("out")
    }

    /// Waits until `done` holds.
    ///
    /// # Panics
    /// If that takes longer than `limit`, or the master ends before.
    pub fn wait_until(&mut self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !done(self) {
            let ended = self.process.0.try_wait().expect("the process is a child of the test");
            assert!(ended.is_none(), "{} ended before {what}: {ended:?}", self.mark);
            assert!(began.elapsed() < limit, "waited {limit:?} for {what}");
            thread::sleep(POLL);
        }
    }

    /// Sends a signal to the master.
    ///
    /// # Panics
    /// If it has ended.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).expect("the master runs");
    }

    /// Waits for the end of the master, and until nothing is left of the run.
    ///
    /// # Panics
    /// If it does not end within `limit`, or something is left for longer than `clean`.
    pub fn end(self, limit: Duration, clean: Duration) -> Ended {
        self.end_with(limit, clean, || ())
    }

    /// As [`Master::end`]; calls `look` before the run's directory is removed.
    ///
    /// # Panics
    /// As [`Master::end`].
    #[must_use]
    pub fn end_with(mut self, limit: Duration, clean: Duration, look: impl FnOnce()) -> Ended {
        let status = self.wait(limit);
        look();
        self.leftovers.assert_nothing_left(clean);
        let events = self.events();
        let read = |name| fs::read_to_string(self.test_dir.path().join(name)).unwrap_or_default();
        let (report, stderr) = (read("report.json"), read("master.err"));
        Ended {
            code: status.code(),
            report: serde_json::from_str(&report).ok(),
            stderr,
            events,
            _test_dir: self.test_dir,
        }
    }

    /// Waits until this master has ended by itself.
    ///
    /// # Panics
    /// If it does not end in time.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.process.0.try_wait().expect("the process is a child of the test") {
                return status;
            }
            assert!(began.elapsed() < limit, "coswitch run did not end within {limit:?}");
            thread::sleep(POLL);
        }
    }
}

fn start(
    test_dir: &TestDir,
    program: &Path,
    mark: &str,
    arguments: &[String],
    ssh: Option<&str>,
    stderr: Option<Stdio>,
) -> KillOnDrop {
    let dir = test_dir.path();
    let open = |name| File::options().create(true).append(true).open(dir.join(name)).expect("a file");
    let process = Command::new(program)
        .args(arguments)
        .args(["--output", "json", "--out"])
        .arg(dir.join("out"))
        .arg(dir.join(RUN_FILE))
        .env(MARK, mark)
        .envs(ssh.map(|ssh| ("COSWITCH_SSH", ssh)))
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(open("report.json"))
        .stderr(stderr.unwrap_or_else(|| open("master.err").into()))
        .spawn();
    KillOnDrop(process.expect("coswitch starts"))
}

/// The nodes of this run, which may stand without a master: they are ended on drop, when a test fails.
struct EndOnDrop(String);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        let hierarchies = Hierarchies::find().expect("cgroups are mounted");
        for name in node::leftovers(&hierarchies).into_iter().filter(|name| name.contains(&self.0)) {
            if node::standing_daemon(&name).is_some() || node::has_watcher(&name) {
                let _ = node::end(&hierarchies, &name, POLL * 500);
            }
        }
    }
}

/// A process that is killed on drop, when a test fails.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ended {
    /// The entry of a job in the report.
    ///
    /// # Panics
    /// If there is no report, or no such job in it.
    #[must_use]
    pub fn job(&self, name: &str) -> &Value {
        let jobs = self.report.as_ref().and_then(|report| report["jobs"].as_array());
        let found = jobs.and_then(|jobs| jobs.iter().find(|job| job["name"] == name));
        found.unwrap_or_else(|| panic!("no job {name} in the report of {self:?}"))
    }
}
