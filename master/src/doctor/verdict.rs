//! Judges the facts about the machine. Pure.

use std::path::{Path, PathBuf};

use coswitch_ckpt::{
    Criu, LocateError,
    criu::{CheckError, Health},
    kerndat::KerndatState,
    trial::TrialError,
};
use coswitch_daemon::kernel::Release;
use coswitch_policies::Bytes;

use super::{
    check::Check,
    facts::{Cgroups, Facts, StoreProblem, StoreSpace},
    mpi,
};
use crate::install::{Installation, PartMissing};

const SETUP: &str = "run `cargo xtask setup` as root";
/// The data plane sleeps in `futex_waitv`, which came with 5.16.
const KERNEL: (u32, u32) = (5, 16);
/// Rings and slabs of a few small jobs.
const SHM_LEAST: Bytes = Bytes::mib(128);
const SHM_GOOD: Bytes = Bytes::mib(1024);
/// The capabilities for dumping, for ranks of other users, namespaces, cgroups and links, with their numbers
/// in `linux/capability.h`.
const CAPABILITIES: [(u32, &str); 10] = [
    (0, "CHOWN"),
    (1, "DAC_OVERRIDE"),
    (5, "KILL"),
    (6, "SETGID"),
    (7, "SETUID"),
    (8, "SETPCAP"),
    (12, "NET_ADMIN"),
    (19, "SYS_PTRACE"),
    (21, "SYS_ADMIN"),
    (40, "CHECKPOINT_RESTORE"),
];

/// All checks, in the order in which lacks are best repaired.
pub(crate) fn judge(facts: &Facts, pages_out: bool) -> Vec<Check> {
    let checks = [
        Some(kernel(&facts.kernel)),
        scheduler(&facts.kernel, &facts.cgroups),
        Some(privileges(facts.root, facts.capabilities)),
        Some(parts(&facts.installation)),
        Some(criu(&facts.criu)),
        kerndat(&facts.criu),
        Some(mpi_library(facts)),
        Some(freezer(&facts.cgroups)),
        Some(memory_controller(&facts.cgroups)),
        facts.network.as_ref().map(network),
        Some(shared_memory(&facts.shm)),
        Some(swap(facts.swap, pages_out)),
    ];
    let stores = facts.stores.iter().map(|(dir, found)| store(dir, found));
    checks.into_iter().flatten().chain(stores).collect()
}

fn kernel(release: &str) -> Check {
    const NAME: &str = "kernel";
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= KERNEL => {
            Check::ok(NAME, format!("Linux {release}"))
        }
        (Some(Ok(_)), Some(Ok(_))) => {
            let remedy = format!("boot Linux {}.{} or newer", KERNEL.0, KERNEL.1);
            Check::lacking(NAME, format!("Linux {release} is too old"), remedy)
        }
        _ => Check::warning(
            NAME,
            format!("`{release}` has no version number"),
            "runs may fail before Linux 5.16",
        ),
    }
}

/// The kernel's scheduler, where its fault cannot be avoided: version 2 has the jobs in a group on all
/// processors.
fn scheduler(release: &str, cgroups: &Cgroups) -> Option<Check> {
    let in_v2 = |(_, controllers): &(PathBuf, Vec<String>)| controllers.iter().any(|name| name == "cpu");
    let starves = release.parse().is_ok_and(Release::lets_groups_starve_others);
    (starves && cgroups.unified.as_ref().is_some_and(in_v2)).then(|| {
        let found =
            format!("Linux {release} may keep other programs from running while ranks exchange messages");
        Check::warning("kernel's scheduler", found, "boot Linux 6.18.45, 7.0 or newer")
    })
}

fn privileges(root: bool, capabilities: u64) -> Check {
    const NAME: &str = "privileges";
    if !root {
        return Check::lacking(NAME, "not root", "run coswitch as root: restoring processes needs it");
    }
    let missing: Vec<_> =
        CAPABILITIES.iter().filter(|(bit, _)| capabilities >> bit & 1 == 0).map(|(_, name)| *name).collect();
    if missing.is_empty() {
        return Check::ok(NAME, "root, with all capabilities needed");
    }
    let remedy = "start the container with them (`--cap-add`, or privileged)";
    Check::lacking(NAME, format!("root without {}", missing.join(", ")), remedy)
}

fn parts(installation: &Result<Installation, PartMissing>) -> Check {
    const NAME: &str = "coswitch's parts";
    match installation {
        Ok(parts) => Check::ok(NAME, format!("daemon, launcher and driver in {}", parent(&parts.driver))),
        Err(missing) => {
            Check::lacking(NAME, missing.to_string(), "build them all: `cargo build --workspace --release`")
        }
    }
}

fn parent(path: &Path) -> String {
    path.parent().unwrap_or(path).display().to_string()
}

type Examined = (Criu, Option<Result<Health, CheckError>>);

