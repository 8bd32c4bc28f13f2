//! Private files: creates files and directories that only this user may read, and checks that a directory
//! that exists can be trusted with them.
//!
//! An image holds all that a job has in memory, and the default mode of a new file would let every local
//! user read it. So each file is created with mode 0600 and each directory with 0700, whatever the umask.
//! Names are predictable, so a new one must not exist before, and the last part of a path is never followed
//! if it is a symbolic link. [`check_trusted`] covers the parts before it.

use nix::sys::stat::{Mode, umask};
use nix::unistd::{Uid, User, geteuid};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// As the kernel.
const LINKS_MAX: u32 = 40;

/// Why a directory cannot be trusted with private files. `dir` is the directory itself or one above it.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// Its owner could replace what is in it.
    #[error("{} belongs to {}, who could replace what is in it", .dir.display(), name(*.owner))]
    Owner { dir: PathBuf, owner: u32 },
    /// Group or others could replace what is in it, because it has no sticky bit either.
    #[error("{} is writable by others (mode {mode:03o}), who could replace what is in it", .dir.display())]
    Writable { dir: PathBuf, mode: u32 },
    #[error("{} is not a directory", .dir.display())]
    NotADirectory { dir: PathBuf },
    #[error("{} cannot be looked at: {source}", .dir.display())]
    Io { dir: PathBuf, source: io::Error },
}

impl Untrusted {
    /// What would make the directory trusted.
    pub fn remedy(&self) -> String {
        match self {
            Untrusted::Owner { dir, .. } => format!("`chown root {}`", dir.display()),
            Untrusted::Writable { dir, .. } => format!("`chmod go-w {}`", dir.display()),
            Untrusted::NotADirectory { .. } | Untrusted::Io { .. } => "name another directory".into(),
        }
    }
}

/// The user's name where there is one.
fn name(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| format!("user {uid}"), |user| format!("{} (user {uid})", user.name))
}

/// Makes files that this process and its children create unreadable for other users, also where a program
/// such as CRIU chooses their mode. Returns the umask before.
pub fn restrict_umask() -> u32 {
    umask(Mode::from_bits_truncate(!DIR_MODE & 0o777)).bits()
}

/// Creates a file, which must not exist, to read and write.
pub fn create(path: &Path) -> io::Result<File> {
    options().read(true).write(true).create_new(true).open(path)
}

/// Creates a file, which must not exist, with these contents.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    create(path)?.write_all(bytes)
}

/// Creates a file to read and write, or empties the one that exists.
pub fn overwrite(path: &Path) -> io::Result<File> {
    options().read(true).write(true).create(true).truncate(true).open(path)
}

/// Creates a file to read and write, or opens the one that exists.
pub fn create_or_open(path: &Path) -> io::Result<File> {
    options().read(true).write(true).create(true).truncate(false).open(path)
}

/// Creates a file, or opens the one that exists; what is written goes to its end.
pub fn append(path: &Path) -> io::Result<File> {
    options().append(true).create(true).open(path)
}

/// Opens a file to read.
pub fn open(path: &Path) -> io::Result<File> {
    options().read(true).open(path)
}

/// Opens an existing file to read and write.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    options().read(true).write(true).open(path)
}

pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE).custom_flags(libc::O_NOFOLLOW);
    options
}

/// Creates a directory, which must not exist.
pub fn create_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIR_MODE).create(dir)
}

/// Creates a directory, and those above it that are missing. One that exists keeps its mode.
pub fn create_dir_all(dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(DIR_MODE).recursive(true).create(dir)
}

/// Creates a directory. One that exists must be trusted; the directories above it are not looked at.
pub fn ensure_dir(dir: &Path) -> Result<(), Untrusted> {
    let failed = |source| Untrusted::Io { dir: dir.to_owned(), source };
    match create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(dir).map_err(failed)?;
            check_dir(dir, &found)
        }
        created => created.map_err(failed),
    }
}

/// Whether a file or directory, or the link at that path, belongs to this user.
pub fn is_own(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.uid() == geteuid().as_raw())
}

/// Checks that nobody but root and this user can put something else in the place of a directory or of what is
/// in it: that it, all directories above it and all links on the way belong to root or this user, and that
/// others may not write to them. Others may write to a directory with the sticky bit, such as `/tmp`: there
/// they cannot replace what is not theirs.
pub fn check_trusted(dir: &Path) -> Result<(), Untrusted> {
    let failed = |dir: &Path| {
        let dir = dir.to_owned();
        move |source| Untrusted::Io { dir, source }
    };
    let mut at = PathBuf::from("/");
    let mut left = parts(&std::path::absolute(dir).map_err(failed(dir))?);
    let mut links = 0;
    check_dir(&at, &fs::symlink_metadata(&at).map_err(failed(&at))?)?;
    while let Some(part) = left.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            // The parent has been checked before.
            Some(Component::ParentDir) => drop(at.pop()),
            Some(Component::Normal(name)) => {
                let next = at.join(name);
                let found = fs::symlink_metadata(&next).map_err(failed(&next))?;
                if !found.is_symlink() {
                    check_dir(&next, &found)?;
                    at = next;
                    continue;
                }
                check_owner(&next, &found)?;
                links += 1;
                if links > LINKS_MAX {
                    return Err(failed(dir)(io::Error::from_raw_os_error(libc::ELOOP)));
                }
                let mut target = parts(&fs::read_link(&next).map_err(failed(&next))?);
                target.append(&mut left);
                left = target;
            }
            _ => {}
        }
    }
    Ok(())
}

