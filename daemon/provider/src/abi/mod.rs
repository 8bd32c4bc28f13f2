//! Declarations of libfabric's C interface, as far as a provider needs it, from the public headers (API
//! 1.17).
//!
//! The interface only grows at the end of its structures, so a provider with these declarations loads into
//! every libfabric from 1.3 to 2.x: `size` fields give the caller the length of a table, and returned
//! attribute structures are allocated with spare space (see `shell::info`). `layout.rs` checks the layout
//! against offsets measured from the headers.

mod consts;
mod entries;
mod info;
mod objects;
mod ops;

#[cfg(test)]
mod layout;

pub(crate) use consts::*;
pub(crate) use entries::*;
pub(crate) use info::*;
pub(crate) use objects::*;
pub(crate) use ops::*;