fn criu(criu: &Result<Examined, LocateError>) -> Check {
    const NAME: &str = "CRIU";
    match criu {
        Err(error) => Check::lacking(NAME, format!("failed to {error}"), SETUP),
        Ok((criu, Some(Err(error)))) => {
            let found = format!("{} {} does not work: {error}", criu.program().display(), criu.version());
            Check::lacking(NAME, found, "use a kernel with CONFIG_CHECKPOINT_RESTORE")
        }
        Ok((criu, None)) => Check::warning(NAME, at(criu), "only root can ask whether it works"),
        Ok((criu, Some(Ok(_)))) => Check::ok(NAME, at(criu)),
    }
}

/// Ranks of ordinary users could become root by a CRIU that is open.
pub(super) fn trial(tried: &Result<(), TrialError>) -> Check {
    const NAME: &str = "hostile processes";
    match tried {
        Ok(()) => Check::ok(NAME, "CRIU was tried on one, which could not run in its place"),
        Err(error @ TrialError::Open) => {
            Check::lacking(NAME, error.to_string(), "use criu 4.2.1 or newer, or a build with the fix")
        }
        Err(error) => Check::warning(NAME, error.to_string(), "run `coswitch doctor` again"),
    }
}

fn at(criu: &Criu) -> String {
    format!("{} at {}", criu.version(), criu.program().display())
}

/// The check of CRIU has made the cache where it was missing. Without it a dump may stall for a minute.
fn kerndat(criu: &Result<Examined, LocateError>) -> Option<Check> {
    const NAME: &str = "CRIU's kernel cache";
    let Ok((_, Some(Ok(health)))) = criu else { return None };
    Some(match health.kerndat {
        KerndatState::Fresh => Check::ok(NAME, "there"),
        KerndatState::Stale => Check::ok(NAME, "it was from before this boot; made anew"),
        KerndatState::Missing => Check::ok(NAME, "it was missing; made now"),
    })
}

fn mpi_library(facts: &Facts) -> Check {
    const NAME: &str = "MPI library";
    match &facts.mpi {
        (path, Ok(library)) => mpi::judge(NAME, Ok(library.clone()), path),
        (path, Err(error)) => {
            let remedy = format!("{SETUP}, unless your programs bring their own MPICH with ch4:ofi");
            Check::warning(NAME, format!("{}: {error}", path.display()), remedy)
        }
    }
}

fn freezer(cgroups: &Cgroups) -> Check {
    const NAME: &str = "cgroup freezer";
    match (&cgroups.unified, &cgroups.freeze) {
        (Some((mount, _)), Some(Ok(()))) => Check::ok(NAME, format!("version 2 at {}", mount.display())),
        (Some((mount, _)), None) => {
            Check::warning(NAME, format!("version 2 at {}", mount.display()), "only root can try it")
        }
        (_, Some(Err(why))) => {
            Check::lacking(NAME, why.clone(), "run as root on a host whose cgroups may be written")
        }
        _ => Check::lacking(
            NAME,
            "no cgroup version 2 is mounted",
            "mount -t cgroup2 none /sys/fs/cgroup/unified",
        ),
    }
}

fn memory_controller(cgroups: &Cgroups) -> Check {
    const NAME: &str = "cgroup memory controller";
    let is_in = |controllers: &[String]| controllers.iter().any(|controller| controller == "memory");
    if cgroups.unified.as_ref().is_some_and(|(_, controllers)| is_in(controllers)) {
        return Check::ok(NAME, "version 2");
    }
    if is_in(&cgroups.version_1) {
        return Check::ok(NAME, "version 1");
    }
    let remedy = "enable it on the kernel's command line (cgroup_enable=memory) and mount it";
    Check::lacking(NAME, "in neither version", remedy)
}

fn network(network: &Result<(), String>) -> Check {
    const NAME: &str = "virtual network";
    match network {
        Ok(()) => Check::ok(NAME, "namespaces, veth, bridge and tbf work"),
        Err(why) => {
            let remedy =
                format!("{SETUP} (package iproute2); the kernel needs NET_NS, VETH, BRIDGE and NET_SCH_TBF");
            Check::lacking(NAME, format!("a shaped link in a namespace could not be made: {why}"), remedy)
        }
    }
}

fn shared_memory(shm: &Result<Bytes, String>) -> Check {
    const NAME: &str = "shared memory";
    let remedy = "mount -t tmpfs -o size=2g tmpfs /dev/shm (or `--shm-size=2g` for a container)";
    match shm {
        Err(why) => Check::lacking(NAME, why.clone(), remedy),
        Ok(free) if *free < SHM_LEAST => {
            Check::lacking(NAME, format!("/dev/shm has only {free} left"), remedy)
        }
        Ok(free) if *free < SHM_GOOD => Check::warning(NAME, format!("/dev/shm has {free} left"), remedy),
        Ok(free) => Check::ok(NAME, format!("/dev/shm has {free} left")),
    }
}

