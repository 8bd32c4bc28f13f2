//! `libcoswitch_criu.so`, which is loaded into CRIU where root lacks CAP_SYS_RESOURCE, as in many containers and
//! virtual machines.
//!
//! CRIU asks for the limits of each process that it dumps by `prlimit`, which the kernel refuses there for
//! processes of other users. It lets root read the same in `/proc/PID/limits`: this library answers from there.
//! All other calls go to the kernel as they are.

use std::{
    ffi::c_int,
    fs,
    io::{self, ErrorKind},
};

use libc::{RLIM64_INFINITY, pid_t, rlimit64};

/// Where the numbers begin in a line: after the name of the limit.
const NUMBERS: usize = 25;

/// The soft and the hard limit of a resource, from `/proc/PID/limits`, which lists them in the order of their
/// numbers.
fn parse(text: &str, resource: usize) -> Option<rlimit64> {
    let line = text.lines().nth(1 + resource)?.get(NUMBERS..)?;
    let mut words = line.split_ascii_whitespace();
    let mut limit = || match words.next()? {
        "unlimited" => Some(RLIM64_INFINITY),
        number => number.parse().ok(),
    };
    Some(rlimit64 { rlim_cur: limit()?, rlim_max: limit()? })
}

fn limits_of(process: pid_t, resource: u32) -> io::Result<rlimit64> {
    let text = fs::read_to_string(format!("/proc/{process}/limits"))?;
    let resource = usize::try_from(resource).map_err(|_| ErrorKind::InvalidInput)?;
    parse(&text, resource).ok_or(ErrorKind::InvalidData.into())
}

/// In place of the C library's function of that name; see `prlimit(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    process: pid_t,
    resource: u32,
    new: *const rlimit64,
    old: *mut rlimit64,
) -> c_int {
    // SAFETY: the caller's.
    if unsafe { libc::syscall(libc::SYS_prlimit64, process, resource, new, old) } == 0 {
        return 0;
    }
    let refused = io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    if refused && new.is_null() && !old.is_null() {
        if let Ok(limits) = limits_of(process, resource) {
            // SAFETY: the caller's; it is not null.
            unsafe { old.write(limits) };
            return 0;
        }
        // SAFETY: the address of this thread's number of the last error.
        unsafe { *libc::__errno_location() = libc::EPERM };
    }
    -1
}

/// The same: on 64-bit machines both are one function.
///
/// # Safety
/// As [`prlimit64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    process: pid_t,
    resource: u32,
    new: *const rlimit64,
    old: *mut rlimit64,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { prlimit64(process, resource, new, old) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel answers and what it lists of this process are the same, for each limit.
    #[test]
    fn limits_are_read_as_the_kernel_has_them() {
        let own = pid_t::try_from(std::process::id()).unwrap();
        for resource in 0..16 {
            let mut answered = rlimit64 { rlim_cur: 1, rlim_max: 1 };
            // SAFETY: it writes a limit there.
            let result = unsafe {
                libc::syscall(libc::SYS_prlimit64, 0, resource, std::ptr::null::<rlimit64>(), &raw mut answered)
            };
            assert_eq!(result, 0);
            let listed = limits_of(own, resource).unwrap();
            assert_eq!((listed.rlim_cur, listed.rlim_max), (answered.rlim_cur, answered.rlim_max), "{resource}");
        }
        assert!(limits_of(own, 99).is_err() && limits_of(-1, 0).is_err());
    }
}
