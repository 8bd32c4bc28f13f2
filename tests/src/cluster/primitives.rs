//! Operations on the global memory of the daemons.

use std::{collections::BTreeSet, process::Command};

use coswitch_dispatcher::{
    provisioning::Provisioning,
    sessions::{CompareAndWrite, Sessions},
};
use coswitch_policies::{
    NodeId,
    primitives::{Address, Comparison, Number, Outcome, Value},
};
use tokio::sync::mpsc::unbounded_channel;

use super::{PATIENCE, STEP_LIMIT, TestCluster};

impl TestCluster {
    /// Starts XFER-AND-SIGNAL and does not wait.
    pub fn start_transfer(&self, nodes: &[NodeId], to: Address, value: Value, signal: Address) -> Number {
        self.sessions.xfer_and_signal(nodes.iter().copied().collect(), to, value, Some(signal))
    }

    /// TEST-EVENT, which does not wait.
    pub fn test_event(&self, event: Number) -> Option<Outcome> {
        self.sessions.test_event(event)
    }

    /// TEST-EVENT, which waits.
    ///
    /// # Panics
    /// If the event was taken before.
    pub fn wait_for_event(&self, event: Number) -> Outcome {
        self.runtime.block_on(self.sessions.wait_for_event(event, STEP_LIMIT)).expect("it is not taken")
    }

    /// COMPARE-AND-WRITE.
    ///
    /// # Panics
    /// If its event was taken by another caller.
    pub fn compare_and_write(
        &self,
        nodes: &[NodeId],
        variable: Address,
        (comparison, value): (Comparison, i64),
        write: Option<(Address, i64)>,
    ) -> Outcome {
        let nodes: BTreeSet<NodeId> = nodes.iter().copied().collect();
        let compare = CompareAndWrite { variable, comparison, value, write };
        let outcome = self.sessions.compare_and_write(nodes, compare, STEP_LIMIT);
        self.runtime.block_on(outcome).expect("only this caller knows of it")
    }

    /// The nodes that have answered the last question of the master to all nodes.
    pub fn resting(&self) -> BTreeSet<NodeId> {
        self.sessions.resting()
    }

    /// Nothing reaches a node from the head node, or it does again. The kernel is told that another machine
    /// has its address.
    ///
    /// # Panics
    /// If that fails.
    pub fn cut_session(&self, node: NodeId, is_cut: bool) {
        let addresses = self.nodes.addresses();
        let address = addresses.iter().find(|address| address.node == node).expect("there is such a node");
        let (ip, elsewhere) = (address.control.ip().to_string(), "02:00:00:00:00:01");
        let cut = ["neigh", "replace", &ip, "lladdr", elsewhere, "nud", "permanent", "dev", "br0"];
        let mend = ["neigh", "del", &ip, "dev", "br0"];
        let arguments = if is_cut { cut.as_slice() } else { &mend };
        let status = Command::new("ip").args(arguments).status().expect("ip runs");
        assert!(status.success(), "ip {arguments:?}: {status}");
    }

    /// Another master comes to all nodes: the sessions of the one before end with whatever is on its way.
    ///
    /// # Panics
    /// If a daemon does not answer it.
    pub fn follow_next_master(&mut self) {
        self.generation += 1;
        let (events, node_events) = unbounded_channel();
        let (addresses, identity) = (self.nodes.addresses(), self.nodes.identity());
        let patience = (PATIENCE, self.heartbeats);
        let connect = Sessions::connect(&addresses, &[], identity, self.generation, patience, events);
        let connected = self.runtime.block_on(connect);
        (self.sessions, self.node_events) = (connected.expect("the daemons answer"), node_events);
    }
}
