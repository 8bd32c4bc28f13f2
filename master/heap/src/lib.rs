//! The allocator of `coswitch` and of the benchmarks that speak for it: jemalloc, on huge pages where the kernel grants these to whom
//! asks (`transparent_hugepage` is `madvise` or `always`).
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
static OPTIONS: &[u8; 29] = b"thp:always,metadata_thp:auto\0";

#[cfg(test)]
mod tests {
    use std::{
        ffi::{CStr, c_char},
        ptr,
    };

    #[test]
    fn jemalloc_asks_for_huge_pages() {
        let mut thp: *const c_char = ptr::null();
        let mut size = size_of_val(&thp);
        let (to, name) = ((&raw mut thp).cast(), c"opt.thp".as_ptr());
        // SAFETY: it writes a pointer of this size, and takes nothing.
        let error = unsafe { tikv_jemalloc_sys::mallctl(name, to, &raw mut size, ptr::null_mut(), 0) };
        assert_eq!(error, 0);
        // SAFETY: a string of jemalloc's own, which lives as long as the process.
        assert_eq!(unsafe { CStr::from_ptr(thp) }, c"always");
    }
}
