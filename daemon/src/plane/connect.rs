//! Set-up of a data link: both daemons prove themselves in a TLS handshake, then leave TLS and exchange
//! frames.
//!
//! ```text
//!   connecting (higher node)                      accepting (lower node)
//!        ── TLS 1.3 handshake, both certificates checked ──
//!        Hello{own, encrypt} ───────── TLS ───────▶
//!                             ◀─────── TLS ───────  Hello{own, encrypt}
//!        START                ─────── plain ──────▶            (only now may the accepting side send frames)
//! ```
//! Connections for copies of snapshots ([`crate::copies`]) and for requests that are passed on
//! ([`crate::pass_on`]) begin with other greetings and stay in TLS.
//!
//! The plain START keeps either side's TLS reader from reading frames. Frames are encrypted ([`super::seal`],
//! with secrets that the handshake exports) where either side asks for it. Otherwise they are neither
//! encrypted nor signed, as in every MPI: the network is then trusted not to alter packets, but a peer
//! without a certificate gets no link.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_policies::NodeId;
use nix::sys::socket::{
    setsockopt,
    sockopt::{KeepAlive, TcpCongestion, TcpKeepIdle, TcpKeepInterval, TcpUserTimeout},
};
use rustls::{ClientConfig, ClientConnection, ConnectionCommon, ServerConfig, ServerConnection, StreamOwned};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::seal::{LinkKeys, SECRET_BYTES};
use crate::pki::{self, Holder};

const MAGIC: [u8; 8] = *b"coswlnk3";
/// Instead of it, where the connection is for copies of snapshots: it stays in TLS.
pub(crate) const COPIES: [u8; 8] = *b"coswcpy1";
/// The same, for requests that are passed on.
pub(crate) const REQUESTS: [u8; 8] = *b"coswreq1";
const HELLO_BYTES: usize = 21;
/// The use of the handshake's secret that [`LinkKeys`] are.
const EXPORT: &[u8] = b"EXPORTER-coswitch-data-link";
const START: [u8; 8] = *b"coswgo!\n";
/// Time-out of each read and write of a handshake: a silent stranger occupies a thread no longer.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);
/// For all of the accepting side's part: a stranger that sends a byte now and then is given up as well.
const ACCEPT_LIMIT: Duration = Duration::from_secs(15);

/// In seconds: routers forget connections that are silent for longer.
const PROBE_AFTER_MAX: u32 = 60;

#[derive(Debug, Error)]
pub enum LinkError {
    #[error("data link handshake failed")]
    Io(#[from] io::Error),
    #[error("data link handshake could not begin")]
    Tls(#[from] rustls::Error),
    /// The peer is a member but speaks another protocol.
    #[error("peer does not speak the coswitch link protocol")]
    Protocol,
    /// The peer says that it is a node whose certificate it does not have.
    #[error("peer is not {0}, as it says")]
    Impostor(NodeId),
}

/// What a node asks of its links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRules {
    /// Every frame is encrypted and authenticated.
    pub encrypt: bool,
    /// A link whose other end has been silent for so long, though asked, counts as lost.
    pub silence: Duration,
}

impl Default for LinkRules {
    /// Those of virtual nodes.
    fn default() -> Self {
        Self { encrypt: false, silence: Duration::from_secs(10 * 60) }
    }
}

/// The daemon at an end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkEnd {
    pub node: NodeId,
    /// Tells it from those that the node has had before, and will have.
    pub incarnation: u64,
}

/// A link that is set up.
pub struct Connection {
    pub peer: NodeId,
    /// Of the peer's daemon.
    pub incarnation: u64,
    pub stream: TcpStream,
    /// `Some` where its frames are encrypted.
    pub keys: Option<LinkKeys>,
    /// See [`LinkRules::silence`].
    pub silence: Duration,
}

/// A connection that a daemon has accepted.
pub(crate) enum Accepted {
    Link(Connection),
    /// For copies of snapshots, and the daemon at its other end.
    Copies(LinkEnd, Box<StreamOwned<ServerConnection, TcpStream>>),
    /// For requests that the daemon at its other end passes on.
    Requests(LinkEnd, Box<StreamOwned<ServerConnection, TcpStream>>),
}

