//! Runnable walk-throughs: job files and small MPI programs.
