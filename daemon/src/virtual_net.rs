//! The virtual network of `nodes: N`: one network namespace per node, joined by veth pairs to a bridge.
//!
//! ```text
//!   head namespace (master)          node-0 namespace        node-1 namespace
//!   br0 10.83.255.254 ── cs0 ═══════ eth0 10.83.0.1          eth0 10.83.0.2
//!        └────────────── cs1 ════════════════════════════════╛
//! ```
//! No namespace has a name or a mount: each ends with the last process in it or that holds it open, so
//! nothing is left behind. The daemons of a standing cluster hold that of the head node open, for a new
//! master.
//! `tbf` shapes each link in both directions, at the sender.

use std::{
    fs::{self, File},
    io::{self, Write},
    net::Ipv4Addr,
    process::{Command, Stdio},
};

use coswitch_policies::{NodeId, Rate};
use nix::sched::{CloneFlags, setns, unshare};
use thiserror::Error;

const HEAD: Ipv4Addr = Ipv4Addr::new(10, 83, 255, 254);
/// Smallest burst in bytes, for slow links.
const SMALL_BURST: u64 = 20 << 10;

#[derive(Debug, Error)]
pub enum VirtualNetError {
    #[error("a network namespace could not be made")]
    Namespace(#[source] nix::Error),
    #[error("process {0} does not hold the network of the cluster's head node open: {1}")]
    Held(u32, #[source] io::Error),
    #[error("process {0} has left no network behind")]
    Gone(u32, #[source] io::Error),
    #[error("`{0}` could not be run (package iproute2)")]
    Tool(&'static str, #[source] io::Error),
    #[error("`{tool}` refused `{script}`: {stderr}")]
    Refused { tool: &'static str, script: String, stderr: String },
}

/// The address of a node on the bridge.
pub fn address(node: NodeId) -> Ipv4Addr {
    let host = node.0 + 1;
    Ipv4Addr::new(
        10,
        83,
        u8::try_from(host >> 8).expect("fewer than 65,000 virtual nodes"),
        (host & 0xff) as u8,
    )
}

/// The hardware address that goes with an address. It is the same when a node is plugged in again: the others
/// remember it for half a minute, and would send to nobody meanwhile.
fn hardware_address(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// Puts the calling thread, and all threads that it starts later, into a new network namespace with the
/// bridge.
pub fn enter_head() -> Result<(), VirtualNetError> {
    enter_namespace()?;
    let hardware = hardware_address(HEAD);
    run(
        "ip",
        &format!(
            "link add br0 address {hardware} type bridge\naddr add {HEAD}/16 dev br0\nlink set br0 up\n"
        ),
    )
}

/// The network namespace of the calling thread, held open.
///
/// # Errors
/// Where the kernel does not show it.
pub fn hold_namespace() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Puts the calling thread, and all threads that it starts later, into the network namespace that a daemon
/// holds open.
///
/// # Errors
/// Where the process holds none.
pub fn enter_held(pid: u32) -> Result<(), VirtualNetError> {
    let open = |error: io::Error| VirtualNetError::Held(pid, error);
    let held = fs::read_dir(format!("/proc/{pid}/fd")).map_err(open)?.flatten().find(|entry| {
        fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().starts_with("net:["))
    });
    let held = held.ok_or_else(|| open(io::ErrorKind::NotFound.into()))?;
    let namespace = File::open(held.path()).map_err(open)?;
    setns(namespace, CloneFlags::CLONE_NEWNET).map_err(VirtualNetError::Namespace)
}

/// Puts the calling thread, and all threads that it starts later, into a new, empty network namespace.
pub fn enter_namespace() -> Result<(), VirtualNetError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(VirtualNetError::Namespace)?;
    run("ip", "link set lo up\n")
}

/// Puts the calling thread, and all threads that it starts later, into the network namespace of a process
/// that the node's daemon before has left. The link of that daemon goes.
///
/// # Errors
/// Where the process has ended.
pub fn enter_that_of(pid: u32) -> Result<(), VirtualNetError> {
    let open = |error: io::Error| VirtualNetError::Gone(pid, error);
    let namespace = File::open(format!("/proc/{pid}/ns/net")).map_err(open)?;
    setns(namespace, CloneFlags::CLONE_NEWNET).map_err(VirtualNetError::Namespace)?;
    // Most often it is gone with its other end.
    let _ = run("ip", "link del eth0\n");
    Ok(())
}

/// Connects the namespace of process `pid` to the bridge as `node`; called in the head namespace.
pub fn plug(node: NodeId, pid: u32, rate: Option<Rate>) -> Result<(), VirtualNetError> {
    let port = format!("cs{}", node.0);
    let (mtu, hardware) = (mtu(rate), hardware_address(address(node)));
    run(
        "ip",
        &format!(
            "link add {port} mtu {mtu} type veth peer name eth0 mtu {mtu} \
             address {hardware} netns {pid}\n\
             link set {port} master br0\nlink set {port} up\n"
        ),
    )?;
    shape(&port, rate)
}

/// Removes the link of `node` from the bridge, where there is one; called in the head namespace.
pub fn unplug(node: NodeId) {
    // Most often it is gone with the namespace of the node.
    let _ = run("ip", &format!("link del cs{}\n", node.0));
}

/// Gives the link its address; called in a node's namespace after [`plug`].
pub fn configure_link(node: NodeId, rate: Option<Rate>) -> Result<(), VirtualNetError> {
    run("ip", &format!("addr add {}/16 dev eth0\nlink set eth0 up\n", address(node)))?;
    shape("eth0", rate)
}

/// Without a rate the link has the packet size of loopback, with a rate that of Ethernet.
fn mtu(rate: Option<Rate>) -> u32 {
    if rate.is_some() { 1500 } else { 65_535 }
}

fn shape(device: &str, rate: Option<Rate>) -> Result<(), VirtualNetError> {
    let Some(rate) = rate else { return Ok(()) };
    // An idle link fills the bucket, and a full bucket passes at once, unlike on a real link. So the bucket
    // holds the bytes of a millisecond, or of little more than one packet; and packets are small on a slow
    // link.
    let burst = (rate.0 / 8 / 1000).max(SMALL_BURST);
    let packet = (burst / 5 * 4).min(1 << 16);
    run("ip", &format!("link set {device} gso_max_size {packet}\n"))?;
    run("tc", &format!("qdisc add dev {device} root tbf rate {}bit burst {burst}b latency 50ms\n", rate.0))
}

/// Runs `ip` or `tc` on a script; an error where it refuses a line.
fn run(tool: &'static str, script: &str) -> Result<(), VirtualNetError> {
    let failed = |error| VirtualNetError::Tool(tool, error);
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
    Err(VirtualNetError::Refused { tool, script: script.trim().replace('\n', "; "), stderr })
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
