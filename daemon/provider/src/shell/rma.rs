//! One-sided calls: `fi_read`, `fi_write` and their relatives.
//!
//! SAFETY (of every call here): libfabric's contract with its callers guarantees that the endpoint is an open
//! one of this provider, and that buffers and iovs have their stated lengths and stay valid until the
//! operation is complete.

use super::call::Ep;
use super::code;
use crate::abi::*;
use crate::engine::buffer::{Source, Spans};
use crate::engine::rma::Rma;
use std::ffi::c_void;
use std::ptr::null_mut;

pub(super) static OPS: OpsRma = OpsRma {
    size: size_of::<OpsRma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata: not_supported,
    injectdata: not_supported,
};

/// Arguments of a one-sided call of any form, except the local memory.
struct RmaCall {
    to: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
    flags: Option<u64>,
}

impl RmaCall {
    fn write(self, ep: &Ep, source: Source, silent: bool) -> isize {
        code(ep.engine.with(|engine| {
            let (from, to, reports) = ep.rma_ends(engine, self.to, self.flags)?;
            let RmaCall { address, key, context, .. } = self;
            let reports = reports && !silent;
            engine.write(&Rma { from, to, address, key, context: context as usize, reports }, source)
        }))
    }

    fn read(self, ep: &Ep, spans: Spans) -> isize {
        code(ep.engine.with(|engine| {
            let (from, to, reports) = ep.rma_ends(engine, self.to, self.flags)?;
            let RmaCall { address, key, context, .. } = self;
            engine.read(&Rma { from, to, address, key, context: context as usize, reports }, spans)
        }))
    }

    /// The arguments in a message structure; `None` unless there is one remote piece, the announced limit.
    ///
    /// # Safety
    /// `msg` is valid.
    unsafe fn of(msg: &MsgRma, flags: u64) -> Option<RmaCall> {
        if msg.rma_iov_count != 1 || flags & FI_REMOTE_CQ_DATA != 0 {
            return None;
        }
        // SAFETY: the message has one entry.
        let RmaIov { addr, key, .. } = unsafe { *msg.rma_iov };
        Some(RmaCall { to: msg.addr, address: addr, key, context: msg.context, flags: Some(flags) })
    }
}

#[allow(clippy::too_many_arguments, reason = "the signature is libfabric's")]
unsafe extern "C" fn read(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    to: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the head of this file.
    let (ep, spans) = unsafe { (Ep::of(ep), Spans::one(buf.cast(), len)) };
    RmaCall { to, address, key, context, flags: None }.read(ep, spans)
}

#[allow(clippy::too_many_arguments, reason = "the signature is libfabric's")]
unsafe extern "C" fn readv(
    ep: *mut FidEp,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the head of this file.
    let (ep, spans) = unsafe { (Ep::of(ep), Spans::of_iov(iov, count)) };
    RmaCall { to, address, key, context, flags: None }.read(ep, spans)
}

unsafe extern "C" fn readmsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: see the head of this file.
    let (ep, msg) = unsafe { (Ep::of(ep), &*msg) };
    // SAFETY: see the head of this file.
    let (call, spans) = unsafe { (RmaCall::of(msg, flags), Spans::of_iov(msg.msg_iov, msg.iov_count)) };
    call.map_or(-(FI_EINVAL as isize), |call| call.read(ep, spans))
}

#[allow(clippy::too_many_arguments, reason = "the signature is libfabric's")]
unsafe extern "C" fn write(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the head of this file.
    let (ep, spans) = unsafe { (Ep::of(ep), Spans::one(buf.cast_mut().cast(), len)) };
    RmaCall { to, address, key, context, flags: None }.write(ep, Source::User(spans), false)
}

#[allow(clippy::too_many_arguments, reason = "the signature is libfabric's")]
unsafe extern "C" fn writev(
    ep: *mut FidEp,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the head of this file.
    let (ep, spans) = unsafe { (Ep::of(ep), Spans::of_iov(iov, count)) };
    RmaCall { to, address, key, context, flags: None }.write(ep, Source::User(spans), false)
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: see the head of this file.
    let (ep, msg) = unsafe { (Ep::of(ep), &*msg) };
    // SAFETY: see the head of this file.
    let (call, spans) = unsafe { (RmaCall::of(msg, flags), Spans::of_iov(msg.msg_iov, msg.iov_count)) };
    let source = Source::User(spans);
    let source = if flags & FI_INJECT != 0 { Source::Owned(source.to_vec().into()) } else { source };
    call.map_or(-(FI_EINVAL as isize), |call| call.write(ep, source, false))
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    to: u64,
    address: u64,
    key: u64,
) -> isize {
    // SAFETY: see the head of this file.
    let (ep, spans) = unsafe { (Ep::of(ep), Spans::one(buf.cast_mut().cast(), len)) };
    // The caller may reuse its buffer at once.
    let source = Source::Owned(Source::User(spans).to_vec().into());
    RmaCall { to, address, key, context: null_mut(), flags: None }.write(ep, source, true)
}
