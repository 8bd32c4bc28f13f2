//! What must be true of files before a restore.
//!
//! CRIU puts processes back onto the files they had, by path. It refuses where size or mode differ, half-way
//! through; and where a file was *replaced* by another of the same size it succeeds and the ranks map the wrong
//! one, silently cut off from their daemon. So all of it is checked before anything is started.

use crate::image_file::RegularFile;
use crate::segment;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The identity of a segment file: the ranks and their daemon must map the very same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentFile {
    /// Where the ranks find it.
    pub path: PathBuf,
    /// Device and inode: what is mapped, whatever its name.
    pub device: u64,
    /// See `device`.
    pub inode: u64,
    /// Its fixed size.
    pub bytes: u64,
    /// Its type and permissions.
    pub mode: u32,
}

impl SegmentFile {
    /// As it is at that path now.
    pub fn at(path: &Path) -> io::Result<SegmentFile> {
        Ok(SegmentFile::new(path, &fs::metadata(path)?))
    }

    /// As the open (and mapped) file is, which should be found at that path.
    pub fn of(file: &File, path: &Path) -> io::Result<SegmentFile> {
        Ok(SegmentFile::new(path, &file.metadata()?))
    }

    /// Gives back the memory that its contents take, in place: it reads as zeros until it is refilled.
    pub fn empty(&self) -> io::Result<()> {
        let file = File::options().write(true).open(&self.path)?;
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

/// A file that the tree writes its output to, as long as it was when the tree was dumped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Its path.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
}

/// What somebody else had appended to an output file, set aside so that the tree can come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignOutput {
    /// The output file.
    pub path: PathBuf,
    /// Where the foreign part is now.
    pub kept_in: PathBuf,
    /// How long it is.
    pub bytes: u64,
}

/// Why a restore must not be tried.
#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    /// Nothing is at the segment's path.
    #[error("the segment file {} is missing", .path.display())]
    SegmentMissing {
        /// Its path.
        path: PathBuf,
    },
    /// Another file is at the segment's path: restored ranks would talk to nobody.
    #[error("the segment file {} was replaced (inode {expected} is expected, {found} is there)", .path.display())]
    SegmentReplaced {
        /// Its path.
        path: PathBuf,
        /// The inode that the daemon maps.
        expected: u64,
        /// The inode at the path.
        found: u64,
    },
    /// A file is longer or shorter than it was.
    #[error("{} has changed: it had {recorded} bytes, now {found}", .path.display())]
    SizeChanged {
        /// The file.
        path: PathBuf,
        /// Its length in the image.
        recorded: u64,
        /// Its length now.
        found: u64,
    },
    /// A file has another type or other permissions than it had.
    #[error("{} has changed: its mode was {recorded:o}, now {found:o}", .path.display())]
    ModeChanged {
        /// The file.
        path: PathBuf,
        /// Its mode in the image.
        recorded: u32,
        /// Its mode now.
        found: u32,
    },
    /// An output file has lost some of what the tree had written.
    #[error("the output file {} was cut: it had {recorded} bytes, now {found}", .path.display())]
    OutputCut {
        /// The file.
        path: PathBuf,
        /// Its length in the image.
        recorded: u64,
        /// Its length now; 0 where it is missing.
        found: u64,
    },
    /// A file could not be looked at or put right.
    #[error("prepare {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> PreflightError {
    move |source| PreflightError::Io { path: path.to_owned(), source }
}

/// The file at the segment's path must be the one expected, in size and mode too.
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

/// Regular files of the image must be as they were. One that is missing is left to CRIU: it may be inside the image.
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

/// Cuts output files back to where the tree left them. CRIU refuses a file that has grown, except one that was opened
/// to append: there the foreign part would stay, in the middle of the tree's own output. What was appended since (by somebody else, or by the tree
/// itself after an older snapshot) moves to `FILE.foreign-N`: nothing is lost.
pub fn set_aside_foreign_output(outputs: &[OutputFile]) -> Result<Vec<ForeignOutput>, PreflightError> {
    let mut set_aside = Vec::new();
    for output in outputs {
        let OutputFile { path, bytes: recorded } = output;
        let found = fs::metadata(path).map_or(0, |metadata| metadata.len());
        if found < *recorded {
            return Err(PreflightError::OutputCut { path: path.clone(), recorded: *recorded, found });
        }
        if found > *recorded {
            let foreign = move_tail(path, *recorded).map_err(at(path))?;
            tracing::warn!(file = %path.display(), kept_in = %foreign.kept_in.display(), bytes = foreign.bytes,
                "output was appended to while its job was parked; set aside");
            set_aside.push(foreign);
        }
    }
    Ok(set_aside)
}

fn move_tail(path: &Path, from: u64) -> io::Result<ForeignOutput> {
    let mut file = File::options().read(true).write(true).open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let (kept_in, mut aside) = create_aside(path)?;
    let bytes = io::copy(&mut file, &mut aside)?;
    // The copy must be safe before the original is cut.
    aside.sync_all()?;
    file.set_len(from)?;
    Ok(ForeignOutput { path: path.to_owned(), kept_in, bytes })
}

fn create_aside(path: &Path) -> io::Result<(PathBuf, File)> {
    for number in 1u32.. {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".foreign-{number}"));
        let candidate = PathBuf::from(name);
        match File::options().write(true).create_new(true).open(&candidate) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => return Ok((candidate, result?)),
        }
    }
    unreachable!("four thousand million files lie beside {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_output_is_moved_aside_under_the_next_free_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.out");
        let output = OutputFile { path: path.clone(), bytes: 5 };
        for (number, tail) in ["first", "second"].iter().enumerate() {
            fs::write(&path, format!("mine\n{tail}")).unwrap();
            let foreign = set_aside_foreign_output(std::slice::from_ref(&output)).unwrap();
            let kept_in = dir.path().join(format!("rank-0.out.foreign-{}", number + 1));
            assert_eq!(fs::read_to_string(&kept_in).unwrap(), *tail);
            assert_eq!(foreign, [ForeignOutput { path: path.clone(), kept_in, bytes: tail.len() as u64 }]);
            assert_eq!(fs::read_to_string(&path).unwrap(), "mine\n");
        }
        assert_eq!(set_aside_foreign_output(&[output]).unwrap(), []);
    }

    #[test]
    fn output_that_was_cut_or_removed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let output = [OutputFile { path: path.clone(), bytes: 5 }];
        assert!(matches!(set_aside_foreign_output(&output), Err(PreflightError::OutputCut { found: 0, .. })));
        fs::write(&path, "abc").unwrap();
        assert!(matches!(set_aside_foreign_output(&output), Err(PreflightError::OutputCut { found: 3, .. })));
    }

    #[test]
    fn a_segment_replaced_by_an_equal_copy_is_told_from_the_original() {
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
