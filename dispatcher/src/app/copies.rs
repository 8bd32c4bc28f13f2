//! Copies of the application's snapshots on other nodes: has them made, knows where they are, and gets a part
//! back from them where its node has lost it.
//!
//! ```text
//!   sealed on all nodes ─Copy─▶ each sends its part to partners ─Copied by all─▶ older copies are dropped
//! ```
//! One snapshot is copied at a time, and then the newest that all nodes have. What the partners hold is known
//! from these answers and, after a daemon or a master was replaced, from what the nodes say. Where some node
//! cannot copy its part, the copies of the others are dropped once no way back needs them.

use std::collections::{BTreeMap, BTreeSet};

use coswitch_daemon::protocol::{AppEvent, AppRequest, FetchRequest, HeldCopy};
use coswitch_policies::{CopyRule, Epoch, NodeId, Scatter};

use super::{App, Nodes, Output, Park, State};
use crate::protocol::Report;

#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    rule: CopyRule,
    /// All nodes that are lost, also those that the application does not use.
    down: Nodes,
    held: BTreeMap<(NodeId, Epoch), Held>,
    /// The life that the launch began, where known: copies of another launch do not count.
    launched: Option<u32>,
    /// The copy under way, and the nodes that have not answered.
    round: Option<(Epoch, Nodes)>,
    /// Nodes that have failed to copy this epoch, with the nodes as they are.
    failed: BTreeSet<(NodeId, Epoch)>,
}

/// A copy, and the partners that have their chunks of it.
#[derive(Clone, Debug, Default)]
struct Held {
    launched: u32,
    scatter: Scatter,
    on: Nodes,
}

impl Copies {
    pub(super) fn new(rule: CopyRule) -> Self {
        Self { rule, ..Self::default() }
    }

    /// Whether the copy is whole on nodes that are up.
    pub(super) fn has(&self, owner: NodeId, epoch: Epoch) -> bool {
        self.is_whole(owner, epoch, |on, node| on.contains(&node) && !self.down.contains(&node))
    }

    /// The same, if all nodes that are lost come back with what they were to hold of it.
    fn may_have(&self, owner: NodeId, epoch: Epoch) -> bool {
        self.is_whole(owner, epoch, |on, node| on.contains(&node) || self.down.contains(&node))
    }

    fn is_whole(&self, owner: NodeId, epoch: Epoch, holds: impl Fn(&Nodes, NodeId) -> bool) -> bool {
        let held = self.held.get(&(owner, epoch)).filter(|held| self.launched == Some(held.launched));
        held.is_some_and(|held| held.scatter.is_whole_on(|node| holds(&held.on, node)))
    }

    /// This launch is the application's: the latest of those that are named.
    pub(super) fn on_launch(&mut self, launched: u32) {
        self.launched = self.launched.max(Some(launched));
    }

    /// Of all copies.
    pub(super) fn epochs(&self) -> BTreeSet<Epoch> {
        self.held.keys().map(|(_, epoch)| *epoch).collect()
    }

    pub(super) fn is_down(&self, node: NodeId) -> bool {
        self.down.contains(&node)
    }

    /// The life that the launch began, as far as known.
    pub(super) fn launched(&self) -> u32 {
        self.launched.unwrap_or_default()
    }

    pub(super) fn scatter(&self, owner: NodeId, epoch: Epoch) -> Option<&Scatter> {
        self.held.get(&(owner, epoch)).map(|held| &held.scatter)
    }

    /// The nodes are others than before: what failed may succeed now.
    fn on_change(&mut self) {
        self.failed.clear();
    }

    pub(super) fn on_node_lost(&mut self, node: NodeId) {
        self.down.insert(node);
        self.on_change();
        self.answered(node);
    }

    pub(super) fn on_node_back(&mut self, node: NodeId) {
        self.down.remove(&node);
        self.on_change();
    }

