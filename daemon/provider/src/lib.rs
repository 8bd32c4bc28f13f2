//! The driver, libcoswitch_fi.so: a libfabric provider that stock MPICH loads.
//!
//! The launcher sets `FI_PROVIDER_PATH` and `FI_PROVIDER=coswitch`; libfabric then loads this library into
//! every rank and calls [`fi_prov_ini`]. From then on the rank's messages go through the shared-memory
//! segment of its node only. The rank holds no sockets, so it can be frozen and taken out of memory at any
//! instruction.
//!
//! `abi` declares libfabric's C interface, `shell` implements its calls, and `engine` sends and receives
//! messages.

mod abi;
mod engine;
mod shell;

use std::ffi::c_void;

/// The entry point that libfabric looks up.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut c_void {
    let provider = abi::Provider {
        version: abi::fi_version(1, 0),
        fi_version: loaded_version(),
        context: [std::ptr::null_mut(); 4],
        name: c"coswitch".as_ptr(),
        getinfo: shell::getinfo,
        fabric: shell::fabric,
        cleanup,
    };
    // libfabric keeps the pointer and writes to the context as long as the process lives.
    Box::into_raw(Box::new(provider)).cast()
}

unsafe extern "C" fn cleanup() {}

/// The version of the loaded libfabric. It rejects providers older than the version its caller was compiled
/// for; the interface is compatible, so the provider reports libfabric's own version.
fn loaded_version() -> u32 {
    const UNKNOWN: u32 = abi::fi_version(1, 22);
    // SAFETY: the name is a C string, and RTLD_DEFAULT needs no handle.
    let symbol: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"fi_version".as_ptr()) };
    if symbol.is_null() {
        return UNKNOWN;
    }
    // SAFETY: every libfabric exports `uint32_t fi_version(void)`.
    let version: extern "C" fn() -> u32 = unsafe { std::mem::transmute(symbol) };
    version()
}
