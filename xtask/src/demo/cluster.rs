//! `cargo xtask demo cluster`: users bring jobs to a cluster while others run; its master is killed, and then
//! one of its daemons. Every job ends with the right results, and nothing is left.

use super::evidence::Evidence;
use super::verdict::{self, Verdict};
use super::{REPORT_LIMIT, conclude};
use crate::command;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CLUSTER: &str = "examples/cluster.yaml";
/// Of a command that does not wait for jobs.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// For all jobs to end.
const RUN_LIMIT: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(100);
/// How long the cluster is without a master.
const PAUSE: Duration = Duration::from_secs(3);
/// What the first users bring: names, sizes and times of jobs that do not fit together.
const FIRST: [&[&str]; 2] = [
    &[
        "--array",
        "1-3",
        "--memory",
        "215MiB",
        "--",
        "examples/mpi/bin/heat",
        "--memory",
        "170MiB",
        "--seconds",
        "4",
    ],
    &["--memory", "60MiB", "--", "examples/mpi/bin/cg", "--class", "A", "--seconds", "4"],
];
/// What another user brings while these run.
const LATER: &[&str] =
    &["--array", "1-2", "--memory", "130MiB", "--", "examples/mpi/bin/is", "--class", "A", "--seconds", "3"];

/// Shows it, and judges what it has shown.
pub(super) fn show(workspace: &Workspace, out: &Path) -> Result<()> {
    let mut cluster = Cluster { workspace, out: workspace.root().join(out), master: None };
    cluster.serve("A cluster of two nodes of 448 MiB is served.")?;
    for job in FIRST {
        cluster.submit(job)?;
    }
    cluster.wait_until("a job to be parked", |jobs| count(jobs, &["parked"]) > 0)?;
    say("The jobs need three times the memory of a node: they take turns. Another user brings two more.");
    cluster.submit(LATER)?;
    cluster.tell(&["top", "--once"])?;

    let ranks = cluster.kill_master()?;
    cluster.serve("The same command takes the cluster over.")?;
    cluster.tell(&["queue", "--all"])?;

    let daemon = cluster.kill_daemon()?;
    cluster.wait_until("the jobs to go on", |jobs| count(jobs, &["running", "done"]) > 0)?;
    cluster.tell(&["queue", "--all"])?;

    say("All jobs are waited for.");
    command::run(cluster.command().arg("wait"), RUN_LIMIT).context("a job has failed")?;
    cluster.judge(ranks, daemon)
}

/// A cluster that is served for this demo, at a socket of its own.
struct Cluster<'a> {
    workspace: &'a Workspace,
    out: PathBuf,
    master: Option<Child>,
}

