//! The blocks of the matrix chart: for each job in the memory of a node its span, its stage and its height.
//!
//! A job keeps its height in the node's band. Where an arriving job fits into no single gap but into the free
//! memory in all, the others close their gaps, so that a band is never higher than the declared memory.

use std::time::Duration;

use coswitch_policies::{Bytes, JobId, NodeId, SimTime, metrics::Span};

use crate::{
    history::History,
    lives::{LifeStage, Stay},
};

/// With more blocks than this, short stays are left out.
const BLOCKS_MAX: usize = 6000;

/// A job on a node in one stage.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Block {
    pub(super) job: JobId,
    pub(super) node: NodeId,
    pub(super) stage: LifeStage,
    pub(super) span: Span,
    /// The job's part of the node's memory reaches from `low` to `high`.
    pub(super) low: Bytes,
    pub(super) high: Bytes,
}

/// All blocks, by node and time, and the length below which stays are left out.
pub(super) fn blocks(history: &History) -> (Vec<Block>, Duration) {
    let mut shortest = 0;
    let mut stays = drawn(history, shortest);
    while count(history, &stays) > BLOCKS_MAX {
        shortest = (2 * shortest).max(history.end.0 / 4000).max(1);
        stays = drawn(history, shortest);
    }
    let mut blocks = Vec::new();
    for node in (0..history.nodes).map(NodeId) {
        let here = stays.iter().filter(|(job, _)| history.lives.jobs[job].placement.count_on(node) > 0);
        let presences = here.flat_map(|(job, stays)| presences(*job, history.declared_on(*job, node), stays));
        let pieces = pack(history.capacity.on(node), presences.collect());
        let mut band: Vec<Block> = pieces.into_iter().flat_map(|piece| piece.blocks(node)).collect();
        band.sort_by_key(|block| (block.span.from, block.job));
        blocks.extend(band);
    }
    (blocks, Duration::from_nanos(shortest))
}

fn drawn(history: &History, shortest: u64) -> Vec<(JobId, Vec<Stay>)> {
    history.lives.jobs.iter().map(|(job, life)| (*job, smooth(&life.stays, shortest))).collect()
}

fn count(history: &History, stays: &[(JobId, Vec<Stay>)]) -> usize {
    let blocks = |stays: &[Stay]| stays.iter().filter(|stay| stay.stage.is_in_memory()).count();
    stays.iter().map(|(job, stays)| blocks(stays) * history.lives.jobs[job].placement.width()).sum()
}

/// Joins stays shorter than `shortest` to the stay before.
fn smooth(stays: &[Stay], shortest: u64) -> Vec<Stay> {
    let mut smooth: Vec<Stay> = Vec::new();
    for stay in stays {
        let is_short = stay.span.to.0 - stay.span.from.0 < shortest;
        match smooth.last_mut() {
            Some(last) if is_short || last.stage == stay.stage => last.span.to = stay.span.to,
            _ => smooth.push(*stay),
        }
    }
    smooth
}

/// Stays of a job in memory without a break.
#[derive(Clone, Debug)]
struct Presence {
    job: JobId,
    declared: u64,
    stays: Vec<Stay>,
}

impl Presence {
    fn span(&self) -> Span {
        let (first, last) = (self.stays.first(), self.stays.last());
        let (first, last) = first.zip(last).expect("a presence has stays");
        Span { from: first.span.from, to: last.span.to }
    }
}

/// A presence, or a part of one, at one height.
struct Piece {
    presence: Presence,
    span: Span,
    low: u64,
}

impl Piece {
    fn blocks(self, node: NodeId) -> impl Iterator<Item = Block> {
        let Self { presence: Presence { job, declared, stays }, span, low } = self;
        stays.into_iter().filter_map(move |Stay { stage, span: stay }| {
            let span = Span { from: stay.from.max(span.from), to: stay.to.min(span.to) };
            let (low, high) = (Bytes(low), Bytes(low.saturating_add(declared)));
            (span.from < span.to).then_some(Block { job, node, stage, span, low, high })
        })
    }
}

fn presences(job: JobId, declared: Bytes, stays: &[Stay]) -> Vec<Presence> {
    let groups = stays.chunk_by(|a, b| a.stage.is_in_memory() == b.stage.is_in_memory());
    let in_memory = groups.filter(|group| group[0].stage.is_in_memory());
    in_memory.map(|group| Presence { job, declared: declared.0, stays: group.into() }).collect()
}

