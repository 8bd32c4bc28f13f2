//! Address vectors: `fi_av_insert` and its relatives.

use super::domain::Domain;
use super::{copy_text, plain_ops};
use crate::abi::*;
use crate::engine::SharedEngine;
use crate::engine::address::{ADDRESS_BYTES, Address, AddressTable};
use crate::engine::endpoint::Handle;
use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
#[derive(Debug)]
pub(super) struct Av {
    fid: FidAv,
    engine: &'static SharedEngine,
    pub(super) handle: Handle,
}

static OPS: Ops = Ops { bind: super::refuse_bind, ..plain_ops(close) };

static AV_OPS: OpsAv = OpsAv {
    size: size_of::<OpsAv>(),
    insert,
    insertsvc: not_supported,
    insertsym: not_supported,
    remove,
    lookup,
    straddr,
    av_set: not_supported,
};

/// # Safety
/// `fid` is an address vector made by `open` that is not closed.
unsafe fn of<'a>(fid: *mut FidAv) -> &'a Av {
    // SAFETY: the caller guarantees a boxed object of this type, whose first field is the fid.
    unsafe { &*fid.cast::<Av>() }
}

pub(super) unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut AvAttr,
    av: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    // SAFETY: null or valid, by libfabric's contract. A name requests a vector shared between processes.
    if unsafe { attr.as_ref() }.is_some_and(|attr| !attr.name.is_null()) {
        return -FI_ENOSYS;
    }
    // SAFETY: the caller's domain is open.
    let engine = unsafe { Domain::of(domain) }.engine;
    let handle = engine.with(|engine| engine.core.addresses.insert(AddressTable::default()));
    let fid =
        FidAv { fid: Fid { fclass: FI_CLASS_AV, context, ops: &raw const OPS }, ops: &raw const AV_OPS };
    // SAFETY: the caller passes a place for the result.
    unsafe { *av = Box::into_raw(Box::new(Av { fid, engine, handle })).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a vector that `open` made, once.
    let av = unsafe { Box::from_raw(fid.cast::<Av>()) };
    av.engine.with(|engine| engine.core.addresses.remove(av.handle));
    0
}

unsafe extern "C" fn insert(
    fid: *mut FidAv,
    addresses: *const c_void,
    count: usize,
    numbers: *mut u64,
    _flags: u64,
    _context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's vector is open.
    let av = unsafe { of(fid) };
    av.engine.with(|engine| {
        let Some(table) = engine.core.addresses.get_mut(av.handle) else { return -FI_EINVAL };
        let mut inserted = 0;
        for nth in 0..count {
            // SAFETY: the caller passes `count` addresses of ADDRESS_BYTES, back to back, and as many places
            // for numbers (or null).
            let bytes = unsafe { addresses.cast::<[u8; ADDRESS_BYTES]>().add(nth).read_unaligned() };
            let number = Address::from_bytes(bytes).map(|address| table.insert(address));
            inserted += c_int::from(number.is_some());
            if !numbers.is_null() {
                // SAFETY: as above.
                unsafe { *numbers.add(nth) = number.unwrap_or(FI_ADDR_NOTAVAIL) };
            }
        }
        inserted
    })
}

unsafe extern "C" fn remove(fid: *mut FidAv, numbers: *mut u64, count: usize, _flags: u64) -> c_int {
    // SAFETY: the caller's vector is open.
    let av = unsafe { of(fid) };
    av.engine.with(|engine| {
        let Some(table) = engine.core.addresses.get_mut(av.handle) else { return -FI_EINVAL };
        for nth in 0..count {
            // SAFETY: the caller passes `count` numbers.
            if !table.remove(unsafe { *numbers.add(nth) }) {
                return -FI_EINVAL;
            }
        }
        0
    })
}

unsafe extern "C" fn lookup(fid: *mut FidAv, number: u64, address: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: the caller's vector is open.
    let av = unsafe { of(fid) };
    let found = av.engine.with(|engine| engine.core.addresses.get(av.handle)?.get(number));
    let Some(found) = found else { return -FI_EINVAL };
    // SAFETY: the caller passes a buffer of `*len` bytes.
    unsafe {
        let count = (*len).min(ADDRESS_BYTES);
        std::ptr::copy_nonoverlapping(found.to_bytes().as_ptr(), address.cast(), count);
        *len = ADDRESS_BYTES;
    }
    0
}

unsafe extern "C" fn straddr(
    _fid: *mut FidAv,
    address: *const c_void,
    buffer: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: the caller passes an address of ADDRESS_BYTES.
    let bytes = unsafe { address.cast::<[u8; ADDRESS_BYTES]>().read_unaligned() };
    let text = match Address::from_bytes(bytes) {
        Some(Address { rank, endpoint }) => format!("coswitch:{rank}:{endpoint}"),
        None => "coswitch:invalid".to_owned(),
    };
    // SAFETY: the caller passes a buffer of `*len` bytes.
    unsafe { *len = copy_text(&text, buffer, *len) };
    buffer
}