impl Cluster<'_> {
    fn command(&self) -> Command {
        let mut coswitch = self.workspace.program("coswitch");
        coswitch.env("COSWITCH_SOCKET", self.out.with_extension("sock"));
        coswitch
    }

    /// Starts a master, and waits until it answers.
    fn serve(&mut self, what: &str) -> Result<()> {
        say(what);
        let mut serve = self.command();
        serve.args(["serve", "--quiet", CLUSTER, "--out"]).arg(&self.out);
        self.master = Some(serve.stdin(Stdio::null()).spawn().context("cannot start coswitch")?);
        self.wait_until("the cluster to be served", |_| true)
    }

    fn submit(&self, job: &[&str]) -> Result<()> {
        self.tell(&[&["submit", "--ranks", "2"], job].concat())
    }

    /// Runs a command as a user does, and shows it with what it prints.
    fn tell(&self, arguments: &[&str]) -> Result<()> {
        println!("\n$ coswitch {}", arguments.join(" "));
        print!("{}", command::run(self.command().args(arguments), ANSWER_LIMIT)?);
        Ok(())
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = self.command();
        command.args(["--output", "json"]).args(arguments);
        Ok(serde_json::from_str(&command::run(&mut command, REPORT_LIMIT)?)?)
    }

    /// Asks until the jobs are as they should be.
    fn wait_until(&mut self, what: &str, is_so: impl Fn(&[Value]) -> bool) -> Result<()> {
        let began = Instant::now();
        loop {
            if let Ok(queue) = self.json(&["queue", "--all"])
                && is_so(queue["jobs"].as_array().map_or(&[], Vec::as_slice))
            {
                return Ok(());
            }
            let master = self.master.as_mut().context("there is no master")?;
            ensure!(
                master.try_wait()?.is_none(),
                "coswitch serve has ended; its logs: {}",
                self.out.display()
            );
            ensure!(began.elapsed() < ANSWER_LIMIT, "waited {} s for {what}", ANSWER_LIMIT.as_secs());
            std::thread::sleep(POLL);
        }
    }

    /// What a new master has to know.
    fn state(&self) -> Result<Value> {
        let state = fs::read(self.out.join("cluster.json")).context("cannot read the cluster's state")?;
        Ok(serde_json::from_slice(&state)?)
    }

    /// Returns how many ranks run on without a master.
    fn kill_master(&mut self) -> Result<usize> {
        say("The master is killed (kill -9). Its jobs run on.");
        let mut master = self.master.take().context("there is no master")?;
        master.kill()?;
        master.wait()?;
        std::thread::sleep(PAUSE);
        let run = self.state()?["run"].as_str().context("the cluster has a name")?.to_owned();
        let ranks = ranks_of(&run);
        println!("{ranks} ranks are in memory without a master");
        Ok(ranks)
    }

    /// Returns the process that was killed.
    fn kill_daemon(&mut self) -> Result<i32> {
        let process = self.state()?["nodes"]["virtual"]["daemons"][1]["process"]["pid"].as_i64();
        let daemon = process.and_then(|pid| i32::try_from(pid).ok()).context("there is no daemon")?;
        say(&format!("The daemon of node-1, process {daemon}, is killed (kill -9), and with it its node."));
        kill(Pid::from_raw(daemon), Signal::SIGKILL)?;
        Ok(daemon)
    }

    fn judge(mut self, ranks: usize, daemon: i32) -> Result<()> {
        let events = fs::read_to_string(self.out.join("journal.jsonl"))?;
        let kinds: Vec<String> = events.lines().filter_map(kind_of).collect();
        let times = |kind: &str| kinds.iter().filter(|found| *found == kind).count();
        let mut verdicts = Vec::new();
        let taken_over = times("master-replaced") == 1 && ranks > 0;
        let claim =
            format!("the master was killed while {ranks} ranks were in memory; the next one took over");
        verdicts.push(Verdict { claim, holds: taken_over });
        let back = times("node-lost") == 1 && times("node-back") == 1;
        let claim = format!("the daemon {daemon} was killed; its node is back, and its jobs went on");
        verdicts.push(Verdict { claim, holds: back });

        say("The cluster is ended (SIGTERM).");
        let mut master = self.master.take().context("there is no master")?;
        kill(Pid::from_raw(master.id().cast_signed()), Signal::SIGTERM)?;
        let ended = command::wait(&mut master, ANSWER_LIMIT)?;
        let ended_well = ended.is_some_and(|status| status.success());
        let removed = self.json(&["clean"])?["removed"].as_array().map_or(0, Vec::len);
        let claim = "the cluster has ended, and left nothing behind".to_owned();
        verdicts.push(Verdict { claim, holds: ended_well && removed == 0 });

        let mut report = self.workspace.program("coswitch");
        let report = report.args(["--output", "json", "report"]).arg(&self.out);
        let report = command::run(report, REPORT_LIMIT)?;
        verdicts.insert(0, verdict::verified(&Evidence::collect(&self.out, &report)?));
        conclude(&self.out, &verdicts)
    }
}

impl Drop for Cluster<'_> {
    /// Ends the cluster also where the demo has failed.
    fn drop(&mut self) {
        if let Some(master) = &mut self.master {
            kill(Pid::from_raw(master.id().cast_signed()), Signal::SIGTERM).ok();
            command::wait(master, ANSWER_LIMIT).ok();
        }
    }
}

fn say(what: &str) {
    println!("\n── {what}");
}

/// How many jobs are in one of these states.
fn count(jobs: &[Value], states: &[&str]) -> usize {
    jobs.iter().filter(|job| job["state"].as_str().is_some_and(|state| states.contains(&state))).count()
}

/// How many processes in the cgroups of a cluster run a program of the demo.
fn ranks_of(run: &str) -> usize {
    let is_rank = |process: &Path| {
        let read = |file: &str| fs::read_to_string(process.join(file)).unwrap_or_default();
        ["heat", "cg", "is"].contains(&read("comm").trim()) && read("cgroup").contains(run)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter(|process| is_rank(&process.path())).count()
}

fn kind_of(line: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line).ok()?;
    event["kind"].as_str().map(str::to_owned)
}
