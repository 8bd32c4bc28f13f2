//! The example programs under the MPI library's own launcher: what they verify, refuse and notice.

mod faults;
mod programs;
mod support;
