//! Version numbers of CRIU, read from the program or from a package.

use anyhow::{Context, Result};
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The oldest usable CRIU: in 4.2 a hostile process can forge its credentials in an image
/// (CVE-2026-18107), and 4.1 cannot dump a TCP socket on Linux 6.16 and later.
pub(super) const CRIU_MIN: Version = Version { major: 4, minor: 2, sublevel: 1 };

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) sublevel: u32,
}

impl Version {
    /// Takes the leading numbers of `4.2.1`, `4.2`, `4.2.1-1+b2` or `Version: 4.2.1`.
    pub(super) fn parse(text: &str) -> Option<Version> {
        let digits = &text[text.find(|c: char| c.is_ascii_digit())?..];
        let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
        let mut parts = digits[..end].split('.').map(|part| part.parse().ok());
        let major = parts.next()??;
        let minor = parts.next().flatten().unwrap_or(0);
        let sublevel = parts.next().flatten().unwrap_or(0);
        Some(Version { major, minor, sublevel })
    }

    /// Asks the program itself, which also proves that it finds its libraries.
    pub(super) fn of_binary(binary: &Path) -> Result<Version> {
        let text = crate::command::run(Command::new(binary).arg("--version"), Duration::from_secs(20))?;
        let line = text.lines().find(|line| line.starts_with("Version:"));
        line.and_then(Version::parse).with_context(|| format!("{} names no version", binary.display()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sublevel {
            0 => write!(f, "{}.{}", self.major, self.minor),
            _ => write!(f, "{}.{}.{}", self.major, self.minor, self.sublevel),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_and_program_versions_are_read_alike() {
        let expected = Some(Version { major: 4, minor: 2, sublevel: 1 });
        for text in ["4.2.1", "4.2.1-1", "Version: 4.2.1", "4.2.1+b2"] {
            assert_eq!(Version::parse(text), expected, "{text}");
        }
        assert_eq!(Version::parse("(none)"), None);
    }

    #[test]
    fn the_oldest_usable_criu_is_4_2_1() {
        assert!(Version::parse("4.1.1").unwrap() < CRIU_MIN);
        assert!(Version::parse("3.17.1-2+deb12u2").unwrap() < CRIU_MIN);
        assert!(Version::parse("4.2").unwrap() < CRIU_MIN);
        assert!(Version::parse("4.2.1").unwrap() >= CRIU_MIN);
        assert!(Version::parse("4.10").unwrap() > CRIU_MIN);
    }
}
