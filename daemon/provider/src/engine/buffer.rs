//! Access to the program's memory: the buffers that messages are read from and written to.
//!
//! By libfabric's contract a buffer belongs to the provider from the call that names it until the operation
//! is complete or cancelled. [`Spans`] carries this promise from the shell, where it is made, to the copy,
//! which needs it.

use coswitch_ring::SharedBytes;

/// One piece of the program's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    base: *mut u8,
    len: usize,
}

/// Memory of an operation, in one or several pieces. Reads and writes stay within it.
#[derive(Debug)]
pub(crate) enum Spans {
    One(Span),
    Many(Box<[Span]>),
}

// SAFETY: a span is an address in the process, valid in all threads; the operation that owns it is used only
// under the engine's lock.
unsafe impl Send for Span {}

impl Span {
    /// # Safety
    /// `base` must be valid for the operation's reads or writes of `len` bytes until the operation is
    /// complete. If `len` is 0, any address is allowed.
    pub(crate) unsafe fn new(base: *mut u8, len: usize) -> Span {
        Span { base, len }
    }
}

impl Spans {
    pub(crate) const EMPTY: Spans = Spans::One(Span { base: std::ptr::null_mut(), len: 0 });

    /// # Safety
    /// As for [`Span::new`].
    pub(crate) unsafe fn one(base: *mut u8, len: usize) -> Spans {
        // SAFETY: the same condition holds for the caller.
        Spans::One(unsafe { Span::new(base, len) })
    }

    /// # Safety
    /// `iov` must point to `count` readable entries (or `count` is 0), each as for [`Span::new`].
    pub(crate) unsafe fn of_iov(iov: *const libc::iovec, count: usize) -> Spans {
        // SAFETY: the caller guarantees that the entries are readable.
        let entry = |nth: usize| unsafe { *iov.add(nth) };
        // SAFETY: the caller guarantees that the memory of the entries is valid.
        let span = |v: libc::iovec| unsafe { Span::new(v.iov_base.cast(), v.iov_len) };
        match count {
            0 => Spans::EMPTY,
            1 => Spans::One(span(entry(0))),
            _ => Spans::Many((0..count).map(|nth| span(entry(nth))).collect()),
        }
    }

    fn all(&self) -> &[Span] {
        match self {
            Spans::One(span) => std::slice::from_ref(span),
            Spans::Many(spans) => spans,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all().iter().map(|span| span.len).sum()
    }

    /// Address of the first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.all().first().map_or(std::ptr::null_mut(), |span| span.base)
    }

    /// At most `len` bytes from `offset` on. Panics if the memory is in several pieces.
    pub(crate) fn part_of_one(&self, offset: usize, len: usize) -> Spans {
        let Spans::One(span) = self else { unreachable!("a multi-receive buffer is in one piece") };
        let offset = offset.min(span.len);
        // SAFETY: a part of a valid span is valid; the address is within the span or one past its end.
        unsafe { Spans::one(span.base.wrapping_add(offset), len.min(span.len - offset)) }
    }

    /// Calls `visit` with the pieces that cover `len` bytes from `offset` on, cut at the end of the memory.
    fn cover(&self, mut offset: usize, mut len: usize, mut visit: impl FnMut(*mut u8, usize)) {
        for span in self.all() {
            if offset >= span.len {
                offset -= span.len;
                continue;
            }
            let piece = len.min(span.len - offset);
            if piece == 0 {
                return;
            }
            visit(span.base.wrapping_add(offset), piece);
            len -= piece;
            offset = 0;
        }
    }

