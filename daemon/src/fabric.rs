//! The virtual network of `nodes: N`: one network namespace per node, joined by veth pairs to a bridge (DESIGN §10).
//!
//! ```text
//!   head namespace (master)          node-0 namespace        node-1 namespace
//!   br0 10.83.255.254 ── cs0 ═══════ eth0 10.83.0.1          eth0 10.83.0.2
//!        └────────────── cs1 ════════════════════════════════╛
//! ```
//! No namespace has a name or a mount: each lives exactly as long as the processes in it, so that nothing is left
//! however they end. Links are shaped by `tbf` in both directions, at the sender's side of each.

use std::{
    io::{self, Write},
    net::Ipv4Addr,
    process::{Command, Stdio},
};

use coswitch_policies::{NodeId, Rate};
use nix::sched::{CloneFlags, unshare};
use thiserror::Error;

const HEAD: Ipv4Addr = Ipv4Addr::new(10, 83, 255, 254);
/// Bytes that pass at once on a slow link.
const SMALL_BURST: u64 = 20 << 10;

/// Why the virtual network could not be built.
#[derive(Debug, Error)]
pub enum FabricError {
    /// No permission, or the kernel has no network namespaces.
    #[error("a network namespace could not be made")]
    Namespace(#[source] nix::Error),
    /// `ip` or `tc` could not be started.
    #[error("`{0}` could not be run (package iproute2)")]
    Tool(&'static str, #[source] io::Error),
    /// `ip` or `tc` refused.
    #[error("`{tool}` refused `{script}`: {stderr}")]
    Refused {
        /// Which.
        tool: &'static str,
        /// What it was told.
        script: String,
        /// What it said.
        stderr: String,
    },
}

/// The address of a node on the bridge.
#[must_use]
pub fn address(node: NodeId) -> Ipv4Addr {
    let host = node.0 + 1;
    Ipv4Addr::new(
        10,
        83,
        u8::try_from(host >> 8).expect("fewer than 65,000 virtual nodes"),
        (host & 0xff) as u8,
    )
}

/// Puts the calling thread, and all threads that it will start, into a new network namespace that holds the bridge.
///
/// # Errors
/// [`FabricError`]
pub fn enter_head() -> Result<(), FabricError> {
    enter_namespace()?;
    run("ip", &format!("link add br0 type bridge\naddr add {HEAD}/16 dev br0\nlink set br0 up\n"))
}

/// Puts the calling thread, and all threads that it will start, into a new, empty network namespace.
///
/// # Errors
/// [`FabricError`]
pub fn enter_namespace() -> Result<(), FabricError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(FabricError::Namespace)?;
    run("ip", "link set lo up\n")
}

/// From the head namespace: plugs the namespace of process `pid` into the bridge as `node`.
///
/// # Errors
/// [`FabricError`]
pub fn plug(node: NodeId, pid: u32, rate: Option<Rate>) -> Result<(), FabricError> {
    let port = format!("cs{}", node.0);
    let mtu = mtu(rate);
    run(
        "ip",
        &format!(
            "link add {port} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {pid}\n\
             link set {port} master br0\nlink set {port} up\n"
        ),
    )?;
    shape(&port, rate)
}

/// Inside a node's namespace, once plugged: gives the link its address.
///
/// # Errors
/// [`FabricError`]
pub fn configure_link(node: NodeId, rate: Option<Rate>) -> Result<(), FabricError> {
    run("ip", &format!("addr add {}/16 dev eth0\nlink set eth0 up\n", address(node)))?;
    shape("eth0", rate)
}

/// At full speed the link is as wide as loopback; at a rate it is Ethernet, whose packets a real switch would see.
fn mtu(rate: Option<Rate>) -> u32 {
    if rate.is_some() { 1500 } else { 65_535 }
}

fn shape(device: &str, rate: Option<Rate>) -> Result<(), FabricError> {
    let Some(rate) = rate else { return Ok(()) };
    // What the bucket saves up while nobody sends passes at once afterwards, as on no real link. So it holds a
    // millisecond, or where that is less, little more than one packet; and packets are small there.
    let burst = (rate.0 / 8 / 1000).max(SMALL_BURST);
    let packet = (burst / 5 * 4).min(1 << 16);
    run("ip", &format!("link set {device} gso_max_size {packet}\n"))?;
    run("tc", &format!("qdisc add dev {device} root tbf rate {}bit burst {burst}b latency 50ms\n", rate.0))
}

/// Runs `ip` or `tc` on a script, all or (where a line is refused) an error.
fn run(tool: &'static str, script: &str) -> Result<(), FabricError> {
    let failed = |error| FabricError::Tool(tool, error);
    let mut child = Command::new(tool)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    child.stdin.take().expect("piped").write_all(script.as_bytes()).map_err(failed)?;
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(FabricError::Refused { tool, script: script.trim().replace('\n', "; "), stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_distinct_addresses_that_are_not_the_head() {
        let all: Vec<_> = (0..600).map(|n| address(NodeId(n))).collect();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert!(!distinct.contains(&HEAD));
    }
}