    /// A node says what it holds.
    pub(super) fn on_held(&mut self, node: NodeId, copies: Vec<HeldCopy>) {
        self.held.values_mut().for_each(|held| held.on.retain(|other| *other != node));
        for HeldCopy { owner, epoch, launched, scatter } in copies {
            let new = || Held { launched, scatter: scatter.clone(), on: Nodes::new() };
            let held = self.held.entry((owner, epoch)).or_insert_with(new);
            let is_other = held.scatter != scatter || held.launched != launched;
            // Of an earlier launch or ring: one that is in use counts.
            if is_other && !held.on.is_empty() && held.launched >= launched {
                continue;
            }
            if is_other {
                *held = new();
            }
            held.on.insert(node);
        }
        self.on_change();
    }

    /// The node is no longer waited for.
    fn answered(&mut self, node: NodeId) {
        if let Some((_, waiting)) = &mut self.round {
            waiting.remove(&node);
        }
        self.round.take_if(|(_, waiting)| waiting.is_empty());
    }

    /// The copy turned out useless.
    fn forget(&mut self, owner: NodeId, epoch: Epoch) {
        self.held.remove(&(owner, epoch));
    }

    /// The daemon of some node was replaced, and perhaps in the middle of a copy.
    pub(super) fn begin_again(&mut self) {
        self.round = None;
        self.on_change();
    }
}

impl App {
    /// Has the newest snapshot of all nodes copied, where it is not.
    pub(super) fn copy_newest(&mut self) {
        let is_over = matches!(self.state, State::Ending { .. } | State::Ended | State::Clearing { .. });
        let is_off = self.copies.rule.copies == 0 || self.launch.park != Park::Criu;
        if is_over || is_off || self.copies.round.is_some() || self.is_held() {
            return;
        }
        let Some(epoch) = self.snapshots.newest() else { return };
        let lacks =
            |node: &NodeId| !self.copies.has(*node, epoch) && !self.copies.failed.contains(&(*node, epoch));
        let lacking: Nodes = self.nodes.difference(&self.lost).copied().filter(lacks).collect();
        let needed = self.newest_copied();
        let mut waiting = Nodes::new();
        for node in lacking {
            if let Some(scatter) = self.copies.rule.partners(node, &self.copies.down) {
                self.outputs.push(Output::Ask(node, AppRequest::Copy { epoch, scatter, needed }));
                // Some partners may keep their chunks although the copy fails.
                self.copies.held.entry((node, epoch)).or_default();
                waiting.insert(node);
            }
        }
        self.copies.round = (!waiting.is_empty()).then_some((epoch, waiting));
    }

    /// The newest epoch of which all nodes have a copy: a node that is lost goes back to that one with the
    /// others, which keep their own snapshots of it. Once one is lost, it may have held the only copies of
    /// the others'.
    pub(super) fn newest_copied(&self) -> Option<Epoch> {
        let has_own = |node, epoch| {
            !self.lost.is_empty() && !self.lost.contains(&node) && self.snapshots.has(node, epoch)
        };
        let is_safe = |epoch: &Epoch| {
            self.nodes.iter().all(|node| self.copies.has(*node, *epoch) || has_own(*node, *epoch))
        };
        self.copies.epochs().into_iter().rev().find(is_safe)
    }

    /// Takes the news of copies; gives other events back.
    pub(super) fn on_copy_event(&mut self, node: NodeId, event: AppEvent) -> Option<AppEvent> {
        match event {
            AppEvent::Copied { epoch, scatter, bytes, took } => {
                let to = scatter.ring.clone();
                let on = scatter.ring.iter().copied().filter(|node| !self.copies.down.contains(node));
                let launched = self.copies.launched();
                let held = Held { launched, on: on.collect(), scatter };
                self.copies.held.insert((node, epoch), held);
                self.copies.answered(node);
                self.tell(Report::Copied { node, epoch, to, bytes, took });
                self.drop_older_copies();
            }
            AppEvent::CopyFailed { epoch, reason } => {
                self.copies.failed.insert((node, epoch));
                self.copies.answered(node);
                if !matches!(self.state, State::Ending { .. } | State::Clearing { .. }) {
                    self.tell(Report::NotCopied { node, epoch, reason });
                }
                self.drop_older_copies();
            }
            AppEvent::FetchFailed { epoch, reason } => {
                let owner = self.moving.map_or(node, |moving| moving.owner_of(node));
                self.copies.forget(owner, epoch);
                self.tell(Report::NotCopied {
                    node,
                    epoch,
                    reason: format!("no copy can be used: {reason}"),
                });
            }
            other => return Some(other),
        }
        None
    }

