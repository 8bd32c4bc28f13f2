//! The end of the processes of an application that has lost a node, and goes back to a sealed snapshot.

use std::sync::Arc;

use coswitch_launcher::protocol::Assembler;
use coswitch_policies::Epoch;
use tracing::warn;

use super::part::{Part, State, blocking};
use crate::{
    plane::Command,
    protocol::{AppEvent, Failure},
};

impl Part {
    /// Ends the processes. The answer follows when the data plane has ended the life before.
    pub(super) async fn go_back(&mut self, life: u32) -> Result<(), Failure> {
        if self.resources.is_none() {
            self.tell(AppEvent::WentBack { life, sealed: Vec::new() });
            return Ok(());
        }
        self.end_processes().await.map_err(Failure::dead)?;
        self.state = State::Parked;
        self.all_exited = false;
        self.launcher = Assembler::default();
        self.told.go_back(life);
        self.rewinding = Some(life);
        self.node.plane.tell(Command::Rewind(self.job, life));
        Ok(())
    }

    pub(super) async fn on_rewound(&mut self, life: u32) {
        if self.rewinding != Some(life) {
            return;
        }
        self.rewinding = None;
        // A restore refills it.
        if let Err(error) = self.resources().file.empty() {
            warn!(%error, "the segment stays in memory");
        }
        // The daemon has begun with this by itself.
        if life > 0 {
            self.went_back = Some(life);
            self.answer_went_back().await;
        }
    }

    /// A snapshot that is being sealed may be the one that all nodes have.
    pub(super) async fn answer_went_back(&mut self) {
        if !self.told.sealing.is_empty() {
            return;
        }
        let Some(life) = self.went_back.take() else { return };
        let (node, job) = (Arc::clone(&self.node), self.job);
        let sealed = blocking(move || node.store.sealed_epochs(&job.to_string())).await;
        let sealed = sealed.unwrap_or_default().into_iter().map(Epoch).collect();
        self.tell(AppEvent::WentBack { life, sealed });
    }
}
