//! A real Slurm: a controller, and a `slurmd` on each of some machines. `cargo xtask test` unpacks the
//! distribution's packages, and a machine has them laid over its `/usr`.

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use coswitch::install::prefix;
use coswitch_daemon::{
    cgroup::{Hierarchies, NodeCgroup},
    virtual_net,
};
use coswitch_policies::NodeId;
use coswitch_report::journal::{self, Event, RunEvent};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    TestDir,
    machines::{Machines, in_network, wait},
    parts,
};

const POLL: Duration = Duration::from_millis(50);
/// The memory of a machine as Slurm knows it, in MiB.
pub const MACHINE_MIB: u32 = 2000;
/// Processes of a machine that are not coswitch's.
const SLURMS: [&str; 4] = ["sh", "slurmd", "slurmstepd", "unshare"];

/// A cluster under Slurm, which ends on drop.
pub struct Slurm {
    // Dropped in this order: the processes end before their directory is removed.
    machines: Machines,
    controller: Child,
    dir: TestDir,
    nodes: usize,
    _turn: std::sync::MutexGuard<'static, ()>,
}

/// What a batch job was and did.
pub struct Batch {
    pub job: u32,
    out: PathBuf,
}

/// Does `work` with a Slurm of so many machines, `n0` and so on.
///
/// # Panics
/// If it does not start, or `work` panics.
pub fn with_nodes<Made: Send>(nodes: usize, work: impl FnOnce(&mut Slurm) -> Made + Send) -> Made {
    in_network(|| work(&mut Slurm::start(nodes)))
}

impl Slurm {
    fn start(nodes: usize) -> Self {
        let turn = crate::turn();
        let dir = TestDir::new("slurm");
        let at = |name: &str| dir.path().join(name);
        let (mut conf, mut hosts) =
            (configuration(&dir), "127.0.0.1 localhost\n10.83.255.254 ctl\n".to_owned());
        for node in 0..nodes {
            let address = virtual_net::address(NodeId(u32::try_from(node).expect("few")));
            writeln!(hosts, "{address} n{node}").expect("it is a string");
            writeln!(conf, "NodeName=n{node} CPUs=2 RealMemory={MACHINE_MIB}").expect("it is a string");
            fs::create_dir_all(at(&format!("spool/n{node}"))).expect("a directory");
        }
        conf += "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
        fs::write(at("slurm.conf"), conf).expect("a file");
        fs::write(at("hosts"), hosts).expect("a file");
        fs::write(at("munge.key"), [7; 1024]).expect("a file");
        fs::set_permissions(at("munge.key"), fs::Permissions::from_mode(0o400)).expect("it is ours");
        for name in ["state", "own", "store"] {
            fs::create_dir(at(name)).expect("a directory");
        }
        let path = dir.path().display().to_string();
        // One munged answers all machines: its socket is a file.
        let controller = format!(
            "set -e; mount --make-rprivate /; {laid} hostname ctl; \
             munged --key-file={path}/munge.key --socket={path}/munge.sock --pid-file={path}/munge.pid \
             --log-file={path}/munged.log --seed-file={path}/munge.seed --force; \
             slurmctld -D & wait",
            laid = laid(&dir)
        );
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
        let log = fs::File::create(at("controller.log")).expect("a file");
        unshare.arg(controller).env("SLURM_CONF", at("slurm.conf")).stdin(Stdio::null()).stderr(log);
        let controller = unshare.spawn().expect("unshare is installed");
        let mut slurm = Self { machines: Machines::default(), controller, dir, nodes, _turn: turn };
        wait("munge", || slurm.path("munge.sock").exists());
        for node in 0..nodes {
            let script = format!(
                "{laid} hostname n{node}; export SLURM_CONF={path}/slurm.conf; \
                 mount -t tmpfs own {path}/own; slurmd -D -N n{node} & wait",
                laid = laid(&slurm.dir)
            );
            slurm.machines.add(&script, &slurm.path(&format!("n{node}.machine.log")));
        }
        let idle = nodes.to_string();
        wait("the nodes", || {
            let answer = slurm.run(&["sinfo", "--noheader", "--states=idle", "--format=%D"]);
            String::from_utf8_lossy(&answer.stdout).trim() == idle
        });
        slurm
    }

    /// A file in the directory that the machines share.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command of Slurm on the controller's machine, as its user does.
    ///
    /// # Panics
    /// If it cannot be run.
    pub fn run(&self, command: &[&str]) -> Output {
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--mount", "--uts", "--target", &self.controller.id().to_string()]).args(command);
        nsenter.env("SLURM_CONF", self.path("slurm.conf")).stdin(Stdio::null());
        nsenter.output().expect("nsenter is installed")
    }

    /// Submits a script; `{coswitch}`, `{bin}`, `{dir}` and `{out}` in it stand for the program, the example
    /// programs, the shared directory and the directory of the run.
    ///
    /// # Panics
    /// If Slurm refuses it.
    pub fn submit(&self, name: &str, options: &[&str], script: &str) -> Batch {
        let (file, out) = (self.path(&format!("{name}.sh")), self.path(&format!("{name}.run")));
        let text = format!("#!/bin/sh\n{script}\n");
        fs::write(&file, self.filled(&text, &out)).expect("a file");
        let (log, file) = (self.path(&format!("{name}.log")), file.display().to_string());
        let log = format!("--output={}", log.display());
        let answer = self.run(&[&["sbatch", "--parsable", &log], options, &[&file]].concat());
        let said = String::from_utf8_lossy(&answer.stdout);
        let job = said.trim().parse().unwrap_or_else(|_| panic!("sbatch: {answer:?}"));
        Batch { job, out }
    }

