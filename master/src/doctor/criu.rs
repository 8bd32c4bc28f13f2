//! Which CRIU a run would use, and whether it works here.

use std::{env, path::PathBuf, process::Command};

use super::command;
use crate::install;

/// What was found of CRIU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Criu {
    /// There is none at these places.
    Missing(Vec<PathBuf>),
    /// There is one.
    Found {
        /// The binary.
        path: PathBuf,
        /// Its version, or why it would not tell.
        version: Result<(u32, u32), String>,
        /// Whether `criu check` is content with the kernel.
        check: Result<(), String>,
    },
}

impl Criu {
    /// Looks for it where the daemon does: COSWITCH_CRIU alone, where set; else the prefix, then PATH.
    pub(crate) fn look() -> Self {
        let places = places();
        let Some(path) = places.iter().find(|path| path.is_file()).cloned() else {
            return Self::Missing(places);
        };
        let version = command::text(Command::new(&path).arg("--version"))
            .and_then(|text| parse_version(&text).ok_or_else(|| format!("it says `{}`", text.trim())));
        let check = command::text(Command::new(&path).arg("check")).map(|_| ());
        Self::Found { path, version, check }
    }
}

fn places() -> Vec<PathBuf> {
    if let Some(path) = env::var_os("COSWITCH_CRIU") {
        return vec![path.into()];
    }
    let search = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&search).map(|directory| directory.join("criu"));
    std::iter::once(install::prefix().join("criu/bin/criu")).chain(in_path).collect()
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let number = text.lines().find_map(|line| line.strip_prefix("Version:"))?.trim();
    let mut parts = number.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_criu_prints() {
        assert_eq!(parse_version("Version: 4.2.1\nGitID: v4.2.1\n"), Some((4, 2)));
        assert_eq!(parse_version("Version: 5\n"), Some((5, 0)));
        assert_eq!(parse_version("criu, probably"), None);
    }
}
