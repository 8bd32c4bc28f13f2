//! The segment file: creates, opens and maps it, and gives access to its parts.

use crate::activity::{Activity, Ask};
use crate::bell::Bell;
use crate::counters::{Counters, CountersSnapshot};
use crate::layout::{
    Layout, NOT_LOCAL, PREFIX_BYTES, RANK_BLOCK_BYTES, RingAt, SegmentSpec, Shape, ShapeError,
};
use crate::mapping::Mapping;
use crate::slab::{Slab, SlabId, SlabKind};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::wait::WaitPolicy;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const WAIT_POLICY: usize = 64;
const SPIN_NS: usize = 72;
const DAEMON_BELL: usize = 128;
const LAUNCHER_BELL: usize = 192;
const SCHEDULER_BELL: usize = 256;

const RANK_BELL: usize = 0;
const RANK_COUNTERS: usize = 64;
const RANK_OUT_STARVED: usize = 128;
const RANK_IN_STARVED: usize = 192;
const RANK_ACTIVITY: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    #[error("{act} segment {path}: {source}")]
    Io { act: &'static str, path: PathBuf, source: io::Error },
    #[error("segment {path}: {source}")]
    Shape { path: PathBuf, source: ShapeError },
    #[error("allocate segment {path}: it needs {} KiB, and {} KiB are free there",
        .needed >> 10, .free >> 10)]
    Room { path: PathBuf, needed: u64, free: u64 },
}

/// A mapped segment, shared by its ports.
#[derive(Debug)]
pub struct Segment {
    mapping: Mapping,
    shape: Shape,
    layout: Layout,
    path: PathBuf,
    inode: u64,
    /// Copies of the tables in the file, which others may change.
    global_of: Box<[u32]>,
    local_of: Box<[u32]>,
}

impl Segment {
    /// Creates the file, which must not exist, allocates all of its memory, and maps it. A failure leaves
    /// no file.
    pub fn create(path: impl AsRef<Path>, spec: &SegmentSpec) -> Result<Segment, SegmentError> {
        let path = path.as_ref();
        let shape = Shape::of(spec).map_err(|source| SegmentError::Shape { path: path.into(), source })?;
        let io = |act| move |source| SegmentError::Io { act, path: path.into(), source };
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create_new(true).mode(0o600).open(path).map_err(io("create"))?;
        let len = Layout::of(&shape).len as u64;
        let made = file.set_len(len).map_err(io("size")).and_then(|()| allocate(&file, path, len));
        made.and_then(|()| Segment::fill(&file, &shape, spec).map_err(io("fill")))
            .and_then(|()| Segment::map(path, &file))
            .inspect_err(|_| drop(std::fs::remove_file(path)))
    }

    fn fill(file: &File, shape: &Shape, spec: &SegmentSpec) -> io::Result<()> {
        let layout = Layout::of(shape);
        let mapping = Mapping::of(file, layout.len)?;
        let locals = mapping.shared_slice::<AtomicU32>(layout.local_of, shape.world_size as usize);
        locals.iter().for_each(|entry| entry.store(NOT_LOCAL, Ordering::Relaxed));
        let globals = mapping.shared_slice::<AtomicU32>(layout.global_of, shape.locals as usize);
        for (local, (entry, &global)) in globals.iter().zip(&spec.local_ranks).enumerate() {
            entry.store(global, Ordering::Relaxed);
            locals[global as usize].store(local as u32, Ordering::Relaxed);
        }
        mapping.shared::<AtomicU32>(WAIT_POLICY).store(spec.wait as u32, Ordering::Relaxed);
        mapping.shared::<AtomicU64>(SPIN_NS).store(nanos(spec.spin), Ordering::Relaxed);
        drop(mapping);
        // SAFETY: Shape is repr(C), of integers without padding, so all its bytes may be read.
        let bytes =
            unsafe { std::slice::from_raw_parts(std::ptr::from_ref(shape).cast::<u8>(), size_of::<Shape>()) };
        file.write_all_at(bytes, 0)
    }

