//! The real launcher, with the test in the part of the daemon. Needs root, for PID namespaces and cgroups.

mod image;
mod life;
mod mpi;
mod stage;
