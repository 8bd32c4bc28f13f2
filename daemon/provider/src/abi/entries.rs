//! Argument structures of operations, and entries of completion queues.

use std::ffi::{c_int, c_void};

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Msg {
    pub(crate) msg_iov: *const libc::iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct MsgTagged {
    pub(crate) msg_iov: *const libc::iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct RmaIov {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) key: u64,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct MsgRma {
    pub(crate) msg_iov: *const libc::iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) rma_iov: *const RmaIov,
    pub(crate) rma_iov_count: usize,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

/// The longest entry; the shorter formats are prefixes of it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CqTaggedEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
}

/// The fields of an error entry that every API version has. The later field `err_data` keeps the caller's
/// value.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CqErrEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) olen: usize,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
}