/// Connects to the daemon of `to` at `address` as `own`, with attempts until `limit`; says which one has
/// answered.
///
/// # Errors
/// [`LinkError`]
pub fn connect(
    (to, address): (NodeId, SocketAddr),
    own: LinkEnd,
    rules: LinkRules,
    config: &Arc<ClientConfig>,
    limit: Duration,
) -> Result<Connection, LinkError> {
    let began = Instant::now();
    loop {
        let left = limit.saturating_sub(began.elapsed());
        match try_to_connect((to, address), own, rules, config, left) {
            // A busy machine may not answer in time.
            Err(LinkError::Io(error)) if is_late(&error) && began.elapsed() + HANDSHAKE_LIMIT <= limit => {}
            result => return result,
        }
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn try_to_connect(
    (to, address): (NodeId, SocketAddr),
    own: LinkEnd,
    rules: LinkRules,
    config: &Arc<ClientConfig>,
    limit: Duration,
) -> Result<Connection, LinkError> {
    let mut stream = reach(address, limit)?;
    let mut session = ClientConnection::new(Arc::clone(config), Holder::Node(to).server_name())?;
    let mut tls = rustls::Stream::new(&mut session, &mut stream);
    let (_, peer, they_encrypt) = greet(&mut tls, MAGIC, own, rules)?;
    stream.write_all(&START)?;
    let keys = (rules.encrypt || they_encrypt).then(|| export(&session)).transpose()?;
    let keys = keys.map(|[sending, receiving]| LinkKeys { sending, receiving });
    ready(&stream, rules.silence)?;
    let LinkEnd { node: peer, incarnation } = peer;
    Ok(Connection { peer, incarnation, stream, keys, silence: rules.silence })
}

/// Connects to the daemon of `to` at `address` as `own`, for [`COPIES`] or [`REQUESTS`]. Each read and write
/// ends after `silence`.
///
/// # Errors
/// [`LinkError`]
pub(crate) fn connect_for(
    purpose: [u8; 8],
    (to, address): (NodeId, SocketAddr),
    own: LinkEnd,
    config: &Arc<ClientConfig>,
    limit: Duration,
    silence: Duration,
) -> Result<(LinkEnd, StreamOwned<ClientConnection, TcpStream>), LinkError> {
    let stream = reach(address, limit)?;
    let session = ClientConnection::new(Arc::clone(config), Holder::Node(to).server_name())?;
    let mut tls = StreamOwned::new(session, stream);
    let (magic, peer, _) = greet(&mut tls, purpose, own, LinkRules::default())?;
    if magic != purpose {
        return Err(LinkError::Protocol);
    }
    tls.sock.set_read_timeout(Some(silence))?;
    tls.sock.set_write_timeout(Some(silence))?;
    Ok((peer, tls))
}

fn reach(address: SocketAddr, limit: Duration) -> Result<TcpStream, LinkError> {
    let began = Instant::now();
    let stream = loop {
        match TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
            Ok(stream) => break stream,
            Err(error) if began.elapsed() > limit => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    limit_waits(&stream)?;
    Ok(stream)
}

/// Accepts a data link as `own`; says which daemon is at its other end.
///
/// # Errors
/// [`LinkError`], also where the connection is for something else.
pub fn accept(
    stream: TcpStream,
    own: LinkEnd,
    rules: LinkRules,
    config: &Arc<ServerConfig>,
) -> Result<Connection, LinkError> {
    match accept_any(stream, own, rules, config)? {
        Accepted::Link(connection) => Ok(connection),
        Accepted::Copies(..) | Accepted::Requests(..) => Err(LinkError::Protocol),
    }
}

/// Accepts a connection of another daemon.
///
/// # Errors
/// [`LinkError`]
pub(crate) fn accept_any(
    mut stream: TcpStream,
    own: LinkEnd,
    rules: LinkRules,
    config: &Arc<ServerConfig>,
) -> Result<Accepted, LinkError> {
    stream.set_nonblocking(false)?;
    limit_waits(&stream)?;
    let mut session = ServerConnection::new(Arc::clone(config))?;
    let mut hurried = Hurried { stream: &mut stream, deadline: Instant::now() + ACCEPT_LIMIT };
    let mut tls = rustls::Stream::new(&mut session, &mut hurried);
    let (magic, peer, they_encrypt) = read_hello(&mut tls)?;
    if !pki::proves(tls.conn.peer_certificates(), Holder::Node(peer.node)) {
        return Err(LinkError::Impostor(peer.node));
    }
    tls.write_all(&hello(magic, own, rules))?;
    tls.flush()?;
    if magic == COPIES {
        limit_waits(&stream)?;
        return Ok(Accepted::Copies(peer, Box::new(StreamOwned::new(session, stream))));
    }
    if magic == REQUESTS {
        limit_waits(&stream)?;
        notice_silence(&stream, rules.silence)?;
        stream.set_read_timeout(None)?;
        return Ok(Accepted::Requests(peer, Box::new(StreamOwned::new(session, stream))));
    }
    let mut start = [0; 8];
    hurried.read_exact(&mut start)?;
    if start != START {
        return Err(LinkError::Protocol);
    }
    let keys = (rules.encrypt || they_encrypt).then(|| export(&session)).transpose()?;
    let keys = keys.map(|[receiving, sending]| LinkKeys { sending, receiving });
    ready(&stream, rules.silence)?;
    let LinkEnd { node: peer, incarnation } = peer;
    Ok(Accepted::Link(Connection { peer, incarnation, stream, keys, silence: rules.silence }))
}

/// A stream of a peer that has to be done by then.
struct Hurried<'a> {
    stream: &'a mut TcpStream,
    deadline: Instant,
}

impl Hurried<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now()).min(HANDSHAKE_LIMIT);
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Hurried<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The secrets of both directions, that of the connecting side first.
fn export<Data>(session: &ConnectionCommon<Data>) -> Result<[[u8; SECRET_BYTES]; 2], rustls::Error> {
    let secrets = session.export_keying_material([0; 2 * SECRET_BYTES], EXPORT, None)?;
    let (connecting, accepting) = secrets.split_at(SECRET_BYTES);
    Ok([connecting, accepting].map(|secret| secret.try_into().expect("half of both")))
}

/// The connecting side's part of the greeting.
fn greet(
    tls: &mut (impl Read + Write),
    magic: [u8; 8],
    own: LinkEnd,
    rules: LinkRules,
) -> Result<([u8; 8], LinkEnd, bool), LinkError> {
    tls.write_all(&hello(magic, own, rules))?;
    tls.flush()?;
    read_hello(tls)
}

fn hello(magic: [u8; 8], own: LinkEnd, rules: LinkRules) -> [u8; HELLO_BYTES] {
    let mut out = [0; HELLO_BYTES];
    out[..8].copy_from_slice(&magic);
    out[8..12].copy_from_slice(&own.node.0.to_le_bytes());
    out[12..20].copy_from_slice(&own.incarnation.to_le_bytes());
    out[20] = rules.encrypt.into();
    out
}

/// What the connection is for, the daemon at the other end, and whether it asks for encryption.
fn read_hello(from: &mut impl Read) -> Result<([u8; 8], LinkEnd, bool), LinkError> {
    let mut bytes = [0; HELLO_BYTES];
    from.read_exact(&mut bytes)?;
    let magic: [u8; 8] = bytes[..8].try_into().expect("eight bytes");
    if ![MAGIC, COPIES, REQUESTS].contains(&magic) {
        return Err(LinkError::Protocol);
    }
    let node = NodeId(u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")));
    let incarnation = u64::from_le_bytes(bytes[12..20].try_into().expect("eight bytes"));
    Ok((magic, LinkEnd { node, incarnation }, bytes[20] != 0))
}

fn limit_waits(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE_LIMIT))?;
    stream.set_write_timeout(Some(HANDSHAKE_LIMIT))
}

