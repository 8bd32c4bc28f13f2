//! The sshd of the tests of hosts.

use anyhow::Result;

use super::{Prefix, apt, unpacked};

/// With the library that only it needs.
const PACKAGES: [&str; 2] = ["openssh-server", "libwrap0"];

pub(super) fn ensure(prefix: &Prefix) -> Result<String> {
    apt::ensure_tools(apt::SSH)?;
    unpacked::ensure(&prefix.sshd(), "usr/sbin/sshd", &PACKAGES)
}
