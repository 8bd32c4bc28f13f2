//! The other daemons of the cluster: which of them this one has a data link to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Condvar, Mutex, MutexGuard},
    time::Duration,
};

use coswitch_policies::NodeId;

use crate::{
    app::NodeServices,
    plane::{Command, connect},
    protocol::Member,
};

const LINK_LIMIT: Duration = Duration::from_secs(10);

/// A link to a daemon.
#[derive(Clone, Debug)]
struct Peer {
    /// Of the daemon.
    incarnation: u64,
    /// Why the link is not there any more: what it carried is lost, and only another daemon gets another one.
    lost: Option<String>,
}

/// The links of this daemon.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    known: Mutex<BTreeMap<NodeId, Peer>>,
    /// One after the other.
    joining: Mutex<()>,
    /// Nothing more will be heard of the last link to these.
    dropped: Mutex<BTreeSet<NodeId>>,
    any_dropped: Condvar,
}

impl Peers {
    fn known(&self) -> MutexGuard<'_, BTreeMap<NodeId, Peer>> {
        self.known.lock().expect("no panic while holding it")
    }

    /// The link to a peer has broken; returns the incarnation of the daemon that it led to.
    pub(crate) fn on_lost(&self, node: NodeId, reason: &str) -> Option<u64> {
        let mut known = self.known();
        let peer = known.get_mut(&node)?;
        peer.lost = Some(format!("its link to {node} was lost: {reason}"));
        Some(peer.incarnation)
    }

    /// The data plane has dropped a link: what it has told of the link was heard before.
    pub(crate) fn on_dropped(&self, node: NodeId) {
        self.dropped.lock().expect("no panic while holding it").insert(node);
        self.any_dropped.notify_all();
    }

    fn drop_link(&self, node: &NodeServices, peer: NodeId) -> Result<(), String> {
        self.known().remove(&peer);
        node.plane.tell(Command::DropLink(peer));
        let dropped = self.dropped.lock().expect("no panic while holding it");
        let waits = |dropped: &mut BTreeSet<NodeId>| !dropped.remove(&peer);
        let waited = self.any_dropped.wait_timeout_while(dropped, LINK_LIMIT, waits);
        match waited.expect("no panic while holding it").1.timed_out() {
            true => Err(format!("{peer}: the link to its last daemon was not dropped in time")),
            false => Ok(()),
        }
    }

    /// Connects to the members with lower numbers, and drops the links to daemons that are no members any
    /// more.
    ///
    /// # Errors
    /// Where a member cannot be reached, or the link to it was lost.
    pub(crate) fn join(&self, node: &NodeServices, members: &[Member]) -> Result<(), String> {
        let _one_at_a_time = self.joining.lock().expect("no panic while holding it");
        let own = node.config.node;
        let client = node.config.identity.client().map_err(|error| error.to_string())?;
        for Member { node: peer, incarnation, data } in members.iter().filter(|member| member.node != own) {
            let before = self.known().get(peer).cloned();
            match before {
                Some(Peer { incarnation: same, lost }) if same == *incarnation => match lost {
                    None => continue,
                    Some(reason) => return Err(reason),
                },
                Some(_) => self.drop_link(node, *peer)?,
                None => {}
            }
            // The peer connects once all have answered, where it has the higher number.
            if *peer < own {
                let connection = connect::connect(*data, own, node.config.links, &client, LINK_LIMIT)
                    .map_err(|error| format!("{peer}: {error}"))?;
                node.plane.tell(Command::AddLink(connection));
            }
            self.known().insert(*peer, Peer { incarnation: *incarnation, lost: None });
        }
        Ok(())
    }
}