/// As [`check_trusted`] of the directory, or, where there is none yet, of the first one above it that exists.
pub fn check_future(dir: &Path) -> Result<(), Untrusted> {
    match check_trusted(dir) {
        Err(Untrusted::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            dir.parent().map_or(Ok(()), check_future)
        }
        checked => checked,
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components().map(|part| part.as_os_str().to_owned()).collect()
}

fn check_dir(dir: &Path, found: &Metadata) -> Result<(), Untrusted> {
    if !found.is_dir() {
        return Err(Untrusted::NotADirectory { dir: dir.to_owned() });
    }
    check_owner(dir, found)?;
    let mode = found.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 {
        return Err(Untrusted::Writable { dir: dir.to_owned(), mode });
    }
    Ok(())
}

fn check_owner(path: &Path, found: &Metadata) -> Result<(), Untrusted> {
    let owner = found.uid();
    if owner == 0 || owner == geteuid().as_raw() {
        return Ok(());
    }
    Err(Untrusted::Owner { dir: path.to_owned(), owner })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    const NOBODY: u32 = 65534;

    fn dir_with_mode(path: &Path, mode: u32) -> PathBuf {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_owned()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn what_is_created_is_private_whatever_the_umask() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("a/b");
        create_dir_all(&dir).unwrap();
        write(&dir.join("file"), b"secret").unwrap();
        ensure_dir(&dir.join("c")).unwrap();
        assert_eq!(["", "c", "file"].map(|name| mode(&dir.join(name))), [0o700, 0o700, 0o600]);
        assert_eq!(mode(&scratch.path().join("a")), 0o700);
    }

    #[test]
    fn a_name_that_was_planted_is_refused_and_a_link_not_followed() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::write(at("victim"), "mine").unwrap();
        fs::create_dir(at("elsewhere")).unwrap();
        for (target, link) in [("victim", "file"), ("nothing", "dangling"), ("elsewhere", "dir")] {
            symlink(at(target), at(link)).unwrap();
        }
        for name in ["file", "dangling"] {
            assert_eq!(create(&at(name)).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{name}");
            assert!(open(&at(name)).is_err() && open_to_write(&at(name)).is_err(), "{name}");
        }
        assert_eq!(create_dir(&at("dir")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(matches!(ensure_dir(&at("dir")), Err(Untrusted::NotADirectory { .. })));
        assert!(!at("nothing").exists() && fs::read(at("victim")).unwrap() == b"mine");
    }

    #[test]
    fn a_directory_is_trusted_if_nobody_else_can_replace_it() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        let own = dir_with_mode(&at("own"), 0o755);
        let shared = dir_with_mode(&at("shared"), 0o1777);
        check_trusted(&own).unwrap();
        check_trusted(&own.join("../shared/.")).unwrap();
        symlink("own", at("link")).unwrap();
        check_trusted(&at("link")).unwrap();
        for (mode, by) in [(0o775, "group"), (0o757, "others")] {
            let open = dir_with_mode(&at(by), mode);
            let below = dir_with_mode(&open.join("below"), 0o700);
            for dir in [&open, &below] {
                let refused = check_trusted(dir).unwrap_err();
                assert!(matches!(&refused, Untrusted::Writable { dir, .. } if *dir == open), "{refused}");
                assert!(refused.remedy().contains("chmod go-w"), "{}", refused.remedy());
            }
        }
        assert!(matches!(check_future(&at("group").join("x/y")), Err(Untrusted::Writable { .. })));
        check_future(&shared.join("x/y")).unwrap();
        assert!(matches!(check_trusted(&at("gone")), Err(Untrusted::Io { .. })));
        symlink("loop", at("loop")).unwrap();
        assert!(matches!(check_trusted(&at("loop")), Err(Untrusted::Io { .. })));
    }

    #[test]
    fn a_directory_or_link_of_another_user_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        let theirs = dir_with_mode(&at("theirs"), 0o755);
        let below = dir_with_mode(&theirs.join("below"), 0o700);
        chown(&theirs, Some(NOBODY), None).unwrap();
        let own = dir_with_mode(&at("own"), 0o700);
        symlink(&own, at("link")).unwrap();
        std::os::unix::fs::lchown(at("link"), Some(NOBODY), None).unwrap();
        for dir in [theirs.clone(), below, at("link")] {
            let refused = check_trusted(&dir).unwrap_err();
            assert!(matches!(refused, Untrusted::Owner { owner: NOBODY, .. }), "{refused}");
            assert!(refused.to_string().contains("belongs to nobody"), "{refused}");
        }
        assert!(matches!(ensure_dir(&theirs), Err(Untrusted::Owner { .. })));
        assert!(!is_own(&theirs) && is_own(&own));
    }
}
