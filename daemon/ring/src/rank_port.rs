//! A rank's end of everything: the ring pair to its daemon and the direct ring pair to every other local rank.
//!
//! One port per process, used by one thread at a time. Peers are named by [`Path`]; the port knows nothing of global
//! ranks. All out chunks come from the rank's own slab whichever path they take, so a path whose reader is asleep is
//! kept from taking more than half of them.

use crate::bell::Bell;
use crate::counters::Counters;
use crate::header::{Header, NO_CHUNK};
use crate::layout::INLINE_MAX;
use crate::segment::Segment;
use crate::slab::{Slab, SlabKind, SlabOf};
use crate::spsc::{Consumer, Corrupt, Producer, Record};
use std::sync::Arc;

/// Whom a ring pair connects the rank with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Path {
    /// The daemon, and through it every rank of another node.
    Daemon,
    /// The local rank with this local index.
    Peer(u32),
}

/// A leased chunk of the rank's own slab. It must be pushed or given back: forgetting it loses the chunk for the
/// rest of the run.
#[must_use]
#[derive(Debug)]
pub struct OutChunk {
    chunk: u32,
    path: Path,
}

#[derive(Debug)]
struct Link {
    out: Producer,
    inward: Consumer,
    /// Where chunks named in `inward` lie, and who is told about room in `inward`.
    in_slab: SlabOf,
}

/// A rank's end of the segment.
#[derive(Debug)]
pub struct RankPort {
    segment: Arc<Segment>,
    local: u32,
    /// Peers by local index (the rank's own entry is unused), then the daemon.
    links: Vec<Link>,
    /// Which link last took a chunk.
    taken_by: Vec<u32>,
}

impl RankPort {
    /// The end of local rank `local`. Panics on an index outside the segment.
    pub fn new(segment: Arc<Segment>, local: u32) -> RankPort {
        let locals = segment.local_ranks();
        assert!(local < locals, "local index {local} outside the segment");
        let peer = |peer| Link {
            out: Producer::new(segment.clone(), segment.direct_ring(local, peer)),
            inward: Consumer::new(segment.clone(), segment.direct_ring(peer, local), INLINE_MAX),
            in_slab: SlabOf { local: peer, kind: SlabKind::Out },
        };
        let daemon = Link {
            out: Producer::new(segment.clone(), segment.out_ring(local)),
            inward: Consumer::new(segment.clone(), segment.in_ring(local), INLINE_MAX),
            in_slab: SlabOf { local, kind: SlabKind::In },
        };
        let links = (0..locals).map(peer).chain([daemon]).collect();
        let taken_by = vec![0; segment.chunks_per_rank() as usize];
        RankPort { segment, local, links, taken_by }
    }

    /// The segment.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Local index of this rank.
    pub fn local(&self) -> u32 {
        self.local
    }

    /// The bell others ring for this rank.
    pub fn bell(&self) -> &Bell {
        self.segment.rank_bell(self.local)
    }

    /// This rank's counters.
    pub fn counters(&self) -> &Counters {
        self.segment.rank_counters(self.local)
    }

    /// Every path there is: the daemon, then the other local ranks.
    pub fn paths(&self) -> impl Iterator<Item = Path> + use<> {
        let own = self.local;
        let peers = (0..self.segment.local_ranks()).filter(move |&peer| peer != own).map(Path::Peer);
        std::iter::once(Path::Daemon).chain(peers)
    }

    fn index(&self, path: Path) -> usize {
        match path {
            Path::Peer(peer) => peer as usize,
            Path::Daemon => self.links.len() - 1,
        }
    }

    fn bell_of(&self, path: Path) -> &Bell {
        match path {
            Path::Peer(peer) => self.segment.rank_bell(peer),
            Path::Daemon => self.segment.daemon_bell(),
        }
    }

