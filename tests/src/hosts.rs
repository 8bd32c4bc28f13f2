//! Machines with an sshd, as namespaces of this one: each has a network, processes, `/dev/shm`, `/run`
//! and `/var/lib/coswitch` of its own, and shares the other files.

use std::{
    env::consts::ARCH,
    fs,
    net::{IpAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use coswitch::install::prefix;
use coswitch_daemon::virtual_net;
use coswitch_policies::NodeId;

const START_LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// What a machine has of its own.
const OWN: [&str; 3] = ["/dev/shm", "/run", "/var/lib/coswitch"];
/// Where coswitch leaves files.
const USED: [&str; 3] = ["/dev/shm", "/run/coswitch", "/var/lib/coswitch"];
/// The name of a host that refuses connections: no sshd listens at the port that ssh is told to use.
pub const SILENT: &str = "silent";

/// Machines that are killed on drop, with all that runs on them.
pub struct Hosts {
    machines: Vec<Child>,
    dir: tempfile::TempDir,
}

/// Does `work` beside machines of these names, in a network of their own.
///
/// # Panics
/// If they do not start, or `work` panics.
pub fn beside<Made: Send>(names: &[&str], work: impl FnOnce(&mut Hosts) -> Made + Send) -> Made {
    thread::scope(|scope| scope.spawn(|| work(&mut Hosts::start(names))).join())
        .unwrap_or_else(|panicked| std::panic::resume_unwind(panicked))
}

impl Hosts {
    /// Moves the calling thread to the network of the machines.
    fn start(names: &[&str]) -> Self {
        virtual_net::enter_head().expect("a network");
        let dir = tempfile::Builder::new().prefix("hosts-").tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name).display().to_string();
        fs::create_dir(at("own")).expect("a directory");
        for key in ["user", "host"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)]);
            assert!(keygen.status().expect("ssh-keygen is installed").success());
        }
        let sshd = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n\
             PidFile none\n",
            at("host"),
            at("user.pub")
        );
        fs::write(at("sshd"), sshd).expect("a file");
        let mut ssh = String::new();
        let address = |number: usize| virtual_net::address(NodeId(u32::try_from(number).expect("few")));
        for (number, name) in names.iter().enumerate() {
            ssh += &format!("Host {name}\n HostName {}\n", address(number));
        }
        ssh += &format!("Host {SILENT}\n HostName {}\n Port 23\n", address(0));
        ssh += &format!(
            "Host *\n User root\n IdentityFile {}\n StrictHostKeyChecking no\n \
             UserKnownHostsFile /dev/null\n LogLevel ERROR\n",
            at("user")
        );
        fs::write(at("ssh"), ssh).expect("a file");
        // The distribution's sshd drops to a user of this name, which a machine without it has not got.
        let users = fs::read_to_string("/etc/passwd").expect("users");
        fs::write(at("passwd"), format!("{users}sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"))
            .expect("a file");
        let mut hosts = Self { machines: Vec::new(), dir };
        (0..names.len()).for_each(|number| hosts.add(NodeId(u32::try_from(number).expect("few"))));
        hosts
    }

    fn add(&mut self, node: NodeId) {
        let own = OWN.map(|dir| format!("mkdir -p {dir}; mount -t tmpfs -o mode=700 own {dir}; ")).concat();
        let address = virtual_net::address(node);
        let script = format!(
            "set -e; mount --make-rprivate /; {own} mount -t tmpfs own {dir}/own; \
             mkdir {dir}/own/store; \
             mount --bind {dir}/passwd /etc/passwd; mkdir -p /run/sshd; \
             ip link set lo up; until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done; \
             ip addr add {address}/16 dev eth0; ip link set eth0 up; \
             LD_LIBRARY_PATH={sshd}/lib/{ARCH}-linux-gnu:{sshd}/usr/lib/{ARCH}-linux-gnu \
             exec {sshd}/usr/sbin/sshd -D -e -f {dir}/sshd",
            dir = self.dir.path().display(),
            sshd = prefix().join("sshd").display(),
        );
        let log = fs::File::create(self.dir.path().join(format!("{node}.sshd.log"))).expect("a file");
        let mut machine = Command::new("unshare");
        machine.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
        let machine = machine.arg(script).stdin(Stdio::null()).stderr(log).spawn();
        let machine = machine.expect("unshare is installed");
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let own = namespace("thread-self");
        let pid = machine.id();
        self.machines.push(machine);
        wait("a machine", || namespace(&pid.to_string()) != own);
        virtual_net::plug(node, pid, None).expect("a link");
        wait("an sshd", || TcpStream::connect((IpAddr::from(address), 22)).is_ok());
    }

    /// The command that reaches the machines.
    #[must_use]
    pub fn ssh(&self) -> String {
        format!("ssh -F {}", self.dir.path().join("ssh").display())
    }

    /// A directory of which each machine, and the one that runs the test, has its own. Those of the machines
    /// have a directory `store` in it.
    #[must_use]
    pub fn own(&self) -> PathBuf {
        self.dir.path().join("own")
    }

    /// The daemon on a machine.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn daemon(&self, machine: usize) -> u32 {
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        let own = namespace(&self.machines[machine].id().to_string());
        let is_it = |process: &String| {
            let comm = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
            comm.trim() == "coswitchd" && namespace(process) == own
        };
        let processes = fs::read_dir("/proc").expect("the kernel lists processes").flatten();
        let mut names = processes.filter_map(|entry| entry.file_name().into_string().ok());
        names.find(is_it).and_then(|name| name.parse().ok()).expect("a daemon")
    }

    /// What a machine holds of coswitch, its programs aside.
    ///
    /// # Panics
    /// If the machine is not one of those that were started.
    #[must_use]
    pub fn left(&self, machine: usize) -> Vec<PathBuf> {
        let root = PathBuf::from(format!("/proc/{}/root", self.machines[machine].id()));
        let store = self.own().join("store");
        let used = USED.map(PathBuf::from).into_iter().chain([store]);
        let there = used.map(|dir| root.join(dir.strip_prefix("/").expect("an absolute path")));
        let all = there.flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
        all.map(|entry| entry.path()).filter(|path| !path.ends_with(Path::new("coswitch/parts"))).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for machine in &mut self.machines {
            let _ = machine.kill();
            let _ = machine.wait();
        }
    }
}

fn wait(what: &str, is_there: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < START_LIMIT, "waited {START_LIMIT:?} for {what}");
        thread::sleep(POLL);
    }
}
