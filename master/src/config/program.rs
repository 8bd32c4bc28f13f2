//! Finds a job's program: below the run file's directory where its name has a `/`, else in PATH.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use thiserror::Error;

#[derive(Debug, Error)]
pub enum ProgramError {
    #[error("there is no program {}", .0.display())]
    Missing(PathBuf),
    #[error("{} is not a file", .0.display())]
    NotAFile(PathBuf),
    #[error("{} is not executable", .0.display())]
    NotExecutable(PathBuf),
    #[error("there is no program `{0}` in PATH")]
    NotInPath(String),
    #[error("the program's name is empty")]
    Empty,
}

impl ProgramError {
    pub fn help(&self) -> String {
        match self {
            Self::Missing(_) => {
                "build it first, or correct the path (it counts from the run file's directory)".into()
            }
            Self::NotAFile(_) => "name the program itself".into(),
            Self::NotExecutable(path) => format!("run `chmod +x {}`", path.display()),
            Self::NotInPath(name) => {
                format!("write `./{name}` for a program beside the run file, or add its directory to PATH")
            }
            Self::Empty => {
                "write the program first, then its arguments: `command: [./cg, --class, A]`".into()
            }
        }
    }
}

/// The absolute path of the program that a run file in `base` calls `name`.
///
/// # Errors
/// Where there is no executable file of that name.
pub fn find(name: &str, base: &Path, search: Option<&OsStr>) -> Result<PathBuf, ProgramError> {
    if name.is_empty() {
        return Err(ProgramError::Empty);
    }
    if name.contains('/') {
        return executable(&base.join(name));
    }
    let directories = search.map(std::env::split_paths).into_iter().flatten();
    directories
        .filter(|directory| directory.is_absolute())
        .find_map(|directory| executable(&directory.join(name)).ok())
        .ok_or_else(|| ProgramError::NotInPath(name.into()))
}

fn executable(path: &Path) -> Result<PathBuf, ProgramError> {
    // The path is kept as written: the python of a virtual environment, for example, looks for files beside
    // the link.
    let metadata = fs::metadata(path).map_err(|_| ProgramError::Missing(path.into()))?;
    if !metadata.is_file() {
        return Err(ProgramError::NotAFile(path.into()));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(ProgramError::NotExecutable(path.into()));
    }
    Ok(path.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_slash_is_looked_up_in_path_only() {
        let here = Path::new("/bin");
        assert!(matches!(find("sh", here, None), Err(ProgramError::NotInPath(_))));
        assert_eq!(find("sh", here, Some(OsStr::new("/nowhere:/bin"))).unwrap(), Path::new("/bin/sh"));
        assert_eq!(find("./sh", here, None).unwrap(), Path::new("/bin/sh"));
    }

    #[test]
    fn directories_and_plain_files_are_refused() {
        let root = Path::new("/");
        assert!(matches!(find("./etc", root, None), Err(ProgramError::NotAFile(_))));
        assert!(matches!(find("etc/passwd", root, None), Err(ProgramError::NotExecutable(_))));
        assert!(matches!(find("./none-such", root, None), Err(ProgramError::Missing(_))));
    }
}
