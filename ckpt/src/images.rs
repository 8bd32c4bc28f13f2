//! A directory of CRIU's images: reads and repairs them with the decoders of [`crate::image_file`].

use crate::image_file::{self, ImageError, RegularFile};
use crate::private;
use criu_sys::image::{DumpStatsEntry, RestoreStatsEntry};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Why the images in a directory could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    #[error("use {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("read {}: {source}", .path.display())]
    Image { path: PathBuf, source: ImageError },
}

/// CRIU's list of open and mapped files.
const FILES: &str = "files.img";
/// CRIU's list of those that are not at their paths any more, where there are any.
const REMAPS: &str = "remap-fpath.img";

/// The name of the list of files of a snapshot whose images are in the directory `images`.
pub(crate) fn files_name(images: &str) -> String {
    format!("{images}/{FILES}")
}

/// The regular files that the processes had open or mapped, without those that were removed.
pub fn regular_files(images: &Path) -> Result<Vec<RegularFile>, ImagesError> {
    let files = read_as(&images.join(FILES), image_file::regular_files)?;
    let remaps = images.join(REMAPS);
    match remaps.exists() {
        true => read_as(&remaps, |image| image_file::at_their_paths(files, image)),
        false => Ok(files),
    }
}

/// Repairs the periodic timers that a restore would leave disarmed; returns their number.
pub fn repair_timers(images: &Path) -> Result<usize, ImagesError> {
    repair(images, |image| {
        let offsets = image_file::disarmed_periodic_timers(image)?;
        Ok(offsets.into_iter().map(|offset| (offset, "\u{1}".to_owned())).collect())
    })
}

/// Repairs the paths of open files in `/proc` that name one of these processes by its id, which a restore
/// changes.
pub fn repair_proc_files(images: &Path, pids: &[i32]) -> Result<usize, ImagesError> {
    repair(images, |image| image_file::own_proc_files(image, pids))
}

/// Applies repairs (offset and new text) to CRIU's list of files; returns their number.
fn repair(
    images: &Path,
    find: impl FnOnce(&[u8]) -> Result<Vec<(usize, String)>, ImageError>,
) -> Result<usize, ImagesError> {
    let path = images.join(FILES);
    let repairs = read_as(&path, find)?;
    if repairs.is_empty() {
        return Ok(0);
    }
    let write = || {
        let file = private::open_to_write(&path)?;
        repairs.iter().try_for_each(|(offset, text)| file.write_all_at(text.as_bytes(), *offset as u64))
    };
    write().map_err(at(&path))?;
    Ok(repairs.len())
}

/// CRIU's statistics of a dump; `None` if it left none, which is no reason to fail.
pub fn dump_statistics(work_dir: &Path) -> Option<DumpStatsEntry> {
    image_file::statistics(&private::read(&work_dir.join("stats-dump")).ok()?).ok()?.dump
}

/// CRIU's statistics of a restore.
pub fn restore_statistics(work_dir: &Path) -> Option<RestoreStatsEntry> {
    image_file::statistics(&private::read(&work_dir.join("stats-restore")).ok()?).ok()?.restore
}

/// The sum of the lengths of the files in a directory.
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

/// Reads and decodes a file.
pub(crate) fn read_as<T>(
    path: &Path,
    decode: impl FnOnce(&[u8]) -> Result<T, ImageError>,
) -> Result<T, ImagesError> {
    decode(&read(path)?).map_err(|source| ImagesError::Image { path: path.to_owned(), source })
}

fn read(path: &Path) -> Result<Vec<u8>, ImagesError> {
    private::read(path).map_err(at(path))
}

pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> ImagesError {
    move |source| ImagesError::Io { path: path.to_owned(), source }
}
