//! Endpoints: opening, binding, enabling, options.

use super::av::Av;
use super::call::Ep;
use super::cntr::Cntr;
use super::cq::Cq;
use super::domain::Domain;
use super::{code, msg, plain_ops, rma, tagged};
use crate::abi::*;
use crate::engine::address::{ADDRESS_BYTES, Address};
use crate::engine::endpoint::{Endpoint, Reporting};
use std::ffi::{c_int, c_void};

static OPS: Ops = Ops { bind, control, ..plain_ops(close) };

static EP_OPS: OpsEp = OpsEp {
    size: size_of::<OpsEp>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: not_supported,
    rx_ctx: not_supported,
    rx_size_left: not_supported,
    tx_size_left: not_supported,
};

static CM_OPS: OpsCm = OpsCm {
    size: size_of::<OpsCm>(),
    setname: not_supported,
    getname,
    getpeer: not_supported,
    connect: not_supported,
    listen: not_supported,
    accept: not_supported,
    reject: not_supported,
    shutdown: not_supported,
    join: not_supported,
};

static ATOMIC_OPS: OpsAtomic = OpsAtomic { size: size_of::<OpsAtomic>(), all: [not_supported; 13] };
static COLLECTIVE_OPS: OpsCollective =
    OpsCollective { size: size_of::<OpsCollective>(), all: [not_supported; 11] };

