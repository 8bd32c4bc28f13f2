//! Set-up of a data link: both daemons prove themselves in a TLS handshake, then leave TLS and exchange plain
//! frames.
//!
//! ```text
//!   connecting (higher node)                      accepting (lower node)
//!        ── TLS 1.3 handshake, both certificates checked ──
//!        Hello{node}  ──────────── TLS ───────────▶
//!                     ◀─────────── TLS ───────────  Hello{node}
//!        START        ─────────── plain ──────────▶            (only now may the accepting side send frames)
//! ```
//! The plain START keeps either side's TLS reader from reading frames. Message data is neither encrypted nor
//! signed after that, as in every MPI: the cluster's network is trusted not to alter packets, but a peer
//! without a certificate gets no link.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_policies::NodeId;
use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use thiserror::Error;

use crate::pki::member_name;

const MAGIC: [u8; 8] = *b"coswlnk1";
const START: [u8; 8] = *b"coswgo!\n";
/// Time-out of each read and write of a handshake: a silent stranger occupies a thread no longer.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum LinkError {
    #[error("data link handshake failed")]
    Io(#[from] io::Error),
    #[error("data link handshake could not begin")]
    Tls(#[from] rustls::Error),
    /// The peer is a member but speaks another protocol.
    #[error("peer does not speak the coswitch link protocol")]
    Protocol,
}

/// Connects to `address` as `own`, with attempts until `limit`; returns the node that answered.
pub fn connect(
    address: SocketAddr,
    own: NodeId,
    config: &Arc<ClientConfig>,
    limit: Duration,
) -> Result<(NodeId, TcpStream), LinkError> {
    let began = Instant::now();
    let mut stream = loop {
        match TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
            Ok(stream) => break stream,
            Err(error) if began.elapsed() > limit => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    limit_waits(&stream)?;
    let mut session = ClientConnection::new(Arc::clone(config), member_name())?;
    let mut tls = rustls::Stream::new(&mut session, &mut stream);
    tls.write_all(&hello(own))?;
    tls.flush()?;
    let peer = read_hello(&mut tls)?;
    stream.write_all(&START)?;
    ready(stream).map(|stream| (peer, stream))
}

/// Accepts a connection as `own`; returns the node at its other end.
pub fn accept(
    mut stream: TcpStream,
    own: NodeId,
    config: &Arc<ServerConfig>,
) -> Result<(NodeId, TcpStream), LinkError> {
    stream.set_nonblocking(false)?;
    limit_waits(&stream)?;
    let mut session = ServerConnection::new(Arc::clone(config))?;
    let mut tls = rustls::Stream::new(&mut session, &mut stream);
    let peer = read_hello(&mut tls)?;
    tls.write_all(&hello(own))?;
    tls.flush()?;
    let mut start = [0; 8];
    stream.read_exact(&mut start)?;
    if start != START {
        return Err(LinkError::Protocol);
    }
    ready(stream).map(|stream| (peer, stream))
}

fn hello(node: NodeId) -> [u8; 12] {
    let mut out = [0; 12];
    out[..8].copy_from_slice(&MAGIC);
    out[8..].copy_from_slice(&node.0.to_le_bytes());
    out
}

fn read_hello(from: &mut impl Read) -> Result<NodeId, LinkError> {
    let mut bytes = [0; 12];
    from.read_exact(&mut bytes)?;
    if bytes[..8] != MAGIC {
        return Err(LinkError::Protocol);
    }
    Ok(NodeId(u32::from_le_bytes(bytes[8..].try_into().expect("four bytes"))))
}

fn limit_waits(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(HANDSHAKE_LIMIT))?;
    stream.set_write_timeout(Some(HANDSHAKE_LIMIT))
}

/// From here on the data plane's thread owns the stream and never blocks in it.
fn ready(stream: TcpStream) -> Result<TcpStream, LinkError> {
    // A congestion control that spaces packets by time (bbr) halves the bandwidth of a link without delay.
    // Where the kernel has no cubic, its own choice stays.
    let _ = setsockopt(&stream, TcpCongestion, &OsString::from("cubic"));
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::pki::{Authority, Identity};

    fn meet(client: &Identity, server: &Identity) -> (Result<NodeId, LinkError>, Result<NodeId, LinkError>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = server.server().unwrap();
        let accepting = std::thread::spawn(move || {
            accept(listener.accept().unwrap().0, NodeId(0), &server).map(|(node, _)| node)
        });
        let connected = connect(address, NodeId(1), &client.client().unwrap(), Duration::from_secs(1));
        (connected.map(|(node, _)| node), accepting.join().unwrap())
    }

    #[test]
    fn members_of_one_cluster_meet() {
        let authority = Authority::new().unwrap();
        let (here, there) = meet(&authority.member().unwrap(), &authority.member().unwrap());
        assert_eq!((here.unwrap(), there.unwrap()), (NodeId(0), NodeId(1)));
    }

    #[test]
    fn a_member_of_another_cluster_gets_no_link() {
        let (own, other) = (Authority::new().unwrap(), Authority::new().unwrap());
        let (here, there) = meet(&other.member().unwrap(), &own.member().unwrap());
        assert!(here.is_err() && there.is_err());
    }

    #[test]
    fn a_peer_without_a_certificate_gets_no_link() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stranger.write_all(&hello(NodeId(1))).unwrap();
        let server = Authority::new().unwrap().member().unwrap().server().unwrap();
        assert!(accept(listener.accept().unwrap().0, NodeId(0), &server).is_err());
    }
}
