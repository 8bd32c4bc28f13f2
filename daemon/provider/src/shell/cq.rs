//! Completion queues: `fi_cq_read` and its relatives.

use super::domain::Domain;
use super::{copy_text, plain_ops};
use crate::abi::*;
use crate::engine::address::Address;
use crate::engine::completion::{Completion, CompletionQueue};
use crate::engine::endpoint::Handle;
use crate::engine::poll::ReadResult;
use crate::engine::{Core, SharedEngine};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::{Duration, Instant};

#[repr(C)]
#[derive(Debug)]
pub(super) struct Cq {
    fid: FidCq,
    engine: &'static SharedEngine,
    pub(super) handle: Handle,
    format: Format,
}

/// Format of an entry. Each format is a prefix of the next one.
#[derive(Debug, Clone, Copy)]
enum Format {
    Context,
    Message,
    Data,
    Tagged,
}

impl Format {
    fn of(format: c_int) -> Option<Format> {
        match format {
            FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => Some(Format::Context),
            FI_CQ_FORMAT_MSG => Some(Format::Message),
            FI_CQ_FORMAT_DATA => Some(Format::Data),
            FI_CQ_FORMAT_TAGGED => Some(Format::Tagged),
            _ => None,
        }
    }

    /// Size of an entry.
    fn bytes(self) -> usize {
        match self {
            Format::Context => 8,
            Format::Message => 24,
            Format::Data => 40,
            Format::Tagged => size_of::<CqTaggedEntry>(),
        }
    }
}

static OPS: Ops = plain_ops(close);

static CQ_OPS: OpsCq =
    OpsCq { size: size_of::<OpsCq>(), read, readfrom, readerr, sread, sreadfrom, signal, strerror };

/// # Safety
/// `fid` is a queue made by `open` that is not closed.
unsafe fn of<'a>(fid: *mut FidCq) -> &'a Cq {
    // SAFETY: the caller guarantees a boxed object of this type, whose first field is the fid.
    unsafe { &*fid.cast::<Cq>() }
}

pub(super) unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attr: *mut CqAttr,
    cq: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: null or valid, by libfabric's contract.
    let (format, wait) = unsafe { attr.as_ref() }.map_or((0, 0), |attr| (attr.format, attr.wait_obj));
    let Some(format) = Format::of(format) else { return -FI_EINVAL };
    if ![FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_YIELD].contains(&wait) {
        return -FI_ENOSYS;
    }
    // SAFETY: the caller's domain is open.
    let engine = unsafe { Domain::of(domain) }.engine;
    let handle = engine.with(|engine| engine.core.queues.insert(CompletionQueue::default()));
    let fid =
        FidCq { fid: Fid { fclass: FI_CLASS_CQ, context, ops: &raw const OPS }, ops: &raw const CQ_OPS };
    // SAFETY: the caller passes a place for the result.
    unsafe { *cq = Box::into_raw(Box::new(Cq { fid, engine, handle, format })).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a queue that `open` made, once.
    let cq = unsafe { Box::from_raw(fid.cast::<Cq>()) };
    cq.engine.with(|engine| engine.core.queues.remove(cq.handle));
    0
}

impl Cq {
    /// # Safety
    /// `entries` takes `count` entries of the queue's format; `sources` is null or takes as many addresses.
    unsafe fn read(&self, entries: *mut c_void, count: usize, sources: *mut u64) -> ReadResult {
        let bytes = self.format.bytes();
        let mut write = |place: usize, done: &Completion, core: &Core| {
            let entry = CqTaggedEntry {
                op_context: done.context as *mut c_void,
                flags: done.flags,
                len: done.len,
                buf: done.buffer as *mut c_void,
                data: done.data,
                tag: done.tag,
            };
            // SAFETY: `place` is below `count`; only the prefix that belongs to the format is copied.
            unsafe {
                let target = entries.cast::<u8>().add(place * bytes);
                std::ptr::copy_nonoverlapping((&raw const entry).cast::<u8>(), target, bytes);
            }
            if !sources.is_null() {
                let number =
                    done.source.and_then(|source| number_of(core, source)).unwrap_or(FI_ADDR_NOTAVAIL);
                // SAFETY: as above.
                unsafe { *sources.add(place) = number };
            }
        };
        self.engine.read_queue(self.handle, count, &mut write)
    }

    /// # Safety
    /// As for `read`.
    unsafe fn read_within(
        &self,
        entries: *mut c_void,
        count: usize,
        sources: *mut u64,
        timeout_ms: c_int,
    ) -> isize {
        let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let start = Instant::now();
        loop {
            // SAFETY: the caller guarantees the same.
            let read = unsafe { self.read(entries, count, sources) };
            if read != ReadResult::Empty || limit.is_some_and(|limit| start.elapsed() >= limit) {
                return read.code();
            }
        }
    }
}

/// The caller's number of a source; all address vectors of a process hold the same addresses.
fn number_of(core: &Core, source: Address) -> Option<u64> {
    let tables = core.endpoints.iter().flatten().filter_map(|endpoint| endpoint.addresses);
    tables.filter_map(|table| core.addresses.get(table)).find_map(|table| table.number_of(source))
}

unsafe extern "C" fn read(fid: *mut FidCq, entries: *mut c_void, count: usize) -> isize {
    // SAFETY: the caller's queue is open, and its buffer is as long as the count says.
    unsafe { of(fid).read(entries, count, std::ptr::null_mut()) }.code()
}

unsafe extern "C" fn readfrom(
    fid: *mut FidCq,
    entries: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> isize {
    // SAFETY: as in `read`.
    unsafe { of(fid).read(entries, count, sources) }.code()
}

unsafe extern "C" fn sread(
    fid: *mut FidCq,
    entries: *mut c_void,
    count: usize,
    _condition: *const c_void,
    timeout_ms: c_int,
) -> isize {
    // SAFETY: as in `read`.
    unsafe { of(fid).read_within(entries, count, std::ptr::null_mut(), timeout_ms) }
}

unsafe extern "C" fn sreadfrom(
    fid: *mut FidCq,
    entries: *mut c_void,
    count: usize,
    sources: *mut u64,
    _condition: *const c_void,
    timeout_ms: c_int,
) -> isize {
    // SAFETY: as in `read`.
    unsafe { of(fid).read_within(entries, count, sources, timeout_ms) }
}

unsafe extern "C" fn readerr(fid: *mut FidCq, entry: *mut CqErrEntry, _flags: u64) -> isize {
    // SAFETY: the caller's queue is open.
    let cq = unsafe { of(fid) };
    let failed = cq.engine.with(|engine| engine.core.queues.get_mut(cq.handle)?.failed.pop_front());
    let Some(failure) = failed else { return -(FI_EAGAIN as isize) };
    // SAFETY: the caller's entry is at least as long as in the oldest API, and no more than that is written.
    unsafe { entry.write(failure.entry()) };
    1
}

unsafe extern "C" fn signal(_fid: *mut FidCq) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn strerror(
    _fid: *mut FidCq,
    _error: c_int,
    _data: *const c_void,
    buffer: *mut c_char,
    len: usize,
) -> *const c_char {
    const TEXT: &CStr = c"coswitch: see the error number of the entry";
    // SAFETY: the caller's buffer is null or `len` bytes long.
    unsafe { copy_text(TEXT.to_str().unwrap_or_default(), buffer, len) };
    TEXT.as_ptr()
}
