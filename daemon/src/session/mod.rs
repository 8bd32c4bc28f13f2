//! The control session: one authenticated connection between the head node and a daemon.
//!
//! A closed connection means that the peer's process has died. What follows from that is for the daemon's
//! [`crate::serve`] and for the dispatchers to say.
//! Silence on an open one ([`QUIET_AFTER`]) means a pause: the process behind it is stopped, starved or
//! blocked. Each side is told, waits, and gives the other up after a limit of its own.
//!
//! A daemon follows one master at a time. Masters of a cluster are numbered (their generation): a daemon
//! leaves its master for one with a higher number, and refuses the others.
//!
//! Both sides run their sessions on a thread that does nothing else ([`SessionThread`]).

pub mod awake;
pub mod rules;
mod thread;

use std::{pin::pin, time::Duration};

use coswitch_policies::NodeId;
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    time::{Instant, MissedTickBehavior, interval, timeout, timeout_at},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tracing::{debug, warn};

use crate::{
    pki::{self, Holder, Identity, PkiError},
    protocol::{DaemonEvent, HEARTBEAT, Request, VERSION},
    wire::{self, WireError},
};
use rules::{Hearing, Lull};

pub use thread::SessionThread;

/// After this time without a message a peer counts as silent.
pub const QUIET_AFTER: Duration = Duration::from_secs(5 * HEARTBEAT.as_secs());
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum SessionError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("control connection could not be set up")]
    Connect(#[from] std::io::Error),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("peer was silent for {0:?}")]
    Silent(Duration),
    #[error("peer closed the control connection")]
    Closed,
    #[error("peer speaks another version of the control protocol, or none")]
    Version,
    #[error("the daemon refuses this master: {0}")]
    Refused(String),
    #[error("the peer is of this cluster, and not its head node")]
    NotTheHead,
    #[error("a master of generation {0} asks, and one of generation {1} was here before")]
    Fenced(u64, u64),
}

/// What a session hears of its peer.
#[derive(Debug)]
pub enum Heard<Message> {
    Message(Message),
    /// Nothing has come for [`QUIET_AFTER`]; the connection is open.
    Silence,
    /// The peer is heard again, after a silence of this length; its message follows.
    Again(Duration),
}

/// Waits until a master of a later `generation` connects; refuses and logs all others. `generation` is then
/// that of the new one.
///
/// # Errors
/// [`SessionError`], but not for a stranger.
pub async fn accept(
    listener: &TcpListener,
    identity: &Identity,
    node: NodeId,
    incarnation: u64,
    generation: &mut u64,
) -> Result<server::TlsStream<TcpStream>, SessionError> {
    let acceptor = TlsAcceptor::from(identity.server()?);
    loop {
        let (stream, from) = listener.accept().await?;
        match timeout(HANDSHAKE_LIMIT, greet(&acceptor, stream, node, incarnation, generation)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => {
                warn!(%from, error = &error as &dyn std::error::Error, "control connection refused")
            }
            Err(_) => warn!(%from, "control connection refused: the peer stayed silent"),
        }
    }
}

async fn greet(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    node: NodeId,
    incarnation: u64,
    generation: &mut u64,
) -> Result<server::TlsStream<TcpStream>, SessionError> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    if !pki::proves(stream.get_ref().1.peer_certificates(), Holder::Head) {
        return Err(SessionError::NotTheHead);
    }
    let asks = match wire::read(&mut stream).await? {
        Some(Request::Hello { version: VERSION, generation }) => generation,
        _ => return Err(SessionError::Version),
    };
    // A master that does not hear its welcome comes again.
    let mut followed = *generation;
    if let Err(refused) = rules::admit(asks, &mut followed) {
        wire::write(&mut stream, &DaemonEvent::Refused { reason: refused.to_string() }).await?;
        return Err(refused);
    }
    wire::write(&mut stream, &DaemonEvent::Welcome { node, incarnation }).await?;
    *generation = followed;
    Ok(stream)
}

