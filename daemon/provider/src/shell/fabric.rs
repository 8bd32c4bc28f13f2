//! The fabric object: opens domains.

use super::{domain, plain_ops, process};
use crate::abi::*;
use std::ffi::{c_int, c_void};

static OPS: Ops = plain_ops(close);

static FABRIC_OPS: OpsFabric = OpsFabric {
    size: size_of::<OpsFabric>(),
    domain: domain::open,
    passive_ep: not_supported,
    eq_open: not_supported,
    wait_open: not_supported,
    trywait: not_supported,
    domain2: not_supported,
};

pub(crate) unsafe extern "C" fn fabric(
    attr: *mut FabricAttr,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    if process::engine().is_none() {
        return -FI_ENODATA;
    }
    // SAFETY: libfabric passes the attributes of our own fi_info.
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

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a fabric that `fabric` made, once; Fid is its first field.
    drop(unsafe { Box::from_raw(fid.cast::<FidFabric>()) });
    0
}
