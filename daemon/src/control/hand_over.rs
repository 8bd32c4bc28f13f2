//! The control loop's side of a handover: describes all parts to the next program, and goes on with those of
//! the program before.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_policies::JobId;
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle, time::timeout};
use tracing::{info, warn};

use super::{App, Control};
use crate::{
    app::{AppHandle, Note},
    following::Following,
    handover::{self, HandedPart, Programs},
    protocol::{DaemonEvent, Held, Request},
    session::Heard,
};

/// For each part to end its present step.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(5);
/// For the head node to read the last events.
const HANDS_OVER_LIMIT: Duration = Duration::from_secs(2);

/// What [`Control`] knows of a [`crate::handover::Handover`].
pub(crate) struct HandedOver {
    pub(crate) programs: Programs,
    pub(crate) generation: u64,
    pub(crate) released: Vec<(JobId, String)>,
    pub(crate) parts: Vec<HandedPart>,
}

impl Control {
    /// Goes on where the program before has stopped; `given_up`: why a third one has not.
    ///
    /// # Errors
    /// Where a part cannot be adopted. Nothing of any part has changed then.
    pub(crate) async fn go_on(
        &mut self,
        released: Vec<(JobId, String)>,
        parts: Vec<HandedPart>,
        given_up: Option<String>,
    ) -> anyhow::Result<()> {
        self.following = Following::after_handover(self.node.config.stop_after, Instant::now());
        self.released = released.into();
        self.took_over = Some(DaemonEvent::TookOver { given_up });
        let mut apps = BTreeMap::new();
        for part in parts {
            let (job, held) = (part.job, Held::by(part.job, &part.launch));
            match AppHandle::adopt(Arc::clone(&self.node), part).await {
                Ok((handle, task)) => {
                    drop(apps.insert(job, App { handle, task, held, is_released: false }));
                }
                Err(error) => {
                    forget(apps).await;
                    return Err(error);
                }
            }
        }
        info!(applications = apps.len(), "this program goes on with the applications of the one before");
        self.apps = apps;
        Ok(())
    }

    /// Beside all else: the program may be slow.
    pub(super) fn examine(&self, program: PathBuf) {
        let node = Arc::clone(&self.node);
        tokio::task::spawn_blocking(move || {
            let examined = handover::examine(&program).map(|said| said.version);
            node.tell(DaemonEvent::Examined(examined));
        });
    }

    /// Describes everything to the next program, and ends the session. `None` where something is in the way:
    /// nothing has changed then.
    pub(super) async fn hand_over(
        &mut self,
        programs: Programs,
        requests: &mut UnboundedReceiver<Heard<Request>>,
        accepting: &mut JoinHandle<()>,
    ) -> Option<HandedOver> {
        let parts = match self.describe_parts().await {
            Ok(parts) => parts,
            Err(reason) => {
                warn!(reason, "this program stays");
                self.node.tell(DaemonEvent::NotReplaced { reason });
                return None;
            }
        };
        forget(std::mem::take(&mut self.apps)).await;
        // The next connection is for the next program.
        accepting.abort();
        let _ = accepting.await;
        info!(program = %programs.daemon.display(), applications = parts.len(), "another program takes over");
        self.node.events.leave_tree();
        self.node.tell(DaemonEvent::HandsOver);
        // The head node has read everything when it closes the connection.
        let closed = async { while requests.recv().await.is_some() {} };
        if timeout(HANDS_OVER_LIMIT, closed).await.is_err() {
            warn!("the head node has not closed the connection");
        }
        self.hang_up().await;
        let released = std::mem::take(&mut self.released).into();
        Some(HandedOver { programs, generation: self.generation, released, parts })
    }

    async fn describe_parts(&mut self) -> Result<Vec<HandedPart>, String> {
        if !self.node.config.standing {
            return Err("it ends with its master, and does not stay".into());
        }
        let mut parts = Vec::new();
        for (job, app) in &mut self.apps {
            // One that is being released ends soon.
            let described = timeout(DESCRIBE_LIMIT, app.handle.hand_over()).await;
            match described {
                Ok(Some(Ok(part))) if !app.is_released => parts.push(part),
                Ok(Some(Err(reason))) => return Err(reason),
                Ok(None) => {}
                Ok(Some(Ok(_))) | Err(_) => return Err(format!("a step of {job} is under way")),
            }
        }
        self.forget_ended();
        Ok(parts)
    }
}

/// Ends the tasks and leaves the parts as they are.
async fn forget(apps: BTreeMap<JobId, App>) {
    for app in apps.into_values() {
        app.handle.note(Note::Forget);
        let _ = app.task.await;
    }
}