    /// Writes a run file in whose text the words of [`Slurm::submit`] stand.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), self.filled(text, &self.path("out"))).expect("a file");
    }

    fn filled(&self, text: &str, out: &std::path::Path) -> String {
        text.replace("{coswitch}", &parts::coswitch().display().to_string())
            .replace("{bin}", &parts::program_directory())
            .replace("{dir}", &self.dir.path().display().to_string())
            .replace("{out}", &out.display().to_string())
    }

    /// Waits for the end of a batch job; returns the exit code of its script and what that wrote.
    ///
    /// # Panics
    /// If it does not end within `limit`.
    pub fn ended(&self, batch: &Batch, name: &str, limit: Duration) -> (String, String) {
        let began = Instant::now();
        loop {
            let answer = self.run(&["scontrol", "show", "job", &batch.job.to_string()]);
            let text = String::from_utf8_lossy(&answer.stdout).into_owned();
            let field = |name: &str| {
                let word = text.split_whitespace().find(|word| word.starts_with(name));
                word.map(|word| word[name.len()..].to_owned()).unwrap_or_default()
            };
            let state = field("JobState=");
            if !["PENDING", "RUNNING", "COMPLETING", "CONFIGURING", ""].contains(&state.as_str()) {
                let log = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
                return (format!("{state} {}", field("ExitCode=")), log);
            }
            assert!(began.elapsed() < limit, "the job has not ended after {limit:?}: {text}");
            thread::sleep(POLL);
        }
    }

    /// Waits until `done` holds.
    ///
    /// # Panics
    /// If that takes longer than `limit`.
    pub fn wait_until(&self, what: &str, limit: Duration, done: impl Fn() -> bool) {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < limit, "waited {limit:?} for {what}");
            thread::sleep(POLL);
        }
    }

    /// Kills all processes of this name on a machine.
    ///
    /// # Panics
    /// If there are none.
    pub fn kill(&self, machine: usize, name: &str) {
        let all = self.machines.processes(machine).into_iter().filter(|(_, other)| other == name);
        let all: Vec<u32> = all.map(|(pid, _)| pid).collect();
        assert!(!all.is_empty(), "no {name} on n{machine}");
        for pid in all {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
    }

    /// What the machines hold of a run.
    #[must_use]
    pub fn left(&self, batch: &Batch) -> Vec<String> {
        let mut left = Vec::new();
        for machine in 0..self.nodes {
            let processes = self.machines.processes(machine).into_iter();
            let others = processes.filter(|(_, name)| !SLURMS.contains(&name.as_str()));
            left.extend(others.map(|(pid, name)| format!("n{machine}: process {pid} {name}")));
            let files = self.machines.files(machine, &self.path("own")).into_iter();
            left.extend(files.map(|file| format!("n{machine}: {}", file.display())));
        }
        let hierarchies = Hierarchies::find().expect("cgroups are mounted");
        let run = batch.run().unwrap_or_else(|| "no run".into());
        let groups = NodeCgroup::list(&hierarchies).into_iter().filter(|name| name.starts_with(&run));
        left.extend(groups.map(|name| format!("cgroup {name}")));
        left
    }

    /// Waits until nothing is left of a run.
    ///
    /// # Panics
    /// If something is, after `limit`.
    pub fn assert_nothing_left(&self, batch: &Batch, limit: Duration) {
        let began = Instant::now();
        loop {
            let left = self.left(batch);
            if left.is_empty() {
                return;
            }
            assert!(began.elapsed() < limit, "left after {limit:?}:\n  {}", left.join("\n  "));
            thread::sleep(POLL);
        }
    }
}

impl Batch {
    /// The journal so far.
    #[must_use]
    pub fn events(&self) -> Vec<RunEvent> {
        let journal = journal::salvage(&self.out.join(journal::FILE_NAME));
        journal.map(|(events, _)| events).unwrap_or_default()
    }

    /// What a rank has written to its standard output.
    #[must_use]
    pub fn output(&self, job: &str, rank: u32) -> String {
        fs::read_to_string(self.out.join(job).join(format!("rank-{rank}.out"))).unwrap_or_default()
    }

    fn run(&self) -> Option<String> {
        self.events().into_iter().find_map(|event| match event.kind {
            Event::RunStarted { run, .. } => Some(run),
            _ => None,
        })
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let _ = self.controller.kill();
        let _ = self.controller.wait();
    }
}

/// Commands that lay the unpacked packages over `/usr`, and the names of the machines over those of this one.
fn laid(dir: &TestDir) -> String {
    let (slurm, dir) = (prefix().join("slurm"), dir.path());
    format!(
        "mount -t overlay slurm -o lowerdir={}/usr:/usr /usr; mount --bind {}/hosts /etc/hosts;",
        slurm.display(),
        dir.display()
    )
}

/// All but the nodes. Processes are found by their parents, so that one that has left its step outlives it.
fn configuration(dir: &TestDir) -> String {
    let path = dir.path().display();
    format!(
        "ClusterName=test\nSlurmctldHost=ctl(10.83.255.254)\nSlurmUser=root\nSlurmdUser=root\n\
         AuthType=auth/munge\nAuthInfo=socket={path}/munge.sock\nCredType=cred/munge\nMpiDefault=none\n\
         StateSaveLocation={path}/state\nSlurmdSpoolDir={path}/spool/%n\n\
         SlurmctldPidFile={path}/slurmctld.pid\nSlurmdPidFile={path}/slurmd-%n.pid\n\
         SlurmctldLogFile={path}/slurmctld.log\nSlurmdLogFile={path}/slurmd-%n.log\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nReturnToService=2\n\
         SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,sched_interval=1\n\
         MailProg=/bin/true\nKillWait=10\nMinJobAge=600\nOverTimeLimit=3\n"
    )
}
