//! Looks at the machine. Decides nothing; leaves nothing behind.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use coswitch_ckpt::{
    Criu, LocateError,
    criu::{CheckError, Health},
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

/// Everything a verdict needs.
#[derive(Debug)]
pub(crate) struct Facts {
    /// `uname -r`.
    pub(crate) kernel: String,
    /// Whether this is root.
    pub(crate) root: bool,
    /// The effective capabilities.
    pub(crate) capabilities: u64,
    /// CRIU, and what it says of the kernel; it can say so to root only.
    pub(crate) criu: Result<(Criu, Option<Result<Health, CheckError>>), LocateError>,
    /// What the mount table says of cgroups.
    pub(crate) cgroups: Cgroups,
    /// Whether a namespace with a shaped link could be made; only root can try.
    pub(crate) network: Option<Result<(), String>>,
    /// What `/dev/shm` has left; an error where it is no tmpfs.
    pub(crate) shm: Result<Bytes, String>,
    /// The size of all swap.
    pub(crate) swap: Bytes,
    /// The directories for images.
    pub(crate) stores: Vec<(PathBuf, Result<Place, String>)>,
    /// coswitch's own parts.
    pub(crate) installation: Result<Installation, PartMissing>,
    /// The MPI library that set-up installs.
    pub(crate) mpi: (PathBuf, io::Result<Library>),
}

/// A directory that can be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// What it has left.
    pub(crate) free: Bytes,
    /// What is written there stays in memory.
    pub(crate) is_memory: bool,
}

/// The mounted hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cgroups {
    /// Version 2, with its controllers.
    pub(crate) unified: Option<(PathBuf, Vec<String>)>,
    /// Controllers of version 1.
    pub(crate) version_1: Vec<String>,
    /// Whether a group could be made, and has `cgroup.freeze` and `cgroup.kill`; only root can try.
    pub(crate) freeze: Option<Result<(), String>>,
}

impl Facts {
    /// Looks at everything.
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
            stores: stores.iter().map(|dir| (dir.clone(), place(dir))).collect(),
            installation: Installation::find(),
            mpi: (library.clone(), mpi::look(&library)),
        }
    }
}

impl Cgroups {
    /// Makes a group and removes it.
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
            [_, place, "cgroup2", ..] if found.unified.is_none() => {
                let path = PathBuf::from(place);
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

fn is_tmpfs(mounts: &str, place: &str) -> bool {
    let mut rows = mounts.lines().rev().map(|line| line.split(' '));
    rows.find_map(|mut row| (row.nth(1) == Some(place)).then(|| row.next() == Some("tmpfs"))).unwrap_or(false)
}

/// A namespace dies with the only process in it, and all its links with it.
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

fn place(dir: &Path) -> Result<Place, String> {
    access(dir, AccessFlags::W_OK).map_err(|error| format!("cannot be written to: {error}"))?;
    let found = statfs(dir).map_err(|error| format!("cannot be looked at: {error}"))?;
    let free = Bytes(found.blocks_available().saturating_mul(u64::try_from(found.block_size()).unwrap_or(0)));
    Ok(Place { free, is_memory: found.filesystem_type() == TMPFS_MAGIC })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_tells_where_the_controllers_are() {
        let table = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                     cgroup2 /nowhere/unified cgroup2 rw 0 0\n";
        let found = cgroups(table);
        assert_eq!(found.unified, Some((PathBuf::from("/nowhere/unified"), vec![])));
        assert!(found.version_1.contains(&"memory".into()));
    }

    #[test]
    fn the_last_mount_on_a_place_is_the_one_that_counts() {
        assert!(is_tmpfs("/dev/sda /run ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n", "/run"));
        assert!(!is_tmpfs("tmpfs /run tmpfs rw 0 0\n/dev/sda /run ext4 rw 0 0\n", "/run"));
        assert!(!is_tmpfs("tmpfs /run/lock tmpfs rw 0 0\n", "/run"));
    }

    #[test]
    fn effective_capabilities_are_read() {
        assert_eq!(capabilities("CapPrm:\tff\nCapEff:\t000001fffeffffff\n"), 0x1ff_feff_ffff);
    }
}
