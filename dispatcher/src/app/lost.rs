//! A node of the application is lost, and comes back with what its disk holds.
//!
//! The processes on the other nodes have sent to it and wait for it: they are ended. When all nodes are there
//! again the gang is parked at the newest snapshot that all of them have, and repeats the work since then. A
//! node that has lost its own gets it from the copies that other nodes hold. Where there cannot be one,
//! nothing ties the application to its nodes: it is launched again.

use coswitch_daemon::protocol::{AppEvent, AppRequest, Step};
use coswitch_policies::{Epoch, NodeId};

use super::{App, Output, State, end::release};
use crate::protocol::{Park, Report};

impl App {
    pub(super) fn on_node_lost(&mut self, node: NodeId, reason: &str) {
        match &mut self.state {
            State::Ending { waiting, .. } => {
                waiting.remove(&node);
                self.on_released();
            }
            State::Clearing { waiting } => {
                waiting.remove(&node);
                self.finish_clearing();
            }
            // The nodes have not been asked yet.
            State::Idle if self.adoption.is_some() => {}
            State::Idle => self.on_cleared(),
            State::Adopting { waiting, held, .. } => {
                waiting.remove(&node);
                held.remove(&node);
                self.finish_adopting();
            }
            State::Away { missing, .. } => drop(missing.insert(node)),
            _ => {
                let why = format!("{node} was lost: {reason}");
                if !self.await_next_daemon(node, &why) {
                    self.strand(why);
                }
            }
        }
    }

    pub(super) fn on_node_back(&mut self, node: NodeId) {
        let request = match &mut self.state {
            State::Stranded { waiting, .. } => {
                waiting.insert(node);
                self.arm_going_back();
                self.go_back()
            }
            State::Away { .. } => self.ask_survivor(),
            State::Adopting { waiting, .. } => {
                waiting.insert(node);
                let generation = self.adoption.as_ref().map_or(0, |adoption| adoption.generation);
                AppRequest::Describe { generation }
            }
            State::Clearing { waiting } => {
                waiting.insert(node);
                AppRequest::Release { last_word: None }
            }
            State::Ending { waiting, outcome } => {
                waiting.insert(node);
                release(outcome)
            }
            _ => return,
        };
        self.outputs.push(Output::Ask(node, request));
    }

    /// Ends the processes on the nodes that are left.
    pub(super) fn strand(&mut self, why: String) {
        let may_have = |node: NodeId, epoch: Epoch| {
            let is_sealing = epoch == self.epoch && self.unsealed.contains(&node);
            self.unknown.contains(&node)
                || is_sealing
                || self.is_sealing_checkpoint(node, epoch)
                || self.copies.has(node, epoch)
        };
        let copied = self.copies.epochs();
        let has_snapshots = self.moving.is_some() || self.snapshots.newest_where(may_have, copied).is_some();
        self.checkpoint = None;
        if !has_snapshots || self.launch.park == Park::PageOut {
            self.next = None;
            return self.clear(&why);
        }
        let told = matches!(self.state, State::Parked | State::Stranded { told: true, .. });
        self.is_unnoticed = false;
        self.unsealed.clear();
        self.imaged.clear();
        self.exited.clear();
        self.life += 1;
        self.adopted_life = None;
        let waiting = self.ask_all(&self.go_back());
        self.arm_going_back();
        self.state = State::Stranded { waiting, told, why };
        self.settle_stranded();
    }

    /// Nothing of the application is to be left anywhere.
    pub(super) fn clear(&mut self, why: &str) {
        let what = format!("{why}; there is no snapshot to go back to, and it begins again");
        self.tell(Report::Mended { what });
        let waiting = self.ask_all(&AppRequest::Release { last_word: None });
        self.arm(self.timeouts.release);
        self.state = State::Clearing { waiting };
        self.finish_clearing();
    }

    pub(super) fn finish_clearing(&mut self) {
        if matches!(&self.state, State::Clearing { waiting } if waiting.is_empty()) {
            self.on_cleared();
        }
    }

    /// Whether the event tells of processes that are being ended.
    pub(super) fn is_void(&mut self, node: NodeId, event: &AppEvent) -> bool {
        // Nodes that have nothing of the application any more would fail at the answer.
        if matches!(self.state, State::Clearing { .. } | State::Ending { .. }) {
            return matches!(event, AppEvent::Fence { .. });
        }
        let State::Stranded { waiting, .. } = &self.state else { return false };
        let is_answer =
            matches!(event, AppEvent::Failed { during: Step::Run, .. }) && waiting.contains(&node);
        !is_answer && !matches!(event, AppEvent::Sealed { .. })
    }

    pub(super) fn on_went_back(&mut self, node: NodeId, life: u32, sealed: Vec<Epoch>) {
        let is_awaited = |waiting: &super::Nodes| life == self.life && waiting.contains(&node);
        let State::Stranded { waiting, .. } = &mut self.state else { return };
        if !is_awaited(waiting) {
            return;
        }
        waiting.remove(&node);
        self.unknown.remove(&node);
        self.snapshots.set(node, sealed);
        self.settle_stranded();
    }

    fn settle_stranded(&mut self) {
        let State::Stranded { waiting, told, why } = &mut self.state else { return };
        if !waiting.is_empty() {
            return;
        }
        let (was_told, why) = (std::mem::replace(told, true), why.clone());
        if self.finish_moving() {
            return;
        }
        // The answer to an order that waits, too.
        if !was_told {
            self.next = None;
            self.tell(Report::Displaced { why: why.clone() });
        }
        if !self.lost.is_empty() {
            self.outputs.push(Output::Arm(None));
            if let Some(order) = self.next.take() {
                self.on_order(order);
            }
            return;
        }
        let Some(epoch) = self.newest_with_copies() else { return self.clear(&why) };
        let fetching = self.fetch(epoch);
        if !fetching.is_empty() {
            if let State::Stranded { waiting, .. } = &mut self.state {
                *waiting = fetching;
            }
            return self.arm_for(self.timeouts.restore, self.image_bytes);
        }
        self.epoch = epoch;
        // No cut had this number; an answer to a fence may have come after the snapshot.
        self.cuts = self.cuts.max(self.snapshots.last().0) + 1;
        self.imaged = self.nodes.clone();
        self.went_back = true;
        self.tell(Report::WentBack { epoch, why });
        // The master knows that it is parked: to say so again would answer an order that is on its way.
        self.outputs.push(Output::Arm(None));
        self.state = State::Parked;
        if let Some(order) = self.next.take() {
            self.on_order(order);
        }
    }
}
