//! Orders in plain code, to compare with.

mod aging;
mod conservative;

pub(crate) use aging::PlainAging;
pub(crate) use conservative::PlainConservative;
