//! Tests of the example programs under the MPI library's own launcher.

mod faults;
mod programs;
mod support;
