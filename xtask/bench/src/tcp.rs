//! Peer of the driver: two nodes joined by the same virtual links, with libfabric's tcp provider in place of
//! ours.

use std::{
    path::PathBuf,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use coswitch_daemon::{processors, virtual_net};
use coswitch_launcher::LauncherSpec;
use coswitch_policies::{NodeId, Rate};
use nix::unistd::{Pid, gettid};
use tempfile::TempDir;

use crate::{
    bare::{self, Part, Plan},
    stage::PATIENCE,
};

const NODES: u32 = 2;

/// A thread in a network namespace of its own, which its programs inherit.
struct Node {
    launches: Sender<LauncherSpec>,
    launched: Receiver<Result<Pid>>,
}

pub(crate) struct TcpNodes(Vec<Node>);

impl TcpNodes {
    /// Makes the nodes; the calling thread enters the namespace that joins them. `apart`: each keeps to its
    /// share of the processors.
    pub(crate) fn set(rate: Option<Rate>, apart: bool) -> Result<Self> {
        virtual_net::enter_head()?;
        let cpus = processors::allowed().context("failed to learn the processors")?;
        let share = |node| match apart {
            true => processors::share(&cpus, node as usize, NODES as usize),
            false => cpus.clone(),
        };
        (0..NODES).map(|node| Node::set(NodeId(node), rate, share(node))).collect::<Result<_>>().map(Self)
    }

    /// Runs a program with these numbers of nodes for its ranks to its end; returns the directory of its
    /// outputs.
    pub(crate) fn run(&self, command: &[&str], placement: &[u32]) -> Result<TempDir> {
        let (dir, mut parts) = self.start(command, placement)?;
        ended(&mut parts).map(|()| dir)
    }

    /// Runs `count` programs of one rank on each node at once; returns the time of all.
    pub(crate) fn run_together(&self, command: &[&str], count: usize) -> Result<Duration> {
        let began = Instant::now();
        let mut programs = Vec::new();
        for _ in 0..count {
            programs.push(self.start(command, &[0, 1])?);
        }
        thread::scope(|scope| {
            let waits: Vec<_> =
                programs.iter_mut().map(|(_, parts)| scope.spawn(move || ended(parts))).collect();
            waits.into_iter().try_for_each(|wait| wait.join().expect("it returns its errors"))
        })?;
        Ok(began.elapsed())
    }

    fn start(&self, command: &[&str], placement: &[u32]) -> Result<(TempDir, Vec<Part>)> {
        let dir = tempfile::tempdir()?;
        let env = [("FI_PROVIDER", "tcp"), ("FI_TCP_IFACE", "eth0")];
        let mut parts = Vec::new();
        for (rank, node) in (0..).zip(placement) {
            let node = &self.0[*node as usize];
            let plan = Plan {
                dir: dir.path(),
                rank,
                world: u32::try_from(placement.len())?,
                command,
                driver: false,
                env: &env,
                cgroup_procs: Vec::<PathBuf>::new(),
            };
            let (segment, spec) = plan.prepare()?;
            node.launches.send(spec).context("a node has ended")?;
            parts.push(Part::new(node.launched.recv_timeout(PATIENCE)??, segment));
        }
        Ok((dir, parts))
    }
}

fn ended(parts: &mut [Part]) -> Result<()> {
    let ended = bare::to_the_end(parts);
    if ended.is_err() {
        parts.iter().for_each(|part| bare::end(part.root));
    }
    ended
}

impl Node {
    fn set(node: NodeId, rate: Option<Rate>, cpus: Vec<usize>) -> Result<Self> {
        let (launches, orders) = channel::<LauncherSpec>();
        let (started, launched) = channel();
        let (own_id, own) = channel();
        let (plugged, is_plugged) = channel();
        thread::spawn(move || {
            processors::keep_to(&cpus).expect("this process may use them");
            own_id.send(virtual_net::enter_namespace().map(|()| gettid())).ok();
            let limit: Duration = PATIENCE;
            if is_plugged.recv_timeout(limit).is_err() {
                return;
            }
            own_id.send(virtual_net::configure_link(node, rate).map(|()| gettid())).ok();
            for spec in orders {
                started.send(bare::start(&spec)).ok();
            }
        });
        let id = own.recv_timeout(PATIENCE)??;
        virtual_net::plug(node, u32::try_from(id.as_raw())?, rate)?;
        plugged.send(()).context("a node has ended")?;
        own.recv_timeout(PATIENCE)??;
        Ok(Self { launches, launched })
    }
}
