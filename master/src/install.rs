//! Where the other parts of coswitch lie: beside this program, as cargo builds them, or in `../lib/coswitch`.

use std::{
    env,
    path::{Path, PathBuf},
};

use serde::Serialize;
use thiserror::Error;

/// The prefix of what `cargo xtask setup` installs, unless `COSWITCH_PREFIX` names another.
const PREFIX: &str = "/opt/coswitch";

/// The parts that a run starts or loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Installation {
    /// The node daemon.
    pub daemon: PathBuf,
    /// PID 1 of an application on a node.
    pub launcher: PathBuf,
    /// The driver that MPI loads.
    pub driver: PathBuf,
}

/// A part is missing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} is not installed beside {}", .beside.display())]
pub struct PartMissing {
    /// The file.
    pub name: &'static str,
    /// This program.
    pub beside: PathBuf,
}

impl Installation {
    /// Finds the parts of this very build. A part of another build is never taken: they speak one protocol version.
    ///
    /// # Errors
    /// Names the part that is not there.
    pub fn find() -> Result<Self, PartMissing> {
        let program =
            env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_else(|_| "coswitch".into());
        let part = |name| part(name, &program).ok_or_else(|| PartMissing { name, beside: program.clone() });
        Ok(Self {
            daemon: part("coswitchd")?,
            launcher: part("coswitch-launcher")?,
            driver: part("libcoswitch_fi.so")?,
        })
    }
}

fn part(name: &str, program: &Path) -> Option<PathBuf> {
    let beside = program.parent()?;
    let library = beside.parent().map(|prefix| prefix.join("lib/coswitch"));
    // A test binary lies in `deps`, one below the programs.
    let above = (beside.file_name()? == "deps").then(|| beside.parent()).flatten().map(Path::to_path_buf);
    let directories = [Some(beside.to_path_buf()), library, above];
    directories.into_iter().flatten().map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Where set-up put CRIU and the MPI library.
pub fn prefix() -> PathBuf {
    env::var_os("COSWITCH_PREFIX").map_or_else(|| PREFIX.into(), PathBuf::from)
}
