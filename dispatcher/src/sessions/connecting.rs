//! Begins sessions with the daemons of a cluster, and finds those that do not answer.

use std::{io, time::Duration};

use coswitch_daemon::{
    pki::{Identity, PkiError},
    protocol::{Member, Request},
    session::{self, SessionError, awake},
    wire::WireError,
};
use coswitch_policies::NodeId;
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinSet,
};
use tracing::warn;

use super::{CONNECT_LIMIT, ConnectError, Sessions, replace::chain};
use crate::provisioning::Address;

/// For the daemons to connect to each other.
const JOIN_LIMIT: Duration = Duration::from_secs(15);
/// The number of sessions that begin side by side.
const AT_ONCE: usize = 64;

impl ConnectError {
    /// Whether the node does not answer, and nothing is known to be wrong with it or with this master.
    fn is_silence(&self) -> bool {
        let source = match self {
            Self::Thread(_) => return false,
            // A daemon refuses no member: it gives no answer, or ends.
            Self::Join { .. } => return true,
            Self::Reach { source, .. } => source,
        };
        match source {
            SessionError::Silent(_) | SessionError::Closed => true,
            // The connection broke. A certificate that one side rejects is invalid data to TLS.
            SessionError::Connect(error) | SessionError::Wire(WireError::Io(error)) => {
                error.kind() != io::ErrorKind::InvalidData
            }
            // The daemon answers: it follows a later master, or is of another version or another cluster. The
            // fault may be this master's, which must not replace the daemon.
            SessionError::Refused(_)
            | SessionError::Version
            | SessionError::Wire(WireError::Magic | WireError::TooLarge(_) | WireError::Body(_))
            | SessionError::Pki(_)
            | SessionError::NotTheHead
            | SessionError::Fenced(..) => false,
        }
    }
}

impl Sessions {
    /// The nodes whose daemons do not answer, though their processes live: stopped, or out of reach.
    ///
    /// # Errors
    /// Where the identity cannot be used.
    pub async fn find_silent(addresses: &[Address], identity: &Identity) -> Result<Vec<NodeId>, PkiError> {
        let mut silent = Vec::new();
        for some in addresses.chunks(AT_ONCE) {
            let mut asked = JoinSet::new();
            for Address { node, control, .. } in some.iter().copied() {
                let identity = identity.clone();
                asked.spawn(async move {
                    (node, session::answers((node, control), &identity, CONNECT_LIMIT).await)
                });
            }
            for (node, answers) in asked.join_all().await {
                silent.extend((!answers?).then_some(node));
            }
        }
        Ok(silent)
    }

    /// Begins the sessions with all daemons. Those that do not answer are waited for side by side.
    pub(super) async fn begin_all(&self, addresses: &[Address]) -> Vec<(NodeId, Result<(), ConnectError>)> {
        let mut outcomes = Vec::new();
        for some in addresses.chunks(AT_ONCE) {
            let mut begun = JoinSet::new();
            for address in some.iter().copied() {
                let sessions = self.clone();
                begun.spawn(async move { (address.node, sessions.begin(&address).await) });
            }
            outcomes.extend(begun.join_all().await);
        }
        outcomes
    }

    /// A later master takes the cluster over without a node that does not answer. The node counts as lost,
    /// and the master gives it another daemon.
    ///
    /// # Errors
    /// The same error, where the cluster cannot be taken over.
    pub(super) fn lose_if_silent(
        &self,
        node: NodeId,
        error: ConnectError,
    ) -> Result<ConnectError, ConnectError> {
        if self.master.generation == 1 || !error.is_silence() {
            return Err(error);
        }
        let reason = chain(&error);
        warn!(%node, reason, "a node that does not answer counts as lost");
        // The end of its session may have come before.
        if !self.inboxes().lost.contains_key(&node) {
            self.routing().lose(node, None, &reason);
        }
        Ok(error)
    }

    pub(super) fn ask_to_join(
        &self,
        node: NodeId,
        members: &[Member],
    ) -> UnboundedReceiver<Result<(), String>> {
        let (joined, answer) = unbounded_channel();
        self.inboxes().joining.insert(node, joined);
        self.tell(node, Request::Join { members: members.to_vec() });
        answer
    }

    pub(super) async fn join(&self, node: NodeId, members: &[Member]) -> Result<(), ConnectError> {
        joined(node, self.ask_to_join(node, members)).await
    }
}

pub(super) async fn joined(
    node: NodeId,
    mut answer: UnboundedReceiver<Result<(), String>>,
) -> Result<(), ConnectError> {
    let failed = |reason: &str| ConnectError::Join { node, reason: reason.into() };
    match awake::timeout(JOIN_LIMIT, answer.recv()).await {
        Some(Some(Ok(()))) => Ok(()),
        Some(Some(Err(reason))) => Err(failed(&reason)),
        Some(None) => Err(failed("its daemon ended")),
        None => Err(failed("no answer in time")),
    }
}
