//! Builds the programs with `make` into `mpi/bin`, where the run files expect them.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use thiserror::Error;

use crate::{Program, folder};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    pub fn path(&self, program: Program) -> PathBuf {
        self.folder.join(program.name())
    }
}

#[derive(Debug, Error)]
pub enum BuildError {
    #[error("{} is missing: `cargo xtask setup` installs the MPI wrapper", .0.display())]
    NoWrapper(PathBuf),
    #[error("cannot use {}", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot start make")]
    Make(#[source] io::Error),
    #[error("make failed:\n{0}")]
    Compile(String),
}

/// Builds the programs with the MPI wrapper `mpicc`, if they are not up to date. Processes build one after
/// the other.
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

/// Locks the folder until the file is dropped.
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
    fn missing_wrapper_is_named_with_its_remedy() {
        let error = build(Path::new("/nowhere/mpicc")).expect_err("the wrapper is missing");
        assert_eq!(
            error.to_string(),
            "/nowhere/mpicc is missing: `cargo xtask setup` installs the MPI wrapper"
        );
    }
}
