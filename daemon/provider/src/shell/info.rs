//! `fi_getinfo`: the provider's capabilities, returned if they satisfy the caller's hints.

use super::process;
use crate::abi::*;
use crate::engine::address::ADDRESS_BYTES;
use std::ffi::{CStr, c_char, c_int};

const TX_CAPS: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_SEND | FI_READ | FI_WRITE;
const RX_CAPS: u64 = FI_MSG
    | FI_TAGGED
    | FI_RMA
    | FI_RECV
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_MULTI_RECV
    | FI_DIRECTED_RECV
    | FI_SOURCE;
const CAPS: u64 = TX_CAPS | RX_CAPS | FI_LOCAL_COMM | FI_REMOTE_COMM;
const NAME: &CStr = c"coswitch";

/// Largest message that `fi_inject` takes.
pub(super) const INJECT_BYTES: usize = 16 << 10;

/// Size of every returned structure. Later libfabric versions append fields to them and read these as zeros.
const ALLOCATED_BYTES: usize = 1024;

/// Allocates a zeroed structure that libfabric will free.
///
/// # Safety
/// `T` must be a C structure that may be all zeros.
unsafe fn allocate<T>() -> *mut T {
    const { assert!(size_of::<T>() * 2 <= ALLOCATED_BYTES) };
    // SAFETY: calloc has no conditions.
    let memory = unsafe { libc::calloc(1, ALLOCATED_BYTES) };
    assert!(!memory.is_null(), "out of memory");
    memory.cast()
}

/// Copies `text` to memory that libfabric will free.
fn duplicate(text: &CStr) -> *mut c_char {
    // SAFETY: the argument is a C string.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// Requirements of the caller.
struct Hints {
    caps: u64,
    tx_op_flags: u64,
    rx_op_flags: u64,
    threading: c_int,
    control_progress: c_int,
    data_progress: c_int,
    av_type: c_int,
    acceptable: bool,
}

impl Hints {
    const NONE: Hints = Hints {
        caps: 0,
        tx_op_flags: 0,
        rx_op_flags: 0,
        threading: FI_THREAD_SAFE,
        control_progress: FI_PROGRESS_MANUAL,
        data_progress: FI_PROGRESS_MANUAL,
        av_type: FI_AV_TABLE,
        acceptable: true,
    };

    /// # Safety
    /// `hints` is null or a valid `fi_info` whose attribute pointers are null or valid.
    unsafe fn read(hints: *const Info) -> Hints {
        let mut wanted = Hints::NONE;
        // SAFETY: null or valid, as the caller guarantees; the same holds for the attributes below.
        let Some(hints) = (unsafe { hints.as_ref() }) else { return wanted };
        wanted.caps = hints.caps;
        wanted.acceptable &= hints.addr_format == FI_FORMAT_UNSPEC;
        // SAFETY: as above.
        if let Some(ep) = unsafe { hints.ep_attr.as_ref() } {
            wanted.acceptable &= ep.ep_type == FI_EP_RDM || ep.ep_type == FI_EP_UNSPEC;
            wanted.acceptable &= ep.protocol == 0 && ep.tx_ctx_cnt <= 1 && ep.rx_ctx_cnt <= 1;
        }
        // SAFETY: as above.
        if let Some(tx) = unsafe { hints.tx_attr.as_ref() } {
            wanted.acceptable &= tx.msg_order & !FI_ORDER_SAS == 0 && tx.comp_order == 0;
            wanted.acceptable &= tx.inject_size <= INJECT_BYTES && tx.caps & !CAPS == 0;
            wanted.tx_op_flags = tx.op_flags;
        }
        // SAFETY: as above.
        if let Some(rx) = unsafe { hints.rx_attr.as_ref() } {
            wanted.acceptable &=
                rx.msg_order & !FI_ORDER_SAS == 0 && rx.comp_order == 0 && rx.caps & !CAPS == 0;
            wanted.rx_op_flags = rx.op_flags;
        }
        // SAFETY: as above.
        if let Some(domain) = unsafe { hints.domain_attr.as_ref() } {
            let or = |value, unspecified, default| if value == unspecified { default } else { value };
            wanted.threading = or(domain.threading, FI_THREAD_UNSPEC, wanted.threading);
            wanted.control_progress =
                or(domain.control_progress, FI_PROGRESS_UNSPEC, wanted.control_progress);
            wanted.data_progress = or(domain.data_progress, FI_PROGRESS_UNSPEC, wanted.data_progress);
            wanted.av_type = or(domain.av_type, FI_AV_UNSPEC, wanted.av_type);
            wanted.acceptable &= wanted.data_progress != FI_PROGRESS_AUTO && domain.cq_data_size <= 8;
        }
        wanted
    }
}

pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    _node: *const c_char,
    _service: *const c_char,
    _flags: u64,
    hints: *const Info,
    info: *mut *mut Info,
) -> c_int {
    // SAFETY: libfabric passes null or a valid structure.
    let wanted = unsafe { Hints::read(hints) };
    if !wanted.acceptable || wanted.caps & !CAPS != 0 || info.is_null() {
        return -FI_ENODATA;
    }
    let Some(engine) = process::engine() else { return -FI_ENODATA };
    let endpoint_source = crate::engine::address::Address { rank: engine.rank(), endpoint: 0 };
    // SAFETY: all these structures may be zero; until the call returns, no other code knows the new pointers.
    unsafe {
        let offer: *mut Info = allocate();
        fill(&mut *offer, &wanted, version);
        (*offer).src_addr = libc::malloc(ADDRESS_BYTES);
        assert!(!(*offer).src_addr.is_null(), "out of memory");
        let source = endpoint_source.to_bytes();
        std::ptr::copy_nonoverlapping(source.as_ptr(), (*offer).src_addr.cast(), ADDRESS_BYTES);
        (*offer).src_addrlen = ADDRESS_BYTES;
        *info = offer;
    }
    0
}

