//! Self-test of a CRIU: it dumps and restores a real process.

use super::kerndat;
use crate::command;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// Runs the test; leaves neither process nor file behind, also after a failure.
pub(super) fn run(binary: &Path) -> Result<()> {
    kerndat::make(binary)?;
    let images = Images::new()?;
    let mut target = Target::spawn()?;
    let dumped = dump(binary, &target, &images);
    target.end();
    dumped.with_context(|| images.log("dump.log"))?;
    let restored = restore(binary, &images).with_context(|| images.log("restore.log"))?;
    let name = fs::read_to_string(format!("/proc/{restored}/comm")).unwrap_or_default();
    kill(restored, Signal::SIGKILL).context("the restored process is not there")?;
    waitpid(restored, None)?;
    ensure!(name.trim() == "sleep", "the restored process is not the dumped one but '{}'", name.trim());
    Ok(())
}

fn dump(binary: &Path, target: &Target, images: &Images) -> Result<()> {
    let mut command = criu(binary, "dump", images);
    command.args(["--tree", &target.0.id().to_string()]);
    command::run(&mut command, LIMIT).map(drop)
}

/// Restores as our own child (`--restore-sibling`: CRIU's sibling), so that we can reap it.
fn restore(binary: &Path, images: &Images) -> Result<Pid> {
    let pid_file = images.0.join("pid");
    let mut command = criu(binary, "restore", images);
    command.args(["--restore-detached", "--restore-sibling", "--pidfile"]).arg(&pid_file);
    command::run(&mut command, LIMIT)?;
    let pid = fs::read_to_string(&pid_file)?;
    Ok(Pid::from_raw(pid.trim().parse().context("criu wrote no process id")?))
}

fn criu(binary: &Path, act: &str, images: &Images) -> Command {
    let mut command = Command::new(binary);
    command.arg(act).arg("--images-dir").arg(&images.0);
    command.args(["--network-lock", "nftables", "-v4", "--log-file", &format!("{act}.log")]);
    command
}

/// A process with nothing special about it, in a session of its own.
struct Target(Child);

impl Target {
    fn spawn() -> Result<Target> {
        let mut command = Command::new("setsid");
        command.args(["sleep", "600"]).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let target = Target(command.spawn().context("cannot start a process to dump")?);
        // setsid must have become sleep before the dump, for the check of the name afterwards.
        let comm = format!("/proc/{}/comm", target.0.id());
        for _ in 0..1000 {
            if fs::read_to_string(&comm)?.trim() == "sleep" {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(target)
    }

    /// Kills it, unless CRIU has, and reaps it: this frees its process id for the restore.
    fn end(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A directory for the images, removed at the end.
struct Images(PathBuf);

impl Images {
    fn new() -> Result<Images> {
        let dir = std::env::temp_dir().join(format!("coswitch-self-test-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Images(dir))
    }

    /// The errors in CRIU's log.
    fn log(&self, name: &str) -> String {
        let log = fs::read_to_string(self.0.join(name)).unwrap_or_default();
        let errors: Vec<&str> = log.lines().filter(|line| line.contains("Error")).take(10).collect();
        errors.join("\n")
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}
