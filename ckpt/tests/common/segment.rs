//! The test's side of the segment shared with the ranks of `target.c`.

use coswitch_ckpt::SegmentFile;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const PAGE: usize = 4096;

/// A segment file, mapped like in a daemon.
pub struct Segment {
    pub path: PathBuf,
    pub file: File,
    base: NonNull<u8>,
    ranks: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only used through atomics.
unsafe impl Send for Segment {}

/// One rank's page; the layout is `struct rank_page` of target.c.
pub struct RankPage<'a> {
    base: NonNull<u8>,
    _segment: &'a Segment,
}

impl Segment {
    pub fn create(path: PathBuf, ranks: usize) -> Segment {
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let bytes = PAGE * (1 + ranks);
        file.set_len(bytes as u64).unwrap();
        let flags = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice, of a file that is as long as the
        // mapping.
        let base = unsafe {
            mmap(None, NonZeroUsize::new(bytes).unwrap(), flags, MapFlags::MAP_SHARED, file.as_fd(), 0)
        };
        Segment { path, file, base: base.unwrap().cast(), ranks }
    }

    pub fn identity(&self) -> SegmentFile {
        SegmentFile::of(&self.file, &self.path).unwrap()
    }

    pub fn ranks(&self) -> Vec<RankPage<'_>> {
        let page = |rank| {
            // SAFETY: page 1 + rank lies inside the mapping, which has a page more than there are ranks.
            let base = unsafe { self.base.add(PAGE * (1 + rank)) };
            RankPage { base, _segment: self }
        };
        (0..self.ranks).map(page).collect()
    }

    pub fn bytes(&self) -> usize {
        PAGE * (1 + self.ranks)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what was mapped; pages of ranks borrow the segment and are gone.
        unsafe { munmap(self.base.cast(), self.bytes()) }.unwrap();
    }
}

impl RankPage<'_> {
    /// Rounds, heartbeats, ticks of the periodic timerfd, alarms.
    pub fn counters(&self) -> [u64; 4] {
        [0, 8, 16, 24].map(|offset| self.word(offset).load(Ordering::Acquire))
    }

    pub fn errors(&self) -> u64 {
        self.word(32).load(Ordering::Acquire)
    }

    /// Rings the rank's bell; the rank should answer with the number returned.
    pub fn ring(&self) -> u32 {
        let bell = self.half_word(40);
        let asked = bell.fetch_add(1, Ordering::AcqRel) + 1;
        // SAFETY: the word is mapped and aligned; a wake touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        asked
    }

    pub fn answer(&self) -> u32 {
        self.half_word(44).load(Ordering::Acquire)
    }

    /// The rank's process id inside its namespace.
    pub fn pid(&self) -> u32 {
        self.half_word(48).load(Ordering::Acquire)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside the page, aligned by 8, mapped while the segment is borrowed, and only used
        // atomically here.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast().as_ptr()) }
    }

    fn half_word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as for `word`, aligned by 4.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast().as_ptr()) }
    }
}
