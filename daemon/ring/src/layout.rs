//! Layout of a segment: computes the offset of every part from the segment's shape.
//!
//! ```text
//! prefix (4 KiB: shape, wait policy, bells of daemon, launcher and node scheduler)
//! locality tables | rank blocks (bell, counters, slab flags, activity) | chunk states
//! message rings | out ring, in ring of every rank | direct rings, source-major
//! out slab, in slab of every rank (page-aligned)
//! ```

use crate::wait::WaitPolicy;
use std::time::Duration;

/// Largest payload, in bytes, that lies in a ring; a larger one lies in a slab chunk.
pub const INLINE_MAX: usize = 8128;

/// Largest chunk of a slab, in bytes: no record of any segment has a larger payload.
pub const CHUNK_MAX: usize = 16 << 20;

/// Largest message between launcher and daemon, in bytes.
pub const MESSAGE_MAX: usize = 64 * 1024;

/// Entry of the locality table for a rank on another node.
pub(crate) const NOT_LOCAL: u32 = u32::MAX;

pub(crate) const PREFIX_BYTES: usize = 4096;
pub(crate) const RANK_BLOCK_BYTES: usize = 384;
pub(crate) const RING_CONTROL_BYTES: usize = 256;
const PAGE: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"coswring");
const VERSION: u32 = 2;

/// Parameters with which the daemon creates a segment.
#[derive(Debug, Clone)]
pub struct SegmentSpec {
    /// Ranks of the application on all nodes.
    pub world_size: u32,
    /// Global rank of each local rank, by local index.
    pub local_ranks: Vec<u32>,
    /// Capacity of the ring between a rank and the daemon, in each direction.
    pub ring_bytes: u32,
    /// Capacity of the ring from one local rank to another.
    pub direct_ring_bytes: u32,
    pub chunk_bytes: u32,
    /// Chunks a rank owns for sending; the daemon owns as many for sending to it.
    pub chunks_per_rank: u32,
    /// Initial wait policy of the ranks.
    pub wait: WaitPolicy,
    /// Time for which a rank spins before it sleeps.
    pub spin: Duration,
}

impl SegmentSpec {
    /// A specification whose sizes fit one to a few dozen ranks on a node: at most 8 MiB of rings and 8 MiB
    /// of slabs per rank.
    pub fn new(world_size: u32, local_ranks: Vec<u32>) -> SegmentSpec {
        const DIRECT_BYTES_PER_RANK: usize = 4 << 20;
        let fair = (DIRECT_BYTES_PER_RANK / local_ranks.len().max(1)).max(1);
        let direct_ring_bytes = (1u32 << fair.ilog2()).clamp(32 << 10, 128 << 10);
        SegmentSpec {
            world_size,
            local_ranks,
            ring_bytes: 512 << 10,
            direct_ring_bytes,
            chunk_bytes: 128 << 10,
            chunks_per_rank: 32,
            wait: WaitPolicy::default(),
            spin: Duration::from_micros(200),
        }
    }
}

/// Reason why a shape is rejected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ShapeError {
    #[error("not a segment file")]
    Magic,
    #[error("segment layout version {0}, this program reads {VERSION}")]
    Version(u32),
    #[error("{what} is {value}, allowed is {allowed}")]
    Range { what: &'static str, value: u64, allowed: &'static str },
    #[error("segment is {actual} bytes long, its shape says {expected}")]
    Length { expected: u64, actual: u64 },
}

/// Header of the file: the numbers from which every reader computes the layout.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    magic: u64,
    version: u32,
    pub(crate) world_size: u32,
    pub(crate) locals: u32,
    pub(crate) ring_bytes: u32,
    pub(crate) direct_ring_bytes: u32,
    pub(crate) chunk_bytes: u32,
    pub(crate) chunks: u32,
    pub(crate) message_ring_bytes: u32,
    len: u64,
}

