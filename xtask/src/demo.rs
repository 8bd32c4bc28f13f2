//! `cargo xtask demo`: set-up, release build, a run of the demo's job set, and verdicts on its results.
//! `cargo xtask demo cluster` shows a cluster that stays instead ([`cluster`]).

mod cluster;
mod evidence;
mod verdict;
mod warm;

use crate::command;
use crate::setup;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use evidence::Evidence;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use verdict::Verdict;

const JOB_SET: &str = "examples/hybrid.yaml";
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const RUN_LIMIT: Duration = Duration::from_secs(900);
const REPORT_LIMIT: Duration = Duration::from_secs(30);

/// Options of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to show [default: a run of jobs that do not fit into memory together].
    #[arg(value_enum)]
    what: Option<What>,
    #[command(flatten)]
    setup: setup::Args,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// A cluster that stays: jobs come while others run, and its master and a daemon are killed.
    Cluster,
}

/// Fails where a job fails, or where a claim of the demo does not hold.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::run(&args.setup)?;
    let workspace = Workspace::new(&args.setup)?;
    command::show(&mut workspace.build("release"), BUILD_LIMIT).context("the release build failed")?;
    command::show(&mut workspace.make_programs(), BUILD_LIMIT)
        .context("the example programs do not compile")?;
    warm::memory();
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let out = PathBuf::from(format!("coswitch-runs/demo-{now}"));
    match args.what {
        None => run_job_set(&workspace, &out),
        Some(What::Cluster) => cluster::show(&workspace, &out),
    }
}

fn run_job_set(workspace: &Workspace, out: &Path) -> Result<()> {
    let mut coswitch = workspace.program("coswitch");
    let status = watch(coswitch.arg("run").arg(JOB_SET).arg("--out").arg(out))?;
    ensure!(status.success(), "coswitch ended with {status}; its logs: {}", out.display());
    let mut report = workspace.program("coswitch");
    let report = command::run(report.args(["--output", "json", "report"]).arg(out), REPORT_LIMIT)?;
    judge(&workspace.root().join(out), &report)
}

/// Runs a program that owns the terminal. Ctrl-C is for it: it ends its jobs, and we go on afterwards.
fn watch(command: &mut Command) -> Result<ExitStatus> {
    extern "C" fn leave_it_to_the_child(_: nix::libc::c_int) {}
    let handler = SigHandler::Handler(leave_it_to_the_child);
    let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing, so it is safe at any instant.
    let before = unsafe { sigaction(Signal::SIGINT, &action)? };
    let mut child =
        command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start {command:?}"))?;
    let status = command::wait(&mut child, RUN_LIMIT)?;
    // SAFETY: `before` was the action of this signal until now.
    unsafe { sigaction(Signal::SIGINT, &before)? };
    status.with_context(|| format!("the run did not end within {} s", RUN_LIMIT.as_secs()))
}

fn judge(out: &Path, report: &str) -> Result<()> {
    let evidence = Evidence::collect(out, report)?;
    conclude(out, &verdict::all(&evidence))
}

fn conclude(out: &Path, verdicts: &[Verdict]) -> Result<()> {
    println!("\nWhat this has shown:");
    verdicts.iter().for_each(|verdict| println!("  {verdict}"));
    println!("\nOutputs of the ranks, logs of the daemons and the journal: {}", out.display());
    println!("The same report again: coswitch report {}", out.display());
    if verdicts.iter().all(|verdict| verdict.holds) {
        return Ok(());
    }
    bail!("a claim of the demo does not hold")
}