/// The head node's side: connects to the daemon of `node` and greets it, as the cluster's master of this generation. Also
/// returns the daemon's incarnation.
pub async fn connect(
    (node, address): (NodeId, std::net::SocketAddr),
    identity: &Identity,
    generation: u64,
    limit: Duration,
) -> Result<(u64, client::TlsStream<TcpStream>), SessionError> {
    let connector = TlsConnector::from(identity.client()?);
    let work = async {
        loop {
            // Not listening or not reachable yet, where it fails; the time-out below bounds this loop.
            if let Ok(stream) = TcpStream::connect(address).await {
                let began = Instant::now();
                match greet_daemon(&connector, node, stream, generation).await {
                    // The daemon hangs up on a head node that is stopped meanwhile.
                    Err(_) if began.elapsed() > HANDSHAKE_LIMIT => {}
                    result => return result,
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    awake::timeout(limit, work).await.ok_or(SessionError::Silent(limit))?
}

async fn greet_daemon(
    connector: &TlsConnector,
    node: NodeId,
    stream: TcpStream,
    generation: u64,
) -> Result<(u64, client::TlsStream<TcpStream>), SessionError> {
    stream.set_nodelay(true)?;
    let mut stream = connector.connect(Holder::Node(node).server_name(), stream).await?;
    wire::write(&mut stream, &Request::Hello { version: VERSION, generation }).await?;
    match wire::read(&mut stream).await? {
        Some(DaemonEvent::Welcome { incarnation, .. }) => Ok((incarnation, stream)),
        Some(DaemonEvent::Refused { reason }) => Err(SessionError::Refused(reason)),
        _ => Err(SessionError::Version),
    }
}

/// Carries messages both ways until the peer has gone or `outgoing` has ended, which is `Ok`. Asks `alive`
/// every heartbeat for something to send, and gives up a peer that is silent for `patience`.
pub async fn carry<Out, In>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    outgoing: UnboundedReceiver<Out>,
    incoming: UnboundedSender<Heard<In>>,
    alive: impl FnMut() -> Option<Out>,
    patience: Duration,
) -> Result<(), SessionError>
where
    Out: Serialize,
    In: DeserializeOwned,
{
    let (reader, writer) = tokio::io::split(stream);
    tokio::select! {
        result = receive(reader, incoming, QUIET_AFTER, patience) => result,
        result = send(writer, outgoing, alive, patience) => result,
    }
}

async fn receive<In: DeserializeOwned>(
    mut reader: impl AsyncRead + Unpin,
    incoming: UnboundedSender<Heard<In>>,
    quiet_after: Duration,
    patience: Duration,
) -> Result<(), SessionError> {
    loop {
        let message =
            next(&mut reader, &incoming, quiet_after, patience).await?.ok_or(SessionError::Closed)?;
        if incoming.send(Heard::Message(message)).is_err() {
            return Ok(());
        }
    }
}

/// The next message. Tells of a silence before it, and of its end.
async fn next<In: DeserializeOwned>(
    reader: &mut (impl AsyncRead + Unpin),
    incoming: &UnboundedSender<Heard<In>>,
    quiet_after: Duration,
    patience: Duration,
) -> Result<Option<In>, SessionError> {
    let mut hearing = Hearing::new(Instant::now().into_std(), quiet_after, patience);
    // One read for both waits: a part of the message may be there already.
    let mut message = pin!(wire::read(reader));
    loop {
        if let Ok(message) = timeout_at(hearing.due().into(), &mut message).await {
            let message = message?;
            let silence = hearing.on_message(Instant::now().into_std());
            if let Some(silence) = silence.filter(|_| message.is_some()) {
                let _ = incoming.send(Heard::Again(silence));
            }
            return Ok(message);
        }
        match hearing.on_due(Instant::now().into_std()) {
            Lull::Short => {}
            Lull::Silent => drop(incoming.send(Heard::Silence)),
            Lull::GivenUp => return Err(SessionError::Silent(patience)),
        }
    }
}

async fn send<Out: Serialize>(
    mut writer: impl AsyncWrite + Unpin,
    mut outgoing: UnboundedReceiver<Out>,
    mut alive: impl FnMut() -> Option<Out>,
    patience: Duration,
) -> Result<(), SessionError> {
    let mut beat = interval(HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let message = tokio::select! {
            message = outgoing.recv() => message,
            _ = beat.tick() => match alive() {
                None => continue,
                alive => alive,
            },
        };
        let Some(message) = message else {
            debug!("control session ends");
            return Ok(());
        };
        // A peer that has stopped reads nothing.
        let written = timeout(patience, wire::write(&mut writer, &message)).await;
        written.map_err(|_| SessionError::Silent(patience))??;
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{DuplexStream, duplex},
        sync::mpsc::unbounded_channel,
        task::JoinHandle,
    };

    use super::*;

    const QUIET: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    type Session = JoinHandle<Result<(), SessionError>>;

    /// Hears a peer, whose end of the connection is returned.
    fn hear(patience: Duration) -> (DuplexStream, UnboundedReceiver<Heard<u32>>, Session) {
        let (own, peer) = duplex(1 << 16);
        let (incoming, heard) = unbounded_channel();
        (peer, heard, tokio::spawn(receive(own, incoming, QUIET, patience)))
    }

    #[tokio::test]
    async fn silence_is_told_and_its_end_is_told_before_the_next_message() {
        let (mut peer, mut heard, _session) = hear(LONG);
        assert!(matches!(heard.recv().await, Some(Heard::Silence)));
        wire::write(&mut peer, &2u32).await.unwrap();
        assert!(matches!(heard.recv().await, Some(Heard::Again(silence)) if silence >= QUIET));
        assert!(matches!(heard.recv().await, Some(Heard::Message(2))));
    }

    #[tokio::test]
    async fn a_silent_peer_is_given_up_only_when_patience_ends() {
        let began = Instant::now();
        let (_peer, mut heard, session) = hear(4 * QUIET);
        assert!(matches!(heard.recv().await, Some(Heard::Silence)));
        assert!(matches!(session.await.unwrap(), Err(SessionError::Silent(_))));
        assert!(began.elapsed() >= 4 * QUIET);
    }

    #[tokio::test]
    async fn a_silent_peer_whose_connection_closes_is_gone_at_once() {
        let (peer, mut heard, session) = hear(LONG);
        assert!(matches!(heard.recv().await, Some(Heard::Silence)));
        drop(peer);
        assert!(matches!(session.await.unwrap(), Err(SessionError::Closed)));
        assert!(heard.recv().await.is_none(), "nobody was heard again");
    }
}
