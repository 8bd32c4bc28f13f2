//! The data plane: one thread that moves messages between the ranks' rings and the links to other nodes.
//!
//! The control side (tokio) gives it [`Command`]s and hears [`PlaneEvent`]s; neither ever waits for the other, so
//! control never queues behind data. See [`run`](self) for the loop and how it sleeps.

mod app;
mod apps;
pub mod connect;
mod frame;
mod incoming;
mod link;
mod moved;
mod run;
mod watch;

use std::{net::TcpStream, sync::Arc, thread::JoinHandle};

use coswitch_policies::{Bytes, Epoch, JobId, NodeId};
use coswitch_ring::{Bell, Segment};
use thiserror::Error;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

/// What the control side asks of the data plane.
pub enum Command {
    /// A data link has come up.
    AddLink(NodeId, TcpStream),
    /// An application is about to start here; `placement` is the node of each rank.
    AddApp(JobId, Arc<Segment>, Vec<NodeId>),
    /// It is over.
    RemoveApp(JobId, oneshot::Sender<()>),
    /// The checkpoint scheduler's marker.
    BeginCut(JobId, Epoch),
    /// Answer to [`PlaneEvent::Freeze`]: the ranks are frozen, or (false) could not be.
    Frozen(JobId, Epoch, bool),
    /// The checkpoint scheduler gives the cut up.
    AbortCut(JobId, Epoch),
    /// The ranks may run again after a complete flush: their rings are in use from now on.
    Resume(JobId, Epoch),
    /// For the launcher of the application, once its rings may be touched.
    ToLauncher(JobId, Vec<u8>),
    /// Give the channel states of a flushed application.
    ChannelStates(JobId, Epoch, oneshot::Sender<Vec<u8>>),
    /// The segment holds again what it held at the cut; so shall the channels. Answers false where they cannot.
    Settle(JobId, Epoch, Vec<u8>, oneshot::Sender<bool>),
    /// End the thread.
    Stop,
}

/// What the data plane tells the control side.
#[derive(Debug)]
pub enum PlaneEvent {
    /// Freeze the ranks of this application, then answer [`Command::Frozen`].
    Freeze {
        /// Which.
        job: JobId,
        /// For which cut.
        epoch: Epoch,
    },
    /// Markers have come in on all channels.
    Flushed {
        /// Of which application.
        job: JobId,
        /// Of which cut.
        epoch: Epoch,
        /// What the channels held.
        drained: Bytes,
    },
    /// Let the ranks run: the cut did not come about.
    Thaw {
        /// Of which application.
        job: JobId,
        /// Which cut.
        epoch: Epoch,
    },
    /// This part could not take part in the cut; its ranks run on.
    CutFailed {
        /// Of which application.
        job: JobId,
        /// Which cut.
        epoch: Epoch,
        /// Why.
        reason: String,
    },
    /// The cut is given up here, as asked.
    Aborted {
        /// Of which application.
        job: JobId,
        /// Which cut.
        epoch: Epoch,
    },
    /// A message of the application's launcher.
    FromLauncher {
        /// Which application.
        job: JobId,
        /// As the launcher encoded it.
        message: Vec<u8>,
    },
    /// The application has damaged its segment and is held.
    Corrupt {
        /// Which.
        job: JobId,
        /// What was found.
        reason: String,
    },
    /// A link broke.
    LinkLost {
        /// The node at its other end.
        peer: NodeId,
        /// How.
        reason: String,
    },
}

/// The data plane could not be started.
#[derive(Debug, Error)]
pub enum PlaneError {
    /// The operating system refused what it needs.
    #[error("the data plane could not be started")]
    Start(#[source] std::io::Error),
}

/// A running data plane; ends with [`Command::Stop`] or when dropped.
pub struct Plane {
    commands: std::sync::mpsc::Sender<Command>,
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Plane {
    /// Starts the thread of node `own`.
    ///
    /// # Errors
    /// [`PlaneError`]
    pub fn start(own: NodeId, events: UnboundedSender<PlaneEvent>) -> Result<Self, PlaneError> {
        let (commands, inbox) = std::sync::mpsc::channel();
        let bell = Arc::new(Bell::new());
        let plane = run::Loop::new(own, inbox, Arc::clone(&bell), events).map_err(PlaneError::Start)?;
        let thread = std::thread::Builder::new().name("data-plane".into()).spawn(move || plane.run());
        Ok(Self { commands, bell, thread: Some(thread.map_err(PlaneError::Start)?) })
    }

    /// Hands over a command.
    pub fn tell(&self, command: Command) {
        // The thread ends only when told to; after that nobody is left who could miss the command.
        let _ = self.commands.send(command);
        self.bell.ring();
    }

    /// Hands over a command that is answered; `None` where the plane has ended.
    pub async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.tell(command(reply));
        answer.await.ok()
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
