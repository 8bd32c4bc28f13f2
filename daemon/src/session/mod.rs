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

use std::{collections::VecDeque, net::SocketAddr, pin::pin, time::Duration};

use coswitch_policies::NodeId;
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    task::{AbortHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval, timeout, timeout_at},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tracing::{debug, warn};

use crate::{
    connections::STRANGERS_MAX,
    pki::{self, Holder, Identity, PkiError},
    protocol::{DaemonEvent, HEARTBEAT, Request, VERSION},
    wire::{self, WireError},
};
use rules::{Hearing, Lull};

pub use thread::SessionThread;

/// After this time without a message a peer counts as silent.
pub const QUIET_AFTER: Duration = Duration::from_secs(5 * HEARTBEAT.as_secs());
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// For descriptors to become free.
const PAUSE: Duration = Duration::from_millis(100);

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

/// Where masters connect. Anybody who reaches the port can do that: those who have not said who they are
/// are met side by side, a few at a time, and for a new one the oldest is turned away.
pub struct Door {
    listener: TcpListener,
    meeting: JoinSet<(SocketAddr, Result<Met, SessionError>)>,
    /// The oldest first.
    strangers: VecDeque<AbortHandle>,
}

/// One who is a member of the cluster, and the generation of the master.
type Met = (server::TlsStream<TcpStream>, u64);

impl Door {
    #[must_use]
    pub fn new(listener: TcpListener) -> Self {
        Self { listener, meeting: JoinSet::new(), strangers: VecDeque::new() }
    }

    /// Waits until a master of a later `generation` connects; refuses and logs all others. `generation` is
    /// then that of the new one.
    ///
    /// # Errors
    /// [`SessionError`] of this daemon, but not of a stranger.
    pub async fn accept(
        &mut self,
        identity: &Identity,
        node: NodeId,
        incarnation: u64,
        generation: &mut u64,
    ) -> Result<server::TlsStream<TcpStream>, SessionError> {
        let acceptor = TlsAcceptor::from(identity.server()?);
        loop {
            let (from, met) = tokio::select! {
                accepted = self.listener.accept() => {
                    match accepted {
                        Ok((stream, from)) => self.meet(acceptor.clone(), stream, from),
                        Err(error) => {
                            // Descriptors are exhausted, perhaps.
                            warn!(%error, "no control connection could be accepted");
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                    continue;
                }
                // One that was turned away has been logged.
                Some(met) = self.meeting.join_next() => match met {
                    Ok(met) => met,
                    Err(_) => continue,
                }
            };
            let admitted = match met {
                Ok((stream, asks)) => admit(stream, asks, node, incarnation, generation).await,
                Err(error) => Err(error),
            };
            match admitted {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    warn!(%from, error = &error as &dyn std::error::Error, "control connection refused");
                }
            }
        }
    }

    fn meet(&mut self, acceptor: TlsAcceptor, stream: TcpStream, from: SocketAddr) {
        self.strangers.retain(|stranger| !stranger.is_finished());
        if self.strangers.len() >= STRANGERS_MAX
            && let Some(oldest) = self.strangers.pop_front()
        {
            warn!("control connection refused: too many others have not said who they are");
            oldest.abort();
        }
        let met = async move {
            let met = timeout(HANDSHAKE_LIMIT, meet(&acceptor, stream)).await;
            (from, met.unwrap_or(Err(SessionError::Silent(HANDSHAKE_LIMIT))))
        };
        self.strangers.push_back(self.meeting.spawn(met));
    }
}

async fn meet(acceptor: &TlsAcceptor, stream: TcpStream) -> Result<Met, SessionError> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    if !pki::proves(stream.get_ref().1.peer_certificates(), Holder::Head) {
        return Err(SessionError::NotTheHead);
    }
    match wire::read(&mut stream).await? {
        Some(Request::Hello { version: VERSION, generation }) => Ok((stream, generation)),
        _ => Err(SessionError::Version),
    }
}

async fn admit(
    mut stream: server::TlsStream<TcpStream>,
    asks: u64,
    node: NodeId,
    incarnation: u64,
    generation: &mut u64,
) -> Result<server::TlsStream<TcpStream>, SessionError> {
    // A master that does not hear its welcome comes again.
    let mut followed = *generation;
    let admitted = rules::admit(asks, &mut followed);
    let answer = match &admitted {
        Ok(()) => DaemonEvent::Welcome { node, incarnation },
        Err(refused) => DaemonEvent::Refused { reason: refused.to_string() },
    };
    let written = timeout(HANDSHAKE_LIMIT, wire::write(&mut stream, &answer)).await;
    admitted?;
    written.map_err(|_| SessionError::Silent(HANDSHAKE_LIMIT))??;
    *generation = followed;
    Ok(stream)
}

/// The head node's side: connects to the daemon of `node` and greets it, as the cluster's master of this
/// generation. Also returns the daemon's incarnation.
pub async fn connect(
    (node, address): (NodeId, SocketAddr),
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

/// Whether a daemon answers a connection within this time. A refusal counts as an answer. The daemon does not
/// begin to follow the caller.
///
/// # Errors
/// Where the identity cannot be used.
pub async fn answers(
    (node, address): (NodeId, SocketAddr),
    identity: &Identity,
    limit: Duration,
) -> Result<bool, PkiError> {
    let connector = TlsConnector::from(identity.client()?);
    let work = async {
        loop {
            if let Ok(stream) = TcpStream::connect(address).await {
                return drop(connector.connect(Holder::Node(node).server_name(), stream).await);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    Ok(awake::timeout(limit, work).await.is_some())
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
    async fn a_master_is_met_beside_strangers_that_stay_silent() {
        let authority = crate::pki::Authority::new().unwrap();
        let [master, other, daemon] = [Holder::Head, Holder::Node(NodeId(1)), Holder::Node(NodeId(0))]
            .map(|holder| authority.certify(holder).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let began = Instant::now();
        let mut silent = Vec::new();
        for _ in 0..2 * STRANGERS_MAX {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let accepted = tokio::spawn(async move {
            let mut generation = 1;
            let mut door = Door::new(listener);
            door.accept(&daemon, NodeId(0), 7, &mut generation).await.map(|_| generation)
        });
        let to = (NodeId(0), address);
        assert!(connect(to, &other, 9, LONG).await.is_err(), "another node is no master");
        assert!(connect((NodeId(1), address), &master, 9, LONG).await.is_err(), "it is not that node");
        let (incarnation, _stream) = connect(to, &master, 2, LONG).await.unwrap();
        assert_eq!((incarnation, accepted.await.unwrap().unwrap()), (7, 2));
        assert!(began.elapsed() < HANDSHAKE_LIMIT, "it waited for strangers");
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
