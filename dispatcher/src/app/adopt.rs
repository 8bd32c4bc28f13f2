//! Adoption: a new master takes up an application from what the nodes hold.
//!
//! The nodes answer when nothing is on the way there, so each holds the application in one of a few states.
//! Where these are one line through all nodes, it rests there. Else the master before was in the middle of
//! something, which is taken back where nothing was dumped or restored yet, and else carried on to the store.

use std::collections::{BTreeMap, BTreeSet};

use coswitch_daemon::protocol::{AppEvent, AppRequest, Holding, PartState, RankEnd};
use coswitch_policies::{Epoch, NodeId, Residence};

use super::{App, Nodes, Output, Park, State, Timeouts};
use crate::protocol::{AppOutcome, LaunchSpec, Report};

/// Who adopts an application.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// Of the new master.
    pub generation: u64,
    /// How the application has ended, by the word of a node that has released it.
    pub ended: Option<AppOutcome>,
}

pub(super) type Holdings = BTreeMap<NodeId, Holding>;

impl App {
    /// An application that earlier masters have launched, perhaps. It begins with [`super::Input::Adopt`].
    #[must_use]
    pub fn adopted(launch: LaunchSpec, timeouts: Timeouts, adoption: Adoption) -> Self {
        Self { adoption: Some(adoption), ..Self::new(launch, timeouts) }
    }

    pub(super) fn ask_what_nodes_hold(&mut self) {
        let Some(Adoption { generation, ended }) = self.adoption.clone() else { return };
        let waiting: Nodes = self.nodes.difference(&self.lost).copied().collect();
        self.state = State::Adopting { waiting, held: Holdings::new(), later: Vec::new() };
        match ended {
            Some(outcome) => self.end(outcome),
            None => {
                self.ask_all(&AppRequest::Describe { generation });
                // Nodes answer when the step that is under way there is over. Until then, those that move
                // memory tell how much.
                self.arm(self.timeouts.restore);
                self.finish_adopting();
            }
        }
    }

    pub(super) fn on_holds(&mut self, node: NodeId, holding: Holding) {
        let State::Adopting { waiting, held, .. } = &mut self.state else { return };
        if self.adoption.as_ref().is_none_or(|adoption| adoption.generation != holding.generation) {
            return;
        }
        waiting.remove(&node);
        held.insert(node, holding);
        self.finish_adopting();
    }

    pub(super) fn finish_adopting(&mut self) {
        let State::Adopting { waiting, held, later } = &mut self.state else { return };
        if waiting.is_empty() {
            let (held, later) = (std::mem::take(held), std::mem::take(later));
            self.learn(&held);
            // It may have ended by what its nodes hold.
            if matches!(self.state, State::Adopting { .. }) {
                self.settle(&held);
            }
            later.into_iter().for_each(|(node, event)| self.on_event(node, event));
        }
    }

    /// An event before all nodes have answered. What a node tells before its own answer is contained in that.
    pub(super) fn on_early_event(&mut self, node: NodeId, event: AppEvent) {
        if let State::Adopting { held, later, .. } = &mut self.state
            && held.contains_key(&node)
        {
            later.push((node, event));
        }
    }

    fn learn(&mut self, held: &Holdings) {
        let newest = |epoch: fn(&Holding) -> Epoch| held.values().map(epoch).max().unwrap_or_default();
        self.epoch = newest(|holding| holding.epoch);
        self.cuts = newest(|holding| holding.cuts).0;
        for (node, holding) in held {
            self.snapshots.set(*node, holding.sealed.iter().copied());
            self.image_bytes = self.image_bytes.max(holding.image_bytes);
            let has_image = holding.sealed.contains(&self.epoch) || holding.sealing.contains(&self.epoch);
            let at_line = matches!(holding.state, PartState::Parked | PartState::Stopped);
            if has_image && at_line {
                self.imaged.insert(*node);
            }
            if holding.sealing.contains(&self.epoch) && !stays(holding) {
                self.unsealed.insert(*node);
            }
            if holding.state == PartState::Ended {
                self.exited.insert(*node);
            }
            self.fences.learn(&holding.fences);
            self.copies.on_launch(holding.launched);
        }
        for (node, Holding { reached, .. }) in held {
            if let Some((sequence, puts)) = reached.clone() {
                self.on_fence(*node, sequence, puts);
            }
        }
    }

    /// The snapshot of a checkpoint that an earlier master has ordered; true where some node has written it,
    /// so that the ranks do not stand still for a switch.
    fn learn_checkpoint(&mut self, held: &Holdings) -> bool {
        let epoch = self.epoch;
        let is_written = |holding: &Holding| holding.sealed.contains(&epoch) || is_sealing(holding, epoch);
        let written = held.values().filter(|holding| stays(holding) && is_written(holding)).count();
        let unsealed: Nodes =
            held.iter().filter(|(_, holding)| is_sealing(holding, epoch)).map(|(node, _)| *node).collect();
        if written == self.nodes.len() && !unsealed.is_empty() {
            self.adopt_checkpoint(unsealed);
        }
        written > 0
    }

