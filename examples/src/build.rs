//! Builds the programs with `make`, into `mpi/bin`, where the job sets expect them.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use thiserror::Error;

use crate::{Program, folder};

/// The programs, built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// The executable of `program`.
    pub fn path(&self, program: Program) -> PathBuf {
        self.folder.join(program.name())
    }
}

/// Why the programs could not be built.
#[derive(Debug, Error)]
pub enum BuildError {
    /// There is no such compiler wrapper.
    #[error("{} is not there: `cargo xtask setup` installs the MPI wrapper", .0.display())]
    NoWrapper(PathBuf),
    /// A file or folder of the build could not be used.
    #[error("cannot use {}", .path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `make` could not be started.
    #[error("cannot start make")]
    Make(#[source] io::Error),
    /// The compiler refused.
    #[error("make failed:\n{0}")]
    Compile(String),
}

/// Brings the programs up to date with the MPI wrapper `mpicc`. Cheap when they are. Callers in other
/// processes wait their turn.
///
/// # Errors
/// Names what is missing, or holds what the compiler said.
pub fn build(mpicc: &Path) -> Result<Programs, BuildError> {
    if !mpicc.is_file() {
        return Err(BuildError::NoWrapper(mpicc.into()));
    }
    let sources = folder().join("mpi");
    let programs = Programs { folder: sources.join("bin") };
    let _turn = lock(&programs.folder)?;
    let output = Command::new("make")
        .arg("-C")
        .arg(&sources)
        .arg(format!("MPICC={}", mpicc.display()))
        .env_remove("MAKEFLAGS")
        .stdin(Stdio::null())
        .output()
        .map_err(BuildError::Make)?;
    if !output.status.success() {
        return Err(BuildError::Compile(String::from_utf8_lossy(&output.stderr).trim_end().into()));
    }
    Ok(programs)
}

/// Held until dropped.
fn lock(folder: &Path) -> Result<File, BuildError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| BuildError::Folder { path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let path = folder.join(".lock");
    let file = File::create(&path).map_err(failed(&path))?;
    file.lock().map_err(failed(&path))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_wrapper_is_named_with_its_remedy() {
        let error = build(Path::new("/nowhere/mpicc")).expect_err("there is none");
        assert_eq!(
            error.to_string(),
            "/nowhere/mpicc is not there: `cargo xtask setup` installs the MPI wrapper"
        );
    }
}