/// Writes the capabilities into newly allocated, zeroed structures.
///
/// # Safety
/// `info` is zeroed and will be freed by libfabric, with everything it points to.
unsafe fn fill(info: &mut Info, wanted: &Hints, version: u32) {
    const MESSAGE_MAX: usize = 1 << 62;
    const MANY: usize = 1 << 14;
    info.caps = CAPS;
    info.addr_format = FI_FORMAT_UNSPEC;
    // SAFETY: the structures may be zero, and no other code knows the new pointers.
    unsafe {
        info.tx_attr = allocate();
        let tx = &mut *info.tx_attr;
        tx.caps = TX_CAPS;
        tx.op_flags = wanted.tx_op_flags;
        tx.msg_order = FI_ORDER_SAS;
        tx.inject_size = INJECT_BYTES;
        tx.size = MANY;
        tx.iov_limit = 8;
        tx.rma_iov_limit = 1;

        info.rx_attr = allocate();
        let rx = &mut *info.rx_attr;
        rx.caps = RX_CAPS;
        rx.op_flags = wanted.rx_op_flags;
        rx.msg_order = FI_ORDER_SAS;
        rx.size = MANY;
        rx.iov_limit = 8;

        info.ep_attr = allocate();
        let ep = &mut *info.ep_attr;
        ep.ep_type = FI_EP_RDM;
        ep.protocol_version = 1;
        ep.max_msg_size = MESSAGE_MAX;
        ep.mem_tag_format = u64::MAX >> 1;
        ep.tx_ctx_cnt = 1;
        ep.rx_ctx_cnt = 1;

        info.domain_attr = allocate();
        let domain = &mut *info.domain_attr;
        domain.name = duplicate(NAME);
        domain.threading = wanted.threading;
        domain.control_progress = wanted.control_progress;
        domain.data_progress = wanted.data_progress;
        domain.resource_mgmt = FI_RM_ENABLED;
        domain.av_type = wanted.av_type;
        domain.mr_key_size = 8;
        domain.cq_data_size = 8;
        domain.cq_cnt = MANY;
        domain.ep_cnt = MANY;
        domain.tx_ctx_cnt = MANY;
        domain.rx_ctx_cnt = MANY;
        domain.max_ep_tx_ctx = 1;
        domain.max_ep_rx_ctx = 1;
        domain.cntr_cnt = MANY;
        domain.mr_iov_limit = 1;
        domain.mr_cnt = MANY;
        domain.caps = FI_LOCAL_COMM | FI_REMOTE_COMM;

        info.fabric_attr = allocate();
        let fabric = &mut *info.fabric_attr;
        fabric.name = duplicate(NAME);
        fabric.prov_version = fi_version(1, 0);
        fabric.api_version = version;
    }
}
