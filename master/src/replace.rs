//! Replaces a file in one step: whatever happens, the old one is there, or the new one, and whole.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use coswitch_ckpt::private;

/// Replaces the file, or makes it. What is written to it afterwards goes to its end.
///
/// # Errors
/// Where the new one cannot be written; then the old one stays.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let file = prepare(path, bytes)?;
    put_in_place(path)?;
    Ok(file)
}

/// Writes the file that [`put_in_place`] puts at the path.
///
/// # Errors
/// Where it cannot be written; then nothing of it is left.
pub(crate) fn prepare(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let new = beside(path);
    remove(&new)?;
    let mut file = private::append(&new)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = remove(&new);
    }
    written.map(|()| file)
}

/// # Errors
/// Where nothing was replaced.
pub(crate) fn put_in_place(path: &Path) -> io::Result<()> {
    fs::rename(beside(path), path)?;
    if let Err(error) = sync_directory(path) {
        tracing::warn!(%error, "a power cut may bring back what {} was before", path.display());
    }
    Ok(())
}

/// Waits until the disk has the names in the directory of the path.
///
/// # Errors
/// Where it has not.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// Removes the file, if there is one.
///
/// # Errors
/// Where it is still there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where the new file is made.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}
