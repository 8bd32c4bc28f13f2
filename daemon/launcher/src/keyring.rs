//! The session keyring of a daemon, which all that it starts inherits, whatever user that becomes.
//!
//! Whoever possesses a keyring may use its keys. That of a login of root leads to root's own keys, which no
//! rank of another user may see; and ranks of different users must not leave keys for each other.

use std::{io, ptr};

const JOIN_SESSION_KEYRING: libc::c_long = 1;
const SET_PERMISSIONS: libc::c_long = 5;
const OF_SESSION: libc::c_long = -3;
/// The permissions of a process that has the keyring: it may view, read and search, but neither write nor
/// link.
const LOOK: libc::c_long = 0x0b00_0000;

/// Gives this thread a new session keyring. It is empty, and no process can add a key to it. All processes
/// that the thread starts inherit this keyring.
///
/// # Errors
/// Where the kernel refuses. One without keyrings has none to share.
pub fn leave() -> io::Result<()> {
    // SAFETY: the kernel takes numbers, and no name where the pointer is null.
    let made = unsafe {
        match libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, ptr::null::<libc::c_char>()) {
            -1 => -1,
            _ => libc::syscall(libc::SYS_keyctl, SET_PERMISSIONS, OF_SESSION, LOOK),
        }
    };
    match made {
        -1 => Err(io::Error::last_os_error()).or_else(|error| match error.raw_os_error() {
            Some(libc::ENOSYS) => Ok(()),
            _ => Err(error),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEARCH: libc::c_long = 10;

    fn add() -> libc::c_long {
        let (kind, name, secret) = (c"user", c"coswitch-keyring-test", b"secret");
        // SAFETY: the kernel reads two names and so many bytes.
        unsafe {
            libc::syscall(
                libc::SYS_add_key,
                kind.as_ptr(),
                name.as_ptr(),
                secret.as_ptr(),
                secret.len(),
                OF_SESSION,
            )
        }
    }

    fn find() -> libc::c_long {
        let (kind, name) = (c"user", c"coswitch-keyring-test");
        // SAFETY: the kernel reads two names.
        unsafe { libc::syscall(libc::SYS_keyctl, SEARCH, OF_SESSION, kind.as_ptr(), name.as_ptr(), 0) }
    }

    /// Keyrings are those of a thread.
    #[test]
    fn keys_of_the_session_before_are_out_of_reach_and_none_can_be_left() {
        let tried = std::thread::spawn(|| {
            // SAFETY: no name is given.
            unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, ptr::null::<libc::c_char>()) };
            if add() == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
                return;
            }
            assert!(find() > 0);
            leave().unwrap();
            assert_eq!((find(), add()), (-1, -1));
        });
        tried.join().unwrap();
    }
}
