//! The release of the running kernel, and a fault of its scheduler that coswitch has to avoid.
//!
//! A task group has a weight on each processor, in proportion to its load there. In some releases each change
//! of the weight of a group *that runs* doubles its claim to that processor (mainline commit 6d71a9c61604,
//! reverted by 101f3498b4bd). Ranks that wake each other change it thousands of times a second, and no other
//! program then gets the processor, for seconds or for as long as they do so. The weight of a group whose
//! processes all stay on one processor never changes.

use std::{fs, str::FromStr};

/// A release such as 6.18.44; what follows the numbers is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Release {
    /// `None` where the kernel does not say.
    pub fn running() -> Option<Self> {
        fs::read_to_string("/proc/sys/kernel/osrelease").ok()?.parse().ok()
    }

    /// Whether the exit status of a process that is no child can be known.
    pub const fn tells_of_any_exit(self) -> bool {
        self.major > 6 || self.major == 6 && self.minor >= 15
    }

    /// Whether a task group on several processors may keep everything outside it from running.
    pub const fn lets_groups_starve_others(self) -> bool {
        match (self.major, self.minor) {
            (6, 13..=17 | 19) => true,
            (6, 18) => self.patch < 45,
            _ => false,
        }
    }
}

/// The text does not begin with the number of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRelease;

impl FromStr for Release {
    type Err = NoRelease;

    fn from_str(text: &str) -> Result<Self, NoRelease> {
        let mut parts = text.trim().split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let mut part = || parts.next().and_then(Result::ok);
        Ok(Self {
            major: part().ok_or(NoRelease)?,
            minor: part().ok_or(NoRelease)?,
            patch: part().unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_with_the_fault_are_known() {
        let starves = |text: &str| text.parse::<Release>().map(Release::lets_groups_starve_others);
        for faulty in ["6.13.0", "6.14", "6.18.44-fc-v669", "6.18-rc3", "6.19.2"] {
            assert_eq!(starves(faulty), Ok(true), "{faulty}");
        }
        for sound in ["5.15.0-91-generic", "6.1.0", "6.12.63", "6.18.45", "6.18.50+", "7.0.0"] {
            assert_eq!(starves(sound), Ok(false), "{sound}");
        }
        assert_eq!(starves("strange"), Err(NoRelease));
    }

    #[test]
    fn the_running_kernel_has_a_release() {
        assert!(Release::running().is_some_and(|release| release.major >= 5));
    }
}
