//! Checks of files before a restore.
//!
//! CRIU reopens the files of restored processes by path. It refuses files of another size or mode only
//! half-way through a restore. If a file was *replaced* by another of the same size, it succeeds: the ranks
//! map the wrong file and are silently cut off from their daemon. So all files are checked before anything is
//! started.

use crate::image_file::RegularFile;
use crate::private;
use crate::segment;
use crate::theirs::{self, TheirFile};
use crate::user::JobUser;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The identity of a segment file: the ranks and their daemon must map the very same file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentFile {
    pub path: PathBuf,
    /// Device and inode identify what is mapped, whatever its name.
    pub device: u64,
    pub inode: u64,
    pub bytes: u64,
    /// Type and permissions.
    pub mode: u32,
}

impl SegmentFile {
    /// The file at that path now.
    pub fn at(path: &Path) -> io::Result<SegmentFile> {
        Ok(SegmentFile::new(path, &fs::symlink_metadata(path)?))
    }

    /// The open (and mapped) file, which should be at that path.
    pub fn of(file: &File, path: &Path) -> io::Result<SegmentFile> {
        Ok(SegmentFile::new(path, &file.metadata()?))
    }

    /// Frees the memory of its contents in place: the file reads as zeros until it is refilled.
    pub fn empty(&self) -> io::Result<()> {
        let file = private::open_to_write(&self.path)?;
        segment::punch(&file, 0, self.bytes)
    }

    fn new(path: &Path, metadata: &Metadata) -> SegmentFile {
        SegmentFile {
            path: path.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            mode: metadata.mode(),
        }
    }
}

/// A file that the tree writes to, with its length when the tree was dumped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// Of a file that the program has opened itself: another file at its path is not touched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
}

/// Data that was appended to an output file after the dump, moved to a file of its own before the restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignOutput {
    pub path: PathBuf,
    pub kept_in: PathBuf,
    /// Length of the data in `kept_in`.
    pub bytes: u64,
}

/// Why a restore must not be tried.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    #[error("the segment file {} is missing", .path.display())]
    SegmentMissing { path: PathBuf },
    /// Another file is at the segment's path: restored ranks would be cut off from their daemon.
    #[error(
        "the segment file {} was replaced (inode {expected} is expected, {found} is there)",
        .path.display()
    )]
    SegmentReplaced {
        path: PathBuf,
        /// The inode that the daemon maps.
        expected: u64,
        /// The inode at the path.
        found: u64,
    },
    #[error("{} has changed: it had {recorded} bytes, now {found}", .path.display())]
    SizeChanged { path: PathBuf, recorded: u64, found: u64 },
    #[error("{} has changed: its mode was {recorded:o}, now {found:o}", .path.display())]
    ModeChanged { path: PathBuf, recorded: u32, found: u32 },
    /// An output file has lost data that the tree had written.
    #[error("the output file {} was cut: it had {recorded} bytes, now {found}", .path.display())]
    OutputCut {
        path: PathBuf,
        recorded: u64,
        /// 0 if the file is missing.
        found: u64,
    },
    /// Another file is at the path of one that the tree writes to.
    #[error("the file {} was replaced by another one", .path.display())]
    OutputReplaced { path: PathBuf },
    #[error("prepare {}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> PreflightError {
    move |source| PreflightError::Io { path: path.to_owned(), source }
}

/// Checks that the file at the segment's path is the expected one, with the same size and mode.
pub fn check_segment(expected: &SegmentFile) -> Result<(), PreflightError> {
    let path = expected.path.clone();
    let found = match SegmentFile::at(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(PreflightError::SegmentMissing { path });
        }
        Err(error) => return Err(at(&path)(error)),
    };
    if (found.device, found.inode) != (expected.device, expected.inode) {
        return Err(PreflightError::SegmentReplaced { path, expected: expected.inode, found: found.inode });
    }
    compare(path, (expected.bytes, found.bytes), (expected.mode, found.mode))
}

/// Checks that regular files have the size and mode of the dump. Missing files are left to CRIU: they may be
/// inside the image.
pub fn check_regular_files(files: &[RegularFile]) -> Result<(), PreflightError> {
    for file in files {
        let path = PathBuf::from(&file.path);
        let Ok(found) = fs::metadata(&path) else { continue };
        let bytes = (file.bytes.unwrap_or(found.len()), found.len());
        let mode = (file.mode.unwrap_or(found.mode()), found.mode());
        compare(path, bytes, mode)?;
    }
    Ok(())
}

fn compare(path: PathBuf, bytes: (u64, u64), mode: (u32, u32)) -> Result<(), PreflightError> {
    if bytes.0 != bytes.1 {
        return Err(PreflightError::SizeChanged { path, recorded: bytes.0, found: bytes.1 });
    }
    if mode.0 != mode.1 {
        return Err(PreflightError::ModeChanged { path, recorded: mode.0, found: mode.1 });
    }
    Ok(())
}