    fn settle(&mut self, held: &Holdings) {
        let any = |is: fn(&PartState) -> bool| held.values().any(|holding| is(&holding.state));
        let ends = held.values().find_map(|holding| holding.failed_rank.clone());
        let failures = held.iter().find_map(|(node, holding)| Some((node, holding.failure.clone()?)));
        if let Some(RankEnd { rank, exit, last_output }) = ends {
            return self.end(AppOutcome::RankFailed { rank, exit, last_output });
        }
        if let Some((node, failure)) = failures {
            let reason = format!("{node} failed to keep it running: {failure}");
            return self.end(AppOutcome::Lost { reason });
        }
        let is_absent = any(|state| *state == PartState::Absent);
        if is_absent && self.newest_with_copies().is_some() {
            return self.strand("a node has lost what it had sealed".into());
        }
        // It had not been launched everywhere.
        if is_absent {
            let waiting = self.ask_all(&AppRequest::Release { last_word: None });
            self.arm(self.timeouts.release);
            self.state = State::Clearing { waiting };
            return;
        }
        if self.exited == self.nodes {
            return self.end(AppOutcome::Succeeded);
        }
        if !self.lost.is_empty() {
            self.unknown = self.lost.clone();
            return self.strand("a node was lost with the master".into());
        }
        // A daemon that has taken up a snapshot does not know what life the others are in.
        let lives: BTreeSet<u32> = held.values().map(|holding| holding.life).collect();
        if lives.len() > 1 {
            return self.strand("the daemon of a node was lost with the master".into());
        }
        self.adopted_life = lives.first().copied();
        let was_dumped = any(|state| matches!(state, PartState::Parked | PartState::PagedOut));
        let was_restored = any(|state| *state == PartState::Stopped);
        let runs = any(|state| *state == PartState::Running);
        let on_line = |node: &NodeId, holding: &Holding| match holding.state {
            PartState::Frozen { flushed } => flushed && holding.epoch == self.epoch,
            PartState::Stopped => holding.epoch == self.epoch,
            PartState::PagedOut => true,
            PartState::Parked => holding.epoch == self.epoch && self.imaged.contains(node),
            // It was resumed and is done, and the resume of the others was lost with the master. No part is
            // dumped at a cut before which another one has ended.
            PartState::Ended => was_restored && !was_dumped,
            PartState::Absent | PartState::Running => false,
        };
        let is_line = held.iter().all(|(node, holding)| on_line(node, holding));
        let was_checkpointed = self.learn_checkpoint(held);
        match (was_dumped, was_restored) {
            (false, false) if is_line && was_checkpointed => self.resume(None),
            (false, _) if is_line => self.rest(State::Suspended, Report::Suspended),
            // A cut, or its end: no rank has left that line.
            (false, false) => self.take_cut_back(),
            // Every node had been restored before the first one was resumed.
            (false, true) if runs => self.resume(None),
            (true, _) if self.launch.park == Park::PageOut && any(|state| *state == PartState::Parked) => {
                let reason = "some of its processes were lost with the master".into();
                self.end(AppOutcome::Lost { reason });
            }
            (true, _) if self.launch.park == Park::PageOut => {
                let paged_out = held.iter().filter(|(_, holding)| holding.state == PartState::PagedOut);
                self.page_out_the_rest(paged_out.map(|(node, _)| *node).collect());
            }
            (true, false) if is_line && self.imaged == self.nodes => {
                self.rest(State::Parked, Report::Parked);
            }
            // A dump or a restore.
            _ if is_line => self.dump(Residence::Suspended),
            _ => self.leave_older_line(),
        }
    }

    fn page_out_the_rest(&mut self, parked: Nodes) {
        let waiting: Nodes = self.nodes.difference(&parked).copied().collect();
        if waiting.is_empty() {
            return self.rest(State::Parked, Report::Parked);
        }
        self.ask(&waiting, &AppRequest::Dump(self.epoch));
        self.arm(self.timeouts.dump);
        self.state = State::Dumping { waiting, parked, from: Residence::Suspended, failure: None };
    }

    fn take_cut_back(&mut self) {
        if self.cuts == 0 {
            return self.rest(State::Running, Report::Running);
        }
        let waiting = self.ask_all(&AppRequest::AbortCut(Epoch(self.cuts)));
        self.epoch = Epoch(self.cuts);
        self.arm(self.timeouts.resume);
        self.state = State::Resuming { waiting, undone: None };
    }

    /// The nodes are on different lines: the gang goes to the newest snapshot that all of them have.
    fn leave_older_line(&mut self) {
        self.strand("its nodes were at different cuts when the master was lost".into());
    }

    /// All parts were removed: another dispatcher launches it.
    pub(super) fn on_cleared(&mut self) {
        self.outputs.push(Output::Arm(None));
        self.next = None;
        self.drop_all_copies();
        self.state = State::Ended;
        self.tell(Report::Unlaunched);
    }
}

/// Whether its processes are where they were at its last cut.
fn stays(holding: &Holding) -> bool {
    matches!(holding.state, PartState::Running | PartState::Frozen { .. })
}

fn is_sealing(holding: &Holding, epoch: Epoch) -> bool {
    holding.sealing.contains(&epoch)
}
