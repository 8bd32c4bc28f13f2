//! The user of the ranks: a rank becomes that user before its program begins, without a way back, and the
//! files that the launcher opens for ranks are opened with the user's rights.
//!
//! PID 1 itself stays what the daemon is. A rank can neither signal nor trace it, and speaks to it by its PMI
//! socket and the segment alone.

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    },
    path::Path,
};

use coswitch_launcher::RankUser;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl, open, openat},
    sys::stat::Mode,
    unistd::{Gid, Uid, getgroups, setfsgid, setfsuid, setgroups},
};

/// Version 3 of the sets of capabilities: two words each for effective, permitted and inheritable ones.
const CAPABILITIES_3: u32 = 0x2008_0522;

/// Opens a file to which output of the user's processes is appended; only the user may read it. Whatever the
/// user puts in the place of the file or of its directory, it is one that they may write to.
///
/// # Errors
/// Those of the system, and where it is no regular file.
pub(super) fn append_as(user: &RankUser, path: &Path) -> io::Result<File> {
    let (dir, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let open_dir = || open(dir, flags, Mode::empty());
    // The user may not be able to get there; and root may not, on a network file system.
    let held: Option<OwnedFd> = open_dir().ok();
    let rights = Rights::of(user)?;
    let dir = held.map_or_else(open_dir, Ok)?;
    // A FIFO would wait for its other end.
    let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = openat(&dir, name, flags | OFlag::O_NONBLOCK, Mode::S_IRUSR | Mode::S_IWUSR)?;
    drop(rights);
    let file = File::from(file);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?;
    Ok(file)
}

/// The user's rights to files, until this is dropped. This process has one thread then.
struct Rights {
    groups: Vec<Gid>,
}

impl Rights {
    fn of(user: &RankUser) -> io::Result<Self> {
        let before = Self { groups: getgroups()? };
        let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
        setgroups(&groups)?;
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        // They return what was before, also where they fail: asked again, they say what is.
        setfsgid(gid);
        setfsuid(uid);
        if (setfsuid(uid), setfsgid(gid)) != (uid, gid) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(before)
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        setfsuid(Uid::effective());
        setfsgid(Gid::effective());
        // With the rights of PID 1 back it cannot fail.
        let _ = setgroups(&self.groups);
    }
}

/// What a rank needs to become its user, made before its process is.
pub(super) struct Becoming {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    cwd: CString,
}

impl Becoming {
    pub(super) fn new(user: &RankUser, cwd: &Path) -> io::Result<Self> {
        let cwd = CString::new(cwd.as_os_str().as_bytes())?;
        Ok(Self { uid: user.uid, gid: user.gid, groups: user.groups.clone(), cwd })
    }

    /// In the process of a rank, which has one thread, before its program begins: makes system calls alone.
    pub(super) fn carry_out(&self) -> io::Result<()> {
        let done = |result: libc::c_long| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        // SAFETY: the kernel reads so many numbers, a path and the sets of capabilities from there, and
        // writes nothing. The library's functions of these names would look for other threads.
        unsafe {
            for capability in 0.. {
                match done(libc::c_long::from(libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0))) {
                    // There are no more.
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
                    dropped => dropped?,
                }
            }
            done(libc::syscall(libc::SYS_setgroups, self.groups.len(), self.groups.as_ptr()))?;
            done(libc::syscall(libc::SYS_setresgid, self.gid, self.gid, self.gid))?;
            done(libc::syscall(libc::SYS_setresuid, self.uid, self.uid, self.uid))?;
            let (header, none) = ([CAPABILITIES_3, 0], [0_u32; 6]);
            done(libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()))?;
            done(libc::c_long::from(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)))?;
            done(libc::c_long::from(libc::chdir(self.cwd.as_ptr())))
        }
    }
}

/// Opens a program that the user cannot reach by its path, and names a path by which they can execute it. A
/// script is opened once more by its interpreter, in the rank.
pub(super) fn open_program(path: &Path) -> io::Result<(File, String)> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
    let mut start = [0; 2];
    let is_script = std::os::unix::fs::FileExt::read_at(&file, &mut start, 0)? == 2 && start == *b"#!";
    if is_script {
        // SAFETY: a flag of a descriptor that is open.
        let kept = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        Errno::result(kept)?;
    }
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((file, link))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, PermissionsExt},
    };

    use super::*;

    const NOBODY: u32 = 65534;

    fn user() -> RankUser {
        RankUser { uid: NOBODY, gid: NOBODY, groups: vec![NOBODY] }
    }

    #[test]
    fn a_file_is_opened_as_its_user_also_below_a_directory_that_they_cannot_reach() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("theirs");
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(NOBODY), None).unwrap();
        let secret = scratch.path().join("secret");
        fs::write(&secret, "root's").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let made = append_as(&user(), &dir.join("rank-0.out")).unwrap().metadata().unwrap();
        assert_eq!((made.uid(), made.mode() & 0o7777), (NOBODY, 0o600));
        std::os::unix::fs::symlink(&secret, dir.join("link")).unwrap();
        fs::hard_link(&secret, dir.join("hard")).unwrap();
        nix::unistd::mkfifo(&dir.join("fifo"), Mode::S_IRWXU).unwrap();
        for name in ["link", "hard", "fifo"] {
            append_as(&user(), &dir.join(name)).unwrap_err();
        }
        append_as(&user(), &scratch.path().join("rank-0.out")).unwrap_err();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "root's");
        assert_eq!(fs::write(scratch.path().join("own"), "x").ok(), Some(()), "root is root again");
    }
}
