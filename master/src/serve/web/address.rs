//! Where the live page listens, as the command line says it.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs},
    str::FromStr,
};

use thiserror::Error;

/// Where the live page listens unless it is told otherwise.
pub const DEFAULT_HTTP: &str = "127.0.0.1:8417";
const LOOPBACK: &str = "127.0.0.1";

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAddress {
    /// A name, or an IP address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

#[derive(Debug, Error)]
pub enum AddressError {
    #[error(
        "it is no address: PORT, or HOST:PORT as in {DEFAULT_HTTP} or [::1]:8417; FILE stands before \
         `--http`, or ADDR directly behind it as in `--http={DEFAULT_HTTP}`"
    )]
    Malformed,
    #[error("{0} does not lead to an address of this machine: {1}")]
    Unknown(HttpAddress, io::Error),
    #[error("{0} is in use: name another port by --http, or 0 for any that is free")]
    InUse(HttpAddress),
    #[error("the live page cannot listen at {0}: {1}")]
    Io(HttpAddress, io::Error),
}

impl FromStr for HttpAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Ok(port) = text.parse() {
            return Ok(Self { host: LOOPBACK.into(), port });
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self { host: address.ip().to_string(), port: address.port() });
        }
        let (host, port) = text.rsplit_once(':').ok_or(AddressError::Malformed)?;
        let is_name =
            !host.is_empty() && host.bytes().all(|c| c.is_ascii_alphanumeric() || b".-_".contains(&c));
        let port = port.parse().ok().filter(|_| is_name).ok_or(AddressError::Malformed)?;
        Ok(Self { host: host.into(), port })
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl HttpAddress {
    /// The host as a browser on this machine may call it, where it listens at `local`.
    pub(super) fn reachable(&self, local: IpAddr) -> Self {
        let host = match local {
            IpAddr::V4(ip) if ip.is_unspecified() => LOOPBACK.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => "::1".into(),
            _ => self.host.clone(),
        };
        Self { host, port: self.port }
    }

    /// Listens there.
    ///
    /// # Errors
    /// [`AddressError`]
    pub(super) fn bind(&self) -> Result<TcpListener, AddressError> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let found: Vec<SocketAddr> =
            found.map_err(|cause| AddressError::Unknown(self.clone(), cause))?.collect();
        TcpListener::bind(&*found).map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => AddressError::InUse(self.clone()),
            io::ErrorKind::AddrNotAvailable => AddressError::Unknown(self.clone(), cause),
            _ => AddressError::Io(self.clone(), cause),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_this_machine_and_nonsense_is_refused() {
        let shown = |text: &str| text.parse::<HttpAddress>().map(|address| address.to_string()).ok();
        for (text, meant) in [
            ("8417", "127.0.0.1:8417"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:8417", "[::1]:8417"),
            ("head-1.site:8417", "head-1.site:8417"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(meant));
        }
        for text in ["", "cluster.yaml", "host:", ":80", "1.2.3.4", "::1", "a/b:80", "h:70000", "jobs.yaml:x"]
        {
            assert_eq!(shown(text), None, "{text}");
        }
    }

    #[test]
    fn a_busy_port_and_a_foreign_address_are_told_apart() {
        let first = "127.0.0.1:0".parse::<HttpAddress>().unwrap().bind().unwrap();
        let address: HttpAddress = first.local_addr().unwrap().to_string().parse().unwrap();
        assert!(matches!(address.bind(), Err(AddressError::InUse(_))));
        let foreign = "192.0.2.1:0".parse::<HttpAddress>().unwrap().bind();
        assert!(matches!(foreign, Err(AddressError::Unknown(..))), "{foreign:?}");
    }
}
