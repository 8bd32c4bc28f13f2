//! Daemons that a batch system starts: each connects to its master and is configured over that connection,
//! which stays. Its end, or the end of the process that has started the daemon, ends the daemon.
//!
//! ```text
//!   master                             coswitchd home, on each node
//!     │ ◀──── TLS, both sides proven ────┤
//!     │ ◀──────── Arrived{host} ─────────┤
//!     ├───────── NodeConfig ────────────▶│   once for each host
//!     │ ◀──────── Ready{ports} ──────────┤   or why there is none
//! ```
//! Each message is a line of JSON. [`Home`] reaches the daemons in their environment, which on a node only
//! root and the user of the allocation can read: a command line is for all eyes, and a file on a shared file
//! system is closed to root on a node where the server maps root to nobody. The authority that signs its
//! certificate lives for one start, and is not the cluster's.

use std::{
    env,
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    os::{fd::AsFd, unix::process::parent_id},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::{
    ifaddrs::getifaddrs,
    net::if_::InterfaceFlags,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use serde::{Deserialize, Serialize};
use tracing::debug;

use crate::{
    children::open_pidfd,
    node::NodeConfig,
    pki::{self, Holder, Identity},
    processors,
    serve::Ready,
};

/// The variable that holds a daemon's [`Home`].
pub const VARIABLE: &str = "COSWITCH_HOME";
/// Raised when what is said changes.
const VERSION: u32 = 2;
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
const ATTEMPT_LIMIT: Duration = Duration::from_secs(2);
/// For each message of the other side.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The longest line: a configuration has a few kilobytes.
const LINE_MAX: u64 = 1 << 20;

/// Where the master listens, and how a daemon proves that it is one of its own. Secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct Home {
    pub addresses: Vec<SocketAddr>,
    pub identity: Identity,
}

/// From a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Said {
    Arrived(Arrived),
    Ready(Ready),
    /// Why the daemon has not started.
    Failed(String),
}

/// A daemon that waits for its configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arrived {
    pub version: u32,
    /// The batch system's name for its node.
    pub host: String,
    /// Those that it may use.
    pub processors: Vec<usize>,
}

/// The master's side of a daemon's connection; its end ends the daemon.
pub struct Line(BufReader<StreamOwned<ServerConnection, TcpStream>>);

/// The daemon's side.
pub(crate) struct HomeLine(BufReader<StreamOwned<ClientConnection, TcpStream>>);

/// Takes what the batch system has left in this process' environment: what a daemon needs, and the name of
/// its node. No process that the daemon starts shall have either.
///
/// # Errors
/// Where this process was not started as a daemon of a batch system.
///
/// # Safety
/// No other thread may run.
pub unsafe fn take() -> anyhow::Result<(Home, String)> {
    let text = env::var(VARIABLE).with_context(|| format!("{VARIABLE} is not set: a master sets it"))?;
    let home = serde_json::from_str(&text).with_context(|| format!("{VARIABLE} is not understood"))?;
    let host = env::var("SLURMD_NODENAME").or_else(|_| {
        let name = nix::unistd::gethostname()?;
        Ok::<_, nix::Error>(name.to_string_lossy().into_owned())
    });
    let host = host.context("failed to find the name of this machine")?;
    let own = |name: &str| name == VARIABLE || crate::node::is_of_batch_system(name);
    let names: Vec<String> = env::vars().map(|(name, _)| name).filter(|name| own(name)).collect();
    for name in names {
        // SAFETY: the caller's, no other thread reads the environment.
        unsafe { env::remove_var(name) };
    }
    Ok((home, host))
}

impl HomeLine {
    /// Connects to the master and tells it of this daemon; returns the configuration.
    pub(crate) fn connect(home: &Home, host: String) -> anyhow::Result<(Self, NodeConfig)> {
        let stream = connect(&home.addresses)?;
        limit_waits(&stream, Some(ANSWER_LIMIT))?;
        let session = ClientConnection::new(home.identity.client()?, Holder::Head.server_name())?;
        let mut line = Self(BufReader::new(StreamOwned::new(session, stream)));
        let processors = processors::allowed().unwrap_or_default();
        line.say(&Said::Arrived(Arrived { version: VERSION, host, processors }))?;
        let config = hear(&mut line.0).context("the master has not configured this daemon")?;
        Ok((line, config))
    }

    pub(crate) fn say(&mut self, said: &Said) -> anyhow::Result<()> {
        say(self.0.get_mut(), said).context("failed to write to the master")
    }

