//! Entry points for the fuzz targets in `tests/fuzz`: the parsers of files of a snapshot, which an attacker
//! may have changed.

use crate::image_file::{self, RegularFile};
use crate::keys::{ClusterKey, Hex32, Sealing, SnapshotKeys};
use crate::manifest::{Manifest, Outline};
use crate::{pages, sealed, segment};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::path::PathBuf;

fn keys() -> SnapshotKeys {
    Sealing::new(ClusterKey::from([7; 32]), "n0".into(), PathBuf::from("/")).keys("job-1", 1)
}

/// CRIU's images, of each kind.
pub fn images(bytes: &[u8]) {
    let files = image_file::regular_files(bytes).unwrap_or_default();
    let _: Result<Vec<RegularFile>, _> = image_file::at_their_paths(files, bytes);
    let _ = image_file::disarmed_periodic_timers(bytes);
    let _ = image_file::own_proc_files(bytes, &[1, 22, 4_000_000]);
    let _ = image_file::renamed(bytes, "/from", "/to/another");
    let _ = image_file::threads_of_root(bytes);
    let _ = image_file::credentials(bytes);
    let _ = image_file::writable(bytes);
    let _ = image_file::written_by_kernel(bytes);
    let _ = image_file::statistics(bytes);
}

pub fn manifest(bytes: &[u8]) {
    if let Ok(outline) = Outline::decode(bytes) {
        let _ = (outline.compare(&[("images/core-1.img".into(), 1)]), outline.bytes());
    }
    let _ = Manifest::decode(bytes, &keys(), "n0");
}

/// A file of a snapshot, which is what was sealed or nothing.
pub fn sealed_file(bytes: &[u8]) {
    let key = keys().file("x", &Hex32([2; 32]));
    let opened = sealed::open(bytes, bytes.len() as u64, &key, |_| Ok(()));
    assert!(opened.is_err(), "nobody has sealed this");
}

pub fn page_index(bytes: &[u8]) {
    pages::is_index(bytes);
}

/// The contents of a segment, as they were before they were sealed.
pub fn segment_contents(bytes: &[u8]) {
    let file = memfd_create(c"segment", MFdFlags::MFD_CLOEXEC).map(File::from);
    let file = file.and_then(|file| file.set_len(256 << 10).map(|()| file).map_err(|_| nix::Error::EIO));
    if let Ok(file) = file {
        let _ = segment::load(bytes, &file);
        assert_eq!(file.metadata().map_or(0, |found| found.len()), 256 << 10, "a segment keeps its size");
    }
}