/// Whether the directory has enough space is known only when a job leaves memory.
fn store(dir: &Path, found: &Result<StoreSpace, StoreProblem>) -> Check {
    const NAME: &str = "store";
    let dir = dir.display();
    match found {
        Err(StoreProblem { what, remedy }) => {
            let another = "name another directory in `cluster.store`";
            let remedy = remedy.as_ref().map_or(another.into(), |first| format!("{first}, or {another}"));
            Check::lacking(NAME, format!("{dir} {what}"), remedy)
        }
        Ok(StoreSpace { free, is_memory: true }) => Check::warning(
            NAME,
            format!("{dir} has {free} left, of memory"),
            "name a directory on a disk in `cluster.store`: what leaves memory would stay there",
        ),
        Ok(StoreSpace { free, .. }) => Check::ok(NAME, format!("{dir} has {free} left")),
    }
}

/// Only `park: pageout` needs swap, so its absence alone is not a fault.
fn swap(configured: Bytes, pages_out: bool) -> Check {
    const NAME: &str = "swap";
    match configured {
        Bytes(0) if pages_out => {
            Check::lacking(NAME, "none, and `park: pageout` needs it", coswitch_daemon::swap::ADVICE)
        }
        Bytes(0) => {
            Check::ok(NAME, format!("none; `park: pageout` needs it ({})", coswitch_daemon::swap::ADVICE))
        }
        size => Check::ok(NAME, size.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn an_old_kernel_and_a_missing_criu_are_refused() {
        assert_eq!(kernel("6.18.44-fc-v669").verdict, Verdict::Ok);
        assert_eq!(kernel("5.10.0-21-amd64").verdict, Verdict::Lacking);
        assert_eq!(kernel("strange").verdict, Verdict::Warning);
        let missing = LocateError::Missing { looked_at: vec!["/c".into()] };
        assert_eq!(criu(&Err(missing)).verdict, Verdict::Lacking);
    }

    #[test]
    fn a_fault_of_the_scheduler_is_named_where_it_cannot_be_avoided() {
        let with = |controllers: &[&str]| Cgroups {
            unified: Some(("/c".into(), controllers.iter().map(ToString::to_string).collect())),
            ..Cgroups::default()
        };
        let verdict =
            |release, controllers| scheduler(release, &with(controllers)).map(|check| check.verdict);
        assert_eq!(verdict("6.18.44-fc", &["cpu", "memory"]), Some(Verdict::Warning));
        assert_eq!(verdict("6.18.44-fc", &[]), None, "version 1 has the controller");
        assert_eq!(verdict("6.18.45", &["cpu"]), None);
    }

    #[test]
    fn a_missing_capability_is_named() {
        assert_eq!(privileges(true, 0x1ff_feff_ffff).verdict, Verdict::Ok, "SYS_RESOURCE is not needed");
        assert!(privileges(true, !(1 << 21)).found.contains("SYS_ADMIN"));
        assert_eq!(privileges(false, u64::MAX).verdict, Verdict::Lacking);
    }

    #[test]
    fn the_memory_controller_may_be_in_either_version() {
        let v1 = Cgroups { version_1: vec!["memory".into()], ..Cgroups::default() };
        assert_eq!(memory_controller(&v1).verdict, Verdict::Ok);
        assert_eq!(memory_controller(&Cgroups::default()).verdict, Verdict::Lacking);
        assert_eq!(freezer(&v1).verdict, Verdict::Lacking);
    }

    #[test]
    fn a_machine_without_swap_is_fit_unless_a_run_needs_it() {
        let none = swap(Bytes(0), false);
        assert!(
            none.verdict == Verdict::Ok && none.found.contains("pageout") && none.found.contains("swapon")
        );
        assert_eq!(swap(Bytes::mib(2048), false).found, "2GiB");
        assert_ne!(swap(Bytes(0), true).verdict, Verdict::Ok, "a run that needs it is refused");
    }

    #[test]
    fn a_store_in_memory_gives_a_warning() {
        let on =
            |is_memory| store(Path::new("/x"), &Ok(StoreSpace { free: Bytes::mib(1), is_memory })).verdict;
        assert_eq!((on(false), on(true)), (Verdict::Ok, Verdict::Warning));
    }

    #[test]
    fn every_lack_has_a_remedy() {
        let lacks = [
            kernel("3.2.1"),
            privileges(false, 0),
            criu(&Err(LocateError::Missing { looked_at: vec![] })),
            trial(&Err(TrialError::Open)),
            freezer(&Cgroups::default()),
            memory_controller(&Cgroups::default()),
            network(&Err("no".into())),
            shared_memory(&Err("no".into())),
            store(Path::new("/gone"), &Err("cannot be written to".to_owned().into())),
        ];
        for check in lacks {
            assert!(check.verdict == Verdict::Lacking && check.remedy.is_some(), "{check}");
        }
    }
}
