//! Heads of the objects to which callers hold pointers. The provider's own fields follow the head.

use super::ops::*;
use std::ffi::{c_int, c_void};

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Fid {
    pub(crate) fclass: usize,
    pub(crate) context: *mut c_void,
    pub(crate) ops: *const Ops,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct FidFabric {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsFabric,
    pub(crate) api_version: u32,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct FidDomain {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsDomain,
    pub(crate) mr: *const OpsMr,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct FidMr {
    pub(crate) fid: Fid,
    pub(crate) mem_desc: *mut c_void,
    pub(crate) key: u64,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct FidAv {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsAv,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct FidCq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsCq,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct FidCntr {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsCntr,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct FidEp {
    pub(crate) fid: Fid,
    pub(crate) ops: *const OpsEp,
    pub(crate) cm: *const OpsCm,
    pub(crate) msg: *const OpsMsg,
    pub(crate) rma: *const OpsRma,
    pub(crate) tagged: *const OpsTagged,
    pub(crate) atomic: *const OpsAtomic,
    pub(crate) collective: *const OpsCollective,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct AvAttr {
    pub(crate) av_type: c_int,
    pub(crate) rx_ctx_bits: c_int,
    pub(crate) count: usize,
    pub(crate) ep_per_node: usize,
    pub(crate) name: *const std::ffi::c_char,
    pub(crate) map_addr: *mut c_void,
    pub(crate) flags: u64,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct CqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) format: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_cond: c_int,
    pub(crate) wait_set: *mut c_void,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct CntrAttr {
    pub(crate) events: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) wait_set: *mut c_void,
    pub(crate) flags: u64,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct MrAttr {
    pub(crate) mr_iov: *const libc::iovec,
    pub(crate) iov_count: usize,
    pub(crate) access: u64,
    pub(crate) offset: u64,
    pub(crate) requested_key: u64,
    pub(crate) context: *mut c_void,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
    pub(crate) iface: c_int,
    pub(crate) device: u64,
}
