//! Missing pages of a segment: survives an access to them, and remembers that there was one.
//!
//! Whoever has the segment open can cut its file, and where `/dev/shm` is full the kernel has no page for a
//! hole. Then the kernel sends SIGBUS to the process that touches the page: a rank would end its daemon,
//! with all other jobs of the node. So a daemon [handles](survive_missing_pages) the signal: a private page
//! of zeros takes the place of the one that is missing, and the segment counts as
//! [damaged](crate::Segment::is_damaged). Its job is to be ended, because what it reads and writes from now
//! on reaches nobody. A fault anywhere else ends the process as before.
//!
//! The handler only loads and stores atomics and makes system calls, and takes no lock. Entries are never
//! freed, but used again.

use std::io;
use std::ptr::{null, null_mut};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

const PAGE: usize = 4096;
/// Value of [`Entry::base`] while its owner writes the entry; no mapping begins there.
const RESERVED: usize = 1;

/// A mapping of a segment in this process.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Address of the mapping; 0: the entry is free.
    base: AtomicUsize,
    len: AtomicUsize,
    damaged: AtomicBool,
    next: *const Entry,
}

// SAFETY: `next` is written before the entry is published, and leads to an entry that is never freed.
unsafe impl Sync for Entry {}
// SAFETY: as above.
unsafe impl Send for Entry {}

static ENTRIES: AtomicPtr<Entry> = AtomicPtr::new(null_mut());

fn entries() -> impl Iterator<Item = &'static Entry> {
    let mut next = ENTRIES.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: null, or an entry that is never freed.
        let entry = unsafe { next.as_ref() }?;
        next = entry.next;
        Some(entry)
    })
}

impl Entry {
    /// Registers a mapping.
    pub(crate) fn of(base: usize, len: usize) -> &'static Entry {
        let is_free = |entry: &&Entry| {
            entry.base.compare_exchange(0, RESERVED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let entry = entries().find(is_free).unwrap_or_else(Entry::publish);
        entry.len.store(len, Ordering::Relaxed);
        entry.damaged.store(false, Ordering::Relaxed);
        entry.base.store(base, Ordering::Release);
        entry
    }

    fn publish() -> &'static Entry {
        let entry = Box::leak(Box::new(Entry {
            base: AtomicUsize::new(RESERVED),
            len: AtomicUsize::new(0),
            damaged: AtomicBool::new(false),
            next: null(),
        }));
        loop {
            let first = ENTRIES.load(Ordering::Acquire);
            entry.next = first;
            if ENTRIES.compare_exchange(first, entry, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return entry;
            }
        }
    }

    /// The mapping is about to end.
    pub(crate) fn release(&self) {
        self.base.store(0, Ordering::Release);
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    fn covers(&self, address: usize) -> bool {
        let base = self.base.load(Ordering::Acquire);
        let len = self.len.load(Ordering::Acquire);
        base > RESERVED
            && address >= base
            && address - base < len
            && self.base.load(Ordering::Acquire) == base
    }
}

/// Puts a page of zeros in the place of the missing one. False where it lies in no segment.
fn mend(address: usize) -> bool {
    let Some(entry) = entries().find(|entry| entry.covers(address)) else { return false };
    // SAFETY: the page lies in a mapping of ours, of which nothing but shared memory is read and written; its
    // contents may change at any time in any case.
    let page = unsafe {
        libc::mmap(
            (address / PAGE * PAGE) as *mut libc::c_void,
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    entry.damaged.store(true, Ordering::Relaxed);
    page != libc::MAP_FAILED
}

extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: errno belongs to this thread; the code that was interrupted finds it as it was. The kernel
    // gives a valid siginfo, with an address for these codes.
    unsafe {
        let errno = *libc::__errno_location();
        let is_missing_page = (*info).si_code == libc::BUS_ADRERR;
        if !is_missing_page || !mend((*info).si_addr() as usize) {
            // The instruction is tried again and ends the process.
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
        *libc::__errno_location() = errno;
    }
}

/// From now on this process survives accesses to missing pages of segments.
///
/// # Errors
/// Where the kernel refuses the handler.
pub fn survive_missing_pages() -> io::Result<()> {
    static INSTALLED: Once = Once::new();
    let mut installed = Ok(());
    INSTALLED.call_once(|| {
        // SAFETY: a structure of integers; the handler has the signature that SA_SIGINFO asks for. On a
        // thread's alternative stack where it has one.
        let failed = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const action, null_mut())
        };
        if failed != 0 {
            installed = Err(io::Error::last_os_error());
        }
    });
    installed
}
