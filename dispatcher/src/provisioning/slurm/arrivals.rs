//! Takes in the daemons that report to the master, configures each, and hears that it is ready.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use coswitch_daemon::{
    home::{self, Home, Line, Said},
    node::NodeConfig,
    pki::{Authority, Holder, Identity},
};

use super::Daemon;
use crate::provisioning::{ProvisioningError, failed};

const POLL: Duration = Duration::from_millis(5);

/// What comes of a connection.
pub(super) enum Arrival {
    Ready(Box<(Daemon, Line)>),
    /// The daemon on a host could not start.
    Failed {
        host: String,
        said: String,
    },
}

/// Listens until it is dropped.
pub(super) struct Arrivals {
    pub(super) home: Home,
    arrivals: Receiver<Arrival>,
    is_over: Arc<AtomicBool>,
}

/// The configurations that no daemon has been given yet, by host.
type Waiting = Mutex<BTreeMap<String, NodeConfig>>;

impl Arrivals {
    /// `configs` are for the daemons of the hosts of these names.
    pub(super) fn listen(configs: BTreeMap<String, NodeConfig>) -> Result<Self, ProvisioningError> {
        let act = "listen for the daemons";
        // Only for this start: who learns the key learns nothing of use afterwards.
        let authority = Authority::new()?;
        let listener = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)))
            .or_else(|_| TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))));
        let listener = listener.map_err(failed(act))?;
        listener.set_nonblocking(true).map_err(failed(act))?;
        let port = listener.local_addr().map_err(failed(act))?.port();
        let addresses = home::addresses(port).map_err(failed("find the addresses of this machine"))?;
        let home = Home { addresses, identity: authority.certify(Holder::Arriving)? };
        let (server, waiting) = (authority.certify(Holder::Head)?, Arc::new(Mutex::new(configs)));
        let (sender, arrivals) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        thread::spawn(move || accept(&listener, &server, &waiting, &sender, &over));
        Ok(Self { home, arrivals, is_over })
    }

    /// The next one; `None` where none comes within `limit`.
    pub(super) fn next(&self, limit: Duration) -> Option<Arrival> {
        self.arrivals.recv_timeout(limit).ok()
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// Each connection has a thread, so that a slow one does not delay the others.
fn accept(
    listener: &TcpListener,
    server: &Identity,
    waiting: &Arc<Waiting>,
    arrivals: &Sender<Arrival>,
    is_over: &AtomicBool,
) {
    while !is_over.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, peer)) => {
                let (server, waiting, arrivals) = (server.clone(), Arc::clone(waiting), arrivals.clone());
                thread::spawn(move || match Line::accept(stream, &server) {
                    Ok((line, arrived)) => {
                        let host = arrived.host.clone();
                        let arrival = receive(line, arrived, &waiting)
                            .unwrap_or_else(|error| Arrival::Failed { host, said: format!("{error:#}") });
                        // The start may have been given up.
                        let _ = arrivals.send(arrival);
                    }
                    Err(error) => tracing::warn!(%peer, %error, "a connection is refused: it is no daemon's"),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(POLL),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                thread::sleep(POLL);
            }
        }
    }
}

fn receive(mut line: Line, arrived: home::Arrived, waiting: &Waiting) -> anyhow::Result<Arrival> {
    let host = arrived.host;
    let config = waiting.lock().expect("no panic while holding it").remove(&host);
    let mut config =
        config.context("a second daemon has reported from there, or it is no node of the allocation")?;
    let address = line.peer()?;
    if address.is_ipv6() {
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        (config.control, config.data) = (any, any);
    }
    // Those that Slurm gives it, also where its processes are in other groups than Slurm's.
    config.processors = arrived.processors;
    line.configure(&config)?;
    match line.hear()? {
        Said::Ready(ports) => {
            let (node, name) = (config.node, config.name());
            Ok(Arrival::Ready(Box::new((Daemon { node, host, name, address, ports }, line))))
        }
        Said::Failed(said) => Ok(Arrival::Failed { host, said }),
        Said::Arrived(_) => bail!("it reports twice"),
    }
}
