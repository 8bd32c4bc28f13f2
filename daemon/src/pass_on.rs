//! Passes requests of the master on to daemons below this one in the tree of daemons, and takes those that
//! another one passes on.
//!
//! A connection leads to each daemon below, opened when it is first needed, to the port of the data links and
//! in TLS under the cluster's authority ([`crate::plane::connect`]). Control keeps away from data: it has a
//! thread and a connection of its own. The master sends again what is lost on the way
//! ([`crate::multicast`]), and is told of a daemon that cannot be reached.

use std::{
    collections::BTreeMap,
    net::TcpStream,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, ensure};
use coswitch_policies::NodeId;
use rustls::{ServerConnection, StreamOwned};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::warn;

use crate::{
    app::NodeServices,
    multicast::Multicast,
    pki::Identity,
    plane::{
        LinkEnd,
        connect::{self, REQUESTS},
    },
    processors::{TimeSlice, set_time_slice},
    protocol::{DaemonEvent, Member},
    wire,
};

/// To reach another daemon.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// For another daemon to take what is passed on to it.
const SILENCE: Duration = Duration::from_secs(5);

/// The daemons below this one, and the requests that come from the daemon above.
pub(crate) struct PassingOn {
    below: Mutex<BTreeMap<NodeId, Below>>,
    come: UnboundedSender<Multicast>,
}

struct Below {
    incarnation: u64,
    queue: Sender<Multicast>,
}

impl PassingOn {
    /// Also returns the requests that other daemons pass on to this one.
    pub(crate) fn new() -> (Self, UnboundedReceiver<Multicast>) {
        let (come, passed_on) = unbounded_channel();
        (Self { below: Mutex::default(), come }, passed_on)
    }
}

impl NodeServices {
    /// Gives a request to the thread that writes to the daemon of node `to`, without waiting for it.
    pub(crate) fn pass_on(self: &Arc<Self>, to: NodeId, multicast: Multicast) {
        // The master sends the request by the session of a node that this daemon does not know.
        let Some(member) = self.links.member(to) else { return };
        let mut below = self.passing.below.lock().unwrap_or_else(PoisonError::into_inner);
        let present = below.get(&to).filter(|below| below.incarnation == member.incarnation);
        let multicast = match present {
            Some(below) => match below.queue.send(multicast) {
                Ok(()) => return,
                Err(unsent) => unsent.0,
            },
            None => multicast,
        };
        let (queue, passing) = channel();
        let _ = queue.send(multicast);
        below.insert(to, Below { incarnation: member.incarnation, queue });
        drop(below);
        let (identity, own, events) = (self.config.identity.clone(), self.link_end(), self.events.clone());
        let work = move || {
            set_time_slice(TimeSlice::Short);
            if let Err(error) = carry(&identity, own, member, &passing) {
                warn!(%to, error = format!("{error:#}"), "requests could not be passed on");
                events.send(DaemonEvent::NotPassedOn { to, incarnation: member.incarnation });
            }
        };
        if let Err(error) = thread::Builder::new().name("pass-on".into()).spawn(work) {
            warn!(%to, %error, "requests cannot be passed on");
            self.tell(DaemonEvent::NotPassedOn { to, incarnation: member.incarnation });
        }
    }
}

/// Writes requests to the daemon `to` until its node has another daemon.
fn carry(identity: &Identity, own: LinkEnd, to: Member, passing: &Receiver<Multicast>) -> anyhow::Result<()> {
    let client = identity.client()?;
    let connected = connect::connect_for(REQUESTS, to.data, own, &client, CONNECT_LIMIT, SILENCE);
    let (found, mut tls) = connected.context("failed to reach it")?;
    ensure!(
        found == LinkEnd { node: to.node, incarnation: to.incarnation },
        "at {} answers {}, or another daemon of the node",
        to.data,
        found.node
    );
    while let Ok(multicast) = passing.recv() {
        wire::write_blocking(&mut tls, &multicast)?;
    }
    Ok(())
}

/// Takes the requests that another daemon passes on, on this thread, until the connection ends.
///
/// # Errors
/// Where the connection breaks.
pub(crate) fn serve(
    node: Arc<NodeServices>,
    from: LinkEnd,
    mut tls: StreamOwned<ServerConnection, TcpStream>,
) -> Result<(), String> {
    set_time_slice(TimeSlice::Short);
    let come = node.passing.come.clone();
    drop(node);
    let ended = |error| format!("{} passes requests on no longer: {error}", from.node);
    while let Some(multicast) = wire::read_blocking(&mut tls).map_err(ended)? {
        if come.send(multicast).is_err() {
            break;
        }
    }
    Ok(())
}
