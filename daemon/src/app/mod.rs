//! One application's part on this node: its processes, cgroup, segment and snapshots.
//!
//! A task per application carries out [`AppRequest`]s one after the other and answers each with an
//! `AppEvent`. A request that does not fit the part's state fails and changes nothing.
//!
//! ```text
//!   Absent ─Launch─▶ Running ─(cut) freeze─▶ Frozen ─Dump─▶ Parked ─Restore─▶ Stopped ─Resume─▶ Running
//!                      ▲                      │ │ ▲           ▲                  │
//!                      └────Resume, AbortCut──┘ │ │           └─────Discard──────┘
//!                     Dump, of a job that pages out ▼ │ Restore
//!                                            PagedOut
//!   any ─Release─▶ gone                       any ─GoBack─▶ Parked          Absent ─FetchCopy─▶ Parked
//! ```
//! A checkpoint writes the images of a part that is and stays `Frozen`.
//!
//! A daemon that follows another one on its node begins with parts in `Parked`, from their snapshots; one to
//! which that has handed over goes on with parts in `Frozen`, `PagedOut`, `Parked` and `Stopped`. What has
//! [survived](crate::survival) a daemon is `Running`, `Frozen`, `PagedOut` or `Ended`.

mod copy;
mod describe;
mod dump;
mod frozen;
mod go_back;
mod handed;
mod hearing;
mod launch;
mod paged;
mod part;
mod program;
mod ranks;
mod release;
mod restore;
mod saved;
mod services;
mod stall;
mod survivor;
mod task;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use coswitch_policies::{Epoch, JobId};
use tokio::{
    sync::{
        mpsc::{UnboundedSender, unbounded_channel},
        oneshot,
    },
    task::JoinHandle,
    time::timeout,
};
use tracing::{Instrument, info_span};

pub(crate) use self::launch::SEGMENT;
use self::part::Part;
pub use self::{part::Note, program::Written, saved::SavedPart, services::NodeServices};
use crate::{handover::HandedPart, survival::Record};

/// A release kills this often: a step that began just before has new processes.
const KILL_EVERY: Duration = Duration::from_millis(200);

/// Handle of the task of an application's part.
#[derive(Clone)]
pub struct AppHandle {
    notes: UnboundedSender<Note>,
    /// Set by a release: the outcome of a step under way is not reported any more.
    is_released: Arc<AtomicBool>,
}

impl AppHandle {
    /// Starts the task; it ends after [`AppHandle::release`]. It waits until the task of the part before it,
    /// which has been told to release, has ended.
    #[must_use]
    pub fn start(
        node: Arc<NodeServices>,
        job: JobId,
        before: Option<JoinHandle<()>>,
    ) -> (Self, JoinHandle<()>) {
        let (notes, inbox) = unbounded_channel();
        let part = Part::new(node, job, notes.clone());
        let is_released = Arc::clone(&part.is_released);
        let task = async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            part.run(inbox).await;
        };
        (Self { notes, is_released }, tokio::spawn(task.instrument(info_span!("app", %job))))
    }

    /// Starts the task of a part that an earlier daemon of this node has left in the store.
    ///
    /// # Errors
    /// Where its group or its segment cannot be made.
    pub fn take_up(
        node: Arc<NodeServices>,
        job: JobId,
        saved: SavedPart,
        epoch: Epoch,
    ) -> anyhow::Result<(Self, JoinHandle<()>)> {
        let (notes, inbox) = unbounded_channel();
        let part = Part::taken_up(node, job, notes.clone(), saved, epoch)?;
        let is_released = Arc::clone(&part.is_released);
        let task = tokio::spawn(part.run(inbox).instrument(info_span!("app", %job)));
        Ok((Self { notes, is_released }, task))
    }

    /// Starts the task of a part that the program before has handed over.
    ///
    /// # Errors
    /// Where its processes or its segment are not there.
    pub(crate) async fn adopt(
        node: Arc<NodeServices>,
        handed: HandedPart,
    ) -> anyhow::Result<(Self, JoinHandle<()>)> {
        let (job, (notes, inbox)) = (handed.job, unbounded_channel());
        let part = Part::adopted(node, job, notes.clone(), handed).await?;
        let is_released = Arc::clone(&part.is_released);
        let task = tokio::spawn(part.run(inbox).instrument(info_span!("app", %job)));
        Ok((Self { notes, is_released }, task))
    }

    /// Starts the task of a part whose processes have survived the daemon before.
    ///
    /// # Errors
    /// Where it is not whole.
    pub(crate) async fn survive(
        node: Arc<NodeServices>,
        record: Record,
    ) -> anyhow::Result<(Self, JoinHandle<()>)> {
        let (job, (notes, inbox)) = (record.part.job, unbounded_channel());
        let part = Part::survived(node, job, notes.clone(), record).await?;
        let is_released = Arc::clone(&part.is_released);
        let task = tokio::spawn(part.run(inbox).instrument(info_span!("app", %job)));
        Ok((Self { notes, is_released }, task))
    }

    /// Describes the part for the next program of this daemon, when its present step is over. `None` where
    /// the task has ended.
    pub(crate) async fn hand_over(&self) -> Option<Result<HandedPart, String>> {
        let (reply, answer) = oneshot::channel();
        self.note(Note::HandOver(reply));
        answer.await.ok()
    }

    /// Ends the task and removes everything of the application. The task's current step may hang, as a
    /// restore does whose process is killed; it fails soon, because this kills all processes of the job.
    pub fn release(&self, node: Arc<NodeServices>, job: JobId) {
        self.is_released.store(true, Ordering::Relaxed);
        self.note(Note::Release);
        let notes = self.notes.clone();
        tokio::spawn(async move {
            loop {
                node.cgroup.kill_job(&job.to_string());
                if timeout(KILL_EVERY, notes.closed()).await.is_ok() {
                    return;
                }
            }
        });
    }

    /// Waits for the end of the task.
    pub async fn ended(self) {
        self.notes.closed().await;
    }

    /// Sends a note; a task that has ended ignores it.
    pub fn note(&self, note: Note) {
        let _ = self.notes.send(note);
    }
}
