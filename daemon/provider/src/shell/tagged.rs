//! Tagged messages: `fi_tsend`, `fi_trecv` and their relatives.
//!
//! SAFETY (of every call here): libfabric's contract with its callers guarantees that the endpoint is an open
//! one of this provider, and that buffers and iovs have their stated lengths and stay valid until the
//! operation is complete.

use super::call::{Ep, ReceiveCall, SendCall};
use crate::abi::*;
use crate::engine::buffer::Spans;
use std::ffi::c_void;
use std::ptr::null_mut;

pub(super) static OPS: OpsTagged = OpsTagged {
    size: size_of::<OpsTagged>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

#[allow(clippy::too_many_arguments, reason = "the signature is libfabric's")]
unsafe extern "C" fn recv(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the head of this file.
    let (ep, spans) = unsafe { (Ep::of(ep), Spans::one(buf.cast(), len)) };
    ep.receive(ReceiveCall { spans, from, tag: Some((tag, ignore)), context, flags: None })
}

#[allow(clippy::too_many_arguments, reason = "the signature is libfabric's")]
unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the head of this file.
    let (ep, spans) = unsafe { (Ep::of(ep), Spans::of_iov(iov, count)) };
    ep.receive(ReceiveCall { spans, from, tag: Some((tag, ignore)), context, flags: None })
}

unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> isize {
    // SAFETY: see the head of this file.
    let (ep, msg) = unsafe { (Ep::of(ep), &*msg) };
    // SAFETY: see the head of this file.
    let spans = unsafe { Spans::of_iov(msg.msg_iov, msg.iov_count) };
    let tag = Some((msg.tag, msg.ignore));
    ep.receive(ReceiveCall { spans, from: msg.addr, tag, context: msg.context, flags: Some(flags) })
}

unsafe extern "C" fn send(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the head of this file.
    let (ep, spans) = unsafe { (Ep::of(ep), Spans::one(buf.cast_mut().cast(), len)) };
    ep.send(SendCall { spans, to, tag: Some(tag), data: None, context, flags: None, inject: false })
}

unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const libc::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the head of this file.
    let (ep, spans) = unsafe { (Ep::of(ep), Spans::of_iov(iov, count)) };
    ep.send(SendCall { spans, to, tag: Some(tag), data: None, context, flags: None, inject: false })
}

unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> isize {
    // SAFETY: see the head of this file.
    let (ep, msg) = unsafe { (Ep::of(ep), &*msg) };
    // SAFETY: see the head of this file.
    let spans = unsafe { Spans::of_iov(msg.msg_iov, msg.iov_count) };
    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
    let tag = Some(msg.tag);
    ep.send(SendCall {
        spans,
        to: msg.addr,
        tag,
        data,
        context: msg.context,
        flags: Some(flags),
        inject: false,
    })
}

unsafe extern "C" fn inject(ep: *mut FidEp, buf: *const c_void, len: usize, to: u64, tag: u64) -> isize {
    // SAFETY: see the head of this file.
    let (ep, spans) = unsafe { (Ep::of(ep), Spans::one(buf.cast_mut().cast(), len)) };
    ep.send(SendCall {
        spans,
        to,
        tag: Some(tag),
        data: None,
        context: null_mut(),
        flags: None,
        inject: true,
    })
}

#[allow(clippy::too_many_arguments, reason = "the signature is libfabric's")]
unsafe extern "C" fn senddata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the head of this file.
    let (ep, spans) = unsafe { (Ep::of(ep), Spans::one(buf.cast_mut().cast(), len)) };
    ep.send(SendCall { spans, to, tag: Some(tag), data: Some(data), context, flags: None, inject: false })
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: u64,
    tag: u64,
) -> isize {
    // SAFETY: see the head of this file.
    let (ep, spans) = unsafe { (Ep::of(ep), Spans::one(buf.cast_mut().cast(), len)) };
    ep.send(SendCall {
        spans,
        to,
        tag: Some(tag),
        data: Some(data),
        context: null_mut(),
        flags: None,
        inject: true,
    })
}
