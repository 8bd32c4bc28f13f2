//! A program under coswitch's launcher without a daemon: this process makes the segment and answers the
//! launcher.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use coswitch_launcher::{
    LauncherSpec, RankSpec,
    protocol::{Assembler, ExitStatus, LauncherCommand, LauncherEvent, encode},
};
use coswitch_ring::{MessagePort, Segment, SegmentSpec};
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use crate::{programs, stage::PATIENCE};

/// One node's part of an application.
pub(crate) struct Part {
    /// PID 1 of its namespace.
    pub(crate) root: Pid,
    port: MessagePort,
    events: Assembler<LauncherEvent>,
}

/// A launch of one rank of `world` on each node.
pub(crate) struct Plan<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) command: &'a [&'a str],
    /// Whether it uses our driver; otherwise `env` names the provider.
    pub(crate) driver: bool,
    pub(crate) env: &'a [(&'a str, &'a str)],
    pub(crate) cgroup_procs: Vec<std::path::PathBuf>,
}

impl Plan<'_> {
    /// Makes the segment; the names of a rank's files hold its number.
    pub(crate) fn prepare(&self) -> Result<(Arc<Segment>, LauncherSpec)> {
        let segment = self.dir.join(format!("segment-{}", self.rank));
        let driver = programs::built("libcoswitch_fi.so")?;
        let provider_dir =
            self.driver.then(|| driver.parent().expect("a file is in a directory").to_path_buf());
        let own = self.env.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let spec = LauncherSpec {
            application: format!("bench-{}", std::process::id()),
            daemon_pid: std::process::id(),
            outlives: false,
            cgroup_procs: self.cgroup_procs.clone(),
            segment: segment.clone(),
            provider_dir,
            world_size: self.world,
            ranks: vec![RankSpec {
                rank: self.rank,
                local: 0,
                stdout: self.dir.join(format!("rank-{}.out", self.rank)),
                stderr: self.dir.join(format!("rank-{}.err", self.rank)),
            }],
            command: self.command.iter().map(ToString::to_string).collect(),
            program: None,
            env: std::env::vars().chain(own).collect(),
            cwd: self.dir.to_path_buf(),
            umask: 0o022,
            user: None,
            oom_score_adj: 0,
            log: self.dir.join(format!("launcher-{}.log", self.rank)),
        };
        Ok((Arc::new(Segment::create(segment, &SegmentSpec::new(self.world, vec![self.rank]))?), spec))
    }
}

/// Starts the launcher. PID 1 dies with the calling thread.
pub(crate) fn start(spec: &LauncherSpec) -> Result<Pid> {
    let launcher = programs::built("coswitch-launcher")?;
    Ok(Pid::from_raw(coswitch_launcher::start(&launcher, spec, PATIENCE)?))
}

impl Part {
    pub(crate) fn new(root: Pid, segment: Arc<Segment>) -> Self {
        Self { root, port: MessagePort::daemon_side(segment), events: Assembler::default() }
    }

    fn poll(&mut self) -> Result<Option<LauncherEvent>> {
        let mut message = Vec::new();
        while self.port.recv(&mut message)? {
            if let Some(event) = self.events.push(&message)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

/// Carries fences between the parts of one application until all of its ranks have ended with status 0.
pub(crate) fn to_the_end(parts: &mut [Part]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let (mut open, mut arrived, mut puts) = (parts.len(), 0, Vec::new());
    while open > 0 {
        ensure!(Instant::now() < deadline, "a program takes too long");
        std::thread::sleep(Duration::from_millis(1));
        let mut done = None;
        for part in parts.iter_mut() {
            while let Some(event) = part.poll()? {
                match event {
                    LauncherEvent::Ready
                    | LauncherEvent::RankExited { status: ExitStatus::Exited(0), .. } => {}
                    LauncherEvent::AllExited => open -= 1,
                    LauncherEvent::Fence { sequence, puts: own } => {
                        arrived += 1;
                        puts.extend(own);
                        done = Some(sequence);
                    }
                    other => bail!("a program failed: {other:?}"),
                }
            }
        }
        if let Some(sequence) = done.filter(|_| arrived == parts.len()) {
            let command = LauncherCommand::FenceDone { sequence, puts: std::mem::take(&mut puts) };
            arrived = 0;
            for part in parts.iter_mut() {
                let sent = encode(&command).iter().all(|message| part.port.send(message));
                ensure!(sent, "the launcher takes no more messages");
            }
        }
    }
    parts.iter().try_for_each(|part| reap(part.root, PATIENCE).map(drop))
}

/// Waits for the end of a child and reaps it.
pub(crate) fn reap(child: Pid, limit: Duration) -> Result<WaitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)).context("failed to wait for a child")? {
            WaitStatus::StillAlive if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1))
            }
            WaitStatus::StillAlive => bail!("process {child} does not end"),
            status => return Ok(status),
        }
    }
}

/// Ends a child with its PID namespace, and reaps it.
pub(crate) fn end(child: Pid) {
    if kill(child, Signal::SIGKILL).is_ok()
        && let Err(error) = reap(child, PATIENCE)
    {
        eprintln!("{error:#}");
    }
}