    /// Copies `bytes` to `offset` and drops the bytes that do not fit.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let mut done = 0;
        self.cover(offset, bytes.len(), |target, len| {
            // SAFETY: by the contract of `Span::new` the span is writable and `len` long; the source is in
            // bounds. The two do not overlap: MPI forbids a program to send from memory that it receives
            // into.
            unsafe { std::ptr::copy_nonoverlapping(bytes[done..done + len].as_ptr(), target, len) };
            done += len;
        });
    }

    /// As [`Spans::write`], of a payload in the segment.
    pub(crate) fn write_shared(&self, offset: usize, mut bytes: SharedBytes<'_>) {
        self.cover(offset, bytes.len(), |target, len| {
            // SAFETY: by the contract of `Span::new` the span is writable and `len` long. No program
            // receives into the segment.
            unsafe { bytes.first(len).copy_to_pointer(target) };
            bytes = bytes.skip(len);
        });
    }

    /// Fills `target` with the bytes from `offset` on, all of which must exist.
    pub(crate) fn read(&self, offset: usize, target: &mut [u8]) {
        let mut done = 0;
        self.cover(offset, target.len(), |source, len| {
            // SAFETY: by the contract of `Span::new` the span is readable and `len` long; the target is in
            // bounds.
            unsafe { std::ptr::copy_nonoverlapping(source, target[done..done + len].as_mut_ptr(), len) };
            done += len;
        });
        debug_assert_eq!(done, target.len(), "the target is no longer than the memory");
    }

    /// Calls `f` with the `len` bytes from `offset` on, as slices.
    pub(crate) fn with_slices<R>(&self, offset: usize, len: usize, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        // SAFETY: readable by the contract of `Span::new`; the slices do not outlive this call.
        let slice = |base: *mut u8, len| unsafe { std::slice::from_raw_parts(base.cast_const(), len) };
        if let Spans::One(span) = self {
            let len = len.min(span.len - offset.min(span.len));
            return if len == 0 { f(&[]) } else { f(&[slice(span.base.wrapping_add(offset), len)]) };
        }
        let mut slices = Vec::new();
        self.cover(offset, len, |base, len| slices.push(slice(base, len)));
        f(&slices)
    }

    /// Copies `source` to the beginning, up to the end of the shorter one.
    pub(crate) fn copy_from(&self, source: &Spans) {
        let mut offset = 0;
        source.with_slices(0, source.len(), |slices| {
            for slice in slices {
                self.write(offset, slice);
                offset += slice.len();
            }
        });
    }
}

/// Source of a send: the program's memory, or a copy of it if the call had to return at once.
#[derive(Debug)]
pub(crate) enum Source {
    User(Spans),
    Owned(Box<[u8]>),
}

impl Source {
    pub(crate) fn len(&self) -> usize {
        match self {
            Source::User(spans) => spans.len(),
            Source::Owned(bytes) => bytes.len(),
        }
    }

    pub(crate) fn read(&self, offset: usize, target: &mut [u8]) {
        match self {
            Source::User(spans) => spans.read(offset, target),
            Source::Owned(bytes) => target.copy_from_slice(&bytes[offset..offset + target.len()]),
        }
    }

    pub(crate) fn with_slices<R>(&self, offset: usize, len: usize, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        match self {
            Source::User(spans) => spans.with_slices(offset, len, f),
            Source::Owned(bytes) => f(&[&bytes[offset..offset + len]]),
        }
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(parts: &mut [Vec<u8>]) -> Spans {
        // SAFETY: in these tests the vectors outlive the spans and are not touched meanwhile.
        Spans::Many(
            parts.iter_mut().map(|part| unsafe { Span::new(part.as_mut_ptr(), part.len()) }).collect(),
        )
    }

    #[test]
    fn bytes_written_to_several_pieces_are_read_back() {
        let mut parts = [vec![0u8; 3], vec![], vec![0; 5], vec![0; 2]];
        let memory = spans(&mut parts);
        assert_eq!(memory.len(), 10);
        memory.write(2, &[1, 2, 3, 4, 5, 6]);
        let mut back = [9u8; 6];
        memory.read(2, &mut back);
        assert_eq!(back, [1, 2, 3, 4, 5, 6]);
        let slices = memory.with_slices(1, 4, |slices| slices.concat());
        assert_eq!(slices, [0, 1, 2, 3]);
        assert_eq!(parts[2], [2, 3, 4, 5, 6]);
    }

    #[test]
    fn bytes_beyond_the_memory_are_dropped() {
        let mut parts = [vec![0u8; 2], vec![0; 2]];
        let memory = spans(&mut parts);
        memory.write(3, &[7, 8, 9]);
        memory.write(10, &[1]);
        assert_eq!(parts, [vec![0, 0], vec![0, 7]]);
    }

    #[test]
    fn empty_memory_holds_no_bytes() {
        Spans::EMPTY.write(0, &[1, 2]);
        Spans::EMPTY.read(0, &mut []);
        assert_eq!(Spans::EMPTY.with_slices(0, 0, |slices| slices.concat()), []);
    }
}
