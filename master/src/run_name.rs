//! The name of a run: the process id of its master and the start time of that process, so that the name alone
//! shows whether the run is alive. It is part of the names of cgroups, shared memory and directories.

use std::{fmt, str::FromStr};

use coswitch_daemon::process::Process;

/// `<pid>-<start time>`, both in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunName(Process);

impl RunName {
    /// The name of the run whose master is this process.
    pub fn of_this_process() -> Self {
        let pid = std::process::id();
        Self(Process::of(pid).unwrap_or(Process { pid, started: 0 }))
    }

    /// The name of the run whose master is the process `pid`; `None` where the process has ended.
    pub fn of(pid: u32) -> Option<Self> {
        Process::of(pid).map(Self)
    }

    /// Whether the master is alive. Another process with the same id has another start time.
    pub fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    /// The name of a part of the run, which is read as the run's name, too.
    pub fn with_suffix(&self, suffix: &str) -> String {
        format!("{self}{suffix}")
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{:x}-{:x}", self.0.pid, self.0.started)
    }
}

/// The text is not the name of a run or of a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRunName;

impl FromStr for RunName {
    type Err = NoRunName;

    /// Reads the name of a run or of anything that belongs to it, such as `r1f-2a0-n1`.
    fn from_str(text: &str) -> Result<Self, NoRunName> {
        let mut parts = text.strip_prefix('r').ok_or(NoRunName)?.splitn(3, '-');
        let mut hex =
            || parts.next().and_then(|part| u64::from_str_radix(hex_digits(part), 16).ok()).ok_or(NoRunName);
        let pid = u32::try_from(hex()?).map_err(|_| NoRunName)?;
        Ok(Self(Process { pid, started: hex()? }))
    }
}

fn hex_digits(text: &str) -> &str {
    &text[..text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_an_earlier_one_with_its_id_is_not() {
        let name = RunName::of_this_process();
        assert!(name.is_alive());
        assert!(!RunName(Process { started: name.0.started + 1, ..name.0 }).is_alive());
    }

    #[test]
    fn a_name_is_read_from_the_names_of_parts_of_the_run() {
        let name = RunName(Process { pid: 31, started: 672 });
        for text in [name.to_string(), format!("{name}-n1"), name.with_suffix("-a3") + "-n0"] {
            assert_eq!(text.parse(), Ok(name), "{text}");
        }
        assert_eq!("tests-n1".parse::<RunName>(), Err(NoRunName));
    }
}
