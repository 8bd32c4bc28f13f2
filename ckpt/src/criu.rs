//! The CRIU program: finds it and checks its version and what it can do with this kernel.

use crate::kerndat::{self, KerndatError, KerndatState};
use criu_sys::rpc::{CriuFeatures, CriuReq, CriuReqType, CriuResp};
use criu_sys::{Swrk, SwrkError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Names the program to use; takes precedence over all other places.
const PROGRAM_VARIABLE: &str = "COSWITCH_CRIU";
/// See [`Criu::with_library_of`].
const LIBRARY: &str = "libcoswitch_criu.so";
/// The number of that capability in `linux/capability.h`.
const SYS_RESOURCE: u32 = 24;
/// Names the directory that `cargo xtask setup` installs to.
pub const PREFIX_VARIABLE: &str = "COSWITCH_PREFIX";
const PREFIX_DEFAULT: &str = "/opt/coswitch";

/// The oldest version that can be used: 4.1 cannot dump a TCP socket on Linux 6.16 and later.
pub const VERSION_MIN: Version = Version { major: 4, minor: 2, sublevel: 0 };
/// The first one in which no process can forge its credentials in an image (CVE-2026-18107). Some
/// distributions have mended 4.2 as well: see [`Criu::try_bait`].
const VERSION_CLOSED: Version = Version { major: 4, minor: 2, sublevel: 1 };

const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Probing the kernel was seen to stall for 100 s on busy cores.
const PROBE_LIMIT: Duration = Duration::from_secs(240);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    /// 0 if there is none.
    pub sublevel: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sublevel {
            0 => write!(f, "{}.{}", self.major, self.minor),
            _ => write!(f, "{}.{}.{}", self.major, self.minor, self.sublevel),
        }
    }
}

/// Why there is no CRIU to work with.
#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    #[error(
        "find criu: not at {}; run `cargo xtask setup`, or name one in {PROGRAM_VARIABLE}",
        listed(.looked_at)
    )]
    Missing { looked_at: Vec<PathBuf> },
    #[error(
        "use {}: it is criu {found}, and {VERSION_MIN} or newer is needed; run `cargo xtask setup`",
        .program.display()
    )]
    TooOld { program: PathBuf, found: Version },
    /// The program does not answer as CRIU does.
    #[error("use {}: {source}", .program.display())]
    Unusable { program: PathBuf, source: SwrkError },
}

fn has_sys_resource() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    effective >> SYS_RESOURCE & 1 == 1
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Swrk(#[from] SwrkError),
    #[error(transparent)]
    Kerndat(#[from] KerndatError),
    #[error("criu cannot work with this kernel: {0}")]
    Kernel(String),
}

/// What [`Criu::check`] found; each part is a line for `coswitch doctor`.
#[derive(Clone, Debug)]
pub struct Health {
    /// The state of the cache of kernel probes before the check.
    pub kerndat: KerndatState,
    /// CRIU can hold processes by descriptor.
    pub pidfd_store: bool,
    /// CRIU can page memory in after a restore.
    pub lazy_pages: bool,
    /// CRIU can track memory changes.
    pub mem_track: bool,
}

/// A CRIU that is new enough. Cheap to clone; any number of threads may use it at a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Criu {
    program: PathBuf,
    version: Version,
    /// The cgroup of workers that dump.
    worker_cgroup: Option<PathBuf>,
    /// A library that workers that dump load first.
    #[serde(default)]
    preload: Option<PathBuf>,
}

