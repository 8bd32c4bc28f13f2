//! Indices over the matrix: they find nodes and jobs without scanning all of them.
//!
//! [`RowIndex`] knows the nodes and the movable jobs of one row, [`PinnedIndex`] the pinned jobs of all rows.
//! Each answers only what a scan would answer; `tests` compares every answer with that of a scan.

mod pinned;
mod row;
#[cfg(test)]
mod tests;

pub(crate) use pinned::PinnedIndex;
pub(crate) use row::RowIndex;
