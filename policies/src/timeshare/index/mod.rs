//! Indices over the matrix that keep an event cheap on large clusters. The plain code of the matrix is their oracle.

pub(crate) mod bits;
pub(crate) mod job_map;
pub(crate) mod load;
pub(crate) mod pinned;
