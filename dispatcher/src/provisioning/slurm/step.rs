//! Steps of Slurm: the commands that start a program on each node of the allocation.

use std::{
    env, io,
    os::unix::process::CommandExt,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::unistd::setsid;

use crate::provisioning::{ProvisioningError, starting::wait};

/// Names another program than `srun`, with arguments before those of coswitch.
const PROGRAM: &str = "COSWITCH_SRUN";
/// Of a step that is not the daemons'.
const LIMIT: Duration = Duration::from_secs(120);
const VERSION_LIMIT: Duration = Duration::from_secs(20);
/// Slurm gives these to the script of a job, and `srun` would go by them.
const OF_SCRIPT: [&str; 9] = [
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_DISTRIBUTION",
    "SLURM_MPI_TYPE",
    "SLURM_STDINMODE",
    "SLURM_EXPORT_ENV",
];

/// The version of Slurm: year and month.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(u32, u32);

/// From this version on Slurm charges nothing for a step that only starts daemons.
const EXTERNAL_LAUNCHER: Version = Version(23, 11);

impl Version {
    /// Of `srun --version`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split_whitespace().nth(1)?.split('.');
        let mut next = || parts.next()?.parse().ok();
        Some(Self(next()?, next()?))
    }

    /// Asks the `srun` of this machine.
    pub(super) fn ask() -> Result<Self, ProvisioningError> {
        let failed = |said| ProvisioningError::Step { act: "ask for the version of Slurm", said };
        let mut srun = program();
        srun.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut srun = srun.spawn().map_err(|error| failed(format!("srun cannot be run: {error}")))?;
        let ended = wait(&mut srun, Instant::now() + VERSION_LIMIT);
        ended.ok_or_else(|| failed("srun does not answer".into()))?;
        let mut text = String::new();
        let read = srun.stdout.take().map_or(Ok(0), |mut out| io::Read::read_to_string(&mut out, &mut text));
        read.map_err(|error| failed(error.to_string()))?;
        Self::parse(&text).ok_or_else(|| failed(format!("srun says `{}`", text.trim())))
    }

    /// The option with which a step takes no resources from others. Without it `srun` waits, and says
    /// nothing.
    pub(super) fn shares(self) -> &'static str {
        if self >= EXTERNAL_LAUNCHER { "--external-launcher" } else { "--overlap" }
    }
}

fn program() -> Command {
    let words = env::var(PROGRAM).unwrap_or_default();
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("srun"));
    command.args(words);
    command
}

/// The arguments of a step that runs one process on each of these hosts; none: on all of the allocation's
/// `nodes`.
fn arguments(version: Version, job: u32, nodes: usize, hosts: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = [
        version.shares(),
        "--mpi=none",
        "--cpu-bind=none",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit",
        "--input=none",
        "--label",
    ]
    .map(str::to_owned)
    .to_vec();
    let count = if hosts.is_empty() { nodes } else { hosts.len() };
    all.extend([format!("--jobid={job}"), format!("--nodes={count}"), format!("--ntasks={count}")]);
    if !hosts.is_empty() {
        all.push(format!("--nodelist={}", hosts.join(",")));
    }
    all
}

/// The name of the daemons' step.
pub(super) const DAEMONS: &str = "coswitch-daemons";

/// What `squeue` says of a job; `None` where it does not answer.
fn squeue(arguments: &[&str], job: u32) -> Option<String> {
    let mut squeue = Command::new("squeue");
    squeue.args(["--noheader", &format!("--jobs={job}")]).args(arguments);
    let squeue = squeue.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut squeue = squeue.ok()?;
    wait(&mut squeue, Instant::now() + VERSION_LIMIT).filter(ExitStatus::success)?;
    let mut text = String::new();
    io::Read::read_to_string(&mut squeue.stdout.take()?, &mut text).ok()?;
    Some(text)
}

/// Whether the job has the step of the daemons. Where Slurm does not answer, it may have.
pub(super) fn is_made(job: u32) -> bool {
    squeue(&["--steps", "--format=%j"], job)
        .is_none_or(|text| text.lines().any(|line| line.trim() == DAEMONS))
}

