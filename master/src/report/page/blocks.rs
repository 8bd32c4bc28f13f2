//! The matrix over time: on each node, who was in memory, from when to when, and how much of the node that took.
//!
//! A job keeps its height in the band while it is there. Where those that stay have left gaps between them and a job that comes
//! fits into none, they move together, so that a band is only ever as high as what was declared. Pure.

use std::time::Duration;

use coswitch_policies::{Bytes, JobId, NodeId, SimTime, metrics::Span};

use super::super::{
    history::History,
    lives::{State, Stay},
};

/// Where there would be more, short stays are not drawn.
const BLOCKS_MAX: usize = 6000;

/// A job on a node for a while, in one state, and the share of memory it declared.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Block {
    pub(super) job: JobId,
    pub(super) node: NodeId,
    pub(super) state: State,
    pub(super) span: Span,
    /// Of the node's memory.
    pub(super) low: Bytes,
    pub(super) high: Bytes,
}

/// All blocks, by node and time; and how short the stays are that are not drawn.
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
        let pieces = pack(history.capacity, presences.collect());
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
    let there = |stays: &[Stay]| stays.iter().filter(|stay| stay.state.is_in_memory()).count();
    stays.iter().map(|(job, stays)| there(stays) * history.lives.jobs[job].placement.width()).sum()
}

/// Stays shorter than that go to the stay before.
fn smooth(stays: &[Stay], shortest: u64) -> Vec<Stay> {
    let mut smooth: Vec<Stay> = Vec::new();
    for stay in stays {
        let is_short = stay.span.to.0 - stay.span.from.0 < shortest;
        match smooth.last_mut() {
            Some(last) if is_short || last.state == stay.state => last.span.to = stay.span.to,
            _ => smooth.push(*stay),
        }
    }
    smooth
}

/// A job that is in memory without a break.
#[derive(Clone, Debug)]
struct Presence {
    job: JobId,
    needs: u64,
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
        let Self { presence: Presence { job, needs, stays }, span, low } = self;
        stays.into_iter().filter_map(move |Stay { state, span: stay }| {
            let span = Span { from: stay.from.max(span.from), to: stay.to.min(span.to) };
            let (low, high) = (Bytes(low), Bytes(low.saturating_add(needs)));
            (span.from < span.to).then_some(Block { job, node, state, span, low, high })
        })
    }
}

fn presences(job: JobId, needs: Bytes, stays: &[Stay]) -> Vec<Presence> {
    let groups = stays.chunk_by(|a, b| a.state.is_in_memory() == b.state.is_in_memory());
    let there = groups.filter(|group| group[0].state.is_in_memory());
    there.map(|group| Presence { job, needs: needs.0, stays: group.into() }).collect()
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
        let mut low = lowest_gap(&live, presence.needs);
        let held: u64 = live.iter().map(|piece| piece.presence.needs).sum();
        if low.saturating_add(presence.needs) > capacity.0 && low > held {
            low = 0;
            for piece in &mut live {
                move_to(piece, span.from, low, &mut done);
                low += piece.presence.needs;
            }
        }
        live.push(Piece { presence, span, low });
    }
    done.extend(live);
    done
}

fn lowest_gap(live: &[Piece], needs: u64) -> u64 {
    let mut low = 0;
    for piece in live {
        if low + needs <= piece.low {
            break;
        }
        low = low.max(piece.low + piece.presence.needs);
    }
    low
}

/// From now on the piece lies at `low`.
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

    fn presence(job: u32, needs: u64, from: u64, to: u64) -> Presence {
        let stays = vec![stay(State::Running, from, to)];
        Presence { job: JobId(job), needs, stays }
    }

    fn stay(state: State, from: u64, to: u64) -> Stay {
        Stay { state, span: Span { from: SimTime(from), to: SimTime(to) } }
    }

    fn packed(capacity: u64, presences: Vec<Presence>) -> Vec<(u32, u64, u64, u64)> {
        let pieces = pack(Bytes(capacity), presences).into_iter();
        let mut told: Vec<_> = pieces
            .map(|piece| (piece.presence.job.0, piece.span.from.0, piece.span.to.0, piece.low))
            .collect();
        told.sort_unstable();
        told
    }

    #[test]
    fn a_job_takes_the_lowest_gap_and_keeps_it() {
        let jobs = vec![presence(0, 4, 0, 5), presence(1, 4, 0, 9), presence(2, 3, 5, 9)];
        assert_eq!(packed(10, jobs), [(0, 0, 5, 0), (1, 0, 9, 4), (2, 5, 9, 0)]);
    }

    #[test]
    fn jobs_move_together_where_only_so_another_one_fits() {
        let jobs = vec![presence(0, 4, 0, 5), presence(1, 4, 0, 9), presence(2, 6, 5, 9)];
        assert_eq!(packed(10, jobs), [(0, 0, 5, 0), (1, 0, 5, 4), (1, 5, 9, 0), (2, 5, 9, 4)]);
    }

    #[test]
    fn what_exceeds_the_memory_is_drawn_above_it() {
        let jobs = vec![presence(0, 8, 0, 5), presence(1, 8, 0, 5)];
        assert_eq!(packed(10, jobs), [(0, 0, 5, 0), (1, 0, 5, 8)]);
    }

    #[test]
    fn a_short_stay_goes_to_the_one_before() {
        let stays = [
            (State::Running, 0, 7),
            (State::Leaving, 7, 8),
            (State::Parked, 8, 16),
            (State::Coming, 16, 17),
            (State::Running, 17, 22),
        ]
        .map(|(state, from, to)| stay(state, from, to));
        let drawn = [stay(State::Running, 0, 8), stay(State::Parked, 8, 17), stay(State::Running, 17, 22)];
        assert_eq!(smooth(&stays, 2), drawn);
        assert_eq!(smooth(&stays, 0), stays);
    }
}
