//! A node is lost whose part may be whole: in a cluster that stays, processes survive their daemon.
//!
//! ```text
//!   Running on that node alone, Suspended, or paged out ─lost─▶ Away ┬ the next daemon holds it ─▶ as before
//!                                                                    └ it does not, or is late ─▶ Stranded
//! ```
//! Orders wait meanwhile. Of an application that runs on several nodes messages may have been lost with the
//! daemon, and of one in the middle of a step nothing is known: these go back to a snapshot at once.

use coswitch_daemon::protocol::{AppRequest, Holding, PartState};
use coswitch_policies::{NodeId, Residence};

use super::{App, Nodes, Output, State, pause::Pause};
use crate::protocol::{AppOutcome, Park, Report};

impl App {
    /// Where it rests, if what it has on a lost node may be whole.
    fn rests_whole(&self) -> Option<Residence> {
        let is_on_its_way = self.pause != Pause::None
            || self.moving.is_some()
            || self.checkpoint.is_some()
            || !self.unsealed.is_empty()
            || !self.exited.is_empty();
        if is_on_its_way {
            return None;
        }
        match self.state {
            State::Running if self.nodes.len() == 1 => Some(Residence::Running),
            State::Suspended => Some(Residence::Suspended),
            State::Parked if self.launch.park == Park::PageOut => Some(Residence::Parked),
            _ => None,
        }
    }

    /// Waits for the next daemon of a lost node, where its part may be whole.
    pub(super) fn await_next_daemon(&mut self, node: NodeId, why: &str) -> bool {
        let Some((limit, rest)) = self.timeouts.away.zip(self.rests_whole()) else { return false };
        self.arm(limit);
        self.state = State::Away { rest, missing: Nodes::from([node]), why: why.to_owned() };
        true
    }

    /// The next daemon of a missing node is there.
    pub(super) fn ask_survivor(&self) -> AppRequest {
        AppRequest::Describe { generation: self.life.into() }
    }

    pub(super) fn on_survivor(&mut self, node: NodeId, holding: &Holding) {
        let State::Away { rest, missing, why } = &mut self.state else { return };
        if !missing.contains(&node) || holding.generation != u64::from(self.life) {
            return;
        }
        let is_at_line = holding.epoch == self.epoch;
        let is_whole = holding.life == self.adopted_life.unwrap_or(self.life)
            && match rest {
                Residence::Running => matches!(holding.state, PartState::Running | PartState::Ended),
                Residence::Suspended => holding.state == PartState::Frozen { flushed: true } && is_at_line,
                _ => holding.state == PartState::PagedOut && is_at_line,
            };
        if !is_whole || holding.failure.is_some() {
            let why = why.clone();
            return self.strand(why);
        }
        missing.remove(&node);
        let (rest, is_over) = (*rest, missing.is_empty());
        if let Some(end) = holding.failed_rank.clone() {
            let (rank, exit, last_output) = (end.rank, end.exit, end.last_output);
            return self.end(AppOutcome::RankFailed { rank, exit, last_output });
        }
        if holding.state == PartState::Ended {
            self.exited.insert(node);
        }
        self.snapshots.set(node, holding.sealed.iter().copied());
        self.fences.learn(&holding.fences);
        if let Some((sequence, puts)) = holding.reached.clone() {
            self.on_fence(node, sequence, puts);
            if !matches!(self.state, State::Away { .. }) {
                return;
            }
        }
        self.tell(Report::Survived { node });
        if is_over {
            self.go_on(rest);
        }
    }

    /// The master knows that it rests there.
    fn go_on(&mut self, rest: Residence) {
        self.outputs.push(Output::Arm(None));
        self.state = match rest {
            Residence::Running => State::Running,
            Residence::Suspended => State::Suspended,
            _ => State::Parked,
        };
        self.on_exited();
        if let Some(order) = self.next.take() {
            self.on_order(order);
        }
    }
}