/// From here on the data plane's thread owns the stream and never blocks in it.
fn ready(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    notice_silence(stream, silence)?;
    // A congestion control that spaces packets by time (bbr) halves the bandwidth of a link without delay.
    // Where the kernel has no cubic, its own choice stays.
    let _ = setsockopt(stream, TcpCongestion, &OsString::from("cubic"));
    stream.set_nonblocking(true)
}

/// Makes the kernel end the connection when its other end has answered nothing for `silence`: neither data
/// nor, where there is none, the probes that follow a quarter of that time without any. So it is noticed
/// after a quarter more at most.
fn notice_silence(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    let probe_after = u32::try_from(silence.as_secs() / 4).unwrap_or(u32::MAX).clamp(1, PROBE_AFTER_MAX);
    setsockopt(stream, TcpUserTimeout, &u32::try_from(silence.as_millis()).unwrap_or(u32::MAX))?;
    setsockopt(stream, TcpKeepIdle, &probe_after)?;
    setsockopt(stream, TcpKeepInterval, &probe_after)?;
    Ok(setsockopt(stream, KeepAlive, &true)?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::pki::{Authority, Identity};

    const ONE: Holder = Holder::Node(NodeId(1));
    const ZERO: Holder = Holder::Node(NodeId(0));

    const CLEAR: LinkRules = LinkRules { encrypt: false, silence: Duration::from_secs(600) };
    const ENCRYPTED: LinkRules = LinkRules { encrypt: true, ..CLEAR };

    const fn end(node: u32) -> LinkEnd {
        LinkEnd { node: NodeId(node), incarnation: 70 + node as u64 }
    }

    type Met = Result<Connection, LinkError>;

    fn meet(client: &Identity, server: &Identity, [here, there]: [LinkRules; 2]) -> (Met, Met) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = server.server().unwrap();
        let accepting =
            std::thread::spawn(move || accept(listener.accept().unwrap().0, end(0), there, &server));
        let client = client.client().unwrap();
        let connected = connect((NodeId(0), address), end(1), here, &client, Duration::from_secs(1));
        (connected, accepting.join().unwrap())
    }

    #[test]
    fn members_of_one_cluster_meet_and_encrypt_where_either_asks_for_it() {
        let authority = Authority::new().unwrap();
        let (one, other) = (authority.certify(ONE).unwrap(), authority.certify(ZERO).unwrap());
        for (rules, encrypted) in [
            ([CLEAR; 2], false),
            ([ENCRYPTED, CLEAR], true),
            ([CLEAR, ENCRYPTED], true),
            ([ENCRYPTED; 2], true),
        ] {
            let (here, there) = meet(&one, &other, rules);
            let (here, there) = (here.unwrap(), there.unwrap());
            assert_eq!((here.peer, there.peer), (NodeId(0), NodeId(1)));
            assert_eq!((here.incarnation, there.incarnation), (70, 71));
            assert_eq!((here.keys.is_some(), there.keys.is_some()), (encrypted, encrypted));
            let (Some(here), Some(there)) = (here.keys, there.keys) else { continue };
            assert!(here.sending == there.receiving && here.receiving == there.sending);
            assert!(here.sending != here.receiving);
        }
    }

    #[test]
    fn a_member_that_is_not_the_node_that_it_says_gets_no_link() {
        let authority = Authority::new().unwrap();
        let certify = |holder| authority.certify(holder).unwrap();
        for (client, server) in [
            (Holder::Node(NodeId(2)), ZERO),
            (Holder::Head, ZERO),
            (ONE, Holder::Node(NodeId(2))),
            (ONE, Holder::Head),
        ] {
            let (here, there) = meet(&certify(client), &certify(server), [CLEAR; 2]);
            assert!(here.is_err() && there.is_err(), "{client:?}, {server:?}");
        }
    }

    #[test]
    fn a_member_of_another_cluster_gets_no_link() {
        let (own, other) = (Authority::new().unwrap(), Authority::new().unwrap());
        let (here, there) = meet(&other.certify(ONE).unwrap(), &own.certify(ZERO).unwrap(), [CLEAR; 2]);
        assert!(here.is_err() && there.is_err());
    }

    #[test]
    fn a_peer_that_is_late_is_given_up_though_it_sends_something() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stream = listener.accept().unwrap().0;
        let deadline = Instant::now() + Duration::from_millis(200);
        let mut hurried = Hurried { stream: &mut stream, deadline };
        let trickle = std::thread::spawn(move || {
            while peer.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let error = hurried.read_exact(&mut [0; 1000]).unwrap_err();
        assert!(is_late(&error) && Instant::now() >= deadline, "{error}");
        drop((stream, listener));
        trickle.join().unwrap();
    }

    #[test]
    fn a_peer_without_a_certificate_gets_no_link() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stranger.write_all(&hello(MAGIC, end(1), CLEAR)).unwrap();
        let server = Authority::new().unwrap().certify(ZERO).unwrap().server().unwrap();
        assert!(accept(listener.accept().unwrap().0, end(0), CLEAR, &server).is_err());
    }
}
