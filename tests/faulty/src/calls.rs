//! The functions of the C library by which programs change files, in front of those of the C library.
//!
//! Nothing here allocates memory: a process may call them where it must not.

use std::{
    ffi::{CStr, c_char, c_int, c_long, c_uint, c_void},
    ptr,
};

use libc::{iovec, mode_t, off_t, size_t, ssize_t};

use crate::{Act, SLOW, plan};

/// Enters the kernel. As the C library's function of that name.
macro_rules! kernel {
    ($number:ident $(, $argument:expr)*) => {
        // SAFETY: the arguments are those of the caller, for whose call this one stands.
        unsafe { libc::syscall(libc::$number $(, $argument)*) }
    };
}

/// Fails, waits, or is killed, where the plan says so. In that case: `true` where half of the bytes are to be
/// written.
macro_rules! count {
    ($name:literal, $place:expr) => {
        match next($name, $place) {
            Act::List => false,
            Act::Short => true,
            Act::Slow => {
                std::thread::sleep(SLOW);
                false
            }
            Act::Broken => return failed(libc::EIO) as _,
            Act::Full => return failed(libc::ENOSPC) as _,
            Act::Kill => {
                let own = kernel!(SYS_getpid);
                kernel!(SYS_kill, own, libc::SIGKILL);
                false
            }
        }
    };
}

/// The file that a call is about.
enum Place {
    Open(c_int),
    /// A path, below a directory where it is relative.
    At(c_int, *const c_char),
}

const fn named(path: *const c_char) -> Place {
    Place::At(libc::AT_FDCWD, path)
}

fn failed(error: c_int) -> c_long {
    // SAFETY: the address of this thread's number of the last error.
    unsafe { *libc::__errno_location() = error };
    -1
}

pub(crate) fn open_itself(zero_ended: &[u8], flags: c_int) -> Option<c_int> {
    let opened = kernel!(SYS_openat, libc::AT_FDCWD, zero_ended.as_ptr(), flags, 0o600);
    c_int::try_from(opened).ok().filter(|opened| *opened >= 0)
}

pub(crate) fn write_itself(fd: c_int, text: &[u8]) {
    kernel!(SYS_write, fd, text.as_ptr(), text.len());
}

fn next(name: &CStr, place: Place) -> Act {
    let Some(plan) = plan() else { return Act::List };
    // SAFETY: the address of this thread's number of the last error, which stays as it is.
    let error = unsafe { *libc::__errno_location() };
    let mut path = [0; 2 * libc::PATH_MAX as usize];
    let length = match place {
        Place::Open(fd) => path_of(fd, &mut path),
        Place::At(directory, below) => {
            // SAFETY: the caller passes a path.
            let below = unsafe { CStr::from_ptr(below) }.to_bytes();
            let above = if below.starts_with(b"/") { 0 } else { path_of(directory, &mut path) };
            path[above] = b'/';
            let end = (above + 1 + below.len()).min(path.len());
            path[above + 1..end].copy_from_slice(&below[..end - above - 1]);
            end
        }
    };
    let act = plan.next(name, &path[..length]);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    act
}

/// Its length; 0 where there is none.
fn path_of(fd: c_int, path: &mut [u8]) -> usize {
    const DIRECTORY: &[u8] = b"/proc/self/fd/";
    let mut link = [0; DIRECTORY.len() + 12];
    if fd == libc::AT_FDCWD {
        link[..14].copy_from_slice(b"/proc/self/cwd");
    } else {
        let mut digits = [0; 10];
        let (mut left, mut begin) = (fd.unsigned_abs(), digits.len());
        loop {
            begin -= 1;
            digits[begin] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        link[..DIRECTORY.len()].copy_from_slice(DIRECTORY);
        let count = digits.len() - begin;
        link[DIRECTORY.len()..DIRECTORY.len() + count].copy_from_slice(&digits[begin..]);
    }
    let most = libc::PATH_MAX as usize;
    let length = kernel!(SYS_readlink, link.as_ptr(), path.as_mut_ptr(), most);
    usize::try_from(length).unwrap_or_default()
}

/// Half of the bytes, but at least one.
const fn half(count: size_t) -> size_t {
    count - count / 2
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
    let is_short = count!(c"write", Place::Open(fd));
    kernel!(SYS_write, fd, bytes, if is_short { half(count) } else { count }) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let is_short = count!(c"writev", Place::Open(fd));
    if is_short && count > 0 {
        // SAFETY: the caller passes that many parts.
        let first = unsafe { ptr::read(parts) };
        return kernel!(SYS_write, fd, first.iov_base, half(first.iov_len)) as ssize_t;
    }
    kernel!(SYS_writev, fd, parts, count) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(fd: c_int, bytes: *const c_void, count: size_t, at: off_t) -> ssize_t {
    let is_short = count!(c"pwrite", Place::Open(fd));
    kernel!(SYS_pwrite64, fd, bytes, if is_short { half(count) } else { count }, at) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    let is_short = count!(c"copy_file_range", Place::Open(to));
    let count = if is_short { half(count) } else { count };
    kernel!(SYS_copy_file_range, from, from_at, to, to_at, count, flags) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut off_t, count: size_t) -> ssize_t {
    let is_short = count!(c"sendfile", Place::Open(to));
    kernel!(SYS_sendfile, to, from, at, if is_short { half(count) } else { count }) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    let is_short = count!(c"splice", Place::Open(to));
    let count = if is_short { half(count) } else { count };
    kernel!(SYS_splice, from, from_at, to, to_at, count, flags) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    count!(c"fsync", Place::Open(fd));
    kernel!(SYS_fsync, fd) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    count!(c"fdatasync", Place::Open(fd));
    kernel!(SYS_fdatasync, fd) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate64(fd: c_int, length: off_t) -> c_int {
    count!(c"ftruncate", Place::Open(fd));
    kernel!(SYS_ftruncate, fd, length) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fallocate64(fd: c_int, mode: c_int, from: off_t, length: off_t) -> c_int {
    count!(c"fallocate", Place::Open(fd));
    kernel!(SYS_fallocate, fd, mode, from, length) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, from: off_t, length: off_t) -> c_int {
    // SAFETY: the same function.
    unsafe { fallocate64(fd, mode, from, length) }
}

/// It takes the mode only where it makes a file; on x86-64 it is found there in each case.
#[unsafe(no_mangle)]
unsafe extern "C" fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    if flags & libc::O_CREAT != 0 {
        count!(c"open", Place::At(directory, path));
    }
    kernel!(SYS_openat, directory, path, flags, mode) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the same function.
    unsafe { openat64(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the same function.
    unsafe { openat64(directory, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the same function.
    unsafe { openat64(libc::AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    count!(c"mkdir", named(path));
    kernel!(SYS_mkdir, path, mode) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    count!(c"rename", named(to));
    kernel!(SYS_rename, from, to) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    count!(c"link", named(to));
    kernel!(SYS_link, from, to) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    count!(c"unlink", named(path));
    kernel!(SYS_unlink, path) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    count!(c"rmdir", named(path));
    kernel!(SYS_rmdir, path) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    count!(c"unlinkat", Place::At(directory, path));
    kernel!(SYS_unlinkat, directory, path, flags) as c_int
}
