//! The name of a run. It appears in the names of cgroups, shared memory and directories, and tells by itself whether
//! the run is still alive: it holds the master's process id and the time that process was started.

use std::{fmt, fs, str::FromStr};

/// `<pid>-<start time>`, both in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunName {
    pid: u32,
    started: u64,
}

impl RunName {
    /// The name of the run that this process is the master of.
    pub fn of_this_process() -> Self {
        let pid = std::process::id();
        Self::of(pid).unwrap_or(Self { pid, started: 0 })
    }

    /// The name of the run that process `pid` is the master of; `None` where it has ended.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, started: started(pid)? })
    }

    /// Whether its master is still there. A process id that was given to another process has another start time.
    pub fn is_alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// The name of a part of the run, as short as this one and as telling.
    pub fn with_suffix(&self, suffix: &str) -> String {
        format!("{self}{suffix}")
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{:x}-{:x}", self.pid, self.started)
    }
}

/// Not the name of a run, nor of something that belongs to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRunName;

impl FromStr for RunName {
    type Err = NoRunName;

    /// Reads it from its own name or that of anything that belongs to it, such as `r1f-2a0-n1`.
    fn from_str(text: &str) -> Result<Self, NoRunName> {
        let mut parts = text.strip_prefix('r').ok_or(NoRunName)?.splitn(3, '-');
        let mut hex =
            || parts.next().and_then(|part| u64::from_str_radix(hex_digits(part), 16).ok()).ok_or(NoRunName);
        let pid = u32::try_from(hex()?).map_err(|_| NoRunName)?;
        Ok(Self { pid, started: hex()? })
    }
}

fn hex_digits(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len())]
}

/// When the process was started, in ticks since boot: field 22 of its stat file.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in field 2 may hold anything, but its closing parenthesis is the last.
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace();
    let state = fields.next()?;
    (state != "Z").then(|| fields.nth(18)?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_another_of_its_number_is_not() {
        let name = RunName::of_this_process();
        assert!(name.is_alive());
        assert!(!RunName { started: name.started + 1, ..name }.is_alive());
    }

    #[test]
    fn a_name_is_read_from_what_belongs_to_the_run() {
        let name = RunName { pid: 31, started: 672 };
        for text in [name.to_string(), format!("{name}-n1"), name.with_suffix("-a3") + "-n0"] {
            assert_eq!(text.parse(), Ok(name), "{text}");
        }
        assert_eq!("tests-n1".parse::<RunName>(), Err(NoRunName));
    }
}
