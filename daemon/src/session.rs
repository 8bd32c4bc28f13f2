//! The control session: one authenticated connection from the head node at a time.
//!
//! Silence is death: where the head node says nothing for three heartbeats, or its connection breaks, the daemon ends
//! its applications, removes what is left of them and exits. (Taking up again with a new master comes later.)

use std::time::Duration;

use coswitch_policies::NodeId;
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

/// How long silence may last.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(5 * HEARTBEAT.as_secs());
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// Why a session did not begin, or how it ended.
#[derive(Debug, Error)]
pub enum SessionError {
    /// A frame could not be read or written.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Connecting, or the handshake, failed.
    #[error("control connection could not be set up")]
    Connect(#[from] std::io::Error),
    /// The own certificate is no good.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The peer was silent for too long.
    #[error("peer was silent for {SILENCE_LIMIT:?}")]
    Silent,
    /// The peer closed the connection.
    #[error("peer closed the control connection")]
    Closed,
    /// The peer did not begin as agreed, or speaks another version.
    #[error("peer speaks another version of the control protocol, or none")]
    Version,
}

/// Waits for a member of the cluster to connect; strangers are turned away and logged.
///
/// # Errors
/// [`SessionError`], never because of a stranger.
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
            Err(_) => warn!(%from, "control connection refused: it stayed silent"),
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
///
/// # Errors
/// [`SessionError`]
pub async fn connect(
    address: std::net::SocketAddr,
    identity: &Identity,
    limit: Duration,
) -> Result<(NodeId, client::TlsStream<TcpStream>), SessionError> {
    let work = async {
        let stream = loop {
            match TcpStream::connect(address).await {
                Ok(stream) => break stream,
                // Not listening yet, or not reachable yet; the limit around this loop ends it.
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

/// Carries messages both ways until the peer is gone, or `outgoing` has ended (then `Ok`). Says `alive` whenever it has
/// said nothing else for a heartbeat.
///
/// # Errors
/// [`SessionError`]
pub async fn carry<Out, In>(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut outgoing: UnboundedReceiver<Out>,
    incoming: UnboundedSender<In>,
    alive: impl Fn() -> Out,
) -> Result<(), SessionError>
where
    Out: serde::Serialize,
    In: serde::de::DeserializeOwned,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let read = async {
        loop {
            match timeout(SILENCE_LIMIT, wire::read(&mut reader)).await {
                Err(_) => return Err(SessionError::Silent),
                Ok(message) => match message? {
                    None => return Err(SessionError::Closed),
                    Some(message) => {
                        if incoming.send(message).is_err() {
                            return Ok(());
                        }
                    }
                },
            }
        }
    };
    let write = async {
        let mut beat = interval(HEARTBEAT);
        loop {
            let message = tokio::select! {
                message = outgoing.recv() => message,
                _ = beat.tick() => Some(alive()),
            };
            match message {
                Some(message) => timeout(SILENCE_LIMIT, wire::write(&mut writer, &message))
                    .await
                    .map_err(|_| SessionError::Silent)??,
                None => {
                    debug!("control session ends");
                    return Ok(());
                }
            }
        }
    };
    tokio::select! { result = read => result, result = write => result }
}
