//! Finds the other parts of coswitch: beside this program, as cargo builds them, or in `../lib/coswitch`.

use std::{
    env,
    path::{Path, PathBuf},
};

use coswitch_dispatcher::provisioning::Installed;
use serde::Serialize;
use thiserror::Error;

/// The prefix of `cargo xtask setup`, unless `COSWITCH_PREFIX` names another.
const PREFIX: &str = "/opt/coswitch";

/// The parts that a run starts or loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Installation {
    pub daemon: PathBuf,
    /// PID 1 of an application on a node.
    pub launcher: PathBuf,
    /// The libfabric provider that MPI loads.
    pub driver: PathBuf,
    /// The library that CRIU loads where root lacks a capability.
    pub preload: PathBuf,
}

impl From<Installation> for Installed {
    fn from(Installation { daemon, launcher, driver, preload }: Installation) -> Self {
        Self { daemon, launcher, driver, preload }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} is not installed beside {}", .beside.display())]
pub struct PartMissing {
    pub name: &'static str,
    pub beside: PathBuf,
}

impl Installation {
    /// Finds the parts of this build. Parts of other builds may have another protocol version and are not
    /// used.
    ///
    /// # Errors
    /// Names the missing part.
    pub fn find() -> Result<Self, PartMissing> {
        let program = own_path().and_then(|path| path.canonicalize()).unwrap_or_else(|_| "coswitch".into());
        let part = |name| part(name, &program).ok_or_else(|| PartMissing { name, beside: program.clone() });
        Ok(Self {
            daemon: part("coswitchd")?,
            launcher: part("coswitch-launcher")?,
            driver: part("libcoswitch_fi.so")?,
            preload: part("libcoswitch_criu.so")?,
        })
    }
}

/// The path of this program. Where an upgrade has replaced the file, the kernel says so behind the name.
fn own_path() -> std::io::Result<PathBuf> {
    let path = env::current_exe()?;
    let name = path.to_str().and_then(|name| name.strip_suffix(" (deleted)"));
    Ok(name.map_or_else(|| path.clone(), PathBuf::from))
}

fn part(name: &str, program: &Path) -> Option<PathBuf> {
    let beside = program.parent()?;
    let library = beside.parent().map(|prefix| prefix.join("lib/coswitch"));
    // A test binary lies in `deps`, a directory below the programs.
    let above = (beside.file_name()? == "deps").then(|| beside.parent()).flatten().map(Path::to_path_buf);
    let directories = [Some(beside.to_path_buf()), library, above];
    directories.into_iter().flatten().map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// The prefix of CRIU and the MPI library.
pub fn prefix() -> PathBuf {
    env::var_os("COSWITCH_PREFIX").map_or_else(|| PREFIX.into(), PathBuf::from)
}