    /// Has all copies removed that no way back needs. Copies that are under way are waited for.
    fn drop_older_copies(&mut self) {
        if self.copies.round.is_some() {
            return;
        }
        let mut from = Epoch(0);
        for needed in self.needed_copies() {
            let is_between = |epoch: &Epoch| (from..needed).contains(epoch);
            if self.copies.epochs().iter().any(is_between) {
                self.copies.held.retain(|(_, epoch), _| !is_between(epoch));
                self.drop_copies(from, Epoch(needed.0 - 1));
            }
            from = Epoch(needed.0.saturating_add(1));
        }
    }

    /// The epochs whose copies stay. A way back leads to an epoch of which each node has its own snapshot or
    /// a copy. Any node may lose its disk: an older epoch with a way back is needed as well, unless a newer
    /// one has copies of at least the same nodes.
    fn needed_copies(&self) -> BTreeSet<Epoch> {
        // Nodes that are lost, or go back, have not said which snapshots they still have. Meanwhile no
        // snapshot replaces a copy, and the copies of each epoch may be needed.
        let is_known = self.lost.is_empty()
            && !matches!(self.state, State::Adopting { .. } | State::Away { .. } | State::Stranded { .. });
        let owns = |node: NodeId, epoch| is_known && self.snapshots.has(node, epoch);
        let newest = self.snapshots.newest();
        let mut needed = BTreeSet::new();
        // For each newer epoch with a way back, the nodes that have a copy of it.
        let mut newer: Vec<Nodes> = Vec::new();
        for epoch in self.copies.epochs().into_iter().rev() {
            let with = |has: fn(&Copies, NodeId, Epoch) -> bool| -> Nodes {
                self.nodes.iter().copied().filter(|node| has(&self.copies, *node, epoch)).collect()
            };
            let leads_back =
                |copied: &Nodes| self.nodes.iter().all(|node| copied.contains(node) || owns(*node, epoch));
            let (copied, perhaps) = (with(Copies::has), with(Copies::may_have));
            let is_replaced = newer.iter().any(|newer| perhaps.is_subset(newer));
            let may_lead_back = !is_known || leads_back(&perhaps);
            if Some(epoch) >= newest || (may_lead_back && !is_replaced) {
                needed.insert(epoch);
            }
            if leads_back(&copied) {
                newer.push(copied);
            }
        }
        needed
    }

    /// Has all nodes remove the copies of these epochs.
    fn drop_copies(&mut self, from: Epoch, to: Epoch) {
        let request = AppRequest::DropCopies { from, to };
        let nodes = (0..self.copies.rule.nodes).map(NodeId);
        let up: Nodes = nodes.filter(|node| !self.copies.down.contains(node)).collect();
        self.ask(&up, &request);
    }

    /// Nothing of the application is to be left.
    pub(super) fn drop_all_copies(&mut self) {
        if self.copies.rule.copies > 0 {
            self.copies.held.clear();
            self.copies.round = None;
            self.drop_copies(Epoch(0), Epoch(u64::MAX));
        }
    }

    /// The newest epoch that every node has, or can have from its copies.
    pub(super) fn newest_with_copies(&self) -> Option<Epoch> {
        self.snapshots.newest_where(|node, epoch| self.copies.has(node, epoch), self.copies.epochs())
    }

    /// Asks nodes for a snapshot that they lack; returns those that were asked.
    pub(super) fn fetch(&mut self, epoch: Epoch) -> Nodes {
        let lacking = self.nodes.iter().copied().filter(|node| !self.snapshots.has(*node, epoch));
        let lacking: Nodes = lacking.collect();
        for node in &lacking {
            let scatter = self.copies.scatter(*node, epoch).cloned().unwrap_or_default();
            let (life, placement) = (self.life, self.launch.placement.clone());
            let launched = self.copies.launched();
            let request = FetchRequest { life, epoch, owner: *node, launched, scatter, placement };
            self.outputs.push(Output::Ask(*node, AppRequest::FetchCopy(Box::new(request))));
        }
        lacking
    }
}