impl Criu {
    /// Finds CRIU: named by `COSWITCH_CRIU`, else installed by `cargo xtask setup`, else on the search path.
    pub fn locate() -> Result<Criu, LocateError> {
        if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
            return Criu::at(Path::new(&program));
        }
        let candidates = candidates();
        match candidates.iter().find(|program| program.is_file()) {
            Some(program) => Criu::at(program),
            None => Err(LocateError::Missing { looked_at: candidates }),
        }
    }

    /// Uses this program, if it is new enough.
    pub fn at(program: &Path) -> Result<Criu, LocateError> {
        if !program.is_file() {
            return Err(LocateError::Missing { looked_at: vec![program.to_owned()] });
        }
        let unusable = |source| LocateError::Unusable { program: program.to_owned(), source };
        let version = ask_version(program).map_err(unusable)?;
        if version < VERSION_MIN {
            return Err(LocateError::TooOld { program: program.to_owned(), found: version });
        }
        Ok(Criu { program: program.to_owned(), version, worker_cgroup: None, preload: None })
    }

    /// Runs workers that dump in this cgroup, so that a clean-up after this process finds them and their
    /// children. Workers that restore run in the cgroups of the restored tree.
    pub fn with_workers_in(self, cgroup: &Path) -> Criu {
        Criu { worker_cgroup: Some(cgroup.to_owned()), ..self }
    }

    /// Where this process lacks CAP_SYS_RESOURCE, workers that dump load the library `libcoswitch_criu.so` of
    /// that directory: without it CRIU cannot read the limits of other users' processes.
    pub fn with_library_of(self, directory: &Path) -> Criu {
        let library = directory.join(LIBRARY);
        let preload = (!has_sys_resource() && library.is_file()).then_some(library);
        Criu { preload, ..self }
    }

    /// Starts a worker with [`Swrk::start_to_dump`] in its cgroup.
    pub(crate) fn start_to_dump(&self, inherited: Option<BorrowedFd<'_>>) -> Result<Swrk, SwrkError> {
        let worker = Swrk::start_to_dump(&self.program, self.preload.as_deref(), inherited)?;
        // The worker has no children before its first request, so it can move alone.
        let enter = |cgroup: &PathBuf| fs::write(cgroup.join("cgroup.procs"), worker.pid().to_string());
        let failed = |source| SwrkError::Start { program: self.program.display().to_string(), source };
        self.worker_cgroup.iter().try_for_each(enter).map_err(failed)?;
        Ok(worker)
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether no process can run in its place, as far as the version says.
    pub fn is_closed(&self) -> bool {
        self.version >= VERSION_CLOSED
    }

    /// Makes the cache of kernel probes if it is missing or from before this boot. Call it at start, because
    /// it may take minutes; [`Criu::dump`] and [`Criu::restore`] call it as well.
    pub fn prepare(&self) -> Result<KerndatState, KerndatError> {
        kerndat::ensure(&self.program, PROBE_LIMIT)
    }

    /// Asks CRIU whether it works with this kernel and what it can do.
    pub fn check(&self) -> Result<Health, CheckError> {
        let kerndat = kerndat::state();
        self.prepare()?;
        let check = self.ask(CriuReq { r#type: CriuReqType::Check as i32, ..CriuReq::default() })?;
        if !check.success {
            return Err(CheckError::Kernel(check.cr_errmsg.unwrap_or_default().trim().to_owned()));
        }
        let wanted = CriuFeatures { mem_track: Some(true), lazy_pages: Some(true), pidfd_store: Some(true) };
        let features = self.ask(CriuReq {
            r#type: CriuReqType::FeatureCheck as i32,
            features: Some(wanted),
            ..CriuReq::default()
        })?;
        // CRIU has deleted the cache if it was of another build: make it anew.
        self.prepare()?;
        let features = features.features.unwrap_or_default();
        Ok(Health {
            kerndat,
            pidfd_store: features.pidfd_store(),
            lazy_pages: features.lazy_pages(),
            mem_track: features.mem_track(),
        })
    }

    fn ask(&self, request: CriuReq) -> Result<CriuResp, SwrkError> {
        ask(&self.program, &request, PROBE_LIMIT)
    }
}

fn candidates() -> Vec<PathBuf> {
    let prefix = std::env::var_os(PREFIX_VARIABLE).map_or_else(|| PREFIX_DEFAULT.into(), PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("criu"));
    std::iter::once(prefix.join("criu/bin/criu")).chain(on_path).collect()
}

fn ask_version(program: &Path) -> Result<Version, SwrkError> {
    let request = CriuReq { r#type: CriuReqType::Version as i32, ..CriuReq::default() };
    let version = ask(program, &request, ANSWER_LIMIT)?.version.unwrap_or_default();
    let number = |value: i32| u32::try_from(value).unwrap_or(0);
    Ok(Version {
        major: number(version.major_number),
        minor: number(version.minor_number),
        sublevel: number(version.sublevel()),
    })
}

fn ask(program: &Path, request: &CriuReq, limit: Duration) -> Result<CriuResp, SwrkError> {
    let mut worker = Swrk::start(program)?;
    let response = worker.call(request, Instant::now() + limit, &mut |_| true)?;
    worker.end(ANSWER_LIMIT);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_about_a_missing_program_names_it_and_the_remedy() {
        let error = Criu::at(Path::new("/nonexistent/criu")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/criu") && error.contains("cargo xtask setup"), "{error}");
    }

    #[test]
    fn a_program_that_is_not_criu_is_refused() {
        let error = Criu::at(Path::new("/bin/ls")).unwrap_err();
        assert!(matches!(error, LocateError::Unusable { .. }), "{error}");
    }

    #[test]
    fn versions_are_ordered_and_printed_as_upstream_does() {
        let version = |major, minor, sublevel| Version { major, minor, sublevel };
        assert!(
            version(4, 1, 1) < VERSION_MIN
                && version(4, 2, 0) < VERSION_CLOSED
                && version(4, 10, 0) > VERSION_CLOSED
        );
        assert_eq!(
            (version(4, 2, 1).to_string(), version(4, 2, 0).to_string()),
            ("4.2.1".into(), "4.2".into())
        );
    }
}
