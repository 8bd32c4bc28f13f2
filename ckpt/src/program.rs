//! A program that has come to this node with its application, as a file: in its place, and in snapshots.
//!
//! Processes keep the path of their program, and CRIU looks for it there. So a snapshot has the program as
//! well, and [`Snapshot::place_program`](crate::Snapshot::place_program) puts it back where it is missing.

use crate::error::{SnapshotError, at};
use crate::files;
use crate::keys::Hex32;
use crate::private;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What is not complete yet, in the directory of the application.
pub(crate) const FRESH: &str = ".program.new";
/// All may run it, and only this user can get to it: ranks of another one have it opened for them.
const MODE: u32 = 0o555;

/// Makes the program executable.
pub(crate) fn set_mode(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(MODE))
}

/// Makes `copy` the same file as `program`, or one with the same contents.
pub(crate) fn link_or_copy(program: &Path, copy: &Path) -> Result<(), SnapshotError> {
    if fs::hard_link(program, copy).is_ok() {
        return Ok(());
    }
    copy_file(program, copy).map_err(at(copy))
}

/// Puts the program that a snapshot has in its place, unless the same bytes are there. Returns false, and
/// puts nothing there, where the snapshot has another program than that of the digest.
pub(crate) fn place(saved: &Path, digest: Hex32, path: &Path) -> Result<bool, SnapshotError> {
    let is_right = |path: &Path| files::digest(path).is_ok_and(|(_, found)| found == digest);
    if is_right(path) {
        return Ok(true);
    }
    let dir = path.parent().expect("it has a directory of its own");
    let fresh = path.with_file_name(FRESH);
    let put = || {
        private::create_dir_all(dir)?;
        // Of a daemon that has died.
        fs::remove_file(&fresh).ok();
        copy_file(saved, &fresh)?;
        match is_right(&fresh) {
            true => fs::rename(&fresh, path).map(|()| true),
            false => fs::remove_file(&fresh).map(|()| false),
        }
    };
    put().map_err(at(path))
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (mut from, mut to) = (private::open(from)?, private::create(to)?);
    io::copy(&mut from, &mut to)?;
    set_mode(&to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_put_back_where_it_is_missing_or_another() {
        let dir = tempfile::tempdir().unwrap();
        let (saved, path) = (dir.path().join("saved"), dir.path().join("program/x"));
        fs::write(&saved, b"abc").unwrap();
        for before in [None, Some(b"abx")] {
            if let Some(bytes) = before {
                fs::remove_file(&path).unwrap();
                fs::write(&path, bytes).unwrap();
            }
            let (_, digest) = files::digest(&saved).unwrap();
            assert!(place(&saved, digest, &path).unwrap());
            assert_eq!(fs::read(&path).unwrap(), b"abc");
            assert!(!place(&saved, Hex32([1; 32]), &path).unwrap());
            assert_eq!(fs::read(&path).unwrap(), b"abc");
        }
        let entries = fs::read_dir(path.parent().unwrap()).unwrap().flatten();
        assert_eq!(entries.map(|entry| entry.file_name()).collect::<Vec<_>>(), ["x"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o555);
    }
}
