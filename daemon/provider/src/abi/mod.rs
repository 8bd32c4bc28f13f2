//! libfabric's C interface as far as a provider needs it, written by hand from the public headers (API 1.17).
//!
//! The interface only ever grows at the end of its structures, so a provider built on these loads into every
//! libfabric from 1.3 to 2.x: `size` fields tell the caller how much of a table there is, and the attribute
//! structures we hand out are allocated with spare room (see `shell::info`). The layout is checked against offsets
//! measured from the headers in `layout.rs`.

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
