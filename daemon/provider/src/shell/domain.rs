//! The domain object: opens everything else, and separates the key spaces of registered memory.

use super::{av, cntr, cq, ep, mr, plain_ops, process};
use crate::abi::*;
use crate::engine::SharedEngine;
use crate::engine::endpoint::Handle;
use std::ffi::{c_int, c_void};

#[repr(C)]
#[derive(Debug)]
pub(super) struct Domain {
    fid: FidDomain,
    pub(super) engine: &'static SharedEngine,
    pub(super) handle: Handle,
}

static OPS: Ops = plain_ops(close);

static DOMAIN_OPS: OpsDomain = OpsDomain {
    size: size_of::<OpsDomain>(),
    av_open: av::open,
    cq_open: cq::open,
    endpoint: ep::open,
    scalable_ep: not_supported,
    cntr_open: cntr::open,
    poll_open: not_supported,
    stx_ctx: not_supported,
    srx_ctx: not_supported,
    query_atomic: not_supported,
    query_collective: not_supported,
    endpoint2: not_supported,
};

impl Domain {
    /// # Safety
    /// `fid` is a domain that `open` made and nobody closed.
    pub(super) unsafe fn of<'a>(fid: *mut FidDomain) -> &'a Domain {
        // SAFETY: the fid is the first field of our object, says our caller.
        unsafe { &*fid.cast::<Domain>() }
    }
}

pub(super) unsafe extern "C" fn open(
    _fabric: *mut FidFabric,
    _info: *mut Info,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    let Some(engine) = process::engine() else { return -FI_ENODATA };
    let handle = engine.with(|engine| engine.core.domains.insert(()));
    let fid = FidDomain {
        fid: Fid { fclass: FI_CLASS_DOMAIN, context, ops: &raw const OPS },
        ops: &raw const DOMAIN_OPS,
        mr: &raw const mr::OPS,
    };
    // SAFETY: the caller passes a place for the result.
    unsafe { *domain = Box::into_raw(Box::new(Domain { fid, engine, handle })).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a domain that `open` made, once; Fid is its first field.
    let domain = unsafe { Box::from_raw(fid.cast::<Domain>()) };
    domain.engine.with(|engine| engine.core.domains.remove(domain.handle));
    0
}