fn pack(capacity: Bytes, mut presences: Vec<Presence>) -> Vec<Piece> {
    presences.sort_by_key(|presence| (presence.span().from, presence.job));
    let (mut done, mut live): (Vec<Piece>, Vec<Piece>) = (Vec::new(), Vec::new());
    for presence in presences {
        let span = presence.span();
        let (gone, still): (Vec<_>, Vec<_>) = live.into_iter().partition(|piece| piece.span.to <= span.from);
        done.extend(gone);
        live = still;
        live.sort_by_key(|piece| piece.low);
        let mut low = lowest_gap(&live, presence.declared);
        let used: u64 = live.iter().map(|piece| piece.presence.declared).sum();
        if low.saturating_add(presence.declared) > capacity.0 && low > used {
            low = 0;
            for piece in &mut live {
                move_to(piece, span.from, low, &mut done);
                low += piece.presence.declared;
            }
        }
        live.push(Piece { presence, span, low });
    }
    done.extend(live);
    done
}

fn lowest_gap(live: &[Piece], declared: u64) -> u64 {
    let mut low = 0;
    for piece in live {
        if low + declared <= piece.low {
            break;
        }
        low = low.max(piece.low + piece.presence.declared);
    }
    low
}

/// Moves the piece to `low` from `now` on.
fn move_to(piece: &mut Piece, now: SimTime, low: u64, done: &mut Vec<Piece>) {
    if piece.low != low {
        let before = Span { from: piece.span.from, to: now };
        done.push(Piece { presence: piece.presence.clone(), span: before, low: piece.low });
        (piece.span.from, piece.low) = (now, low);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presence(job: u32, declared: u64, from: u64, to: u64) -> Presence {
        let stays = vec![stay(LifeStage::Running, from, to)];
        Presence { job: JobId(job), declared, stays }
    }

    fn stay(stage: LifeStage, from: u64, to: u64) -> Stay {
        Stay { stage, span: Span { from: SimTime(from), to: SimTime(to) } }
    }

    fn packed(capacity: u64, presences: Vec<Presence>) -> Vec<(u32, u64, u64, u64)> {
        let pieces = pack(Bytes(capacity), presences).into_iter();
        let mut packed: Vec<_> = pieces
            .map(|piece| (piece.presence.job.0, piece.span.from.0, piece.span.to.0, piece.low))
            .collect();
        packed.sort_unstable();
        packed
    }

    #[test]
    fn a_job_takes_the_lowest_gap_and_keeps_it() {
        let jobs = vec![presence(0, 4, 0, 5), presence(1, 4, 0, 9), presence(2, 3, 5, 9)];
        assert_eq!(packed(10, jobs), [(0, 0, 5, 0), (1, 0, 9, 4), (2, 5, 9, 0)]);
    }

    #[test]
    fn jobs_close_their_gaps_for_a_job_that_fits_into_none() {
        let jobs = vec![presence(0, 4, 0, 5), presence(1, 4, 0, 9), presence(2, 6, 5, 9)];
        assert_eq!(packed(10, jobs), [(0, 0, 5, 0), (1, 0, 5, 4), (1, 5, 9, 0), (2, 5, 9, 4)]);
    }

    #[test]
    fn jobs_beyond_the_memory_are_drawn_above_it() {
        let jobs = vec![presence(0, 8, 0, 5), presence(1, 8, 0, 5)];
        assert_eq!(packed(10, jobs), [(0, 0, 5, 0), (1, 0, 5, 8)]);
    }

    #[test]
    fn a_short_stay_is_joined_to_the_stay_before() {
        let stays = [
            (LifeStage::Running, 0, 7),
            (LifeStage::Leaving, 7, 8),
            (LifeStage::Parked, 8, 16),
            (LifeStage::Coming, 16, 17),
            (LifeStage::Running, 17, 22),
        ]
        .map(|(stage, from, to)| stay(stage, from, to));
        let drawn = [
            stay(LifeStage::Running, 0, 8),
            stay(LifeStage::Parked, 8, 17),
            stay(LifeStage::Running, 17, 22),
        ];
        assert_eq!(smooth(&stays, 2), drawn);
        assert_eq!(smooth(&stays, 0), stays);
    }
}
