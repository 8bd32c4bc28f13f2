//! The keeper of the nodes: a thread that gives lost nodes another daemon, while the run goes on.

use std::sync::mpsc::{self, Sender};

use coswitch_dispatcher::provisioning::{Address, Nodes, Provisioning};
use coswitch_policies::NodeId;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The run's end of the keeper.
pub(super) struct Keeper {
    /// Nodes that are to be given another daemon. The keeper ends when this is dropped.
    pub(super) restarts: Sender<NodeId>,
    /// The new daemons, or why there is none.
    pub(super) started: UnboundedReceiver<(NodeId, Result<Address, String>)>,
}

/// Runs `work` beside a keeper of `nodes`, which calls `on_change` when they have changed. Its threads are
/// in the network namespace of the calling one.
pub(super) fn beside<T>(nodes: &Nodes, on_change: &(dyn Fn() + Sync), work: impl FnOnce(Keeper) -> T) -> T {
    let (restarts, asked) = mpsc::channel();
    let (answers, started) = unbounded_channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::scope(|each| {
                for node in asked {
                    let answers = answers.clone();
                    // One that does not answer delays no other.
                    each.spawn(move || {
                        let outcome = restart(nodes, node, on_change);
                        let _ = answers.send((node, outcome));
                    });
                }
            });
        });
        work(Keeper { restarts, started })
    })
}

fn restart(nodes: &Nodes, node: NodeId, on_change: &(dyn Fn() + Sync)) -> Result<Address, String> {
    let restarted = nodes.restart(node).map_err(|error| format!("{:#}", anyhow::Error::from(error)));
    on_change();
    restarted
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
