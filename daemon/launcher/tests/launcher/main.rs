//! Tests of the real launcher, with the test in the role of the daemon. They need root, for PID namespaces
//! and cgroups.

mod harness;
mod image;
mod life;
mod mpi;
