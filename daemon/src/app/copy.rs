//! The part's snapshots go to other nodes, and come back from there.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
    time::Instant,
};

use coswitch_policies::{Bytes, Epoch, Scatter};
use tracing::warn;

use super::{
    part::{Note, Part, State, blocking},
    saved::SavedPart,
};
use crate::{
    copies,
    protocol::{AppEvent, Failure, FetchRequest, HeldCopy, Step},
};

impl Part {
    /// Sends a sealed snapshot to the partners of this node, beside all else.
    pub(super) fn copy(&self, epoch: Epoch, scatter: Scatter, needed: Option<Epoch>) {
        *self.needed.lock().unwrap_or_else(PoisonError::into_inner) =
            needed.into_iter().chain([epoch]).map(|epoch| epoch.0).collect();
        let (node, job, own) = (Arc::clone(&self.node), self.job, self.own.clone());
        let is_void = Arc::clone(&self.is_released);
        let launched = self.resources.as_ref().map_or(0, |resources| resources.launch.life);
        let work = move || {
            let began = Instant::now();
            let copy = HeldCopy { owner: node.config.node, epoch, launched, scatter: scatter.clone() };
            let sent = copies::send(&node, job, &copy, &is_void);
            let event = match sent {
                Ok(bytes) => AppEvent::Copied { epoch, scatter, bytes, took: began.elapsed() },
                Err(error) => {
                    let reason = format!("{error:#}");
                    warn!(%job, %epoch, reason, "a snapshot was not copied");
                    AppEvent::CopyFailed { epoch, reason }
                }
            };
            // The task may have ended meanwhile.
            let _ = own.send(Note::Copied(event));
        };
        // A thread of its own: its priority stays low.
        if let Err(error) = std::thread::Builder::new().name("copies".into()).spawn(work) {
            self.tell(AppEvent::CopyFailed { epoch, reason: error.to_string() });
        }
    }

    /// For the next program of this daemon.
    pub(super) fn needed(&self) -> BTreeSet<u64> {
        self.needed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gets a snapshot from copies; the answer follows as that of a request to go back.
    pub(super) async fn fetch(&mut self, request: FetchRequest) -> Result<(), Failure> {
        let (life, epoch, placement) = (request.life, request.epoch, request.placement.clone());
        if let Err(error) = self.fetch_snapshot(request).await {
            self.tell(AppEvent::FetchFailed { epoch, reason: format!("{error:#}") });
        }
        self.go_back(life, placement).await
    }

    async fn fetch_snapshot(&mut self, request: FetchRequest) -> anyhow::Result<()> {
        let epoch = request.epoch;
        let (node, job, is_void) = (Arc::clone(&self.node), self.job, Arc::clone(&self.is_released));
        let saved = blocking(move || {
            let name = job.to_string();
            let is_here = node.store.sealed_epochs(&name)?.contains(&epoch.0);
            if !is_here {
                copies::fetch(&node, job, &request, &is_void)?;
            }
            let saved = SavedPart::of(&node.store.snapshot(&name, epoch.0)?)?;
            let launched = saved.as_ref().map(SavedPart::launched);
            if launched != Some(request.launched) {
                node.store.remove_one(&name, epoch.0)?;
                anyhow::bail!("it is of another launch");
            }
            anyhow::Ok(saved)
        });
        let (store, name) = (self.node.store.clone(), self.job.to_string());
        // The files have their whole size before their content has come.
        let progress = move || {
            let total = Bytes(store.bytes(&name, epoch.0));
            AppEvent::Progress { step: Step::Restore, bytes: Bytes(0), total }
        };
        let saved = self.telling(progress, saved).await?;
        match (saved, &self.state) {
            (Some(saved), State::Absent) => self.begin_parked(saved, epoch),
            _ => Ok(()),
        }
    }
}
