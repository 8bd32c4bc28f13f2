//! What this node holds of an application, for a master that takes over: the state of the part, and what the
//! master before was told or had decided.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use coswitch_policies::Epoch;

use super::part::{Part, State, blocking};
use crate::protocol::{AppEvent, Failure, Holding, PartState, Puts, RankEnd};

/// What a new master has to know besides the state of the part.
#[derive(Default)]
pub(super) struct Told {
    /// Of the last cut, or of the snapshot restored last.
    pub(super) epoch: Epoch,
    /// The newest cut.
    pub(super) cuts: Epoch,
    /// The cut that is complete here and lasts.
    pub(super) flushed: Option<Epoch>,
    pub(super) sealing: BTreeSet<Epoch>,
    /// A fence without its answer.
    pub(super) reached: Option<(u64, Puts)>,
    pub(super) fences: BTreeMap<u64, Puts>,
    pub(super) failed_rank: OnceLock<RankEnd>,
    pub(super) failure: OnceLock<Failure>,
    pub(super) life: u32,
}

impl Told {
    pub(super) fn on_cut(&mut self, epoch: Epoch) {
        self.cuts = self.cuts.max(epoch);
        self.epoch = self.cuts;
    }

    /// Forgets the state of the processes that have ended.
    pub(super) fn go_back(&mut self, life: u32) {
        self.life = life;
        self.flushed = None;
        self.reached = None;
        (self.failed_rank, self.failure) = (OnceLock::new(), OnceLock::new());
    }

    pub(super) fn on_fence_done(&mut self, sequence: u64, puts: &Puts) {
        self.reached.take_if(|(reached, _)| *reached == sequence);
        self.fences.entry(sequence).or_insert_with(|| puts.clone());
    }
}

impl Part {
    /// The snapshots that can be restored here: unreadable ones cannot.
    pub(super) async fn sealed_epochs(&self) -> Vec<Epoch> {
        let (node, job) = (Arc::clone(&self.node), self.job);
        let sealed = blocking(move || node.store.sealed_epochs(&job.to_string())).await;
        sealed.unwrap_or_default().into_iter().map(Epoch).collect()
    }

    pub(super) async fn describe(&self, generation: u64) -> AppEvent {
        let sealed = self.sealed_epochs().await;
        let told = &self.told;
        let state = match &self.state {
            State::Absent => PartState::Absent,
            State::Running { .. } => PartState::Running,
            State::Frozen(_) => PartState::Frozen { flushed: told.flushed == Some(told.epoch) },
            State::PagedOut(_) => PartState::PagedOut,
            State::Parked => PartState::Parked,
            State::Stopped { .. } => PartState::Stopped,
            State::Ended => PartState::Ended,
        };
        AppEvent::Holds(Box::new(Holding {
            generation,
            state,
            epoch: told.epoch,
            cuts: told.cuts.max(told.epoch),
            sealed,
            sealing: told.sealing.iter().copied().collect(),
            reached: told.reached.clone(),
            fences: told.fences.clone().into_iter().collect(),
            failed_rank: told.failed_rank.get().cloned(),
            failure: told.failure.get().cloned(),
            life: told.life,
            launched: self.resources.as_ref().map_or(0, |resources| resources.launch.life),
            image_bytes: self.image_bytes,
        }))
    }
}
