//! A shared file mapping with bounds-checked access.

use crate::damage::Entry;
use crate::shared::SharedBytes;
use std::fs::File;
use std::io;
use std::ptr::NonNull;

/// `len` bytes of a file, mapped `MAP_SHARED` for reading and writing until drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    entry: &'static Entry,
    #[cfg(miri)]
    file: File,
}

// SAFETY: a mapping is plain memory that is valid in every thread. Its contents are accessed through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub(crate) fn of(file: &File, len: usize) -> io::Result<Mapping> {
        let base = map(file, len)?;
        let entry = Entry::of(base.as_ptr().addr(), len);
        Ok(Mapping {
            base,
            len,
            entry,
            #[cfg(miri)]
            file: file.try_clone()?,
        })
    }

    /// Pointer to `bytes` bytes at `offset`. Panics outside the mapping: offsets come from the layout.
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.len), "offset outside the mapping");
        // SAFETY: offset lies within the mapping, as just asserted.
        unsafe { self.base.add(offset) }
    }

    /// Whether an access found a page missing; see [`crate::damage`].
    pub(crate) fn is_damaged(&self) -> bool {
        self.entry.is_damaged()
    }

    /// The bytes at `offset`. Panics outside the mapping.
    pub(crate) fn bytes(&self, offset: usize, bytes: usize) -> SharedBytes<'_> {
        // SAFETY: in bounds, as `at` asserts, and mapped as long as self. There are no references to ring
        // data and slabs, and those to other parts are to atomics.
        unsafe { SharedBytes::new(self.at(offset, bytes), bytes) }
    }

    /// A value in shared memory, which other processes may change meanwhile.
    pub(crate) fn shared<T: Shared>(&self, offset: usize) -> &T {
        let place = self.at(offset, size_of::<T>()).cast::<T>();
        assert!(place.is_aligned(), "layout misaligns a shared value");
        // SAFETY: in bounds and aligned, as asserted. `Shared` promises that every bit pattern is a value and
        // that concurrent change is allowed. The reference lives no longer than the mapping.
        unsafe { place.as_ref() }
    }

    pub(crate) fn shared_slice<T: Shared>(&self, offset: usize, count: usize) -> &[T] {
        let place = self.at(offset, size_of::<T>() * count).cast::<T>();
        assert!(place.is_aligned(), "layout misaligns a shared value");
        // SAFETY: as in `shared`, for `count` values that lie in bounds.
        unsafe { std::slice::from_raw_parts(place.as_ptr(), count) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.entry.release();
        #[cfg(miri)]
        // SAFETY: nothing else refers to the memory any more.
        write_back(&self.file, unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) });
        // SAFETY: base and len are those of the mapping made in `of`, and every reference into it borrows
        // from self.
        unsafe { unmap(self.base, self.len) };
    }
}

#[cfg(not(miri))]
fn map(file: &File, len: usize) -> io::Result<NonNull<u8>> {
    use std::os::fd::AsRawFd;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
    let base =
        unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(base.cast()).expect("mmap without MAP_FIXED never maps address 0"))
}

/// # Safety
/// Of [`map`], with the same length; nothing refers to it any more.
#[cfg(not(miri))]
unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: as promised.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
}

/// Miri, which checks each access, maps no file: the memory is a copy, which is written back at its end.
#[cfg(miri)]
fn map(file: &File, len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a segment is never empty.
    let base = unsafe { std::alloc::alloc_zeroed(page_aligned(len)) };
    let base = NonNull::new(base).expect("there is memory");
    // SAFETY: it has that many bytes, and nothing else refers to them.
    let bytes = unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len) };
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, 0)?;
    Ok(base)
}

/// # Safety
/// As for files.
#[cfg(miri)]
unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: as promised.
    unsafe { std::alloc::dealloc(base.as_ptr(), page_aligned(len)) };
}

#[cfg(miri)]
fn write_back(file: &File, bytes: &[u8]) {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, 0).expect("it can be written");
}

#[cfg(miri)]
fn page_aligned(len: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(len, 4096).expect("a segment is small")
}

/// Types that may live in memory shared with other processes.
///
/// # Safety
/// The type consists of atomics only, is `repr(C)`, and is valid for every bit pattern.
pub(crate) unsafe trait Shared {}

// SAFETY: an atomic integer meets the conditions.
unsafe impl Shared for std::sync::atomic::AtomicU32 {}
// SAFETY: an atomic integer meets the conditions.
unsafe impl Shared for std::sync::atomic::AtomicU64 {}
// SAFETY: under loom no segment is mapped.
#[cfg(loom)]
unsafe impl Shared for loom::sync::atomic::AtomicU32 {}
// SAFETY: as above.
#[cfg(loom)]
unsafe impl Shared for loom::sync::atomic::AtomicU64 {}
// SAFETY: repr(C), two AtomicU32.
unsafe impl Shared for crate::bell::Bell {}
// SAFETY: repr(C), AtomicU64 only.
unsafe impl Shared for crate::counters::Counters {}
// SAFETY: repr(C), AtomicU32 only.
unsafe impl Shared for crate::activity::Activity {}
