//! A process tree like those that a daemon switches, under `criu dump` and `criu restore` called by hand.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use coswitch_ckpt::Criu;
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::{
    bare::{self, Part, Plan},
    stage::{self, PATIENCE},
};

/// The directory of the daemons' snapshots as well.
pub(crate) const STORE: &str = "/var/tmp";
const OPTIONS: [&str; 1] = ["--manage-cgroups=ignore"];
/// The network lock that needs no other program.
pub(crate) const LOCK: &str = "nftables";
/// For trees without connections.
pub(crate) const NO_LOCK: &str = "skip";

/// One rank under its PID 1, running or dumped.
pub(crate) struct Tree {
    criu: PathBuf,
    dir: TempDir,
    part: Part,
    /// Way of locking the network.
    pub(crate) lock: &'static str,
    /// The images, while it is dumped.
    images: Option<TempDir>,
}

impl Tree {
    /// Starts it, and waits for `words` in its output. PID 1 dies with the calling thread.
    pub(crate) fn start(command: &[&str], words: &str) -> Result<Self> {
        let criu = Criu::locate()?.program().to_path_buf();
        let dir = tempfile::tempdir()?;
        let plan = Plan {
            dir: dir.path(),
            rank: 0,
            world: 1,
            command,
            driver: true,
            env: &[],
            cgroup_procs: vec![],
        };
        let (segment, spec) = plan.prepare()?;
        let tree =
            Self { criu, part: Part::new(bare::start(&spec)?, segment), lock: LOCK, dir, images: None };
        stage::until_said(tree.dir.path(), words)?;
        Ok(tree)
    }

    pub(crate) fn dump(&mut self) -> Result<()> {
        let images = tempfile::tempdir_in(STORE)?;
        let root = self.part.root.to_string();
        self.criu("dump", &images, &["--tree", &root])?;
        self.images = Some(images);
        bare::reap(self.part.root, PATIENCE)?;
        Ok(())
    }

    pub(crate) fn restore(&mut self) -> Result<()> {
        let images = self.images.as_ref().context("it is not dumped")?;
        self.criu("restore", images, &["--restore-detached", "--restore-sibling", "--pidfile", "pid"])?;
        let pid = std::fs::read_to_string(images.path().join("pid")).context("criu names no process")?;
        self.part.root = Pid::from_raw(pid.trim().parse()?);
        Ok(())
    }

    pub(crate) fn rank(&self) -> Pid {
        *coswitch_ckpt::processes::tree(self.part.root).last().expect("a tree has a root")
    }

    /// Removes the images of a restored tree.
    pub(crate) fn forget_images(&mut self) {
        self.images = None;
    }

    /// Waits for the end of the command only, as a shell would.
    fn criu(&self, act: &str, images: &TempDir, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.criu);
        command.arg(act).args(arguments).args(OPTIONS).arg("--images-dir").arg(images.path());
        command.args([
            "--network-lock",
            self.lock,
            "--log-file",
            &format!("{act}.log"),
            "--timeout",
            &PATIENCE.as_secs().to_string(),
        ]);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = quiet.status().context("failed to start criu")?;
        if !status.success() {
            let log = std::fs::read_to_string(images.path().join(format!("{act}.log"))).unwrap_or_default();
            let errors: Vec<&str> = log.lines().filter(|line| line.contains("Error")).collect();
            bail!("criu {act} ended with {status}:\n{}", errors.join("\n"));
        }
        Ok(())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if self.images.is_none() {
            bare::end(self.part.root);
        }
    }
}
