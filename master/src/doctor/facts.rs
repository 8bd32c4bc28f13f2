//! Reads the facts about the machine; leaves nothing behind.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use coswitch_ckpt::{
    Criu, LocateError,
    criu::{CheckError, Health},
    private::{self, Untrusted},
};
use coswitch_policies::Bytes;
use nix::{
    sys::{
        statfs::{TMPFS_MAGIC, statfs},
        statvfs::statvfs,
        utsname::uname,
    },
    unistd::{AccessFlags, access, geteuid},
};

use super::{
    command,
    mpi::{self, Library},
};
use crate::install::{self, Installation, PartMissing};

#[derive(Debug)]
pub(crate) struct Facts {
    /// `uname -r`.
    pub(crate) kernel: String,
    pub(crate) root: bool,
    /// The effective capabilities, as a bit set.
    pub(crate) capabilities: u64,
    /// CRIU, and its check of the kernel, which only root can make.
    pub(crate) criu: Result<(Criu, Option<Result<Health, CheckError>>), LocateError>,
    pub(crate) cgroups: Cgroups,
    /// Whether a namespace with a shaped link could be made; `None` for users other than root.
    pub(crate) network: Option<Result<(), String>>,
    /// Free memory of `/dev/shm`; an error where it is not a tmpfs.
    pub(crate) shm: Result<Bytes, String>,
    /// Size of all swap.
    pub(crate) swap: Bytes,
    pub(crate) stores: Vec<(PathBuf, Result<StoreSpace, StoreProblem>)>,
    pub(crate) installation: Result<Installation, PartMissing>,
    /// The MPI library that `cargo xtask setup` installs.
    pub(crate) mpi: (PathBuf, io::Result<Library>),
}

/// The space of a writable directory for images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreSpace {
    pub(crate) free: Bytes,
    /// Whether its files stay in memory.
    pub(crate) is_memory: bool,
}

/// Why a directory cannot take images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreProblem {
    pub(crate) what: String,
    pub(crate) remedy: Option<String>,
}

impl From<String> for StoreProblem {
    fn from(what: String) -> Self {
        Self { what, remedy: None }
    }
}

impl From<Untrusted> for StoreProblem {
    fn from(untrusted: Untrusted) -> Self {
        Self { what: format!("cannot be trusted: {untrusted}"), remedy: Some(untrusted.remedy()) }
    }
}

/// The mounted cgroup hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cgroups {
    /// The mount of version 2 and its controllers.
    pub(crate) unified: Option<(PathBuf, Vec<String>)>,
    /// Controllers of version 1.
    pub(crate) version_1: Vec<String>,
    /// Whether a group could be made and has `cgroup.freeze` and `cgroup.kill`; `None` for users other than
    /// root.
    pub(crate) freeze: Option<Result<(), String>>,
}

impl Facts {
    pub(crate) fn gather(stores: &[PathBuf]) -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let root = geteuid().is_root();
        let library = install::prefix().join("mpi/lib/libmpi.so.12");
        Self {
            kernel: uname().map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default(),
            root,
            capabilities: capabilities(&fs::read_to_string("/proc/self/status").unwrap_or_default()),
            criu: Criu::locate().map(|criu| (criu.clone(), root.then(|| criu.check()))),
            cgroups: if root { cgroups(&mounts).probed() } else { cgroups(&mounts) },
            network: root.then(network),
            shm: shm(&mounts),
            swap: coswitch_daemon::swap::configured(),
            stores: stores.iter().map(|dir| (dir.clone(), store_space(dir))).collect(),
            installation: Installation::find(),
            mpi: (library.clone(), mpi::inspect(&library)),
        }
    }
}

impl Cgroups {
    /// Tries to make a group, and removes it.
    fn probed(self) -> Self {
        let freeze = self.unified.as_ref().map(|(mount, _)| {
            let group = mount.join(format!("coswitch-doctor-{}", std::process::id()));
            fs::create_dir(&group)
                .map_err(|error| format!("no group can be made in {}: {error}", mount.display()))?;
            let missing =
                ["cgroup.freeze", "cgroup.kill"].into_iter().find(|file| !group.join(file).exists());
            fs::remove_dir(&group)
                .map_err(|error| format!("{} cannot be removed: {error}", group.display()))?;
            missing.map_or(Ok(()), |file| Err(format!("groups have no {file}")))
        });
        Self { freeze, ..self }
    }
}

