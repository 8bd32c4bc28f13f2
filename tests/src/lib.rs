//! Cross-crate suites: sim, cluster, mpi.