    fn out_slab(&self) -> Slab<'_> {
        self.segment.slab(SlabOf { local: self.local, kind: SlabKind::Out })
    }

    /// Sends a record whose payload is the concatenation of `parts`, at most [`INLINE_MAX`] bytes, and rings the
    /// reader. `false`: no room now; this rank's bell is rung when there is.
    pub fn push(&mut self, path: Path, header: &Header, parts: &[&[u8]]) -> Result<bool, Corrupt> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        assert!(len <= INLINE_MAX, "larger payloads are sent in chunks");
        let header = Header { slot: NO_CHUNK, len: len as u32, ..*header };
        let index = self.index(path);
        let pushed = self.links[index].out.push(&header, parts)?;
        if pushed {
            self.bell_of(path).ring();
        }
        Ok(pushed)
    }

    /// A chunk for a payload on this path, or `None` while its readers hold too many of them; this rank's bell is
    /// rung when one comes back.
    pub fn lease_chunk(&mut self, path: Path) -> Option<OutChunk> {
        let index = self.index(path) as u32;
        let slab = self.out_slab();
        let limit = if self.links.len() > 2 { self.taken_by.len() / 2 } else { self.taken_by.len() };
        let held = || {
            (0u32..).zip(&self.taken_by).filter(|&(chunk, &by)| by == index && !slab.is_free(chunk)).count()
        };
        if held() >= limit {
            slab.want_one();
            // One may have come back before its reader could see that it is wanted.
            if held() >= limit {
                return None;
            }
        }
        let chunk = slab.lease()?;
        self.taken_by[chunk as usize] = index;
        Some(OutChunk { chunk, path })
    }

    /// The bytes of a leased chunk.
    pub fn chunk_mut<'a>(&self, chunk: &'a mut OutChunk) -> &'a mut [u8] {
        let slab = self.out_slab();
        // SAFETY: a leased chunk belongs to the holder of the OutChunk alone, borrowed mutably here. The mapping
        // lives as long as the segment, which this port keeps; ports live as long as the process uses chunks.
        unsafe { std::slice::from_raw_parts_mut(slab.chunk(chunk.chunk).as_ptr(), slab.chunk_bytes) }
    }

    /// Sends a record whose first `header.len` payload bytes lie in the chunk, and rings the reader. The chunk comes
    /// back if the ring has no room now.
    pub fn push_chunk(&mut self, header: &Header, chunk: OutChunk) -> Result<Result<(), OutChunk>, Corrupt> {
        assert!(header.len as usize <= self.segment.chunk_bytes(), "a payload fits its chunk");
        self.out_slab().publish(chunk.chunk);
        let header = Header { slot: chunk.chunk, ..*header };
        let index = self.index(chunk.path);
        if self.links[index].out.push(&header, &[])? {
            self.bell_of(chunk.path).ring();
            return Ok(Ok(()));
        }
        self.out_slab().unpublish(chunk.chunk);
        Ok(Err(chunk))
    }

    /// Gives a chunk back unused.
    pub fn give_up(&self, chunk: OutChunk) {
        self.out_slab().give_up(chunk.chunk);
    }

    /// Whether a record may have come on this path: one load, for polling.
    pub fn has_news(&self, path: Path) -> bool {
        self.links[self.index(path)].inward.has_news()
    }

    /// The next record that came on this path.
    pub fn peek(&self, path: Path) -> Result<Option<Record<'_>>, Corrupt> {
        let link = &self.links[self.index(path)];
        let Some(raw) = link.inward.record_at(link.inward.head())? else { return Ok(None) };
        let header = Header { slot: NO_CHUNK, ..raw.header };
        let (chunk, len) = (raw.header.slot, raw.header.len);
        let payload = match chunk {
            NO_CHUNK => link.inward.inline_payload(&raw),
            _ => {
                link.in_slab.view(&self.segment).published(chunk, len).ok_or(Corrupt::Chunk { chunk, len })?
            }
        };
        Ok(Some(Record { header, payload }))
    }

    /// Releases the next record on this path, its ring space and its chunk, and tells whoever waits for either.
    pub fn pop(&mut self, path: Path) -> Result<(), Corrupt> {
        let index = self.index(path);
        let link = &mut self.links[index];
        let Some(raw) = link.inward.record_at(link.inward.head())? else { return Ok(()) };
        let mut wanted = false;
        let (chunk, len) = (raw.header.slot, raw.header.len);
        if chunk != NO_CHUNK {
            let slab = link.in_slab.view(&self.segment);
            slab.published(chunk, len).ok_or(Corrupt::Chunk { chunk, len })?;
            wanted = slab.free(chunk);
        }
        wanted |= link.inward.release_to(raw.end);
        if wanted {
            self.bell_of(path).ring();
        }
        Ok(())
    }
}
