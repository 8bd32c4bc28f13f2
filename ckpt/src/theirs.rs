//! Files in directories that the user of a tree may change at any time. Each is opened through the held
//! descriptor of its directory, without following a link, and is what its user may have: whatever is put in
//! its place meanwhile, root changes nothing that the user could not change.

use crate::user::JobUser;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Gid, Uid, fchown};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// An open file, and its directory.
pub(crate) struct TheirFile {
    dir: OwnedFd,
    user: Option<JobUser>,
    pub(crate) file: File,
}

/// The directory of a file, which may be the user's, and the file's name in it.
fn directory(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok((open(path.parent().unwrap_or(Path::new("/")), flags, Mode::empty())?, name))
}

fn denied(path: &Path, user: &JobUser) -> io::Error {
    let why = format!("user {} may not change {}", user.uid, path.display());
    io::Error::new(ErrorKind::PermissionDenied, why)
}

/// Opens a regular file; `user` is its own, where there is one beside root.
fn open_in(dir: &OwnedFd, name: &OsStr, access: OFlag) -> io::Result<File> {
    // A FIFO would wait for its other end.
    let flags = access | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(openat(dir, name, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

/// Opens a file to read that its user has written.
///
/// # Errors
/// Those of the system, and where it is not the user's.
pub fn open_to_read(path: &Path, user: Option<&JobUser>) -> io::Result<File> {
    let (dir, name) = directory(path)?;
    let file = open_in(&dir, name, OFlag::O_RDONLY)?;
    match user {
        Some(user) if file.metadata()?.uid() != user.uid => Err(denied(path, user)),
        _ => Ok(file),
    }
}

/// Opens a file that its user may write to, in a directory where they may make others.
pub(crate) fn open_to_write(path: &Path, user: Option<&JobUser>) -> io::Result<TheirFile> {
    let (dir, name) = directory(path)?;
    let file = open_in(&dir, name, OFlag::O_RDWR)?;
    if let Some(user) = user {
        let directory = File::from(dir.try_clone()?).metadata()?;
        if !user.may_write(&file.metadata()?) || !user.may_write(&directory) {
            return Err(denied(path, user));
        }
    }
    Ok(TheirFile { dir, user: user.cloned(), file })
}

impl TheirFile {
    /// Makes a file of the same user beside it, which must not exist.
    pub(crate) fn create_beside(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = File::from(openat(&self.dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
        if let Some(user) = &self.user {
            fchown(&file, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
        }
        Ok(file)
    }
}

/// Makes a directory that belongs to the user, unless it exists. If only root may change the directory above,
/// root makes the new one and gives it to the user; else it is made with the user's rights.
///
/// # Errors
/// Those of the system, and if the directory exists and belongs to somebody else.
pub fn ensure_dir(dir: &Path, user: &JobUser) -> io::Result<()> {
    let (parent, name) = (dir.parent().unwrap_or(Path::new("/")), dir.file_name().unwrap_or_default());
    let is_roots = crate::private::check_trusted(parent).is_ok();
    let make = || {
        let (parent, name) = directory(dir)?;
        match mkdirat(&parent, name, Mode::S_IRWXU) {
            Ok(()) | Err(nix::errno::Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&parent, name, flags, Mode::empty())?))
    };
    let made: File = if is_roots { make()? } else { user.act(make)? };
    let owner = made.metadata()?.uid();
    if owner == user.uid {
        return Ok(());
    }
    if owner != 0 || !is_roots {
        let why = format!("{} in {} belongs to user {owner}", Path::new(name).display(), parent.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    Ok(fchown(&made, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::PathBuf;

    const USER: u32 = 65534;

    fn user() -> JobUser {
        JobUser { uid: USER, gid: USER, groups: Vec::new() }
    }

    /// A directory of the user, with a file of theirs, below one that they can reach.
    fn scratch() -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let dir = scratch.path().join("theirs");
        ensure_dir(&dir, &user()).unwrap();
        fs::write(dir.join("out"), "theirs").unwrap();
        chown(dir.join("out"), Some(USER), Some(USER)).unwrap();
        (scratch, dir)
    }

    #[test]
    fn a_directory_is_made_for_its_user_and_found_again_but_not_anothers() {
        let (scratch, dir) = scratch();
        let made = fs::metadata(&dir).unwrap();
        assert_eq!((made.uid(), made.mode() & 0o7777), (USER, 0o700));
        ensure_dir(&dir, &user()).unwrap();
        // In a directory of the user it is made with their rights.
        ensure_dir(&dir.join("below"), &user()).unwrap();
        assert_eq!(fs::metadata(dir.join("below")).unwrap().uid(), USER);
        let anothers = dir.join("anothers");
        fs::create_dir(&anothers).unwrap();
        assert_eq!(ensure_dir(&anothers, &user()).unwrap_err().kind(), ErrorKind::PermissionDenied);
        symlink(scratch.path(), dir.join("link")).unwrap();
        assert!(ensure_dir(&dir.join("link"), &user()).is_err());
        let roots = scratch.path().join("shut");
        fs::create_dir(&roots).unwrap();
        chown(&roots, Some(1), None).unwrap();
        assert!(ensure_dir(&roots.join("x"), &user()).is_err(), "their rights do not reach there");
    }

    #[test]
    fn what_is_put_in_the_place_of_a_file_is_not_opened() {
        let (scratch, dir) = scratch();
        let secret = scratch.path().join("secret");
        fs::write(&secret, "root's").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let opened = open_to_write(&dir.join("out"), Some(&user())).unwrap();
        let beside = opened.create_beside(OsStr::new("out.foreign-1")).unwrap();
        assert_eq!(beside.metadata().unwrap().uid(), USER);
        symlink(&secret, dir.join("link")).unwrap();
        fs::hard_link(&secret, dir.join("hard")).unwrap();
        nix::unistd::mkfifo(&dir.join("fifo"), Mode::S_IRWXU).unwrap();
        symlink(scratch.path(), dir.join("elsewhere")).unwrap();
        for name in ["link", "hard", "fifo", "elsewhere/secret", "elsewhere"] {
            let path = dir.join(name);
            assert!(open_to_read(&path, Some(&user())).is_err(), "{name}");
            assert!(open_to_write(&path, Some(&user())).is_err(), "{name}");
        }
    }
}
