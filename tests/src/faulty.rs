//! Faults at one of the calls by which a program changes files: see `tests/faulty`.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::parts;

/// What happens at the chosen call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    List,
    /// It fails with `EIO`.
    Broken,
    /// It fails with `ENOSPC`.
    Full,
    /// Half of the bytes are written. Calls that write nothing are as they are.
    Short,
    /// It takes 0.2 s longer.
    Slow,
    /// The program is killed before it.
    Kill,
}

/// All that are faults.
pub const FAULTS: [Act; 5] = [Act::Broken, Act::Full, Act::Short, Act::Slow, Act::Kill];

impl Act {
    /// Whether the program is to go on as if nothing had happened.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(self, Self::Short | Self::Slow)
    }
}

/// A fault of a program, once, whatever the number of its processes.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The name of its file.
    pub program: String,
    /// Part of the paths of the files that count.
    pub place: String,
    pub act: Act,
    /// The first call is 1.
    pub at: usize,
    /// Takes a line for each call that counts.
    pub list: PathBuf,
}

impl Fault {
    /// What a program needs to have the fault, also in the programs that it starts.
    ///
    /// # Panics
    /// If the library was not built.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 3] {
        let library = parts::installation().daemon.with_file_name("libcoswitch_faulty.so");
        assert!(library.is_file(), "{} is missing; `cargo xtask test` builds it", library.display());
        let Self { program, place, act, at, list } = self;
        [
            ("LD_PRELOAD", library.display().to_string()),
            ("COSWITCH_FAULTY", format!("{act} {at} {program} {place}")),
            ("COSWITCH_FAULTY_LIST", list.display().to_string()),
        ]
    }

    pub fn load(&self, command: &mut Command) {
        command.envs(self.environment());
    }

    #[must_use]
    pub fn has_happened(&self) -> bool {
        self.list.with_extension("happened").exists()
    }
}

/// The calls of a program, each with its path.
#[must_use]
pub fn calls(list: &Path) -> Vec<String> {
    fs::read_to_string(list).unwrap_or_default().lines().map(str::to_owned).collect()
}

impl fmt::Display for Act {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::List => "list",
            Self::Broken => "broken",
            Self::Full => "full",
            Self::Short => "short",
            Self::Slow => "slow",
            Self::Kill => "kill",
        })
    }
}
