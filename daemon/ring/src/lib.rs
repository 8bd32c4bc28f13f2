//! Shared-memory segment of one application on one node: rings, slabs, doorbells.