fn in_range(what: &'static str, value: u64, ok: bool, allowed: &'static str) -> Result<(), ShapeError> {
    if ok { Ok(()) } else { Err(ShapeError::Range { what, value, allowed }) }
}

impl Shape {
    pub(crate) fn of(spec: &SegmentSpec) -> Result<Shape, ShapeError> {
        let mut shape = Shape {
            magic: MAGIC,
            version: VERSION,
            world_size: spec.world_size,
            locals: u32::try_from(spec.local_ranks.len()).unwrap_or(u32::MAX),
            ring_bytes: spec.ring_bytes,
            direct_ring_bytes: spec.direct_ring_bytes,
            chunk_bytes: spec.chunk_bytes,
            chunks: spec.chunks_per_rank,
            message_ring_bytes: 4 * MESSAGE_MAX as u32,
            len: 0,
        };
        shape.check_ranges()?;
        for &rank in &spec.local_ranks {
            in_range("local rank", rank.into(), rank < spec.world_size, "below the world size")?;
        }
        shape.len = Layout::of(&shape).len as u64;
        Ok(shape)
    }

    /// Checks a shape read from a file of `file_bytes`.
    pub(crate) fn check(&self, file_bytes: u64) -> Result<(), ShapeError> {
        if self.magic != MAGIC {
            return Err(ShapeError::Magic);
        }
        if self.version != VERSION {
            return Err(ShapeError::Version(self.version));
        }
        self.check_ranges()?;
        let expected = Layout::of(self).len as u64;
        if expected != self.len || file_bytes != self.len {
            return Err(ShapeError::Length { expected, actual: file_bytes });
        }
        Ok(())
    }

    fn check_ranges(&self) -> Result<(), ShapeError> {
        let ring = |bytes: u32| bytes.is_power_of_two() && (32 << 10..=64 << 20).contains(&bytes);
        let world = self.world_size;
        in_range("world size", world.into(), (1..=1 << 20).contains(&world), "1 to 1048576")?;
        let locals = self.locals;
        in_range(
            "local ranks",
            locals.into(),
            (1..=world.min(1024)).contains(&locals),
            "1 to 1024, in the world",
        )?;
        let rings = "a power of two, 32 KiB to 64 MiB";
        in_range("ring bytes", self.ring_bytes.into(), ring(self.ring_bytes), rings)?;
        in_range("direct ring bytes", self.direct_ring_bytes.into(), ring(self.direct_ring_bytes), rings)?;
        in_range("message ring bytes", self.message_ring_bytes.into(), ring(self.message_ring_bytes), rings)?;
        let chunk = self.chunk_bytes;
        let chunk_ok = (16 << 10..=CHUNK_MAX as u32).contains(&chunk) && chunk.is_multiple_of(PAGE as u32);
        in_range("chunk bytes", chunk.into(), chunk_ok, "whole pages, 16 KiB to 16 MiB")?;
        in_range("chunks per rank", self.chunks.into(), (4..=4096).contains(&self.chunks), "4 to 4096")
    }
}

/// Position of a ring in its segment, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingAt {
    pub(crate) offset: usize,
    pub(crate) capacity: u32,
}

/// Offsets of everything, from the beginning of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) global_of: usize,
    pub(crate) local_of: usize,
    pub(crate) rank_blocks: usize,
    pub(crate) out_states: usize,
    pub(crate) in_states: usize,
    pub(crate) states_stride: usize,
    pub(crate) message_rings: usize,
    pub(crate) message_ring_stride: usize,
    pub(crate) rank_rings: usize,
    pub(crate) rank_ring_stride: usize,
    pub(crate) direct_rings: usize,
    pub(crate) direct_ring_stride: usize,
    pub(crate) slabs: usize,
    pub(crate) slab_bytes: usize,
    pub(crate) len: usize,
}

