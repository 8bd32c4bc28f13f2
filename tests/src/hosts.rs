//! Machines with an sshd, each with a directory of its own besides.

use std::{
    env::consts::ARCH,
    fs,
    net::{IpAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
};

use coswitch::install::prefix;
use coswitch_daemon::virtual_net;
use coswitch_policies::NodeId;

use crate::machines::{Machines, in_network, wait};

/// The name of a host that refuses connections: no sshd listens at the port that ssh is told to use.
pub const SILENT: &str = "silent";

/// Machines that are killed on drop, with all that runs on them.
pub struct Hosts {
    machines: Machines,
    dir: tempfile::TempDir,
}

/// Does `work` beside machines of these names, in a network of their own.
///
/// # Panics
/// If they do not start, or `work` panics.
pub fn beside<Made: Send>(names: &[&str], work: impl FnOnce(&mut Hosts) -> Made + Send) -> Made {
    in_network(|| work(&mut Hosts::start(names)))
}

impl Hosts {
    fn start(names: &[&str]) -> Self {
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
        let mut hosts = Self { machines: Machines::default(), dir };
        (0..names.len()).for_each(|number| hosts.add(NodeId(u32::try_from(number).expect("few"))));
        hosts
    }

    fn add(&mut self, node: NodeId) {
        let script = format!(
            "mount -t tmpfs own {dir}/own; mkdir {dir}/own/store; \
             mount --bind {dir}/passwd /etc/passwd; mkdir -p /run/sshd; \
             LD_LIBRARY_PATH={sshd}/lib/{ARCH}-linux-gnu:{sshd}/usr/lib/{ARCH}-linux-gnu \
             exec {sshd}/usr/sbin/sshd -D -e -f {dir}/sshd",
            dir = self.dir.path().display(),
            sshd = prefix().join("sshd").display(),
        );
        self.machines.add(&script, &self.dir.path().join(format!("{node}.sshd.log")));
        let address = IpAddr::from(virtual_net::address(node));
        wait("an sshd", || TcpStream::connect((address, 22)).is_ok());
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

    /// Cuts a machine off from all others and from the test, or connects it again, without a word to either.
    ///
    /// # Panics
    /// If that fails.
    pub fn cut_off(&self, machine: usize, is_cut: bool) {
        self.machines.cut_off(machine, is_cut);
    }

    /// Runs a command on a machine to its end.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&self, machine: usize, command: &[&str]) {
        self.machines.run(machine, command);
    }

    /// The daemon on a machine.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn daemon(&self, machine: usize) -> u32 {
        self.machines.daemon(machine)
    }

    /// The processes on a machine, with their names.
    #[must_use]
    pub fn processes(&self, machine: usize) -> Vec<(u32, String)> {
        self.machines.processes(machine)
    }

    /// What a machine holds of coswitch, its programs aside.
    ///
    /// # Panics
    /// If the machine is not one of those that were started.
    #[must_use]
    pub fn left(&self, machine: usize) -> Vec<PathBuf> {
        let all = self.machines.files(machine, &self.own().join("store")).into_iter();
        all.filter(|path| !path.ends_with(Path::new("coswitch/parts"))).collect()
    }
}
