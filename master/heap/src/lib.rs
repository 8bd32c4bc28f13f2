//! The allocator of `coswitch` and of its benchmarks: jemalloc, on huge pages where the kernel grants them
//! (`transparent_hugepage` is `madvise` or `always`).
//!
//! Freed memory is kept: returning a part of a huge page would split it, and later allocations there would be
//! on small pages.
//!
//! A binary selects the allocator by `use coswitch_heap as _;`. Without it, a simulation of 50,000 nodes
//! spends a quarter of its time on address translation (docs/simulator.md, Speed). Daemons and programs that
//! are dumped do not use it.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static HEAP: Jemalloc = Jemalloc;

/// Read by jemalloc before its first allocation: a string that ends with 0 (`man jemalloc`, TUNING).
#[used]
// SAFETY: no other code defines this symbol; jemalloc has a weak one of the type `const char *`, and a
// reference to an array has that layout.
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
        // SAFETY: mallctl writes a value of this size and reads none.
        let error =
            unsafe { tikv_jemalloc_sys::mallctl(name.as_ptr(), to, &raw mut size, ptr::null_mut(), 0) };
        assert_eq!(error, 0);
        value
    }

    #[test]
    fn jemalloc_asks_for_huge_pages_and_keeps_them_whole() {
        // SAFETY: the first option is a string that lives as long as the process, the others are `ssize_t`.
        unsafe {
            assert_eq!(CStr::from_ptr(option(c"opt.thp", ptr::null::<c_char>())), c"always");
            assert_eq!(option(c"opt.dirty_decay_ms", 0_isize), -1);
            assert_eq!(option(c"opt.muzzy_decay_ms", 0_isize), -1);
        }
    }
}
