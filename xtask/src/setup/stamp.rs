//! Stamp of the CRIU that set-up chose, so that a second run need not test it again.

use super::version::Version;
use anyhow::{Context, Result};
use std::fmt;
use std::path::{Path, PathBuf};

/// Written after the self-test has passed; without a readable stamp set-up looks again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) binary: PathBuf,
    pub(super) version: Version,
    /// `the distribution`, or the suite of a private copy.
    pub(super) source: String,
    /// Another kernel needs another test.
    pub(super) kernel: String,
}

impl Stamp {
    pub(super) fn load(path: &Path) -> Option<Stamp> {
        Stamp::parse(&std::fs::read_to_string(path).ok()?)
    }

    pub(super) fn save(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.render()).with_context(|| format!("cannot write {}", path.display()))
    }

    fn parse(text: &str) -> Option<Stamp> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        Some(Stamp {
            binary: field("binary")?.into(),
            version: Version::parse(field("version")?)?,
            source: field("source")?.to_owned(),
            kernel: field("kernel")?.to_owned(),
        })
    }

    fn render(&self) -> String {
        let Stamp { binary, version, source, kernel } = self;
        format!("binary = {}\nversion = {version}\nsource = {source}\nkernel = {kernel}\n", binary.display())
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}, tested: {}", self.version, self.source, self.binary.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_reads_back_as_it_was_written() {
        let stamp = Stamp {
            binary: "/opt/coswitch/criu/bin/criu".into(),
            version: Version::parse("4.2.1").unwrap(),
            source: "sid".to_owned(),
            kernel: "6.18.44".to_owned(),
        };
        assert_eq!(Stamp::parse(&stamp.render()), Some(stamp));
    }

    #[test]
    fn an_incomplete_stamp_is_ignored() {
        assert_eq!(Stamp::parse("binary = /usr/sbin/criu\nversion = 4.2\n"), None);
    }
}
