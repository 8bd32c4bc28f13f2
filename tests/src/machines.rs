//! Machines as namespaces of this one: each has a network, processes, a name, `/dev/shm`, `/run` and
//! `/var/lib/coswitch` of its own, and shares the other files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use coswitch_daemon::virtual_net;
use coswitch_policies::NodeId;

const START_LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// What a machine has of its own.
const OWN: [&str; 3] = ["/dev/shm", "/run", "/var/lib/coswitch"];
/// Where coswitch leaves files.
const USED: [&str; 3] = ["/dev/shm", "/run/coswitch", "/var/lib/coswitch"];

/// Machines that are killed on drop, with all that runs on them.
#[derive(Default)]
pub(crate) struct Machines(Vec<Child>);

/// Does `work` in a thread with a network of its own, which machines may join.
///
/// # Panics
/// If `work` does.
pub(crate) fn in_network<Made: Send>(work: impl FnOnce() -> Made + Send) -> Made {
    let work = || {
        virtual_net::enter_head().expect("a network");
        work()
    };
    thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
}

impl Machines {
    /// Starts a machine in the network of the calling thread; it runs `script` to its end.
    pub(crate) fn add(&mut self, script: &str, log: &Path) {
        let node = NodeId(u32::try_from(self.0.len()).expect("few"));
        let own = OWN.map(|dir| format!("mkdir -p {dir}; mount -t tmpfs -o mode=700 own {dir}; ")).concat();
        let script = format!(
            "set -e; mount --make-rprivate /; {own} \
             ip link set lo up; until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done; \
             ip addr add {address}/16 dev eth0; ip link set eth0 up; {script}",
            address = virtual_net::address(node),
        );
        let log = fs::File::create(log).expect("a file");
        let mut machine = Command::new("unshare");
        machine.args(["--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]);
        let machine = machine.args(["sh", "-c", &script]).stdin(Stdio::null()).stderr(log).spawn();
        let machine = machine.expect("unshare is installed");
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let own = namespace("thread-self");
        let pid = machine.id();
        self.0.push(machine);
        wait("a machine", || namespace(&pid.to_string()) != own);
        virtual_net::plug(node, pid, None).expect("a link");
    }

    /// The processes on a machine, with their names. Daemons have mount namespaces of their own.
    pub(crate) fn processes(&self, machine: usize) -> Vec<(u32, String)> {
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/uts")).ok();
        let own = namespace(&self.0[machine].id().to_string());
        let processes = fs::read_dir("/proc").expect("the kernel lists processes").flatten();
        let names = processes.filter_map(|entry| entry.file_name().into_string().ok());
        let there = names.filter(|process| process.parse::<u32>().is_ok() && namespace(process) == own);
        let named = |process: String| {
            let comm = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
            Some((process.parse().ok()?, comm.trim().to_owned()))
        };
        there.filter_map(named).collect()
    }

    /// Cuts a machine off from all others, or connects it again. No kernel hears of it: packets end at the
    /// bridge.
    /// For the thread that has added it.
    ///
    /// # Panics
    /// If that fails.
    pub(crate) fn cut_off(&self, machine: usize, is_cut: bool) {
        let to = if is_cut { ["nomaster"].as_slice() } else { &["master", "br0"] };
        let link = format!("cs{machine}");
        run(Command::new("ip").args(["link", "set", &link]).args(to));
    }

    /// Runs a command on a machine to its end.
    ///
    /// # Panics
    /// If it fails.
    pub(crate) fn run(&self, machine: usize, command: &[&str]) {
        let mut enter = Command::new("nsenter");
        enter.args(["--net", "--mount", "--target", &self.0[machine].id().to_string()]).args(command);
        run(&mut enter);
    }

    /// The daemon on a machine.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn daemon(&self, machine: usize) -> u32 {
        let mut all = self.processes(machine).into_iter();
        all.find(|(_, name)| name == "coswitchd").expect("a daemon").0
    }

    /// The files on a machine of coswitch, and all in the directory `also` there.
    pub(crate) fn files(&self, machine: usize, also: &Path) -> Vec<PathBuf> {
        let root = PathBuf::from(format!("/proc/{}/root", self.0[machine].id()));
        let used = USED.map(PathBuf::from).into_iter().chain([also.to_owned()]);
        let there = used.map(|dir| root.join(dir.strip_prefix("/").expect("an absolute path")));
        there
            .flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten())
            .map(|entry| entry.path())
            .collect()
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for machine in &mut self.0 {
            let _ = machine.kill();
            let _ = machine.wait();
        }
    }
}

fn run(command: &mut Command) {
    let status = command.stdin(Stdio::null()).status();
    assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{command:?}: {status:?}");
}

pub(crate) fn wait(what: &str, is_there: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < START_LIMIT, "waited {START_LIMIT:?} for {what}");
        thread::sleep(POLL);
    }
}
