//! Names and paths of the example programs and run files.

use std::path::PathBuf;

use crate::folder;

/// An example program, described in `mpi/README.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// A rank that answers messages and computes in between, and how long messages wait; or only computes.
    Answer,
    /// Block-tridiagonal solver in Fortran: pipelines along the lines of a grid, and halo exchange.
    Bt,
    /// NAS CG: long exchanges and many short ones. The number of ranks is a power of two.
    Cg,
    /// NAS EP: only computes.
    Ep,
    /// NAS IS: a series of all-to-all exchanges of nearly all data.
    Is,
    /// Synthetic: grains of computing of a given length, imbalance and speed, and messages between.
    Grains,
    /// Heat equation with halo exchange, in a given amount of memory.
    Heat,
    /// A rank that attacks its node.
    Hostile,
    /// Tasks that come at random and only compute, without MPI.
    LocalLoad,
    /// In which order messages of any sender are received. Needs at least two ranks.
    Order,
    /// Random traffic in which every message is checked.
    RingCheck,
    /// `MPI_Init` and `MPI_Finalize`.
    Null,
    /// Latency and bandwidth as a line of JSON. Needs at least two ranks.
    Pingpong,
    /// Message rate, one-sided operations and collectives as a line of JSON. Needs at least two ranks.
    Operations,
}

impl Program {
    pub const ALL: [Program; 14] = [
        Program::Answer,
        Program::Bt,
        Program::Cg,
        Program::Ep,
        Program::Grains,
        Program::Is,
        Program::Heat,
        Program::Hostile,
        Program::LocalLoad,
        Program::Order,
        Program::RingCheck,
        Program::Null,
        Program::Pingpong,
        Program::Operations,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Program::Answer => "answer",
            Program::Bt => "bt",
            Program::Cg => "cg",
            Program::Ep => "ep",
            Program::Grains => "grains",
            Program::Is => "is",
            Program::Heat => "heat",
            Program::Hostile => "hostile",
            Program::LocalLoad => "local-load",
            Program::Order => "order",
            Program::RingCheck => "ring-check",
            Program::Null => "null",
            Program::Pingpong => "pingpong",
            Program::Operations => "operations",
        }
    }
}

/// A run file of this package, one for each policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobFile {
    /// Sets that fit into memory, switched as gangs: the demo.
    Hybrid,
    /// One job at a time, switched as gangs.
    Gang,
    /// All jobs at once.
    Cosched,
    /// One job after the other, without switching.
    Batch,
    /// Sets mixed by measured communication.
    Paired,
}

impl JobFile {
    pub const ALL: [JobFile; 5] =
        [JobFile::Hybrid, JobFile::Gang, JobFile::Cosched, JobFile::Batch, JobFile::Paired];

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
            let may_be = [source.with_extension("c"), source.join("main.c"), source.join("main.f90")];
            assert!(may_be.iter().any(|path| path.is_file()), "{}", source.display());
        }
        for file in JobFile::ALL {
            assert!(file.path().is_file(), "{}", file.path().display());
        }
    }
}
