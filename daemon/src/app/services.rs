//! The services of a node's daemon that all its applications share.

use coswitch_ckpt::{Arena, Criu, Store};
use tokio::sync::mpsc::UnboundedSender;

use crate::{cgroup::NodeCgroup, guard::Guard, node::NodeConfig, plane::Plane, protocol::DaemonEvent};

pub struct NodeServices {
    pub config: NodeConfig,
    pub plane: Plane,
    pub criu: Criu,
    pub store: Store,
    /// Takes the pages of jobs that are being parked.
    pub arena: Arena,
    pub cgroup: NodeCgroup,
    /// Stops running jobs where the node exceeds its allowance.
    pub guard: Guard,
    /// To the head node.
    pub events: UnboundedSender<DaemonEvent>,
}

impl NodeServices {
    /// Sends an event to the head node; where that has ended, the daemon is about to end as well.
    pub fn tell(&self, event: DaemonEvent) {
        let _ = self.events.send(event);
    }
}