/// Cuts the files that the tree writes to back to their lengths at the dump. CRIU refuses a file that has
/// grown, unless it was opened to append: there the foreign part would stay in the middle of the tree's
/// output. What was written since the dump (by another program, or by the tree itself, which now goes back to
/// an older snapshot and will write it again) moves to `FILE.foreign-N`, so that nothing is lost.
///
/// What is not the file of `user`, where there is one beside root, is not touched.
pub fn set_aside_foreign_output(
    outputs: &[OutputFile],
    user: Option<&JobUser>,
) -> Result<Vec<ForeignOutput>, PreflightError> {
    let mut set_aside = Vec::new();
    for output in outputs {
        let OutputFile { path, bytes: recorded, inode } = output;
        let found = fs::metadata(path).map_or(0, |metadata| metadata.len());
        if found < *recorded {
            return Err(PreflightError::OutputCut { path: path.clone(), recorded: *recorded, found });
        }
        if found > *recorded {
            let theirs = theirs::open_to_write(path, user).map_err(at(path))?;
            if inode.is_some() && *inode != theirs.file.metadata().ok().map(|metadata| metadata.ino()) {
                return Err(PreflightError::OutputReplaced { path: path.clone() });
            }
            let foreign = move_tail(theirs, path, *recorded).map_err(at(path))?;
            tracing::warn!(
                file = %path.display(),
                kept_in = %foreign.kept_in.display(),
                bytes = foreign.bytes,
                "what was written to a file since the snapshot was set aside",
            );
            set_aside.push(foreign);
        }
    }
    Ok(set_aside)
}

fn move_tail(mut theirs: TheirFile, path: &Path, from: u64) -> io::Result<ForeignOutput> {
    theirs.file.seek(SeekFrom::Start(from))?;
    let (kept_in, mut aside) = create_aside(&theirs, path)?;
    let bytes = io::copy(&mut theirs.file, &mut aside)?;
    // The copy must be safe before the original is cut.
    aside.sync_all()?;
    theirs.file.set_len(from)?;
    Ok(ForeignOutput { path: path.to_owned(), kept_in, bytes })
}

fn create_aside(theirs: &TheirFile, path: &Path) -> io::Result<(PathBuf, File)> {
    for number in 1u32.. {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".foreign-{number}"));
        match theirs.create_beside(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => return Ok((path.with_file_name(name), result?)),
        }
    }
    unreachable!("four thousand million files of foreign output for {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_output_is_moved_aside_under_the_next_free_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.out");
        let output = OutputFile { path: path.clone(), bytes: 5, inode: None };
        for (number, tail) in ["first", "second"].iter().enumerate() {
            fs::write(&path, format!("mine\n{tail}")).unwrap();
            let foreign = set_aside_foreign_output(std::slice::from_ref(&output), None).unwrap();
            let kept_in = dir.path().join(format!("rank-0.out.foreign-{}", number + 1));
            assert_eq!(fs::read_to_string(&kept_in).unwrap(), *tail);
            assert_eq!(foreign, [ForeignOutput { path: path.clone(), kept_in, bytes: tail.len() as u64 }]);
            assert_eq!(fs::read_to_string(&path).unwrap(), "mine\n");
        }
        assert_eq!(set_aside_foreign_output(&[output], None).unwrap(), []);
    }

    #[test]
    fn a_file_that_has_taken_the_place_of_the_programs_own_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("own");
        fs::write(&path, "mine\n").unwrap();
        let own =
            OutputFile { path: path.clone(), bytes: 5, inode: Some(fs::metadata(&path).unwrap().ino()) };
        fs::write(dir.path().join("other"), "another file").unwrap();
        fs::rename(dir.path().join("other"), &path).unwrap();
        let refused = set_aside_foreign_output(&[own], None);
        assert!(matches!(refused, Err(PreflightError::OutputReplaced { .. })), "{refused:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "another file");
    }

    #[test]
    fn output_that_was_cut_or_removed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let output = [OutputFile { path: path.clone(), bytes: 5, inode: None }];
        assert!(matches!(
            set_aside_foreign_output(&output, None),
            Err(PreflightError::OutputCut { found: 0, .. })
        ));
        fs::write(&path, "abc").unwrap();
        assert!(matches!(
            set_aside_foreign_output(&output, None),
            Err(PreflightError::OutputCut { found: 3, .. })
        ));
    }

    #[test]
    fn a_segment_replaced_by_an_equal_copy_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        fs::write(&path, [7; 4096]).unwrap();
        let expected = SegmentFile::at(&path).unwrap();
        check_segment(&expected).unwrap();
        let copy = dir.path().join("copy");
        fs::copy(&path, &copy).unwrap();
        fs::rename(&copy, &path).unwrap();
        assert!(matches!(check_segment(&expected), Err(PreflightError::SegmentReplaced { .. })));
        fs::remove_file(&path).unwrap();
        assert!(matches!(check_segment(&expected), Err(PreflightError::SegmentMissing { .. })));
    }

    #[test]
    fn a_segment_of_another_size_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        fs::write(&path, [7; 4096]).unwrap();
        let expected = SegmentFile::at(&path).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(8192).unwrap();
        assert!(matches!(check_segment(&expected), Err(PreflightError::SizeChanged { found: 8192, .. })));
    }
}
