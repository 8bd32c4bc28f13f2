//! Data links of this node, opened when an application needs them.
//!
//! The node with the higher number connects to the other one: an application that spans two nodes needs the
//! link on both, so there is always one side that opens it, and never two. A part waits for the links to all
//! nodes of its application before its ranks run, at each launch and resume. So a channel has its link before
//! the first marker and the first message; a link that is lost later is lost with what was in it, and the
//! data plane says for which applications. A node that cannot open one reports it as lost, too: the peer has
//! died, perhaps, and the application is not to blame. The node that waits for the other one to open reports
//! nothing, for that one may have failed before it needed the link.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use coswitch_policies::NodeId;
use thiserror::Error;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    app::NodeServices,
    plane::{Command, Connection, LinkEnd, connect},
    protocol::{DaemonEvent, Member},
};

/// For attempts to connect to the other side.
const LINK_LIMIT: Duration = Duration::from_secs(15);
/// For the other side to connect, which says before that why it cannot; less than a resume may take.
const AWAIT_LIMIT: Duration = Duration::from_secs(18);

/// Why an application has not got the links that it needs.
#[derive(Debug, Error)]
pub(crate) enum LinksError {
    #[error("there is no link to {0}, which is not of the cluster")]
    Stranger(NodeId),
    #[error("there is no link to {peer}: {reason}")]
    Connect { peer: NodeId, reason: String },
    #[error("there is no link to {0}, whose daemon did not connect within {AWAIT_LIMIT:?}")]
    Awaited(NodeId),
    #[error("the data plane has ended")]
    Ended,
}

/// Where the other daemons listen.
#[derive(Default)]
pub(crate) struct Links {
    peers: Mutex<BTreeMap<NodeId, Peer>>,
}

#[derive(Clone)]
struct Peer {
    member: Member,
    /// Held while a link to it is opened: there is one at a time.
    opening: Arc<tokio::sync::Mutex<()>>,
}

impl Links {
    fn peers(&self) -> MutexGuard<'_, BTreeMap<NodeId, Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of the daemons that are up and where they listen. Those that are not named stay known.
    pub(crate) fn on_members(&self, members: &[Member]) {
        let mut peers = self.peers();
        for member in members {
            let new = || Peer { member: *member, opening: Arc::default() };
            peers.entry(member.node).or_insert_with(new).member = *member;
        }
    }

    /// Where the daemon of a node listens, and which one it is.
    pub(crate) fn member(&self, node: NodeId) -> Option<Member> {
        self.peers().get(&node).map(|peer| peer.member)
    }

    fn peer(&self, node: NodeId) -> Result<Peer, LinksError> {
        self.peers().get(&node).cloned().ok_or(LinksError::Stranger(node))
    }

    /// Whether a daemon has been replaced since.
    pub(crate) fn is_past(&self, node: NodeId, incarnation: u64) -> bool {
        self.peers().get(&node).is_some_and(|peer| peer.member.incarnation > incarnation)
    }
}

impl NodeServices {
    /// Waits until there is a link to each of these nodes but this one, and opens those that are this node's
    /// to open. The master hears of one that cannot be opened before it hears of the application's failure.
    ///
    /// # Errors
    /// [`LinksError`], which names the first node without a link.
    pub(crate) async fn ensure_links(self: &Arc<Self>, nodes: &[NodeId]) -> Result<(), LinksError> {
        let members: Vec<Member> = nodes.iter().filter_map(|node| self.links.member(*node)).collect();
        let linked = self.try_links(nodes).await;
        if let Err(LinksError::Connect { peer, reason }) = &linked
            && let Some(member) = members.iter().find(|member| member.node == *peer)
        {
            let (peer, incarnation, reason) = (*peer, member.incarnation, reason.clone());
            self.tell(DaemonEvent::LinkLost { peer, incarnation, reason, jobs: Vec::new() });
        }
        linked
    }

