//! The part of a node that stays away moves to another node, by its copy.
//!
//! ```text
//!   Stranded ─Move─▶ the new node fetches it, the others learn of it ┬ it has it ─▶ Moved ─▶ Parked
//!                                                                    └ it has not ─▶ NotMoved: as before
//! ```
//! Until the new node has the snapshot sealed, nothing of the old one counts as gone: it may come back.

use coswitch_daemon::protocol::{AppRequest, FetchRequest};
use coswitch_policies::{Epoch, NodeId};

use super::{App, Output, State, end::release};
use crate::protocol::{AppOutcome, Report};

/// A part on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moving {
    from: NodeId,
    to: NodeId,
    epoch: Epoch,
}

impl Moving {
    /// Whose snapshot a node asks for.
    pub(super) fn owner_of(&self, node: NodeId) -> NodeId {
        if node == self.to { self.from } else { node }
    }
}

impl App {
    pub(super) fn on_move(&mut self, from: NodeId, to: NodeId) {
        let at_rest = matches!(&self.state, State::Stranded { waiting, .. } if waiting.is_empty());
        let refused = |why: &str| Report::NotMoved { from, why: why.to_owned() };
        if !at_rest || self.is_held() || !self.lost.contains(&from) {
            return self.tell(refused("it does not rest without that node"));
        }
        if self.nodes.contains(&to) || self.copies.is_down(to) {
            return self.tell(refused("the other node cannot take it"));
        }
        let has = |node, epoch| self.copies.has(node, epoch);
        let newest = self.snapshots.newest_without(from, has, self.copies.epochs());
        let Some(epoch) = newest else { return self.tell(refused("there is no whole copy")) };
        let scatter = self.copies.scatter(from, epoch).cloned().unwrap_or_default();
        self.place(from, to);
        self.moving = Some(Moving { from, to, epoch });
        self.life += 1;
        let (life, placement) = (self.life, self.launch.placement.clone());
        let launched = self.copies.launched();
        let fetch = FetchRequest { life, epoch, owner: from, launched, scatter, placement };
        let mut waiting = self.nodes.clone();
        waiting.retain(|node| *node != to && !self.lost.contains(node));
        self.ask(&waiting.clone(), &self.go_back());
        self.outputs.push(Output::Ask(to, AppRequest::FetchCopy(Box::new(fetch))));
        waiting.insert(to);
        if let State::Stranded { waiting: awaited, .. } = &mut self.state {
            *awaited = waiting;
        }
        self.arm_for(self.timeouts.restore, self.image_bytes);
    }

    /// The application ends while a part is on its way.
    pub(super) fn release_moved(&mut self, outcome: &AppOutcome) {
        if let Some(Moving { from, .. }) = self.moving.take()
            && !self.copies.is_down(from)
        {
            self.outputs.push(Output::Ask(from, release(outcome)));
        }
    }

    pub(super) fn go_back(&self) -> AppRequest {
        AppRequest::GoBack { life: self.life, placement: self.launch.placement.clone() }
    }

    /// Ranks of one node are those of another one from now on.
    fn place(&mut self, from: NodeId, to: NodeId) {
        let placed = self.launch.placement.iter_mut().filter(|node| **node == from);
        placed.for_each(|node| *node = to);
        for nodes in [&mut self.nodes, &mut self.unknown] {
            if nodes.remove(&from) {
                nodes.insert(to);
            }
        }
        self.lost.remove(&from);
        self.snapshots.rename(from, to);
        self.fences.rename(from, to);
    }

    /// All nodes have answered. True where a part did not arrive, and they are asked again.
    pub(super) fn finish_moving(&mut self) -> bool {
        let Some(Moving { from, to, epoch }) = self.moving.take() else { return false };
        let from_is_back = !self.copies.is_down(from);
        if self.snapshots.has(to, epoch) && !self.lost.contains(&to) {
            if from_is_back {
                self.outputs.push(Output::Ask(from, AppRequest::Release { last_word: None }));
            }
            self.tell(Report::Moved { from, to, placement: self.launch.placement.clone() });
            return false;
        }
        if !self.lost.remove(&to) {
            self.outputs.push(Output::Ask(to, AppRequest::Release { last_word: None }));
        }
        self.place(to, from);
        if !from_is_back {
            self.lost.insert(from);
        }
        self.unknown.insert(from);
        self.tell(Report::NotMoved { from, why: "its copy could not be used".into() });
        self.life += 1;
        let waiting = self.ask_all(&self.go_back());
        self.arm_going_back();
        if let State::Stranded { waiting: awaited, .. } = &mut self.state {
            *awaited = waiting;
        }
        true
    }
}