pub(super) unsafe extern "C" fn open(
    domain: *mut FidDomain,
    info: *mut Info,
    ep: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's domain is open; the info and its attributes are null or valid.
    let (domain, tx, rx) = unsafe {
        let info = info.as_ref();
        let tx = info.and_then(|info| info.tx_attr.as_ref());
        let rx = info.and_then(|info| info.rx_attr.as_ref());
        (Domain::of(domain), tx.map_or(0, |tx| tx.op_flags), rx.map_or(0, |rx| rx.op_flags))
    };
    let endpoint = Endpoint {
        domain: domain.handle,
        sending: Reporting { default_flags: tx, ..Reporting::default() },
        receiving: Reporting { default_flags: rx, ..Reporting::default() },
        ..Endpoint::default()
    };
    let engine = domain.engine;
    let Some(number) = engine.with(|engine| engine.open_endpoint(endpoint)) else { return -FI_EINVAL };
    let fid = FidEp {
        fid: Fid { fclass: FI_CLASS_EP, context, ops: &raw const OPS },
        ops: &raw const EP_OPS,
        cm: &raw const CM_OPS,
        msg: &raw const msg::OPS,
        rma: &raw const rma::OPS,
        tagged: &raw const tagged::OPS,
        atomic: &raw const ATOMIC_OPS,
        collective: &raw const COLLECTIVE_OPS,
    };
    // SAFETY: the caller passes a place for the result.
    unsafe { *ep = Box::into_raw(Box::new(Ep { fid, engine, number })).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes an endpoint that `open` made, once.
    let ep = unsafe { Box::from_raw(fid.cast::<Ep>()) };
    ep.engine.with(|engine| engine.close_endpoint(ep.number));
    0
}

unsafe extern "C" fn bind(fid: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    // SAFETY: the caller's endpoint is open; Fid is its first field.
    let ep = unsafe { Ep::of(fid.cast()) };
    ep.engine.with(|engine| {
        let Some(endpoint) = engine.core.endpoint(ep.number) else { return -FI_EINVAL };
        // SAFETY: `other` is an open object of this provider, of the class that its Fid names; Fid is its
        // first field.
        unsafe {
            match (*other).fclass {
                FI_CLASS_AV => endpoint.addresses = Some((*other.cast::<Av>()).handle),
                FI_CLASS_CQ => bind_queue(endpoint, (*other.cast::<Cq>()).handle, flags),
                FI_CLASS_CNTR => bind_counter(endpoint, (*other.cast::<Cntr>()).handle, flags),
                _ => return -FI_EINVAL,
            }
        }
        0
    })
}

fn bind_queue(endpoint: &mut Endpoint, queue: usize, flags: u64) {
    let selective = flags & FI_SELECTIVE_COMPLETION != 0;
    for (direction, flag) in [(&mut endpoint.sending, FI_SEND), (&mut endpoint.receiving, FI_RECV)] {
        if flags & flag != 0 {
            *direction = Reporting { queue: Some(queue), selective, ..*direction };
        }
    }
}

fn bind_counter(endpoint: &mut Endpoint, counter: usize, flags: u64) {
    let counters = &mut endpoint.counters;
    let bindings = [
        (&mut counters.send, FI_SEND),
        (&mut counters.receive, FI_RECV),
        (&mut counters.read, FI_READ),
        (&mut counters.write, FI_WRITE),
        (&mut counters.remote_read, FI_REMOTE_READ),
        (&mut counters.remote_write, FI_REMOTE_WRITE),
    ];
    for (place, flag) in bindings {
        if flags & flag != 0 {
            *place = Some(counter);
        }
    }
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, _argument: *mut c_void) -> c_int {
    if command != FI_ENABLE {
        return -FI_ENOSYS;
    }
    // SAFETY: the caller's endpoint is open.
    let ep = unsafe { Ep::of(fid.cast()) };
    ep.engine.with(|engine| match engine.core.endpoint(ep.number) {
        Some(endpoint) if endpoint.addresses.is_none() => -FI_EINVAL,
        Some(endpoint) if endpoint.sending.queue.is_none() && endpoint.receiving.queue.is_none() => -FI_ENOCQ,
        Some(_) => 0,
        None => -FI_EINVAL,
    })
}

unsafe extern "C" fn cancel(fid: *mut Fid, context: *mut c_void) -> isize {
    // SAFETY: the caller's endpoint is open.
    let ep = unsafe { Ep::of(fid.cast()) };
    code(ep.engine.with(|engine| engine.core.cancel(ep.number, context as usize)))
}

unsafe extern "C" fn getopt(
    fid: *mut Fid,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    if (level, option) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
        return -FI_ENOPROTOOPT;
    }
    // SAFETY: the caller's endpoint is open.
    let ep = unsafe { Ep::of(fid.cast()) };
    let min = ep
        .engine
        .with(|engine| engine.core.endpoint(ep.number).map_or(0, |endpoint| endpoint.multi_receive_min));
    // SAFETY: the caller passes `*len` bytes for the value.
    unsafe {
        if *len < size_of::<usize>() {
            return -FI_ETOOSMALL;
        }
        value.cast::<usize>().write_unaligned(min);
        *len = size_of::<usize>();
    }
    0
}

unsafe extern "C" fn setopt(
    fid: *mut Fid,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    if (level, option) != (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) {
        return -FI_ENOPROTOOPT;
    }
    if len != size_of::<usize>() {
        return -FI_EINVAL;
    }
    // SAFETY: the caller's endpoint is open and the value `len` bytes long.
    let (ep, min) = unsafe { (Ep::of(fid.cast()), value.cast::<usize>().read_unaligned()) };
    ep.engine.with(|engine| engine.core.endpoint(ep.number).map(|endpoint| endpoint.multi_receive_min = min));
    0
}

unsafe extern "C" fn getname(fid: *mut Fid, address: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: the caller's endpoint is open.
    let ep = unsafe { Ep::of(fid.cast()) };
    let own = Address { rank: ep.engine.rank(), endpoint: ep.number };
    // SAFETY: the caller passes a buffer of `*len` bytes.
    unsafe {
        let capacity = std::mem::replace(&mut *len, ADDRESS_BYTES);
        if capacity < ADDRESS_BYTES {
            return -FI_ETOOSMALL;
        }
        std::ptr::copy_nonoverlapping(own.to_bytes().as_ptr(), address.cast(), ADDRESS_BYTES);
    }
    0
}
