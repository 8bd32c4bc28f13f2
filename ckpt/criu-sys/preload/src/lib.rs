//! `libcoswitch_criu.so`, which is loaded into CRIU where root lacks CAP_SYS_RESOURCE, as in many containers
//! and virtual machines.
//!
//! CRIU asks for the limits of each process that it dumps by `prlimit`, which the kernel refuses there for
//! processes of other users. It lets root read the same in `/proc/PID/limits`: this library answers from
//! there. All other calls go to the kernel as they are.

use std::{
    arch::asm,
    ffi::{c_int, c_long},
    fs,
    io::{self, ErrorKind},
};

use libc::{RLIM64_INFINITY, rlimit64};

/// Where the numbers begin in a line: after the name of the limit.
const NUMBERS: usize = 25;
/// The kernel returns the numbers of errors below 0, down to this.
const ERRORS_MAX: c_long = 4095;

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

fn limits_of(process: c_long, resource: c_long) -> io::Result<rlimit64> {
    let text = fs::read_to_string(format!("/proc/{process}/limits"))?;
    let resource = usize::try_from(resource).map_err(|_| ErrorKind::InvalidInput)?;
    parse(&text, resource).ok_or(ErrorKind::InvalidData.into())
}

/// Enters the kernel: its result, or a negative number of an error.
///
/// # Safety
/// As for the system call.
unsafe fn enter(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the caller's. The kernel keeps all registers but these two and that of the result.
    unsafe {
        asm!(
            "syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack)
        );
    }
    result
}

/// In place of the C library's function of that name, by which CRIU calls `prlimit64`; see `syscall(2)`. On
/// x86-64 a function that takes a variable number of arguments finds whole numbers where this one does.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // SAFETY: the caller's.
    let result = unsafe { enter(number, [a, b, c, d, e, f]) };
    if !(-ERRORS_MAX..0).contains(&result) {
        return result;
    }
    let error = c_int::try_from(-result).unwrap_or(libc::EINVAL);
    // It asks for the limits (of process `a` and resource `b`, to `d`), and sets none.
    let asks = number == libc::SYS_prlimit64 && c == 0 && d != 0;
    if asks
        && error == libc::EPERM
        && let Ok(limits) = limits_of(a, b)
    {
        // SAFETY: the caller's; it is not null.
        unsafe { (d as *mut rlimit64).write(limits) };
        return 0;
    }
    // SAFETY: the address of this thread's number of the last error.
    unsafe { *libc::__errno_location() = error };
    -1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel answers and what it lists of this process are the same, for each limit.
    #[test]
    fn limits_are_read_as_the_kernel_has_them() {
        let own = c_long::from(std::process::id());
        for resource in 0..16 {
            let mut answered = rlimit64 { rlim_cur: 1, rlim_max: 1 };
            // SAFETY: it writes a limit there.
            let result =
                unsafe { syscall(libc::SYS_prlimit64, 0, resource, 0, &raw mut answered as c_long, 0, 0) };
            assert_eq!(result, 0);
            let listed = limits_of(own, resource).unwrap();
            assert_eq!(
                (listed.rlim_cur, listed.rlim_max),
                (answered.rlim_cur, answered.rlim_max),
                "{resource}"
            );
        }
        assert!(limits_of(own, 99).is_err() && limits_of(-1, 0).is_err());
        // SAFETY: it passes no address.
        assert_eq!(unsafe { syscall(libc::SYS_prlimit64, 0, 99, 0, 0, 0, 0) }, -1);
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
    }
}
