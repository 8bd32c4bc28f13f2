//! Counters of completions: `fi_cntr_read` and its relatives.

use super::domain::Domain;
use super::plain_ops;
use crate::abi::*;
use crate::engine::SharedEngine;
use crate::engine::completion::Counter;
use crate::engine::endpoint::Handle;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[repr(C)]
#[derive(Debug)]
pub(super) struct Cntr {
    fid: FidCntr,
    engine: &'static SharedEngine,
    pub(super) handle: Handle,
    /// Value of the last read. A caller that reads the same value again is waiting.
    last: AtomicU64,
}

static OPS: Ops = plain_ops(close);

static CNTR_OPS: OpsCntr =
    OpsCntr { size: size_of::<OpsCntr>(), read, readerr, add, set, wait, adderr, seterr };

/// # Safety
/// `fid` is a counter made by `open` that is not closed.
unsafe fn of<'a>(fid: *mut FidCntr) -> &'a Cntr {
    // SAFETY: the caller guarantees a boxed object of this type, whose first field is the fid.
    unsafe { &*fid.cast::<Cntr>() }
}

pub(super) unsafe extern "C" fn open(
    domain: *mut FidDomain,
    _attr: *mut CntrAttr,
    cntr: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's domain is open.
    let engine = unsafe { Domain::of(domain) }.engine;
    let handle = engine.with(|engine| engine.core.counters.insert(Counter::default()));
    let fid = FidCntr {
        fid: Fid { fclass: FI_CLASS_CNTR, context, ops: &raw const OPS },
        ops: &raw const CNTR_OPS,
    };
    let object = Cntr { fid, engine, handle, last: AtomicU64::new(u64::MAX) };
    // SAFETY: the caller passes a place for the result.
    unsafe { *cntr = Box::into_raw(Box::new(object)).cast() };
    0
}

unsafe extern "C" fn close(fid: *mut Fid) -> c_int {
    // SAFETY: the caller closes a counter that `open` made, once.
    let cntr = unsafe { Box::from_raw(fid.cast::<Cntr>()) };
    cntr.engine.with(|engine| engine.core.counters.remove(cntr.handle));
    0
}

impl Cntr {
    /// Makes progress and reads the counter; pauses if the caller reads the same value again and again.
    fn poll(&self) -> Counter {
        let handle = self.handle;
        let last = self.last.load(Ordering::Relaxed);
        let value = |core: &crate::engine::Core| core.counters.get(handle).copied().unwrap_or_default();
        let now = self.engine.poll_for(value, |counter| counter.done == last);
        self.last.store(now.done, Ordering::Relaxed);
        now
    }

    fn change(&self, change: impl FnOnce(&mut Counter)) -> c_int {
        self.engine.with(|engine| engine.core.counters.get_mut(self.handle).map(change));
        0
    }
}

unsafe extern "C" fn read(fid: *mut FidCntr) -> u64 {
    // SAFETY: the caller's counter is open.
    unsafe { of(fid) }.poll().done
}

unsafe extern "C" fn readerr(fid: *mut FidCntr) -> u64 {
    // SAFETY: the caller's counter is open.
    unsafe { of(fid) }.poll().failed
}

unsafe extern "C" fn add(fid: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the caller's counter is open.
    unsafe { of(fid) }.change(|counter| counter.done += value)
}

unsafe extern "C" fn set(fid: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the caller's counter is open.
    unsafe { of(fid) }.change(|counter| counter.done = value)
}

unsafe extern "C" fn adderr(fid: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the caller's counter is open.
    unsafe { of(fid) }.change(|counter| counter.failed += value)
}

unsafe extern "C" fn seterr(fid: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: the caller's counter is open.
    unsafe { of(fid) }.change(|counter| counter.failed = value)
}

unsafe extern "C" fn wait(fid: *mut FidCntr, threshold: u64, timeout_ms: c_int) -> c_int {
    // SAFETY: the caller's counter is open.
    let cntr = unsafe { of(fid) };
    let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    let start = Instant::now();
    let failed = cntr.poll().failed;
    loop {
        let now = cntr.poll();
        if now.done >= threshold {
            return 0;
        }
        if now.failed != failed {
            return -FI_EAVAIL;
        }
        if limit.is_some_and(|limit| start.elapsed() >= limit) {
            return -libc::ETIMEDOUT;
        }
    }
}
