//! Finds the other parts of coswitch: beside this program, as cargo builds them, or in `../lib/coswitch`.
//!
//! A job names its launcher and its driver by their paths, also in its snapshots, so no upgrade may replace
//! these files below it. A package therefore keeps the parts of each build in a directory of their own;
//! `../lib/coswitch/parts` leads to that of the build that is installed now.

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
    // Not by the link, which leads elsewhere after an upgrade.
    let kept = library.as_ref().and_then(|library| library.join("parts").canonicalize().ok());
    // A test binary lies in `deps`, a directory below the programs.
    let above = (beside.file_name()? == "deps").then(|| beside.parent()).flatten().map(Path::to_path_buf);
    let directories = [Some(beside.to_path_buf()), kept, library, above];
    directories.into_iter().flatten().map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// The prefix of CRIU and the MPI library.
pub fn prefix() -> PathBuf {
    env::var_os("COSWITCH_PREFIX").map_or_else(|| PREFIX.into(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn an_upgrade_leaves_the_parts_of_a_cluster_where_they_were_found() {
        let prefix = tempfile::tempdir().unwrap();
        let prefix = prefix.path().canonicalize().unwrap();
        let (program, library) = (prefix.join("bin/coswitch"), prefix.join("lib/coswitch"));
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        for directory in [library.join("1"), library.join("2"), library.clone()] {
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("coswitchd"), "").unwrap();
        }
        let daemon = || part("coswitchd", &program);
        // A package that is unpacked and not configured yet.
        symlink("0", library.join("parts")).unwrap();
        assert_eq!(daemon(), Some(library.join("coswitchd")));
        for build in ["1", "2"] {
            fs::remove_file(library.join("parts")).unwrap();
            symlink(build, library.join("parts")).unwrap();
            assert_eq!(daemon(), Some(library.join(build).join("coswitchd")));
        }
        // As cargo builds them: those beside the program go first.
        fs::write(prefix.join("bin/coswitchd"), "").unwrap();
        assert_eq!(daemon(), Some(prefix.join("bin/coswitchd")));
    }
}
