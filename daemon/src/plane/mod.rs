//! The data plane: one thread that moves messages between the ranks' rings and the links to other nodes.
//!
//! The control side (tokio) sends it [`Command`]s and receives [`PlaneEvent`]s. Neither waits for the other,
//! so control never queues behind data. `run.rs` is the loop of the thread and tells how it sleeps.

mod app_channels;
mod apps;
mod backlog;
mod channel_states;
pub mod connect;
mod flow;
mod frame;
mod incoming;
mod link;
mod messages;
mod moved;
mod outgoing;
mod run;
mod seal;
mod socket_watcher;

use std::{sync::Arc, thread::JoinHandle};

pub use backlog::Unread;
pub(crate) use channel_states::{ChannelStates, no_channel_states};
pub use connect::{Connection, LinkEnd, LinkRules};
use coswitch_policies::NodeId;
use coswitch_ring::Bell;
pub(crate) use frame::{Frame, FrameHead, check_record};
pub use messages::{AppPlaneEvent, Command, PlaneEvent};
pub use seal::LinkKeys;
use thiserror::Error;
use tokio::sync::{mpsc::UnboundedSender, oneshot};

#[derive(Debug, Error)]
pub enum PlaneError {
    #[error("the data plane could not be started")]
    Start(#[source] std::io::Error),
}

/// A running data plane; ends with [`Command::Stop`] or when dropped.
pub struct Plane {
    teller: Teller,
    thread: Option<JoinHandle<()>>,
}

/// Tells a data plane what to do.
#[derive(Clone)]
pub(crate) struct Teller {
    commands: std::sync::mpsc::Sender<Command>,
    bell: Arc<Bell>,
}

impl Teller {
    pub(crate) fn tell(&self, command: Command) {
        // A thread that has been stopped needs no command.
        let _ = self.commands.send(command);
        self.bell.ring();
    }
}

impl Plane {
    /// Starts the thread of node `own`.
    pub fn start(own: NodeId, events: UnboundedSender<PlaneEvent>) -> Result<Self, PlaneError> {
        let (commands, inbox) = std::sync::mpsc::channel();
        let bell = Arc::new(Bell::new());
        let plane = run::Loop::new(own, inbox, Arc::clone(&bell), events).map_err(PlaneError::Start)?;
        let thread = std::thread::Builder::new().name("data-plane".into()).spawn(move || plane.run());
        let teller = Teller { commands, bell };
        Ok(Self { teller, thread: Some(thread.map_err(PlaneError::Start)?) })
    }

    pub(crate) fn teller(&self) -> Teller {
        self.teller.clone()
    }

    pub fn tell(&self, command: Command) {
        self.teller.tell(command);
    }

    /// Sends a command and waits for the answer; `None` where the plane has ended.
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
