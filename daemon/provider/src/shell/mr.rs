//! Registration of memory for one-sided operations of other ranks.

use super::domain::Domain;
use super::plain_ops;
use crate::abi::*;
use crate::engine::SharedEngine;
use crate::engine::endpoint::Handle;
use crate::engine::rma::Region;
use std::ffi::{c_int, c_void};

#[repr(C)]
#[derive(Debug)]
struct Mr {
    fid: FidMr,
    engine: &'static SharedEngine,
    domain: Handle,
}

/// Binding and enabling a registration succeed and do nothing.
static MR_OPS: Ops = Ops { bind: accept_bind, control: accept_control, ..plain_ops(close) };

pub(super) static OPS: OpsMr = OpsMr { size: size_of::<OpsMr>(), reg, regv, regattr };

unsafe extern "C" fn accept_bind(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    0
}

unsafe extern "C" fn accept_control(_: *mut Fid, command: c_int, _: *mut c_void) -> c_int {
    if command == FI_ENABLE { 0 } else { -FI_ENOSYS }
}

/// # Safety
/// `domain` is an open domain of this provider, `mr` a place for the result.
unsafe fn register(
    domain: *mut Fid,
    region: Region,
    key: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees the same.
    let domain = unsafe { Domain::of(domain.cast()) };
    if let Err(error) = domain.engine.with(|engine| engine.core.register(domain.handle, key, region)) {
        return -error;
    }
    let fid = FidMr {
        fid: Fid { fclass: FI_CLASS_MR, context, ops: &raw const MR_OPS },
        mem_desc: std::ptr::null_mut(),
        key,
    };
    let object = Mr { fid, engine: domain.engine, domain: domain.handle };
    // SAFETY: the caller guarantees the same.
    unsafe { *mr = Box::into_raw(Box::new(object)).cast() };
    0
}

unsafe extern "C" fn reg(
    domain: *mut Fid,
    base: *const c_void,
    len: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's contract for the arguments.
    unsafe { register(domain, Region { base: base as usize, len, access }, key, mr, context) }
}

unsafe extern "C" fn regv(
    domain: *mut Fid,
    iov: *const libc::iovec,
    count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    // `fi_getinfo` announces an iov limit of one.
    if count != 1 {
        return -FI_EINVAL;
    }
    // SAFETY: libfabric's contract for the arguments; there is one entry.
    unsafe {
        let region = Region { base: (*iov).iov_base as usize, len: (*iov).iov_len, access };
        register(domain, region, key, mr, context)
    }
}

unsafe extern "C" fn regattr(
    domain: *mut Fid,
    attr: *const MrAttr,
    flags: u64,
    mr: *mut *mut FidMr,
) -> c_int {
    // SAFETY: the caller passes valid attributes.
    let attr = unsafe { &*attr };
    // SAFETY: libfabric's contract for the arguments.
    unsafe {
        regv(domain, attr.mr_iov, attr.iov_count, attr.access, 0, attr.requested_key, flags, mr, attr.context)
    }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a registration that `register` made, once.
    let mr = unsafe { Box::from_raw(fid.cast::<Mr>()) };
    mr.engine.with(|engine| engine.core.deregister(mr.domain, mr.fid.key));
    0
}
