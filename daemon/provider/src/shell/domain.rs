//! The domain object: owner of a rank's other libfabric objects, and key space of its registered memory.

use super::plain_ops;
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

impl Domain {
    /// A new domain whose operations are `ops` and whose registrations of memory are made by `mr`.
    pub(super) fn new(
        engine: &'static SharedEngine,
        ops: &'static OpsDomain,
        mr: &'static OpsMr,
        context: *mut c_void,
    ) -> Domain {
        let handle = engine.with(|engine| engine.core.domains.insert(()));
        let fid = Fid { fclass: FI_CLASS_DOMAIN, context, ops: &raw const OPS };
        Domain { fid: FidDomain { fid, ops, mr }, engine, handle }
    }

    /// # Safety
    /// `fid` is an open domain, boxed as a [`Domain`].
    pub(super) unsafe fn of<'a>(fid: *mut FidDomain) -> &'a Domain {
        // SAFETY: the caller guarantees a boxed `Domain`, whose first field is the fid.
        unsafe { &*fid.cast::<Domain>() }
    }
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a boxed `Domain`, once; Fid is its first field.
    let domain = unsafe { Box::from_raw(fid.cast::<Domain>()) };
    domain.engine.with(|engine| engine.core.domains.remove(domain.handle));
    0
}
