//! Operation tables. No entry is NULL: operations that the provider does not offer are [`not_supported`].

use super::*;
use std::ffi::{c_char, c_int, c_void};

/// An operation that the provider does not offer, with any arguments. On every supported platform (x86-64,
/// aarch64) C callers clean up their own arguments, so one function without parameters serves all signatures.
pub(crate) type Unsupported = unsafe extern "C" fn() -> isize;

/// Returns -FI_ENOSYS.
pub(crate) unsafe extern "C" fn not_supported() -> isize {
    -(FI_ENOSYS as isize)
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Ops {
    pub(crate) size: usize,
    pub(crate) close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub(crate) bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub(crate) control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
    pub(crate) ops_open: Unsupported,
    pub(crate) tostr: Unsupported,
    pub(crate) ops_set: Unsupported,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsFabric {
    pub(crate) size: usize,
    pub(crate) domain:
        unsafe extern "C" fn(*mut FidFabric, *mut Info, *mut *mut FidDomain, *mut c_void) -> c_int,
    pub(crate) passive_ep: Unsupported,
    pub(crate) eq_open: Unsupported,
    pub(crate) wait_open: Unsupported,
    pub(crate) trywait: Unsupported,
    pub(crate) domain2: Unsupported,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsDomain {
    pub(crate) size: usize,
    pub(crate) av_open:
        unsafe extern "C" fn(*mut FidDomain, *mut AvAttr, *mut *mut FidAv, *mut c_void) -> c_int,
    pub(crate) cq_open:
        unsafe extern "C" fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> c_int,
    pub(crate) endpoint:
        unsafe extern "C" fn(*mut FidDomain, *mut Info, *mut *mut FidEp, *mut c_void) -> c_int,
    pub(crate) scalable_ep: Unsupported,
    pub(crate) cntr_open:
        unsafe extern "C" fn(*mut FidDomain, *mut CntrAttr, *mut *mut FidCntr, *mut c_void) -> c_int,
    pub(crate) poll_open: Unsupported,
    pub(crate) stx_ctx: Unsupported,
    pub(crate) srx_ctx: Unsupported,
    pub(crate) query_atomic: Unsupported,
    pub(crate) query_collective: Unsupported,
    pub(crate) endpoint2: Unsupported,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsMr {
    pub(crate) size: usize,
    #[allow(clippy::type_complexity, reason = "the signature is libfabric's")]
    pub(crate) reg: unsafe extern "C" fn(
        *mut Fid,
        *const c_void,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    #[allow(clippy::type_complexity, reason = "the signature is libfabric's")]
    pub(crate) regv: unsafe extern "C" fn(
        *mut Fid,
        *const libc::iovec,
        usize,
        u64,
        u64,
        u64,
        u64,
        *mut *mut FidMr,
        *mut c_void,
    ) -> c_int,
    pub(crate) regattr: unsafe extern "C" fn(*mut Fid, *const MrAttr, u64, *mut *mut FidMr) -> c_int,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsAv {
    pub(crate) size: usize,
    pub(crate) insert:
        unsafe extern "C" fn(*mut FidAv, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
    pub(crate) insertsvc: Unsupported,
    pub(crate) insertsym: Unsupported,
    pub(crate) remove: unsafe extern "C" fn(*mut FidAv, *mut u64, usize, u64) -> c_int,
    pub(crate) lookup: unsafe extern "C" fn(*mut FidAv, u64, *mut c_void, *mut usize) -> c_int,
    pub(crate) straddr:
        unsafe extern "C" fn(*mut FidAv, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    pub(crate) av_set: Unsupported,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsCq {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    pub(crate) readfrom: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *mut u64) -> isize,
    pub(crate) readerr: unsafe extern "C" fn(*mut FidCq, *mut CqErrEntry, u64) -> isize,
    pub(crate) sread: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *const c_void, c_int) -> isize,
    pub(crate) sreadfrom:
        unsafe extern "C" fn(*mut FidCq, *mut c_void, usize, *mut u64, *const c_void, c_int) -> isize,
    pub(crate) signal: unsafe extern "C" fn(*mut FidCq) -> c_int,
    pub(crate) strerror:
        unsafe extern "C" fn(*mut FidCq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsCntr {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut FidCntr) -> u64,
    pub(crate) readerr: unsafe extern "C" fn(*mut FidCntr) -> u64,
    pub(crate) add: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub(crate) set: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub(crate) wait: unsafe extern "C" fn(*mut FidCntr, u64, c_int) -> c_int,
    pub(crate) adderr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
    pub(crate) seterr: unsafe extern "C" fn(*mut FidCntr, u64) -> c_int,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsEp {
    pub(crate) size: usize,
    pub(crate) cancel: unsafe extern "C" fn(*mut Fid, *mut c_void) -> isize,
    pub(crate) getopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    pub(crate) setopt: unsafe extern "C" fn(*mut Fid, c_int, c_int, *const c_void, usize) -> c_int,
    pub(crate) tx_ctx: Unsupported,
    pub(crate) rx_ctx: Unsupported,
    pub(crate) rx_size_left: Unsupported,
    pub(crate) tx_size_left: Unsupported,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsCm {
    pub(crate) size: usize,
    pub(crate) setname: Unsupported,
    pub(crate) getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
    pub(crate) getpeer: Unsupported,
    pub(crate) connect: Unsupported,
    pub(crate) listen: Unsupported,
    pub(crate) accept: Unsupported,
    pub(crate) reject: Unsupported,
    pub(crate) shutdown: Unsupported,
    pub(crate) join: Unsupported,
}

type Iov = *const libc::iovec;
type Desc = *mut c_void;
type Descs = *mut *mut c_void;
type Context = *mut c_void;
type Buf = *mut c_void;
type ConstBuf = *const c_void;
type Ep = *mut FidEp;

#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsMsg {
    pub(crate) size: usize,
    pub(crate) recv: unsafe extern "C" fn(Ep, Buf, usize, Desc, u64, Context) -> isize,
    pub(crate) recvv: unsafe extern "C" fn(Ep, Iov, Descs, usize, u64, Context) -> isize,
    pub(crate) recvmsg: unsafe extern "C" fn(Ep, *const Msg, u64) -> isize,
    pub(crate) send: unsafe extern "C" fn(Ep, ConstBuf, usize, Desc, u64, Context) -> isize,
    pub(crate) sendv: unsafe extern "C" fn(Ep, Iov, Descs, usize, u64, Context) -> isize,
    pub(crate) sendmsg: unsafe extern "C" fn(Ep, *const Msg, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(Ep, ConstBuf, usize, u64) -> isize,
    pub(crate) senddata: unsafe extern "C" fn(Ep, ConstBuf, usize, Desc, u64, u64, Context) -> isize,
    pub(crate) injectdata: unsafe extern "C" fn(Ep, ConstBuf, usize, u64, u64) -> isize,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsTagged {
    pub(crate) size: usize,
    pub(crate) recv: unsafe extern "C" fn(Ep, Buf, usize, Desc, u64, u64, u64, Context) -> isize,
    pub(crate) recvv: unsafe extern "C" fn(Ep, Iov, Descs, usize, u64, u64, u64, Context) -> isize,
    pub(crate) recvmsg: unsafe extern "C" fn(Ep, *const MsgTagged, u64) -> isize,
    pub(crate) send: unsafe extern "C" fn(Ep, ConstBuf, usize, Desc, u64, u64, Context) -> isize,
    pub(crate) sendv: unsafe extern "C" fn(Ep, Iov, Descs, usize, u64, u64, Context) -> isize,
    pub(crate) sendmsg: unsafe extern "C" fn(Ep, *const MsgTagged, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(Ep, ConstBuf, usize, u64, u64) -> isize,
    pub(crate) senddata: unsafe extern "C" fn(Ep, ConstBuf, usize, Desc, u64, u64, u64, Context) -> isize,
    pub(crate) injectdata: unsafe extern "C" fn(Ep, ConstBuf, usize, u64, u64, u64) -> isize,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsRma {
    pub(crate) size: usize,
    pub(crate) read: unsafe extern "C" fn(Ep, Buf, usize, Desc, u64, u64, u64, Context) -> isize,
    pub(crate) readv: unsafe extern "C" fn(Ep, Iov, Descs, usize, u64, u64, u64, Context) -> isize,
    pub(crate) readmsg: unsafe extern "C" fn(Ep, *const MsgRma, u64) -> isize,
    pub(crate) write: unsafe extern "C" fn(Ep, ConstBuf, usize, Desc, u64, u64, u64, Context) -> isize,
    pub(crate) writev: unsafe extern "C" fn(Ep, Iov, Descs, usize, u64, u64, u64, Context) -> isize,
    pub(crate) writemsg: unsafe extern "C" fn(Ep, *const MsgRma, u64) -> isize,
    pub(crate) inject: unsafe extern "C" fn(Ep, ConstBuf, usize, u64, u64, u64) -> isize,
    pub(crate) writedata: Unsupported,
    pub(crate) injectdata: Unsupported,
}

/// Atomics: none is offered, and callers fall back to messages, but they expect the table.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsAtomic {
    pub(crate) size: usize,
    pub(crate) all: [Unsupported; 13],
}

/// Collectives: none is offered.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct OpsCollective {
    pub(crate) size: usize,
    pub(crate) all: [Unsupported; 11],
}
