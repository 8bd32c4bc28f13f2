//! Checks the MPI libraries: that of coswitch, and those that the programs of jobs are linked to.

mod elf;
mod library;
mod loader;
mod program;

pub(crate) use library::{Library, inspect, judge};
pub(crate) use program::{Judged, SEARCH_PATH, judge_programs};
