//! The keeper of the nodes: a thread that gives lost nodes another daemon, and brings new programs to nodes,
//! while the run goes on.

use std::sync::mpsc::{self, Sender};

use coswitch_dispatcher::provisioning::{Address, Installed, Nodes, Programs, Provisioning};
use coswitch_policies::NodeId;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::install::Installation;

/// What the keeper is to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Keep {
    /// Give the node another daemon.
    Restart(NodeId),
    /// Bring the programs that are installed now to the node.
    Bring(NodeId),
    /// A node has got a daemon of these programs: start daemons from them.
    UseFromNowOn,
}

/// What it has done about a node, or why it could not.
pub(super) enum Kept {
    Restarted(Result<Address, String>),
    Brought(Result<(Address, Programs), String>),
}

/// The run's end of the keeper.
pub(super) struct Keeper {
    /// The keeper ends when this and all of its copies are dropped.
    pub(super) keeping: Sender<Keep>,
    pub(super) kept: UnboundedReceiver<(NodeId, Kept)>,
}

/// Runs `work` beside a keeper of `nodes`, which calls `on_change` when they have changed. Its threads are
/// in the network namespace of the calling one.
pub(super) fn beside<T>(nodes: &Nodes, on_change: &(dyn Fn() + Sync), work: impl FnOnce(Keeper) -> T) -> T {
    let (keeping, asked) = mpsc::channel();
    let (answers, kept) = unbounded_channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::scope(|each| {
                for keep in asked {
                    let answers = answers.clone();
                    // One that does not answer delays no other.
                    each.spawn(move || {
                        let done = match keep {
                            Keep::Restart(node) => (node, Kept::Restarted(restart(nodes, node, on_change))),
                            Keep::Bring(node) => (node, Kept::Brought(bring(nodes, node))),
                            Keep::UseFromNowOn => return use_from_now_on(nodes, on_change),
                        };
                        let _ = answers.send(done);
                    });
                }
            });
        });
        work(Keeper { keeping, kept })
    })
}

fn restart(nodes: &Nodes, node: NodeId, on_change: &(dyn Fn() + Sync)) -> Result<Address, String> {
    let restarted = nodes.restart(node).map_err(|error| format!("{:#}", anyhow::Error::from(error)));
    on_change();
    restarted
}

fn bring(nodes: &Nodes, node: NodeId) -> Result<(Address, Programs), String> {
    let installed = installed()?;
    let brought =
        nodes.bring(node, &installed).map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
    let address = nodes.addresses().into_iter().find(|address| address.node == node);
    Ok((address.ok_or("it has no daemon")?, brought))
}

fn use_from_now_on(nodes: &Nodes, on_change: &(dyn Fn() + Sync)) {
    if let Ok(installed) = installed() {
        nodes.use_from_now_on(&installed);
        on_change();
    }
}

fn installed() -> Result<Installed, String> {
    let found = Installation::find().map_err(|missing| missing.to_string())?;
    Ok(found.into())
}

/// Gives nodes without a daemon another one, all at once; returns those that have none, and why.
pub(super) fn restart_all(nodes: &Nodes, gone: &[NodeId]) -> Vec<(NodeId, String)> {
    const AT_ONCE: usize = 8;
    let mut absent = Vec::new();
    for some in gone.chunks(AT_ONCE) {
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let restart = |node: &NodeId| {
                let node = *node;
                (node, scope.spawn(move || restart(nodes, node, &|| ())))
            };
            let restarts: Vec<_> = some.iter().map(restart).collect();
            let joined = restarts.into_iter();
            joined.map(|(node, thread)| (node, thread.join().expect("a restart does not panic"))).collect()
        });
        absent.extend(outcomes.into_iter().filter_map(|(node, outcome)| Some((node, outcome.err()?))));
    }
    absent
}
