//! Reading and repairing the images in a directory; what they mean is decided in [`crate::image_file`].

use crate::image_file::{self, ImageError, RegularFile};
use criu_sys::image::{DumpStatsEntry, RestoreStatsEntry};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Why the images in a directory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// A file could not be read or written.
    #[error("use {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("read {}: {source}", .path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ImageError,
    },
}

/// The regular files that the dumped processes had open or mapped.
pub fn regular_files(images: &Path) -> Result<Vec<RegularFile>, ImagesError> {
    read_as(&images.join("files.img"), image_file::regular_files)
}

/// Whether the file of that name, relative to its snapshot, holds memory and nothing that CRIU interprets.
pub(crate) fn holds_pages(name: &str) -> bool {
    name.starts_with("images/pages-")
}

/// Repairs the periodic timers that a restore would leave disarmed; returns how many there were.
pub fn repair_timers(images: &Path) -> Result<usize, ImagesError> {
    repair(images, |image| {
        let offsets = image_file::disarmed_periodic_timers(image)?;
        Ok(offsets.into_iter().map(|offset| (offset, "\u{1}".to_owned())).collect())
    })
}

/// Repairs the paths of open files in `/proc` that name one of these processes, which will have other ids.
pub fn repair_proc_files(images: &Path, pids: &[i32]) -> Result<usize, ImagesError> {
    repair(images, |image| image_file::own_proc_files(image, pids))
}

/// Overwrites in the list of files what was found to be wrong: offsets and what has to be there.
fn repair(
    images: &Path,
    find: impl FnOnce(&[u8]) -> Result<Vec<(usize, String)>, ImageError>,
) -> Result<usize, ImagesError> {
    let path = images.join("files.img");
    let repairs = find(&read(&path)?).map_err(|source| ImagesError::Image { path: path.clone(), source })?;
    if repairs.is_empty() {
        return Ok(0);
    }
    let write = || {
        let file = File::options().write(true).open(&path)?;
        repairs.iter().try_for_each(|(offset, text)| file.write_all_at(text.as_bytes(), *offset as u64))
    };
    write().map_err(at(&path))?;
    Ok(repairs.len())
}

/// CRIU's account of a dump; `None` where it left none, which is no reason to fail.
pub fn dump_statistics(work_dir: &Path) -> Option<DumpStatsEntry> {
    image_file::statistics(&fs::read(work_dir.join("stats-dump")).ok()?).ok()?.dump
}

/// CRIU's account of a restore.
pub fn restore_statistics(work_dir: &Path) -> Option<RestoreStatsEntry> {
    image_file::statistics(&fs::read(work_dir.join("stats-restore")).ok()?).ok()?.restore
}

/// How many bytes the files in a directory hold.
pub fn bytes(images: &Path) -> Result<u64, ImagesError> {
    let lengths =
        list(images)?.into_iter().map(|(_, path)| Ok(fs::metadata(&path).map_err(at(&path))?.len()));
    lengths.sum()
}

/// Names and paths of the files in a directory.
pub(crate) fn list(images: &Path) -> Result<Vec<(String, PathBuf)>, ImagesError> {
    let entries = fs::read_dir(images).map_err(at(images))?;
    let files = entries.map(|entry| {
        let entry = entry.map_err(at(images))?;
        Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
    });
    files.collect()
}

/// Reads a file, and what it means.
pub(crate) fn read_as<T>(
    path: &Path,
    meaning: impl FnOnce(&[u8]) -> Result<T, ImageError>,
) -> Result<T, ImagesError> {
    meaning(&read(path)?).map_err(|source| ImagesError::Image { path: path.to_owned(), source })
}

fn read(path: &Path) -> Result<Vec<u8>, ImagesError> {
    fs::read(path).map_err(at(path))
}

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> ImagesError {
    move |source| ImagesError::Io { path: path.to_owned(), source }
}