fn cgroups(mounts: &str) -> Cgroups {
    let mut found = Cgroups::default();
    for row in mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()) {
        match row[..] {
            [_, mount, "cgroup2", ..] if found.unified.is_none() => {
                let path = PathBuf::from(mount);
                let controllers = fs::read_to_string(path.join("cgroup.controllers")).unwrap_or_default();
                found.unified = Some((path, controllers.split_whitespace().map(Into::into).collect()));
            }
            [_, _, "cgroup", options, ..] => found.version_1.extend(options.split(',').map(Into::into)),
            _ => {}
        }
    }
    found
}

fn capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok()).unwrap_or(0)
}

fn is_tmpfs(mounts: &str, path: &str) -> bool {
    let mut rows = mounts.lines().rev().map(|line| line.split(' '));
    rows.find_map(|mut row| (row.nth(1) == Some(path)).then(|| row.next() == Some("tmpfs"))).unwrap_or(false)
}

/// Tries to make a shaped link in a network namespace. The namespace and its links end with the process in
/// it.
fn network() -> Result<(), String> {
    let script = "ip link add name cs0 type veth peer name cs1 && ip link add name br0 type bridge \
                  && ip link set cs0 master br0 && ip link set cs1 gso_max_size 16384 \
                  && tc qdisc add dev cs1 root tbf rate 100mbit burst 20480b latency 50ms";
    command::text(Command::new("unshare").args(["--net", "sh", "-c", script])).map(|_| ())
}

fn shm(mounts: &str) -> Result<Bytes, String> {
    if !is_tmpfs(mounts, "/dev/shm") {
        return Err("/dev/shm is not a tmpfs".into());
    }
    let found = statvfs("/dev/shm").map_err(|error| format!("/dev/shm cannot be looked at: {error}"))?;
    Ok(Bytes(found.blocks_available().saturating_mul(found.fragment_size())))
}

/// Looks at the directory or, where it is still to be made, at the first one above it that exists.
fn store_space(dir: &Path) -> Result<StoreSpace, StoreProblem> {
    let dir = dir.ancestors().find(|dir| dir.symlink_metadata().is_ok()).unwrap_or(dir);
    private::check_trusted(dir)?;
    // Other users than root, who cannot run anything, may still ask about the space.
    let is_writable = if geteuid().is_root() { access(dir, AccessFlags::W_OK) } else { Ok(()) };
    is_writable.map_err(|error| format!("cannot be written to: {error}"))?;
    let found = statfs(dir).map_err(|error| format!("cannot be looked at: {error}"))?;
    let free = Bytes(found.blocks_available().saturating_mul(u64::try_from(found.block_size()).unwrap_or(0)));
    Ok(StoreSpace { free, is_memory: found.filesystem_type() == TMPFS_MAGIC })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_still_to_be_made_is_judged_by_the_directory_above_it() {
        let scratch = tempfile::tempdir().unwrap();
        let above = scratch.path().join("above");
        fs::create_dir(&above).unwrap();
        assert!(store_space(&above.join("coswitch")).is_ok_and(|space| space.free > Bytes(0)));
        std::os::unix::fs::chown(&above, Some(65534), None).unwrap();
        for dir in [above.clone(), above.join("coswitch")] {
            let problem = store_space(&dir).unwrap_err();
            assert!(problem.what.contains("belongs to nobody"), "{problem:?}");
            assert!(problem.remedy.is_some_and(|remedy| remedy.contains("chown root")));
        }
    }

    #[test]
    fn the_controllers_are_found_in_the_mount_table() {
        let table = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                     cgroup2 /nowhere/unified cgroup2 rw 0 0\n";
        let found = cgroups(table);
        assert_eq!(found.unified, Some((PathBuf::from("/nowhere/unified"), vec![])));
        assert!(found.version_1.contains(&"memory".into()));
    }

    #[test]
    fn the_last_mount_on_a_path_counts() {
        assert!(is_tmpfs("/dev/sda /run ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n", "/run"));
        assert!(!is_tmpfs("tmpfs /run tmpfs rw 0 0\n/dev/sda /run ext4 rw 0 0\n", "/run"));
        assert!(!is_tmpfs("tmpfs /run/lock tmpfs rw 0 0\n", "/run"));
    }

    #[test]
    fn effective_capabilities_are_read() {
        assert_eq!(capabilities("CapPrm:\tff\nCapEff:\t000001fffeffffff\n"), 0x1ff_feff_ffff);
    }
}
