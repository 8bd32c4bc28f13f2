//! libfabric's objects and calls: a thin layer of C over the engine.
//!
//! Every call finds its object from the pointer it was given, turns C arguments into values of ours, and hands them
//! to the [engine](crate::engine) under its lock. Objects are boxes whose first field is the structure of `abi` that
//! the caller sees; closing one frees it.

mod av;
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

/// The table every object begins with, for an object that can be closed and no more.
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

/// Copies a C string into a caller's buffer of `len` bytes, cut if need be.
///
/// # Safety
/// `buffer` is null or has `len` writable bytes.
unsafe fn copy_text(text: &str, buffer: *mut std::ffi::c_char, len: usize) -> usize {
    if !buffer.is_null() && len > 0 {
        let count = text.len().min(len - 1);
        // SAFETY: `count` bytes and the final zero fit the buffer, says our caller; the source is as long.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, count);
            *buffer.add(count) = 0;
        }
    }
    text.len() + 1
}
