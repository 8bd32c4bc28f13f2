//! Implementation of libfabric's objects and calls: a thin C layer over the engine.
//!
//! Every call finds its object by the pointer that it gets, converts the C arguments, and hands them to the
//! [engine](crate::engine) under its lock. An object is a box whose first field is the structure of `abi`
//! that the caller sees; closing the object frees the box.

mod av;
mod call;
mod cntr;
mod cq;
mod domain;
mod ep;
mod fabric;
mod info;
mod mr;
mod msg;
mod process;
mod rma;
mod tagged;

use crate::abi::{FI_EINVAL, FI_ENOSYS, Fid, Ops, not_supported};
use std::ffi::{c_int, c_void};

pub(crate) use fabric::fabric;
pub(crate) use info::getinfo;

/// 0, or the negative error number.
fn code(result: Result<(), crate::engine::Errno>) -> isize {
    result.map_or_else(|error| -(error as isize), |()| 0)
}

/// Operations of an object that can only be closed. Every object begins with such a table.
const fn plain_ops(close: unsafe extern "C" fn(*mut Fid) -> c_int) -> Ops {
    Ops {
        size: size_of::<Ops>(),
        close,
        bind: refuse_bind,
        control: refuse_control,
        ops_open: not_supported,
        tostr: not_supported,
        ops_set: not_supported,
    }
}

unsafe extern "C" fn refuse_bind(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    -FI_EINVAL
}

unsafe extern "C" fn refuse_control(_: *mut Fid, _: c_int, _: *mut c_void) -> c_int {
    -FI_ENOSYS
}

/// Copies `text` into a buffer of `len` bytes as a C string, cut if it is too long. Returns its full size.
///
/// # Safety
/// `buffer` is null or has `len` writable bytes.
unsafe fn copy_text(text: &str, buffer: *mut std::ffi::c_char, len: usize) -> usize {
    if !buffer.is_null() && len > 0 {
        let count = text.len().min(len - 1);
        // SAFETY: `count` bytes and the final zero fit the buffer, as the caller guarantees; the source is as
        // long.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, count);
            *buffer.add(count) = 0;
        }
    }
    text.len() + 1
}
