//! The sockets on which a daemon listens, for the head node and for other daemons.

use std::{
    net::TcpListener as StdListener,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use anyhow::Context;
use tokio::net::TcpListener;
use tracing::warn;

use crate::{
    app::NodeServices,
    connections::{Connections, OfPeers, STRANGERS_MAX},
    copies,
    handover::{self, Kept},
    pass_on,
    plane::connect::{self, Accepted, LinkError},
    session::SessionThread,
};

/// For descriptors to become free, or whatever else the kernel lacks.
const PAUSE: Duration = Duration::from_millis(100);

/// The sockets of a daemon.
pub(crate) struct Listeners {
    pub(crate) control: TcpListener,
    pub(crate) data: StdListener,
    /// The same for the next program.
    pub(crate) kept: Kept,
}

impl Listeners {
    /// Those that the program before has left, or new ones.
    pub(crate) async fn open(
        node: &NodeServices,
        left: Option<(OwnedFd, OwnedFd)>,
        head: Option<OwnedFd>,
        sessions: &SessionThread,
    ) -> anyhow::Result<Self> {
        let (control, data) = match left {
            Some((control, data)) => {
                let listen = async { TcpListener::from_std(StdListener::from(control)) };
                (sessions.run(listen).await, StdListener::from(data))
            }
            None => {
                let control = sessions.run(TcpListener::bind(node.config.control)).await;
                let data =
                    StdListener::bind(node.config.data).context("failed to listen for other daemons")?;
                (control, data)
            }
        };
        let control = control.context("failed to listen for the head node")?;
        let kept = Kept {
            control: control.as_fd().try_clone_to_owned()?,
            data: data.as_fd().try_clone_to_owned()?,
            head,
            before: handover::own_program()?.into(),
        };
        Ok(Self { control, data, kept })
    }
}

/// Returns the port. Each handshake has a thread of its own, so that a slow peer does not delay the others.
pub(crate) fn accept_links(node: &Arc<NodeServices>, listener: StdListener) -> anyhow::Result<u16> {
    let port = listener.local_addr()?.port();
    let (own, rules) = (node.link_end(), node.config.links);
    let server = node.config.identity.server()?;
    let node = Arc::downgrade(node);
    let (strangers, of_peers) = (Connections::new(STRANGERS_MAX), OfPeers::default());
    let accept = move || {
        for stream in listener.incoming() {
            let begun = stream.and_then(|stream| {
                let stranger = strangers.add(&stream)?;
                let (node, server, of_peers) = (node.clone(), Arc::clone(&server), of_peers.clone());
                let meet = move || {
                    let accepted = connect::accept_any(stream, own, rules, &server);
                    drop(stranger);
                    serve(&node, accepted, &of_peers);
                };
                thread::Builder::new().name("link".into()).spawn(meet)
            });
            if let Err(error) = begun {
                warn!(%error, "a connection of another daemon could not be accepted");
                thread::sleep(PAUSE);
            }
        }
    };
    thread::Builder::new().name("links".into()).spawn(accept)?;
    Ok(port)
}

/// Uses a connection for what it was made for, as long as that takes.
fn serve(node: &Weak<NodeServices>, accepted: Result<Accepted, LinkError>, of_peers: &OfPeers) {
    let accepted = accepted.map_err(|error| error.to_string()).and_then(|accepted| {
        let counted = of_peers.add(&accepted).map_err(|error| error.to_string())?;
        Ok((accepted, counted))
    });
    let served = accepted.and_then(|(accepted, _counted)| match (accepted, node.upgrade()) {
        (_, None) => Ok(()),
        (Accepted::Link(connection), Some(node)) => node.add_link(connection),
        (Accepted::Copies(peer, tls), Some(node)) => copies::serve(&node, peer, *tls),
        (Accepted::Requests(peer, tls), Some(node)) => pass_on::serve(node, peer, *tls),
    });
    if let Err(error) = served {
        warn!(error, "a connection of another daemon has failed");
    }
}