/// How long the job may still run; `None` where it has no limit, or Slurm does not say.
pub(super) fn time_left(job: u32) -> Option<Duration> {
    parse_time_left(squeue(&["--format=%L"], job)?.trim())
}

/// `1-02:03:04`, `02:03:04`, `03:04` or words.
fn parse_time_left(text: &str) -> Option<Duration> {
    let (days, rest) = text.split_once('-').unwrap_or(("0", text));
    let parts: Vec<u64> = rest.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    if !(2..=3).contains(&parts.len()) {
        return None;
    }
    let seconds = parts.iter().try_fold(0u64, |sum, part| sum.checked_mul(60)?.checked_add(*part))?;
    let days = days.parse::<u64>().ok()?.checked_mul(24 * 60 * 60)?;
    Some(Duration::from_secs(days.checked_add(seconds)?))
}

/// A step, to be given its program. Of this process' environment it has `exported`, and what `srun` needs.
pub(super) fn command(
    version: Version,
    job: u32,
    nodes: usize,
    hosts: &[&str],
    exported: &[&str],
) -> Command {
    let mut command = program();
    command.args(arguments(version, job, nodes, hosts));
    // Names alone: the values are not for a command line, which every user can read.
    let names: Vec<&str> = exported.iter().copied().chain(["PATH"]).collect();
    command.arg(format!("--export={}", names.join(",")));
    for name in OF_SCRIPT {
        command.env_remove(name);
    }
    // Ctrl-C and the end of a terminal reach the processes of its session; only the master shall hear them.
    // SAFETY: between fork and exec the closure makes one system call and touches no lock and no heap.
    unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
    command.stdin(Stdio::null());
    command
}

/// Runs a step to its end; returns how it ended and the last line that it wrote.
///
/// # Errors
/// Where it cannot be started, or does not end.
pub(super) fn run(mut step: Command, act: &'static str) -> Result<(ExitStatus, String), ProvisioningError> {
    let failed = |said| ProvisioningError::Step { act, said };
    let mut srun = step
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("srun cannot be run: {error}")))?;
    let ended = wait(&mut srun, Instant::now() + LIMIT);
    let status = ended.ok_or_else(|| failed(format!("it takes longer than {} s", LIMIT.as_secs())))?;
    let output = srun.wait_with_output().map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let said = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    Ok((status, said.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_follows_from_the_version() {
        for (text, option) in [
            ("slurm-wlm 22.05.8\n", "--overlap"),
            ("slurm 23.02.7", "--overlap"),
            ("slurm 23.11.0-1", "--external-launcher"),
            ("slurm 26.05.5", "--external-launcher"),
        ] {
            assert_eq!(Version::parse(text).map(Version::shares), Some(option), "{text}");
        }
        assert_eq!(["", "srun: error", "slurm x.y"].map(Version::parse), [None; 3]);
    }

    #[test]
    fn the_time_that_is_left_is_read() {
        let seconds = |text| parse_time_left(text).map(|left| left.as_secs());
        assert_eq!(seconds("0:59"), Some(59));
        assert_eq!(seconds("1:02:03"), Some(3723));
        assert_eq!(seconds("2-00:00:01"), Some(172_801));
        assert_eq!(["UNLIMITED", "NOT_SET", "", "5", "a-1:00"].map(seconds), [None; 5]);
    }

    #[test]
    fn a_step_has_one_process_on_each_node() {
        let all = arguments(Version(22, 5), 7, 3, &[]).join(" ");
        assert_eq!(
            all,
            "--overlap --mpi=none --cpu-bind=none --ntasks-per-node=1 --kill-on-bad-exit --input=none \
             --label --jobid=7 --nodes=3 --ntasks=3"
        );
        let two = arguments(Version(24, 5), 7, 3, &["n0", "n2"]).join(" ");
        assert!(two.ends_with("--nodes=2 --ntasks=2 --nodelist=n0,n2"), "{two}");
    }
}