    async fn try_links(self: &Arc<Self>, nodes: &[NodeId]) -> Result<(), LinksError> {
        let own = self.config.node;
        let peers: BTreeSet<NodeId> = nodes.iter().copied().filter(|node| *node != own).collect();
        let missing = self.missing_links(&peers).await?;
        if missing.is_empty() {
            return Ok(());
        }
        let mut opened = JoinSet::new();
        for peer in missing.into_iter().filter(|peer| *peer < own) {
            opened.spawn(Arc::clone(self).open_link(peer));
        }
        while let Some(opened) = opened.join_next().await {
            opened.expect("a task that opens a link does not panic")?;
        }
        let all = self.plane.ask(|reply| Command::AwaitLinks(peers.clone(), reply));
        match timeout(AWAIT_LIMIT, all).await {
            Ok(there) => there.ok_or(LinksError::Ended),
            Err(_) => match self.missing_links(&peers).await?.first() {
                Some(peer) => Err(LinksError::Awaited(*peer)),
                None => Ok(()),
            },
        }
    }

    /// This daemon, at its end of a link.
    pub(crate) fn link_end(&self) -> LinkEnd {
        LinkEnd { node: self.config.node, incarnation: self.incarnation }
    }

    /// Uses a link that is set up.
    ///
    /// # Errors
    /// Where it leads to a daemon that has been replaced.
    pub(crate) fn add_link(&self, connection: Connection) -> Result<(), String> {
        if self.links.is_past(connection.peer, connection.incarnation) {
            return Err(format!("it leads to an earlier daemon of {}", connection.peer));
        }
        self.plane.tell(Command::AddLink(connection));
        Ok(())
    }

    async fn missing_links(&self, peers: &BTreeSet<NodeId>) -> Result<BTreeSet<NodeId>, LinksError> {
        let missing = self.plane.ask(|reply| Command::MissingLinks(peers.clone(), reply));
        missing.await.ok_or(LinksError::Ended)
    }

    async fn open_link(self: Arc<Self>, peer: NodeId) -> Result<(), LinksError> {
        let _one_at_a_time = self.links.peer(peer)?.opening.lock_owned().await;
        let address = self.links.peer(peer)?.member.data;
        // Another application may have needed it as well.
        if self.missing_links(&BTreeSet::from([peer])).await?.is_empty() {
            return Ok(());
        }
        let node = Arc::clone(&self);
        let connected = tokio::task::spawn_blocking(move || {
            let client = node.config.identity.client().map_err(|error| error.to_string())?;
            let connected =
                connect::connect((peer, address), node.link_end(), node.config.links, &client, LINK_LIMIT);
            connected.map_err(|error| error.to_string())
        });
        let connected = connected.await.expect("a handshake does not panic");
        let failed = |reason| LinksError::Connect { peer, reason };
        let connection = connected.map_err(failed)?;
        if connection.peer != peer {
            return Err(failed(format!("at {address} answers {}", connection.peer)));
        }
        self.add_link(connection).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn member(node: u32, incarnation: u64, port: u16) -> Member {
        Member { node: NodeId(node), incarnation, data: SocketAddr::from(([10, 0, 0, 1], port)) }
    }

    #[test]
    fn a_member_that_is_named_again_is_another_daemon_or_the_same() {
        let links = Links::default();
        links.on_members(&[member(0, 5, 1), member(1, 6, 2)]);
        assert!(!links.is_past(NodeId(1), 6) && !links.is_past(NodeId(9), 1));
        links.on_members(&[member(1, 8, 3), member(2, 7, 4)]);
        assert!(links.is_past(NodeId(1), 6) && !links.is_past(NodeId(1), 8));
        assert_eq!(links.peer(NodeId(1)).unwrap().member.data.port(), 3);
        assert_eq!(links.peer(NodeId(0)).unwrap().member.data.port(), 1, "those that are not named stay");
        assert!(matches!(links.peer(NodeId(9)), Err(LinksError::Stranger(NodeId(9)))));
    }
}