    /// Opens and maps an existing segment. The file is closed again, the mapping stays.
    pub fn open(path: impl AsRef<Path>) -> Result<Segment, SegmentError> {
        let path = path.as_ref();
        let io = |source| SegmentError::Io { act: "open", path: path.into(), source };
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path);
        let file = file.map_err(io)?;
        Segment::map(path, &file)
    }

    /// Maps the segment in a file that another process has left open for this one, for reading and writing.
    pub fn inherited(file: BorrowedFd<'_>) -> Result<Segment, SegmentError> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let copy = file.try_clone_to_owned();
        let copy = copy.map_err(|source| SegmentError::Io { act: "use", path: path.clone(), source })?;
        Segment::map(&path, &File::from(copy))
    }

    fn map(path: &Path, file: &File) -> Result<Segment, SegmentError> {
        let io = |act| move |source| SegmentError::Io { act, path: path.into(), source };
        let metadata = file.metadata().map_err(io("inspect"))?;
        let not_a_segment = |source| SegmentError::Shape { path: path.into(), source };
        if metadata.len() < PREFIX_BYTES as u64 {
            return Err(not_a_segment(ShapeError::Magic));
        }
        let mut bytes = [0u8; size_of::<Shape>()];
        file.read_exact_at(&mut bytes, 0).map_err(io("read"))?;
        // SAFETY: the source has the size of a Shape, and every bit pattern is a valid Shape.
        let shape = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast::<Shape>()) };
        shape.check(metadata.len()).map_err(not_a_segment)?;
        let layout = Layout::of(&shape);
        let mapping = Mapping::of(file, layout.len).map_err(io("map"))?;
        let table = mapping.shared_slice::<AtomicU32>(layout.global_of, shape.locals as usize);
        let global_of: Box<[u32]> = table.iter().map(|entry| entry.load(Ordering::Relaxed)).collect();
        let local_of = places(&global_of, shape.world_size).map_err(not_a_segment)?;
        let (path, inode) = (path.into(), metadata.ino());
        Ok(Segment { mapping, shape, layout, path, inode, global_of, local_of })
    }

    /// Allocates the memory of all holes: after a restore, which leaves some. A file that has become
    /// shorter is an error.
    pub fn allocate(&self) -> Result<(), SegmentError> {
        let io = |act| move |source| SegmentError::Io { act, path: self.path.clone(), source };
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(&self.path);
        let file = file.map_err(io("open"))?;
        let (expected, actual) = (self.len(), file.metadata().map_err(io("inspect"))?.len());
        if actual != expected {
            let source = ShapeError::Length { expected, actual };
            return Err(SegmentError::Shape { path: self.path.clone(), source });
        }
        allocate(&file, &self.path, expected)
    }

    /// Whether this process has found a page of it missing: the file was cut, or there was no memory for a
    /// hole. What is read and written here from then on reaches nobody, perhaps.
    pub fn is_damaged(&self) -> bool {
        self.mapping.is_damaged()
    }

    /// Size of the file in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a segment is never empty")]
    pub fn len(&self) -> u64 {
        self.layout.len as u64
    }

    /// Inode of the file. A restored rank must find the same one.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn world_size(&self) -> u32 {
        self.shape.world_size
    }

    /// Number of ranks of the application on this node.
    pub fn local_ranks(&self) -> u32 {
        self.shape.locals
    }

    /// Size of a slab chunk, which is the largest payload of one record.
    pub fn chunk_bytes(&self) -> usize {
        self.shape.chunk_bytes as usize
    }

    pub fn chunks_per_rank(&self) -> u32 {
        self.shape.chunks
    }

    /// Global rank of a local index. Panics if the index is out of range.
    pub fn global_of(&self, local: u32) -> u32 {
        self.global_of[local as usize]
    }

    /// Local index of a global rank; `None` if the rank lives on another node or does not exist.
    pub fn local_of(&self, global: u32) -> Option<u32> {
        self.local_of.get(global as usize).copied().filter(|local| *local != NOT_LOCAL)
    }

    /// Changes the wait policy and the spin time; ranks follow it from their next empty poll on.
    pub fn set_wait_policy(&self, policy: WaitPolicy, spin: Duration) {
        self.mapping.shared::<AtomicU64>(SPIN_NS).store(nanos(spin), Ordering::Relaxed);
        self.mapping.shared::<AtomicU32>(WAIT_POLICY).store(policy as u32, Ordering::Relaxed);
    }

    /// The present wait policy, and the time for which a rank spins before it sleeps.
    pub fn wait_policy(&self) -> (WaitPolicy, Duration) {
        let policy = self.mapping.shared::<AtomicU32>(WAIT_POLICY).load(Ordering::Relaxed);
        let spin = self.mapping.shared::<AtomicU64>(SPIN_NS).load(Ordering::Relaxed);
        (WaitPolicy::from_raw(policy), Duration::from_nanos(spin))
    }

    pub fn counters(&self, local: u32) -> CountersSnapshot {
        self.rank_counters(local).snapshot()
    }

    /// Rung by every process that has published work for the daemon.
    pub fn daemon_bell(&self) -> &Bell {
        self.mapping.shared(DAEMON_BELL)
    }

    /// Rung by the daemon when it has a message for the launcher.
    pub fn launcher_bell(&self) -> &Bell {
        self.mapping.shared(LAUNCHER_BELL)
    }

    /// Rung by every process that has published work for this rank.
    pub fn rank_bell(&self, local: u32) -> &Bell {
        self.mapping.shared(self.rank_block(local) + RANK_BELL)
    }

    /// Rung where the scheduler of the node has asked for an arrival.
    pub fn scheduler_bell(&self) -> &Bell {
        self.mapping.shared(SCHEDULER_BELL)
    }

    /// What this rank does.
    pub fn activity(&self, local: u32) -> &Activity {
        self.mapping.shared(self.rank_block(local) + RANK_ACTIVITY)
    }

    /// Call it after publishing a record for this rank. It is noted first, as the rank may have served it and
    /// sleep again before its bell has been rung for this process; and the rank is woken first, as it may get
    /// the processor at once. How the scheduler has asked for it, if it has.
    pub(crate) fn ring_for_record(&self, local: u32) -> Option<Ask> {
        let asked = self.activity(local).note_arrival();
        self.rank_bell(local).ring();
        if asked == Some(Ask::AtOnce) {
            self.scheduler_bell().ring();
        }
        asked
    }

    /// Frees the chunks that the daemon had leased and not published. Call it after a restore and before
    /// creating a port. Leases of ranks live on in their images.
    pub fn free_orphan_leases(&self) {
        (0..self.shape.locals)
            .for_each(|local| self.slab(SlabId { local, kind: SlabKind::In }).free_leased());
    }

    pub(crate) fn rank_counters(&self, local: u32) -> &Counters {
        self.mapping.shared(self.rank_block(local) + RANK_COUNTERS)
    }

    fn rank_block(&self, local: u32) -> usize {
        assert!(local < self.shape.locals, "local index {local} outside the segment");
        self.layout.rank_blocks + local as usize * RANK_BLOCK_BYTES
    }

    pub(crate) fn slab(&self, which: SlabId) -> Slab<'_> {
        let SlabId { local, kind } = which;
        let (states, starved, nth) = match kind {
            SlabKind::Out => (self.layout.out_states, RANK_OUT_STARVED, 2 * local as usize),
            SlabKind::In => (self.layout.in_states, RANK_IN_STARVED, 2 * local as usize + 1),
        };
        let states = states + local as usize * self.layout.states_stride;
        Slab {
            states: self.mapping.shared_slice(states, self.shape.chunks as usize),
            starved: self.mapping.shared(self.rank_block(local) + starved),
            bytes: self
                .mapping
                .bytes(self.layout.slabs + nth * self.layout.slab_bytes, self.layout.slab_bytes),
            chunk_bytes: self.shape.chunk_bytes as usize,
        }
    }

    pub(crate) fn out_ring(&self, local: u32) -> RingAt {
        self.rank_ring(2 * local as usize, self.shape.ring_bytes)
    }

    pub(crate) fn in_ring(&self, local: u32) -> RingAt {
        self.rank_ring(2 * local as usize + 1, self.shape.ring_bytes)
    }

    fn rank_ring(&self, nth: usize, capacity: u32) -> RingAt {
        RingAt { offset: self.layout.rank_rings + nth * self.layout.rank_ring_stride, capacity }
    }

    pub(crate) fn direct_ring(&self, from: u32, to: u32) -> RingAt {
        assert!(from < self.shape.locals && to < self.shape.locals, "direct rings join local ranks");
        let nth = from as usize * self.shape.locals as usize + to as usize;
        let offset = self.layout.direct_rings + nth * self.layout.direct_ring_stride;
        RingAt { offset, capacity: self.shape.direct_ring_bytes }
    }

    /// The message ring from launcher to daemon, or from daemon to launcher.
    pub(crate) fn message_ring(&self, to_daemon: bool) -> RingAt {
        let nth = usize::from(!to_daemon);
        let offset = self.layout.message_rings + nth * self.layout.message_ring_stride;
        RingAt { offset, capacity: self.shape.message_ring_bytes }
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

/// The local index of each rank of the world.
fn places(global_of: &[u32], world_size: u32) -> Result<Box<[u32]>, ShapeError> {
    let mut local_of = vec![NOT_LOCAL; world_size as usize].into_boxed_slice();
    for (local, &global) in (0..).zip(global_of) {
        let place = local_of.get_mut(global as usize).filter(|place| **place == NOT_LOCAL);
        let allowed = "below the world size, and each only once";
        *place.ok_or(ShapeError::Range { what: "local rank", value: global.into(), allowed })? = local;
    }
    Ok(local_of)
}

/// Allocates `len` bytes of a file, where its file system can.
fn allocate(file: &File, path: &Path, len: u64) -> Result<(), SegmentError> {
    let failed = |source| SegmentError::Io { act: "allocate", path: path.into(), source };
    // Miri knows no allocation.
    if cfg!(miri) {
        return file.set_len(len).map_err(failed);
    }
    loop {
        // SAFETY: a call on an open descriptor, with plain integers.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len as i64) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP) => return Ok(()),
            Some(libc::ENOSPC) => {
                let (needed, free) = (len, free_in(file).map_err(failed)?);
                return Err(SegmentError::Room { path: path.into(), needed, free });
            }
            _ => return Err(failed(error)),
        }
    }
}

/// Bytes that are free in the file's file system.
fn free_in(file: &File) -> io::Result<u64> {
    // SAFETY: a structure of integers, to which the call writes.
    let (status, found) = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        (libc::fstatvfs(file.as_raw_fd(), &raw mut found), found)
    };
    if status != 0 { Err(io::Error::last_os_error()) } else { Ok(found.f_bavail * found.f_frsize) }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
