//! Bytes in shared memory that another process may change at any time, also while this one copies them.
//!
//! There is no reference to such bytes, because the compiler may assume that nobody else changes what a
//! reference leads to. They are copied by relaxed atomic accesses, words where possible, or handed to the
//! kernel by address. What has to be checked is copied first, and checked and used in the copy.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();
/// From this length on the processor's own copy is faster than words.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LONG: usize = 2048;
/// Words that are loaded before the first of them is stored, so that the copy does not wait for each.
const BLOCK: usize = 8;

/// A place in a mapped segment, for reading and for writing.
#[derive(Debug, Clone, Copy)]
pub struct SharedBytes<'a> {
    start: NonNull<u8>,
    len: usize,
    mapped: PhantomData<&'a [AtomicU8]>,
}

// SAFETY: all accesses are atomic or made by the kernel, and the mapping is valid in every thread.
unsafe impl Send for SharedBytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes<'_> {}

impl<'a> SharedBytes<'a> {
    /// # Safety
    /// The `len` bytes from `start` on are mapped for reading and writing for as long as `'a`, and this
    /// process has no reference to them.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize) -> SharedBytes<'a> {
        SharedBytes { start, len, mapped: PhantomData }
    }

    pub fn len(self) -> usize {
        self.len
    }

    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The bytes from `from` on. Panics where that is beyond the end.
    pub fn skip(self, from: usize) -> SharedBytes<'a> {
        assert!(from <= self.len, "{from} is beyond the end of {} bytes", self.len);
        // SAFETY: the rest of the place, at most its end.
        unsafe { SharedBytes::new(self.start.add(from), self.len - from) }
    }

    /// The first `len` bytes. Panics where there are fewer.
    pub fn first(self, len: usize) -> SharedBytes<'a> {
        assert!(len <= self.len, "{len} is beyond the end of {} bytes", self.len);
        SharedBytes { len, ..self }
    }

    /// Copies all bytes into memory of this process. Panics unless that has the same length.
    pub fn copy_to(self, target: &mut [u8]) {
        assert_eq!(self.len, target.len(), "source and target have the same length");
        // SAFETY: the target is as long, and only this process writes to it.
        unsafe { self.copy_to_pointer(target.as_mut_ptr()) }
    }

    /// # Safety
    /// `target` is valid for writes of all bytes, and lies in no shared memory.
    pub unsafe fn copy_to_pointer(self, target: *mut u8) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.len >= LONG {
            // SAFETY: both places are as long, and the target is no shared memory.
            return unsafe { copy_long(self.start.as_ptr(), target, self.len) };
        }
        let (head, words) = self.parts();
        for at in (0..head).chain(head + words * WORD..self.len) {
            // SAFETY: the position is inside both.
            unsafe { target.add(at).write(self.byte(at).load(Ordering::Relaxed)) };
        }
        let mut nth = 0;
        while nth + BLOCK <= words {
            let block: [u64; BLOCK] =
                std::array::from_fn(|within| self.word(head, nth + within).load(Ordering::Relaxed));
            // SAFETY: the words are inside the target, which may be unaligned.
            unsafe { target.add(head + nth * WORD).cast::<[u64; BLOCK]>().write_unaligned(block) };
            nth += BLOCK;
        }
        for nth in nth..words {
            let word = self.word(head, nth).load(Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { target.add(head + nth * WORD).cast::<u64>().write_unaligned(word) };
        }
    }

    /// Overwrites all bytes. Panics unless `source` has the same length.
    pub fn copy_from(self, source: &[u8]) {
        assert_eq!(self.len, source.len(), "source and target have the same length");
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.len >= LONG {
            // SAFETY: both places are as long, and the source is no shared memory.
            return unsafe { copy_long(source.as_ptr(), self.start.as_ptr(), self.len) };
        }
        let (head, words) = self.parts();
        for at in (0..head).chain(head + words * WORD..self.len) {
            self.byte(at).store(source[at], Ordering::Relaxed);
        }
        let (whole, _) = source[head..head + words * WORD].as_chunks::<WORD>();
        for (nth, word) in whole.iter().enumerate() {
            self.word(head, nth).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    pub fn to_vec(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        self.append_to(&mut bytes);
        bytes
    }

    pub fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.reserve(self.len);
        // SAFETY: the vector has room for all bytes behind its present ones; they are written before they
        // count.
        unsafe {
            self.copy_to_pointer(bytes.as_mut_ptr().add(bytes.len()));
            bytes.set_len(bytes.len() + self.len);
        }
    }

    /// Bytes before the first aligned word, and the number of whole words behind them.
    fn parts(self) -> (usize, usize) {
        let head = self.start.as_ptr().align_offset(WORD).min(self.len);
        (head, (self.len - head) / WORD)
    }

    fn byte(self, at: usize) -> &'a AtomicU8 {
        debug_assert!(at < self.len);
        // SAFETY: inside the place, by the callers; atomics may be shared with other processes.
        unsafe { self.start.add(at).cast().as_ref() }
    }

    /// The word number `nth` behind the head.
    fn word(self, head: usize, nth: usize) -> &'a AtomicU64 {
        debug_assert!(head + (nth + 1) * WORD <= self.len);
        // SAFETY: inside the place and aligned, by `parts`; atomics may be shared with other processes.
        unsafe { self.start.add(head + nth * WORD).cast().as_ref() }
    }

    /// Writes `before` and then these bytes to a file or socket, as far as that takes them.
    ///
    /// # Errors
    /// Those of `writev`: EFAULT where pages of the segment are gone.
    pub fn write_after(self, before: [&[u8]; 2], to: BorrowedFd<'_>) -> io::Result<usize> {
        let own =
            before.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
        let places = [own[0], own[1], self.for_kernel()];
        // SAFETY: the kernel reads memory that is mapped; it copes with changes of what is shared.
        result(unsafe { libc::writev(to.as_raw_fd(), places.as_ptr(), 3) })
    }

    /// Reads from a file or socket into these bytes, and what comes behind them into `rest`.
    ///
    /// # Errors
    /// Those of `readv`: EFAULT where pages of the segment are gone.
    pub fn read_before(self, rest: &mut [u8], from: BorrowedFd<'_>) -> io::Result<usize> {
        let rest = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let places = [self.for_kernel(), rest];
        // SAFETY: the kernel writes to memory that is mapped, and to `rest`, which is borrowed mutably.
        result(unsafe { libc::readv(from.as_raw_fd(), places.as_ptr(), 2) })
    }

    fn for_kernel(self) -> libc::iovec {
        libc::iovec { iov_base: self.start.as_ptr().cast(), iov_len: self.len }
    }
}