impl Layout {
    pub(crate) fn of(shape: &Shape) -> Layout {
        let locals = shape.locals as usize;
        let lines = |bytes: usize| bytes.next_multiple_of(64);
        let states_stride = lines(shape.chunks as usize * 4);
        let message_ring_stride = RING_CONTROL_BYTES + shape.message_ring_bytes as usize;
        let rank_ring_stride = RING_CONTROL_BYTES + shape.ring_bytes as usize;
        let direct_ring_stride = RING_CONTROL_BYTES + shape.direct_ring_bytes as usize;
        let slab_bytes = shape.chunk_bytes as usize * shape.chunks as usize;

        let global_of = PREFIX_BYTES;
        let local_of = global_of + lines(locals * 4);
        let rank_blocks = local_of + lines(shape.world_size as usize * 4);
        let out_states = rank_blocks + locals * RANK_BLOCK_BYTES;
        let in_states = out_states + locals * states_stride;
        let message_rings = in_states + locals * states_stride;
        let rank_rings = message_rings + 2 * message_ring_stride;
        let direct_rings = rank_rings + locals * 2 * rank_ring_stride;
        let slabs = (direct_rings + locals * locals * direct_ring_stride).next_multiple_of(PAGE);
        let len = slabs + locals * 2 * slab_bytes;
        Layout {
            global_of,
            local_of,
            rank_blocks,
            out_states,
            in_states,
            states_stride,
            message_rings,
            message_ring_stride,
            rank_rings,
            rank_ring_stride,
            direct_rings,
            direct_ring_stride,
            slabs,
            slab_bytes,
            len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(locals: u32) -> Shape {
        Shape::of(&SegmentSpec::new(locals, (0..locals).collect())).unwrap()
    }

    #[test]
    fn shape_lies_in_the_file_as_documented() {
        assert_eq!(size_of::<Shape>(), 48);
        assert_eq!(std::mem::offset_of!(Shape, len), 40);
    }

    #[test]
    fn default_rings_stay_below_8_mib_per_rank_up_to_64_ranks() {
        for locals in [1, 2, 4, 16, 64] {
            let layout = Layout::of(&shape(locals));
            let rings = (layout.slabs - layout.message_rings) / locals as usize;
            assert!(rings <= 8 << 20, "{locals} ranks: {rings} bytes of rings each");
            assert!(layout.slab_bytes <= 4 << 20);
        }
    }

    #[test]
    fn parts_follow_each_other_on_cache_lines() {
        let layout = Layout::of(&shape(3));
        let parts = [
            layout.global_of,
            layout.local_of,
            layout.rank_blocks,
            layout.out_states,
            layout.in_states,
            layout.message_rings,
            layout.rank_rings,
            layout.direct_rings,
            layout.slabs,
            layout.len,
        ];
        assert!(parts.is_sorted_by(|a, b| a < b));
        assert!(parts.iter().all(|offset| offset.is_multiple_of(64)));
    }

    #[test]
    fn shape_with_a_number_out_of_range_is_rejected() {
        let good = SegmentSpec::new(2, vec![0, 1]);
        assert!(Shape::of(&SegmentSpec { local_ranks: vec![], ..good.clone() }).is_err());
        assert!(Shape::of(&SegmentSpec { local_ranks: vec![2], ..good.clone() }).is_err());
        assert!(Shape::of(&SegmentSpec { ring_bytes: 100_000, ..good.clone() }).is_err());
        assert!(Shape::of(&SegmentSpec { chunk_bytes: 5000, ..good.clone() }).is_err());
        assert!(Shape::of(&SegmentSpec { chunks_per_rank: 0, ..good }).is_err());
    }

    #[test]
    fn shape_of_another_length_or_version_is_rejected() {
        let good = shape(2);
        assert_eq!(good.check(good.len), Ok(()));
        assert!(matches!(good.check(good.len - 1), Err(ShapeError::Length { .. })));
        assert_eq!(Shape { version: 9, ..good }.check(good.len), Err(ShapeError::Version(9)));
        assert_eq!(Shape { magic: 0, ..good }.check(good.len), Err(ShapeError::Magic));
    }
}
