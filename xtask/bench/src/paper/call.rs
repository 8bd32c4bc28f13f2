//! Child processes of an experiment: bounded in time, and ended together with this process.

use std::{
    fs::{self, File},
    io::{Read, Seek},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};

use super::{
    arm::Arm,
    experiments::Call,
    work::{self, Work},
};

/// Time for `coswitch` to end a run in good order.
const TO_END: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Flag: a signal asks to stop (Ctrl-C, SIGTERM, SIGHUP).
#[derive(Clone)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Catches these signals from now on.
    pub(super) fn listen() -> Result<Self> {
        let stop = Self(Arc::default());
        let asked = stop.0.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let in_runtime = runtime.enter();
        let [mut interrupt, mut terminate, mut hang_up] = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        drop(in_runtime);
        thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hang_up.recv() => {}
                }
            });
            asked.store(true, Ordering::Relaxed);
        });
        Ok(stop)
    }

    pub(super) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Where the run files are.
pub(super) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/paper")
}

#[derive(Deserialize)]
struct Answer {
    arms: Vec<Arm>,
}

/// Measures the jobs of a comparison alone, with the amount of work in its file.
pub(super) fn calibrate(call: &Call, limit: Duration, stop: &Stop) -> Result<Vec<Work>> {
    let text = read_example(call.file)?;
    let measure = |&(job, wanted_s): &(&str, f64)| {
        let alone = Call::of_file(call.file, "batch");
        let arms = run(&alone, &work::alone(&text, job)?, 1, limit, limit, stop)?;
        let makespan = arms.first().and_then(|arm| arm.makespan);
        let took_s = makespan.with_context(|| format!("job `{job}` alone did not end"))?.median;
        Ok(Work { job: job.into(), wanted_s, measured: work::amount(&text, job)?, took_s })
    };
    call.lasting.iter().map(measure).collect()
}

fn read_example(file: &str) -> Result<String> {
    let path = examples().join(file);
    fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
}

/// Compares the policies of `call`, whose jobs do this `work`.
pub(super) fn compare(
    call: &Call,
    work: &[Work],
    repeat: u32,
    within: Duration,
    limit: Duration,
    stop: &Stop,
) -> Result<Vec<Arm>> {
    let mut text = read_example(call.file)?;
    for (word, instead) in &call.replaced {
        ensure!(text.contains(word), "{} does not say `{word}`", call.file);
        text = text.replace(word, instead);
    }
    for work in work {
        text = work::with_amount(&text, &work.job, work.amount())?;
    }
    run(call, &text, repeat, within, limit, stop)
}

/// Runs `coswitch compare` in a temporary directory.
fn run(
    call: &Call,
    text: &str,
    repeat: u32,
    within: Duration,
    limit: Duration,
    stop: &Stop,
) -> Result<Vec<Arm>> {
    let programs =
        examples().join("../mpi/bin").canonicalize().context("failed to find the example programs")?;
    let dir = tempfile::tempdir_in("/var/tmp").context("failed to make a directory")?;
    let file = dir.path().join(call.file);
    fs::write(&file, text.replace("../mpi/bin", &programs.display().to_string()))?;
    let mut command = Command::new(crate::programs::built("coswitch")?);
    command.args(["compare", "--quiet", "--output", "json", "--policies", call.policies]);
    command.args(["--repeat", &repeat.to_string(), "--limit", &format!("{}s", limit.as_secs())]);
    // Each arm may take its limit once, and the time to begin and end a run.
    let arms = call.policies.split(',').count() * call.switching.split(',').count();
    let first_turn = (limit + TO_END) * u32::try_from(arms)?;
    command.args(["--within", &format!("{}s", within.max(first_turn).as_secs()), "--out"]);
    command.arg(dir.path().join("runs"));
    if !call.switching.is_empty() {
        command.args(["--switching", call.switching]);
    }
    command.arg(&file);
    let most = within + first_turn + limit + TO_END;
    // Exit code 1: a job failed, which the arms report.
    let text = output(command, most, &[0, 1], stop)?;
    let answer: Answer = serde_json::from_str(&text).context("the comparison is no JSON")?;
    Ok(answer.arms)
}

/// Returns the output of a program that ends in time and with one of these codes.
pub(super) fn output(mut command: Command, most: Duration, codes: &[i32], stop: &Stop) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut errors = tempfile::tempfile()?;
    let mut said = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(errors.try_clone()?);
    // Ctrl-C is for this process: a child that gets two signals does not clean up.
    command.process_group(0);
    let mut child = command.spawn().with_context(|| format!("failed to start {name}"))?;
    let deadline = Instant::now() + most;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if stop.is_asked() || Instant::now() > deadline => {
                end(&mut child)?;
                bail!(if stop.is_asked() {
                    "stopped".into()
                } else {
                    format!("{name} took more than {most:?}")
                });
            }
            None => thread::sleep(BETWEEN_LOOKS),
        }
    };
    let told = read(&mut errors)?;
    let last =
        told.lines().rev().take(4).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("; ");
    ensure!(status.code().is_some_and(|code| codes.contains(&code)), "{name} ended with {status}: {last}");
    read(&mut said)
}

/// Asks the child to end and gives it time to clean up.
fn end(child: &mut Child) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    kill(pid, Signal::SIGINT).ok();
    let deadline = Instant::now() + TO_END;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(());
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(())
}

fn read(file: &mut File) -> Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}
