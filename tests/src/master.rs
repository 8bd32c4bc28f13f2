//! `coswitch run` as a user starts it: a process, a run file, a report. Nothing may be left of it, however it ends.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use coswitch::{
    journal::{self, RunEvent},
    run_name::RunName,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::{
    Papers, STORE, parts,
    traces::{MARK, Traces},
};

const POLL: Duration = Duration::from_millis(20);

/// A running master.
pub struct Master {
    // Dropped in this order: it ends before its papers go.
    process: Living,
    papers: Papers,
    traces: Traces,
    mark: String,
    _turn: MutexGuard<'static, ()>,
}

/// What a master has come to.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None`: a signal ended it.
    pub code: Option<i32>,
    /// What it printed on standard output.
    pub report: Option<Value>,
    /// What it printed on standard error.
    pub complaints: String,
    /// Its journal.
    pub events: Vec<RunEvent>,
    _papers: Papers,
}

impl Master {
    /// Starts it on a run file; `{bin}` in its text stands for the directory of the example programs, `{store}` for
    /// a directory for snapshots.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn run(run_file: &str) -> Self {
        Self::told(&["run"], run_file)
    }

    /// The same with other arguments: `run` and its options, or another command that runs a job set.
    ///
    /// # Panics
    /// Where it cannot be started.
    #[must_use]
    pub fn told(arguments: &[&str], run_file: &str) -> Self {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let turn = crate::turn();
        let mark = format!("master-{}-{:03}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        let papers = Papers::new(&mark);
        let dir = papers.path();
        let (file, store) = (dir.join("jobs.yaml"), dir.join(STORE));
        fs::create_dir(&store).expect("a directory for snapshots");
        let null = parts::programs().path(coswitch_examples::Program::Null);
        let bin = null.parent().expect("programs lie in a directory").display().to_string();
        let text = run_file.replace("{bin}", &bin).replace("{store}", &store.display().to_string());
        fs::write(&file, text).expect("a run file");
        let create = |name| File::create(dir.join(name)).expect("a file");
        let process = Command::new(parts::coswitch())
            .args(arguments)
            .args(["--quiet", "--output", "json", "--out"])
            .arg(dir.join("out"))
            .arg(&file)
            .env(MARK, &mark)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(create("report.json"))
            .stderr(create("master.err"))
            .spawn()
            .map(Living)
            .expect("coswitch starts");
        // The run is named after the process as long as that lives. One that has refused its run file by now has none.
        let name = RunName::of(process.0.id()).map_or_else(|| mark.clone(), |name| name.to_string());
        let traces = Traces::of(&name, &mark, &[store]);
        Self { papers, process, traces, mark, _turn: turn }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// The processes of the run whose name (`comm`) is that.
    #[must_use]
    pub fn processes(&self, name: &str) -> Vec<u32> {
        let is_it =
            |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
        self.traces.processes().into_iter().filter(is_it).collect()
    }

    /// What has happened so far.
    #[must_use]
    pub fn events(&self) -> Vec<RunEvent> {
        journal::read(&self.papers.path().join("out").join(journal::FILE_NAME)).unwrap_or_default()
    }

    /// The directory that `{store}` stands for.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.papers.path().join(STORE)
    }

    /// The run's directory: outputs and logs.
    #[must_use]
    pub fn out(&self) -> PathBuf {
        self.papers.path().join("out")
    }

    /// Waits until `done`.
    ///
    /// # Panics
    /// Where that takes longer than `limit`, or the master ends before.
    pub fn until(&mut self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !done(self) {
            let ended = self.process.0.try_wait().expect("it is our child");
            assert!(ended.is_none(), "{} ended before {what}: {ended:?}", self.mark);
            assert!(began.elapsed() < limit, "waited {limit:?} for {what}");
            thread::sleep(POLL);
        }
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// Where it has ended already.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).expect("it runs");
    }

    /// Waits for its end, and until nothing is left of the run.
    ///
    /// # Panics
    /// Where it does not end within `limit`, or leaves something for longer than `clean`.
    pub fn end(self, limit: Duration, clean: Duration) -> Ended {
        self.end_with(limit, clean, || ())
    }

    /// The same; `look` sees the run's directory before it is removed.
    ///
    /// # Panics
    /// As [`Master::end`].
    #[must_use]
    pub fn end_with(mut self, limit: Duration, clean: Duration, look: impl FnOnce()) -> Ended {
        let status = self.wait(limit);
        look();
        self.traces.assert_nothing_left(clean);
        let events = self.events();
        let read = |name| fs::read_to_string(self.papers.path().join(name)).unwrap_or_default();
        let (report, complaints) = (read("report.json"), read("master.err"));
        Ended {
            code: status.code(),
            report: serde_json::from_str(&report).ok(),
            complaints,
            events,
            _papers: self.papers,
        }
    }

    fn wait(&mut self, limit: Duration) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.process.0.try_wait().expect("it is our child") {
                return status;
            }
            assert!(began.elapsed() < limit, "coswitch run did not end within {limit:?}");
            thread::sleep(POLL);
        }
    }
}

/// A test that fails while the master runs ends it.
struct Living(Child);

impl Drop for Living {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ended {
    /// What the report says of a job.
    ///
    /// # Panics
    /// Where there is no report, or no such job in it.
    #[must_use]
    pub fn job(&self, name: &str) -> &Value {
        let jobs = self.report.as_ref().and_then(|report| report["jobs"].as_array());
        let found = jobs.and_then(|jobs| jobs.iter().find(|job| job["name"] == name));
        found.unwrap_or_else(|| panic!("no job {name} in the report of {self:?}"))
    }
}
