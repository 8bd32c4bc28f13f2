//! The names of what is here.

use std::path::PathBuf;

use crate::folder;

/// An example program; `mpi/README.md` says what each does and needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// NAS CG: long exchanges and many short ones. Needs a power of two of ranks.
    Cg,
    /// NAS EP: computes only.
    Ep,
    /// NAS IS: one all-to-all exchange of nearly all data after the other.
    Is,
    /// Halo exchange that fills a given amount of memory.
    Heat,
    /// Random traffic, every message of which is checked.
    RingCheck,
    /// `MPI_Init` and `MPI_Finalize`.
    Null,
    /// Latency and bandwidth as a line of JSON. Needs two ranks.
    Pingpong,
}

impl Program {
    /// All of them.
    pub const ALL: [Program; 7] = [
        Program::Cg,
        Program::Ep,
        Program::Is,
        Program::Heat,
        Program::RingCheck,
        Program::Null,
        Program::Pingpong,
    ];

    /// The file name.
    pub fn name(self) -> &'static str {
        match self {
            Program::Cg => "cg",
            Program::Ep => "ep",
            Program::Is => "is",
            Program::Heat => "heat",
            Program::RingCheck => "ring-check",
            Program::Null => "null",
            Program::Pingpong => "pingpong",
        }
    }
}

/// A job set that comes with coswitch, one for each policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobFile {
    /// Sets that fit, switched as gangs: the demo.
    Hybrid,
    /// One job at a time, switched as gangs.
    Gang,
    /// Everything at once.
    Cosched,
    /// One after the other.
    Batch,
    /// Sets mixed by what the jobs do.
    Paired,
}

impl JobFile {
    /// All of them.
    pub const ALL: [JobFile; 5] =
        [JobFile::Hybrid, JobFile::Gang, JobFile::Cosched, JobFile::Batch, JobFile::Paired];

    /// Where the file lies.
    pub fn path(self) -> PathBuf {
        folder().join(match self {
            JobFile::Hybrid => "hybrid.yaml",
            JobFile::Gang => "gang.yaml",
            JobFile::Cosched => "cosched.yaml",
            JobFile::Batch => "batch.yaml",
            JobFile::Paired => "paired.yaml",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_source_and_every_job_file_exists() {
        for program in Program::ALL {
            let source = folder().join("mpi").join(program.name());
            assert!(
                source.with_extension("c").is_file() || source.join("main.c").is_file(),
                "{}",
                source.display()
            );
        }
        for file in JobFile::ALL {
            assert!(file.path().is_file(), "{}", file.path().display());
        }
    }
}
