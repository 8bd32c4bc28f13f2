//! The end of the processes of an application that has lost a node, and goes back to a sealed snapshot.

use std::sync::Arc;

use coswitch_launcher::protocol::Assembler;
use coswitch_policies::NodeId;
use tracing::warn;

use super::{
    hearing::Hearing,
    part::{Part, State},
};
use crate::{
    plane::Command,
    protocol::{AppEvent, Failure},
};

impl Part {
    /// Ends the processes. The answer follows when the data plane has ended the life before.
    pub(super) async fn go_back(&mut self, life: u32, placement: Vec<NodeId>) -> Result<(), Failure> {
        if self.resources.is_none() {
            self.tell(AppEvent::WentBack { life, sealed: Vec::new() });
            return Ok(());
        }
        self.end_processes().await.map_err(Failure::dead)?;
        self.state = State::Parked;
        self.all_exited = false;
        self.ends_by = None;
        self.launcher = Assembler::default();
        self.hearing = Hearing::default();
        self.told.go_back(life);
        self.rewinding = Some(life);
        self.place(placement).await;
        self.node.plane.tell(Command::Rewind(self.job, life));
        Ok(())
    }

    /// A part of the application is on another node from now on.
    async fn place(&mut self, placement: Vec<NodeId>) {
        let job = self.job;
        let Some(resources) = self.resources.as_mut().filter(|held| held.launch.placement != placement)
        else {
            return;
        };
        resources.launch.placement.clone_from(&placement);
        let segment = Arc::clone(&resources.segment);
        self.node.plane.ask(|done| Command::RemoveApp(job, done)).await;
        self.node.plane.tell(Command::AddApp(job, segment, placement));
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
        let sealed = self.sealed_epochs().await;
        self.tell(AppEvent::WentBack { life, sealed });
    }
}
