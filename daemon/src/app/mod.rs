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
//!   any ─Release─▶ gone
//! ```

mod describe;
mod dump;
mod frozen;
mod launch;
mod paged;
mod part;
mod ranks;
mod release;
mod restore;
mod services;
mod stall;
mod task;

use std::{sync::Arc, time::Duration};

use coswitch_policies::JobId;
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::timeout,
};
use tracing::{Instrument, info_span};

use self::part::Part;
pub use self::{part::Note, services::NodeServices};

/// A release kills this often: a step that began just before has new processes.
const KILL_EVERY: Duration = Duration::from_millis(200);

/// Handle of the task of an application's part.
#[derive(Clone)]
pub struct AppHandle {
    notes: UnboundedSender<Note>,
}

impl AppHandle {
    /// Starts the task; it ends after [`AppHandle::release`].
    #[must_use]
    pub fn start(node: Arc<NodeServices>, job: JobId) -> (Self, JoinHandle<()>) {
        let (notes, inbox) = unbounded_channel();
        let part = Part::new(node, job, notes.clone());
        (Self { notes }, tokio::spawn(part.run(inbox).instrument(info_span!("app", %job))))
    }

    /// Ends the task and removes everything of the application. The task's current step may hang, as a
    /// restore does whose process is killed; it fails soon, because this kills all processes of the job.
    pub fn release(&self, node: Arc<NodeServices>, job: JobId) {
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