    /// Waits until the master closes the connection, or the process that started this daemon ends.
    pub(crate) fn wait_for_end(mut self) {
        let parent = open_pidfd(parent_id().cast_signed());
        let Ok(()) = limit_waits(&self.0.get_ref().sock, None) else { return };
        loop {
            let stream = &self.0.get_ref().sock;
            let mut waited = vec![PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
            // Where there is none, it has ended: a batch system's step is never process 1.
            let Ok(parent) = &parent else { return };
            waited.push(PollFd::new(parent.as_fd(), PollFlags::POLLIN));
            let polled = poll(&mut waited, PollTimeout::NONE);
            let has_come = |of: &PollFd<'_>| of.any() == Some(true);
            match polled {
                Err(nix::Error::EINTR) => continue,
                Err(_) => return,
                Ok(_) if has_come(&waited[1]) => return,
                Ok(_) => {}
            }
            // No message is expected.
            match self.0.read(&mut [0; 64]) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

impl Line {
    /// The master's side of the handshake with a daemon that has connected.
    ///
    /// # Errors
    /// Where the peer is not a daemon that this master has started, or is of another build.
    pub fn accept(stream: TcpStream, identity: &Identity) -> anyhow::Result<(Self, Arrived)> {
        stream.set_nonblocking(false)?;
        limit_waits(&stream, Some(ANSWER_LIMIT))?;
        let session = ServerConnection::new(identity.server()?)?;
        let mut line = Self(BufReader::new(StreamOwned::new(session, stream)));
        match line.hear()? {
            _ if !pki::proves(line.0.get_ref().conn.peer_certificates(), Holder::Arriving) => {
                bail!("the peer is not a daemon that arrives")
            }
            Said::Arrived(arrived) if arrived.version == VERSION => Ok((line, arrived)),
            _ => bail!("the daemon there is of another version of coswitch"),
        }
    }

    /// The address from which the daemon has connected.
    ///
    /// # Errors
    /// Where the connection has ended.
    pub fn peer(&self) -> io::Result<IpAddr> {
        Ok(self.0.get_ref().sock.peer_addr()?.ip().to_canonical())
    }

    /// Configures the daemon, once.
    ///
    /// # Errors
    /// Where the connection has ended.
    pub fn configure(&mut self, config: &NodeConfig) -> anyhow::Result<()> {
        say(self.0.get_mut(), config)
    }

    /// The daemon's next message.
    ///
    /// # Errors
    /// Where none comes in time.
    pub fn hear(&mut self) -> anyhow::Result<Said> {
        hear(&mut self.0)
    }
}

/// The addresses at which other machines may reach a socket of this one that listens at `port`.
///
/// # Errors
/// Where the kernel does not name them.
pub fn addresses(port: u16) -> io::Result<Vec<SocketAddr>> {
    let mut found: Vec<IpAddr> = Vec::new();
    for interface in getifaddrs()?.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP)) {
        let Some(storage) = interface.address else { continue };
        let v4 = storage.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        found.extend(v4.or_else(|| storage.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip()))));
    }
    // An address of a link is ambiguous without the name of an interface of the other machine.
    found.retain(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()));
    // An allocation of this very machine may have no network.
    if found.iter().any(|address| !address.is_loopback()) {
        found.retain(|address| !address.is_loopback());
    }
    found.sort();
    found.dedup();
    Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
}

fn connect(addresses: &[SocketAddr]) -> anyhow::Result<TcpStream> {
    let began = Instant::now();
    loop {
        for address in addresses {
            match TcpStream::connect_timeout(address, ATTEMPT_LIMIT) {
                Ok(stream) => return Ok(stream),
                Err(error) => debug!(%address, %error, "the master is not reached there"),
            }
        }
        if began.elapsed() > CONNECT_LIMIT {
            let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            bail!("the master cannot be reached from this machine at {}", all.join(", "));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn limit_waits(stream: &TcpStream, limit: Option<Duration>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(limit)?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))
}

fn say(stream: &mut impl Write, message: &impl Serialize) -> anyhow::Result<()> {
    let line = serde_json::to_string(message).expect("plain data") + "\n";
    stream.write_all(line.as_bytes())?;
    Ok(stream.flush()?)
}

fn hear<Message: serde::de::DeserializeOwned>(stream: &mut impl BufRead) -> anyhow::Result<Message> {
    let mut line = String::new();
    stream.take(LINE_MAX).read_line(&mut line)?;
    if line.is_empty() {
        bail!("the connection was closed");
    }
    serde_json::from_str(&line).context("a message is not understood")
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use super::*;
    use crate::pki::Authority;

    fn arrive(listener: &TcpListener, server: &Identity, client: Identity) -> anyhow::Result<Arrived> {
        let addresses = vec![listener.local_addr().unwrap()];
        let daemon = thread::spawn(move || {
            HomeLine::connect(&Home { addresses, identity: client }, "n7".into())
                .map(|(_, config)| config.run)
        });
        let (stream, _) = listener.accept().unwrap();
        let arrived = Line::accept(stream, server).map(|(_, arrived)| arrived);
        // Its connection has been closed without a configuration.
        assert!(daemon.join().unwrap().is_err());
        arrived
    }

    #[test]
    fn a_daemon_is_known_by_its_certificate_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = Authority::new().unwrap();
        let server = authority.certify(Holder::Head).unwrap();
        let arrived = arrive(&listener, &server, authority.certify(Holder::Arriving).unwrap()).unwrap();
        assert_eq!(arrived.host, "n7");
        let stranger = Authority::new().unwrap().certify(Holder::Arriving).unwrap();
        assert!(arrive(&listener, &server, stranger).is_err());
        let node = authority.certify(Holder::Node(coswitch_policies::NodeId(1))).unwrap();
        assert!(arrive(&listener, &server, node).is_err());
    }

    #[test]
    fn this_machine_has_an_address_that_is_no_address_of_a_link() {
        let all = addresses(7).unwrap();
        assert!(!all.is_empty() && all.iter().all(|address| address.port() == 7), "{all:?}");
        assert!(!all.iter().any(|address| address.to_string().contains("fe80")), "{all:?}");
    }
}
