//! The services of a node's daemon that all its applications share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use coswitch_ckpt::{Arena, Criu, Store};

use crate::{
    cgroup::NodeCgroup,
    copies::Copies,
    guard::Guard,
    links::Links,
    node::NodeConfig,
    outbox::Outbox,
    pass_on::PassingOn,
    plane::Plane,
    protocol::{AppEvent, DaemonEvent},
    running::Running,
    scheduling::Scheduling,
    slices::Slices,
};

pub struct NodeServices {
    pub config: NodeConfig,
    /// Tells this daemon from those that the node has had before, and will have.
    pub incarnation: u64,
    pub plane: Plane,
    pub(crate) links: Links,
    pub(crate) copies: Copies,
    pub criu: Criu,
    pub store: Store,
    /// To the daemons below this one in the tree of daemons.
    pub(crate) passing: PassingOn,
    /// Takes the pages of jobs that are being parked.
    pub arena: Arena,
    pub cgroup: NodeCgroup,
    pub(crate) running: Arc<Running>,
    /// Stops running jobs where the node exceeds its allowance.
    pub guard: Guard,
    /// Stops running jobs while others have their slices.
    pub slices: Slices,
    /// Favours ranks by the technique of the run.
    pub scheduling: Scheduling,
    /// To the head node.
    pub events: Outbox,
    /// An application has started, stopped or moved since the last look at memory.
    pub(crate) has_news: AtomicBool,
}

impl NodeServices {
    /// Sends an event to the head node, where there is one.
    pub fn tell(&self, event: DaemonEvent) {
        if let DaemonEvent::App { event, .. } = &event
            && !matches!(
                event,
                AppEvent::Progress { .. }
                    | AppEvent::Traffic(_)
                    | AppEvent::Processed { .. }
                    | AppEvent::Scheduled(_)
            )
        {
            self.has_news.store(true, Ordering::Relaxed);
        }
        self.events.send(event);
    }
}
