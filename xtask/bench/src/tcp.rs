//! Two nodes as the daemons have them, joined by the same virtual links, with libfabric's tcp provider in place of ours.

use std::{
    path::PathBuf,
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use anyhow::{Context, Result};
use coswitch_daemon::fabric;
use coswitch_launcher::LaunchSpec;
use coswitch_policies::{NodeId, Rate};
use nix::unistd::{Pid, gettid};

use crate::{
    bare::{self, Part, Plan},
    stage::PATIENCE,
};

const NODES: u32 = 2;

/// A node is a thread: it has its own network namespace, and so has what it starts.
struct Node {
    launches: Sender<LaunchSpec>,
    launched: Receiver<Result<Pid>>,
}

/// See the module's description.
pub(crate) struct TcpNodes(Vec<Node>);

impl TcpNodes {
    /// Makes them; the calling thread enters the namespace that joins them.
    pub(crate) fn set(rate: Option<Rate>) -> Result<Self> {
        fabric::enter_head()?;
        (0..NODES).map(|node| Node::set(NodeId(node), rate)).collect::<Result<_>>().map(Self)
    }

    /// Runs a program with one rank on each node to its end; says where its outputs are.
    pub(crate) fn run(&self, command: &[&str]) -> Result<tempfile::TempDir> {
        let dir = tempfile::tempdir()?;
        let env = [("FI_PROVIDER", "tcp"), ("FI_TCP_IFACE", "eth0")];
        let mut parts = Vec::new();
        for (rank, node) in (0..).zip(&self.0) {
            let plan = Plan {
                dir: dir.path(),
                rank,
                world: NODES,
                command,
                driver: false,
                env: &env,
                cgroup_procs: Vec::<PathBuf>::new(),
            };
            let (segment, spec) = plan.prepare()?;
            node.launches.send(spec).context("a node has ended")?;
            parts.push(Part::new(node.launched.recv_timeout(PATIENCE)??, segment));
        }
        let ended = bare::to_the_end(&mut parts);
        if ended.is_err() {
            parts.iter().for_each(|part| bare::end(part.root));
        }
        ended.map(|()| dir)
    }
}

impl Node {
    fn set(node: NodeId, rate: Option<Rate>) -> Result<Self> {
        let (launches, orders) = channel::<LaunchSpec>();
        let (started, launched) = channel();
        let (own_id, thread) = channel();
        let (plugged, is_plugged) = channel();
        std::thread::spawn(move || {
            let entered = fabric::enter_namespace().map(|()| gettid());
            own_id.send(entered).ok();
            let limit: Duration = PATIENCE;
            if is_plugged.recv_timeout(limit).is_err() {
                return;
            }
            own_id.send(fabric::configure_link(node, rate).map(|()| gettid())).ok();
            for spec in orders {
                started.send(bare::start(&spec)).ok();
            }
        });
        let id = thread.recv_timeout(PATIENCE)??;
        fabric::plug(node, u32::try_from(id.as_raw())?, rate)?;
        plugged.send(()).context("a node has ended")?;
        thread.recv_timeout(PATIENCE)??;
        Ok(Self { launches, launched })
    }
}
