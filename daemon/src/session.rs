//! The control session: one authenticated connection between the head node and a daemon.
//!
//! Silence means death: where the head node is silent for five heartbeats ([`SILENCE_LIMIT`]), or its
//! connection breaks, the daemon ends its applications, removes what they have left and exits. A daemon
//! accepts one session in its life.

use std::time::Duration;

use coswitch_policies::NodeId;
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    time::{interval, timeout},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tracing::{debug, warn};

use crate::{
    pki::{Identity, PkiError, member_name},
    protocol::{DaemonEvent, HEARTBEAT, Request, VERSION},
    wire::{self, WireError},
};

pub const SILENCE_LIMIT: Duration = Duration::from_secs(5 * HEARTBEAT.as_secs());
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum SessionError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("control connection could not be set up")]
    Connect(#[from] std::io::Error),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("peer was silent for {SILENCE_LIMIT:?}")]
    Silent,
    #[error("peer closed the control connection")]
    Closed,
    #[error("peer speaks another version of the control protocol, or none")]
    Version,
}

/// Waits until a member of the cluster connects; refuses and logs strangers.
///
/// # Errors
/// [`SessionError`], but not for a stranger.
pub async fn accept(
    listener: &TcpListener,
    identity: &Identity,
    node: NodeId,
) -> Result<server::TlsStream<TcpStream>, SessionError> {
    let acceptor = TlsAcceptor::from(identity.server()?);
    loop {
        let (stream, from) = listener.accept().await?;
        match timeout(HANDSHAKE_LIMIT, greet(&acceptor, stream, node)).await {
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
) -> Result<server::TlsStream<TcpStream>, SessionError> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    match wire::read(&mut stream).await? {
        Some(Request::Hello { version: VERSION }) => {}
        _ => return Err(SessionError::Version),
    }
    wire::write(&mut stream, &DaemonEvent::Welcome { node }).await?;
    Ok(stream)
}

/// The head node's side: connects to a daemon and greets it.
pub async fn connect(
    address: std::net::SocketAddr,
    identity: &Identity,
    limit: Duration,
) -> Result<(NodeId, client::TlsStream<TcpStream>), SessionError> {
    let work = async {
        let stream = loop {
            match TcpStream::connect(address).await {
                Ok(stream) => break stream,
                // Not listening or not reachable yet; the time-out below bounds this loop.
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        stream.set_nodelay(true)?;
        let mut stream = TlsConnector::from(identity.client()?).connect(member_name(), stream).await?;
        wire::write(&mut stream, &Request::Hello { version: VERSION }).await?;
        match wire::read(&mut stream).await? {
            Some(DaemonEvent::Welcome { node }) => Ok((node, stream)),
            _ => Err(SessionError::Version),
        }
    };
    timeout(limit, work).await.map_err(|_| SessionError::Silent)?
}

/// Carries messages both ways until the peer has gone or `outgoing` has ended, which is `Ok`. Sends `alive`
/// every heartbeat.
pub async fn carry<Out, In>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    outgoing: UnboundedReceiver<Out>,
    incoming: UnboundedSender<In>,
    alive: impl Fn() -> Out,
) -> Result<(), SessionError>
where
    Out: Serialize,
    In: DeserializeOwned,
{
    let (reader, writer) = tokio::io::split(stream);
    tokio::select! {
        result = receive(reader, incoming) => result,
        result = send(writer, outgoing, alive) => result,
    }
}

async fn receive<In: DeserializeOwned>(
    mut reader: impl AsyncRead + Unpin,
    incoming: UnboundedSender<In>,
) -> Result<(), SessionError> {
    loop {
        let message = timeout(SILENCE_LIMIT, wire::read(&mut reader)).await;
        let message = message.map_err(|_| SessionError::Silent)??.ok_or(SessionError::Closed)?;
        if incoming.send(message).is_err() {
            return Ok(());
        }
    }
}

async fn send<Out: Serialize>(
    mut writer: impl AsyncWrite + Unpin,
    mut outgoing: UnboundedReceiver<Out>,
    alive: impl Fn() -> Out,
) -> Result<(), SessionError> {
    let mut beat = interval(HEARTBEAT);
    loop {
        let message = tokio::select! {
            message = outgoing.recv() => message,
            _ = beat.tick() => Some(alive()),
        };
        let Some(message) = message else {
            debug!("control session ends");
            return Ok(());
        };
        let written = timeout(SILENCE_LIMIT, wire::write(&mut writer, &message)).await;
        written.map_err(|_| SessionError::Silent)??;
    }
}
