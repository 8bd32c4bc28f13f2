//! Test harness in the role of the daemon: creates the segment, starts the real launcher, and cleans up.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_launcher::{
    LauncherSpec, RankSpec, StartError,
    protocol::{Assembler, ExitStatus, LauncherCommand, LauncherEvent, encode},
    start,
};
use coswitch_ring::{MessagePort, Segment, SegmentSpec};
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitStatus, waitpid},
    },
    unistd::Pid,
};

pub(crate) const LAUNCHER: &str = env!("CARGO_BIN_EXE_coswitch-launcher");
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// An application's part on one "node", with the test as its daemon.
pub(crate) struct Node {
    pub(crate) pid: i32,
    /// Inode of the PID namespace. All processes in it belong to this test.
    pub(crate) namespace: u64,
    segment: Arc<Segment>,
    port: MessagePort,
    events: Assembler<LauncherEvent>,
    reaped: bool,
    /// Keeps the files as long as the node.
    _dir: Option<Arc<tempfile::TempDir>>,
}

/// The application to launch.
pub(crate) struct Setup {
    pub(crate) dir: Arc<tempfile::TempDir>,
    pub(crate) world_size: u32,
    pub(crate) command: Vec<String>,
}

impl Setup {
    pub(crate) fn new(world_size: u32, command: &[&str]) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "these tests create PID namespaces: run them as root");
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        Self { dir: Arc::new(tempfile::tempdir().unwrap()), world_size, command }
    }

    pub(crate) fn sh(world_size: u32, script: &str) -> Self {
        Self::new(world_size, &["sh", "-c", script])
    }

    /// The MPI program `actor.c`, built with the MPI wrapper.
    pub(crate) fn actor(world_size: u32, act: &str) -> Self {
        let mut setup = Self::new(world_size, &[]);
        let program = setup.dir.path().join("actor");
        let prefix = std::env::var("COSWITCH_PREFIX").unwrap_or_else(|_| "/opt/coswitch".into());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/launcher/programs/actor.c");
        let mpicc = Path::new(&prefix).join("mpi/bin/mpicc");
        let built = Command::new(&mpicc).args(["-o"]).arg(&program).arg(source).status();
        let hint = "the MPI library is set up by `cargo xtask setup`";
        assert!(built.is_ok_and(|status| status.success()), "{} failed; {hint}", mpicc.display());
        setup.command = vec![program.display().to_string(), act.into()];
        setup
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Creates the segment of a node with these ranks, and the specification for its launcher.
    pub(crate) fn prepare(&self, ranks: &[u32]) -> (Arc<Segment>, LauncherSpec) {
        let path = self.path(&format!("segment-{}", ranks[0]));
        let segment = Segment::create(&path, &SegmentSpec::new(self.world_size, ranks.to_vec())).unwrap();
        let rank = |(local, &rank): (usize, &u32)| RankSpec {
            rank,
            local: u32::try_from(local).unwrap(),
            stdout: self.path(&format!("rank-{rank}.out")),
            stderr: self.path(&format!("rank-{rank}.err")),
        };
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("FI_PROVIDER", "tcp"), ("PMI_RANK", "foreign")];
        let spec = LauncherSpec {
            application: format!("launcher test {}", std::process::id()),
            daemon_pid: std::process::id(),
            outlives: false,
            cgroup_procs: Vec::new(),
            segment: path,
            provider_dir: None,
            world_size: self.world_size,
            ranks: ranks.iter().enumerate().map(rank).collect(),
            command: self.command.clone(),
            program: None,
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            cwd: self.dir.path().into(),
            umask: 0o022,
            user: None,
            oom_score_adj: 0,
            log: self.path("launcher.log"),
        };
        (Arc::new(segment), spec)
    }

    pub(crate) fn launch(&self, ranks: &[u32]) -> Node {
        let (segment, spec) = self.prepare(ranks);
        let mut node = Node::start(segment, &spec).unwrap();
        node._dir = Some(Arc::clone(&self.dir));
        node
    }
}

impl Node {
    pub(crate) fn start(segment: Arc<Segment>, spec: &LauncherSpec) -> Result<Self, StartError> {
        let pid = start(Path::new(LAUNCHER), spec, TIMEOUT)?;
        Ok(Self::of(pid, segment))
    }

    pub(crate) fn of(pid: i32, segment: Arc<Segment>) -> Self {
        let namespace = namespace_of(pid).expect("PID 1 is alive");
        let port = MessagePort::daemon_side(Arc::clone(&segment));
        Self { pid, namespace, segment, port, events: Assembler::default(), reaped: false, _dir: None }
    }

    /// Continues with the restored process tree.
    pub(crate) fn on_restored(&mut self, pid: i32, namespace: u64) {
        (self.pid, self.namespace, self.reaped) = (pid, namespace, false);
    }

    pub(crate) fn send(&mut self, command: &LauncherCommand) {
        for part in encode(command) {
            assert!(self.port.send(&part), "the ring has free space");
        }
    }

    pub(crate) fn poll(&mut self) -> Option<LauncherEvent> {
        let mut message = Vec::new();
        while self.port.recv(&mut message).unwrap() {
            if let Some(event) = self.events.push(&message).unwrap() {
                return Some(event);
            }
        }
        None
    }

    pub(crate) fn next(&mut self) -> LauncherEvent {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let ticket = self.segment.daemon_bell().ticket();
            if let Some(event) = self.poll() {
                return event;
            }
            assert!(Instant::now() < deadline, "the launcher sends no event");
            self.segment.daemon_bell().wait(ticket, Some(Duration::from_secs(1)));
        }
    }

    /// All events up to [`LauncherEvent::AllExited`], after which the launcher must exit and leave no
    /// process.
    pub(crate) fn events_to_end(&mut self) -> Vec<LauncherEvent> {
        let mut events = Vec::new();
        loop {
            match self.next() {
                LauncherEvent::AllExited => break,
                event => events.push(event),
            }
        }
        assert_eq!(self.reap(), WaitStatus::Exited(Pid::from_raw(self.pid), 0));
        assert_eq!(processes_in(self.namespace), [] as [i32; 0], "no process is left");
        events
    }

    pub(crate) fn reap(&mut self) -> WaitStatus {
        let status = waitpid(Pid::from_raw(self.pid), None).unwrap();
        self.reaped = true;
        status
    }

    /// Waits until there are `count` processes, including PID 1.
    pub(crate) fn wait_for_processes(&self, count: usize) -> Vec<i32> {
        let mut found = Vec::new();
        eventually(&format!("{count} processes"), || {
            found = processes_in(self.namespace);
            found.len() == count
        });
        found
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
            self.reap();
        }
    }
}

pub(crate) fn exited(rank: u32, status: ExitStatus) -> LauncherEvent {
    LauncherEvent::RankExited { rank, status }
}

/// The ranks that ended with status `wanted`.
pub(crate) fn ranks_with(events: &[LauncherEvent], wanted: &ExitStatus) -> BTreeSet<u32> {
    let rank = |event: &LauncherEvent| match event {
        LauncherEvent::RankExited { rank, status } if status == wanted => Some(*rank),
        _ => None,
    };
    events.iter().filter_map(rank).collect()
}

pub(crate) fn namespace_of(pid: i32) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// The processes of a PID namespace except zombies, PID 1 first.
pub(crate) fn processes_in(namespace: u64) -> Vec<i32> {
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut pids: Vec<i32> = pids.filter(|&pid| namespace_of(pid) == Some(namespace)).collect();
    pids.sort_unstable();
    pids
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
