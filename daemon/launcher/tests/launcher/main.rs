//! The real launcher, with the test in the part of the daemon. Needs root, for PID namespaces and cgroups.

mod life;
mod mpi;
mod stage;
