//! The allocator of `coswitch` and of the benchmarks that speak for it: jemalloc, on huge pages where the kernel grants these to whom
//! asks (`transparent_hugepage` is `madvise` or `always`).
//!
//! What is freed is kept: to give back a part of a huge page splits it, and what comes there later lies on small ones.
//!
//! A binary has it that says `use coswitch_heap as _;`. Whoever simulates 50,000 nodes otherwise waits for address translation for a
//! quarter of the time (docs/simulator.md, Speed). Not for what is dumped and restored, nor for the daemons beside it.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static HEAP: Jemalloc = Jemalloc;

/// Read by jemalloc before its first allocation: a string that ends with 0 (`man jemalloc`, TUNING).
#[used]
// SAFETY: nobody else defines this symbol, of which jemalloc has a weak one of the type `const char *`, as a reference to an array is.
#[unsafe(export_name = "_rjem_malloc_conf")]
static OPTIONS: &[u8; 65] = b"thp:always,metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1\0";

#[cfg(test)]
mod tests {
    use std::{
        ffi::{CStr, c_char},
        ptr,
    };

    /// # Safety
    /// The option is of this type.
    unsafe fn option<T>(name: &CStr, mut value: T) -> T {
        let (mut size, to) = (size_of::<T>(), (&raw mut value).cast());
        // SAFETY: it writes a value of this size, and takes nothing.
        let error =
            unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), to, &raw mut size, ptr::null_mut(), 0) };
        assert_eq!(error, 0);
        value
    }

    #[test]
    fn jemalloc_asks_for_huge_pages_and_keeps_them_whole() {
        // SAFETY: a string of jemalloc's own, which lives as long as the process, and two `ssize_t`.
        unsafe {
            assert_eq!(CStr::from_ptr(option(c"opt.thp", ptr::null::<c_char>())), c"always");
            assert_eq!(option(c"opt.dirty_decay_ms", 0_isize), -1);
            assert_eq!(option(c"opt.muzzy_decay_ms", 0_isize), -1);
        }
    }
}