/// The processor's copy of a string: bytes that are loaded and stored one by one, as relaxed atomics would
/// be, in any order and as fast as `memcpy`. The compiler knows nothing of it but that it may change
/// memory.
///
/// # Safety
/// `source` is valid for reads and `target` for writes of `len` bytes. They do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_long(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: by the contract of this function. The ABI says that the direction flag is clear.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") source => _,
            inout("rdi") target => _,
            options(nostack, preserves_flags),
        );
    }
}

fn result(done: isize) -> io::Result<usize> {
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    /// Memory of this test, as if it were shared.
    fn place(memory: &[AtomicU64]) -> SharedBytes<'_> {
        let start = NonNull::from(memory).cast();
        // SAFETY: atomics, of which there are only shared references.
        unsafe { SharedBytes::new(start, size_of_val(memory)) }
    }

    fn zeros(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn every_length_and_alignment_is_copied_whole_and_nothing_beside_it() {
        let memory = zeros(24);
        let pattern: Vec<u8> = (1..=150).collect();
        for from in 0..9 {
            for len in (0..40).chain([63, 64, 65, 71, 72, 130, 150]) {
                place(&memory).copy_from(&[0xee; 192]);
                let part = place(&memory).skip(from).first(len);
                part.copy_from(&pattern[..len]);
                assert_eq!(part.to_vec(), pattern[..len], "{len} bytes from {from} on");
                let mut unaligned = vec![7; len + 2];
                part.copy_to(&mut unaligned[1..=len]);
                assert_eq!((unaligned[0], unaligned[len + 1]), (7, 7));
                assert_eq!(unaligned[1..=len], pattern[..len]);
                let all = place(&memory).to_vec();
                assert!(all[..from].iter().chain(&all[from + len..]).all(|byte| *byte == 0xee));
            }
        }
    }

    #[test]
    fn the_kernel_writes_and_reads_them_in_order() {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let memory = zeros(2);
        place(&memory).copy_from(b"0123456789abcdef");
        assert_eq!(place(&memory).first(10).write_after([b"he", b"ad"], theirs.as_fd()).unwrap(), 14);
        let mut came = [0; 14];
        ours.read_exact(&mut came).unwrap();
        assert_eq!(&came, b"head0123456789");
        ours.write_all(b"sixteen bytes !!and more").unwrap();
        let mut rest = [0; 20];
        assert_eq!(place(&memory).read_before(&mut rest, theirs.as_fd()).unwrap(), 24);
        assert_eq!((place(&memory).to_vec(), &rest[..8]), (b"sixteen bytes !!".to_vec(), &b"and more"[..]));
    }
}
