//! The fabric object: opens domains, and holds the table of the objects that a domain opens.

use super::domain::Domain;
use super::{av, cntr, cq, ep, mr, plain_ops, process};
use crate::abi::*;
use std::ffi::{c_int, c_void};

static OPS: Ops = plain_ops(close);

static FABRIC_OPS: OpsFabric = OpsFabric {
    size: size_of::<OpsFabric>(),
    domain: open_domain,
    passive_ep: not_supported,
    eq_open: not_supported,
    wait_open: not_supported,
    trywait: not_supported,
    domain2: not_supported,
};

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

pub(crate) unsafe extern "C" fn fabric(
    attr: *mut FabricAttr,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    if process::engine().is_none() {
        return -FI_ENODATA;
    }
    // SAFETY: libfabric passes null or the attributes of an fi_info that this provider made.
    let api_version = unsafe { attr.as_ref() }.map_or(0, |attr| attr.api_version);
    let object = FidFabric {
        fid: Fid { fclass: FI_CLASS_FABRIC, context, ops: &raw const OPS },
        ops: &raw const FABRIC_OPS,
        api_version,
    };
    // SAFETY: the caller passes a place for the result.
    unsafe { *fabric = Box::into_raw(Box::new(object)) };
    0
}

unsafe extern "C" fn open_domain(
    _fabric: *mut FidFabric,
    _info: *mut Info,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    let Some(engine) = process::engine() else { return -FI_ENODATA };
    let object = Domain::new(engine, &DOMAIN_OPS, &mr::OPS, context);
    // SAFETY: the caller passes a place for the result.
    unsafe { *domain = Box::into_raw(Box::new(object)).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a fabric that `fabric` made, once; Fid is its first field.
    drop(unsafe { Box::from_raw(fid.cast::<FidFabric>()) });
    0
}
