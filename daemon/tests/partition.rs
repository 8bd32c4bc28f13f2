//! Tests of silent data links: partitions between network namespaces, whose kernels hear nothing of them.

mod pair;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    process::Command as Program,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use coswitch_daemon::{
    pki::{Authority, Holder, Identity},
    plane::{Command, Connection, LinkRules, connect},
    virtual_net,
};
use coswitch_policies::NodeId;
use pair::{LIMIT, Node, RECORDS, end, exchange};

/// A network namespace and a thread in it; the namespace ends with the thread.
struct Namespace {
    work: Sender<Box<dyn FnOnce() + Send>>,
}

impl Namespace {
    fn start(enter: impl FnOnce() + Send + 'static) -> (Self, u32) {
        let (work, orders) = channel::<Box<dyn FnOnce() + Send>>();
        let (id, own) = channel();
        thread::spawn(move || {
            enter();
            id.send(nix::unistd::gettid().as_raw()).unwrap();
            orders.into_iter().for_each(|work| work());
        });
        (Self { work }, u32::try_from(own.recv_timeout(LIMIT).unwrap()).unwrap())
    }

    fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (answer, result) = channel();
        self.work.send(Box::new(move || drop(answer.send(work())))).unwrap();
        result
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.begin(work).recv_timeout(LIMIT).unwrap()
    }
}

/// Two nodes with namespaces of their own, and the namespace of the bridge between them.
struct Cluster {
    _dir: tempfile::TempDir,
    nodes: [Node; 2],
    bridge: Namespace,
    _namespaces: [Namespace; 2],
}

impl Cluster {
    fn join(silence: Duration) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let nodes = [0, 1].map(|node| Node::start(node, &dir));
        let (bridge, _) = Namespace::start(|| virtual_net::enter_head().unwrap());
        let namespaces = [0, 1].map(|node| {
            let (namespace, id) = Namespace::start(|| virtual_net::enter_namespace().unwrap());
            bridge.run(move || virtual_net::plug(NodeId(node), id, None).unwrap());
            namespace.run(move || virtual_net::configure_link(NodeId(node), None).unwrap());
            namespace
        });
        let authority = Authority::new().unwrap();
        let [one, other]: [Identity; 2] =
            [0, 1].map(|node| authority.certify(Holder::Node(NodeId(node))).unwrap());
        let rules = LinkRules { encrypt: true, silence };
        let (bound, port) = channel();
        let accepted = namespaces[0].begin(move || {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            bound.send(listener.local_addr().unwrap().port()).unwrap();
            let stream = listener.accept().unwrap().0;
            connect::accept(stream, end(0), rules, &one.server().unwrap()).unwrap()
        });
        let port = port.recv_timeout(LIMIT).unwrap();
        let address = SocketAddr::new(IpAddr::V4(virtual_net::address(NodeId(0))), port);
        let connected: Connection = namespaces[1].run(move || {
            connect::connect((NodeId(0), address), end(1), rules, &other.client().unwrap(), LIMIT).unwrap()
        });
        nodes[1].plane.tell(Command::AddLink(connected));
        nodes[0].plane.tell(Command::AddLink(accepted.recv_timeout(LIMIT).unwrap()));
        Self { _dir: dir, nodes, bridge, _namespaces: namespaces }
    }

    /// Cuts node 1 off, or connects it again. Nobody is told: packets end at the bridge.
    fn set_partition(&self, is_there: bool) {
        self.bridge.run(move || {
            let to = if is_there { "nomaster" } else { "master" };
            let mut ip = Program::new("ip");
            ip.args(["link", "set", "cs1", to]);
            if !is_there {
                ip.arg("br0");
            }
            assert!(ip.status().unwrap().success());
        });
    }
}

#[test]
fn a_pause_of_the_network_shorter_than_the_limit_loses_nothing() {
    let mut cluster = Cluster::join(Duration::from_secs(20));
    assert_eq!(exchange(&mut cluster.nodes, 50), None);
    cluster.set_partition(true);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        for node in &mut cluster.nodes {
            node.send();
            node.take();
            assert_eq!(node.lost(), None);
        }
        thread::sleep(Duration::from_millis(1));
    }
    cluster.set_partition(false);
    assert_eq!(exchange(&mut cluster.nodes, RECORDS), None);
}

/// Both ends lose the link within the limit and a quarter, and a second for the timers of the kernel; the
/// rest is for a machine under load.
fn found_at_both_ends(cluster: &mut Cluster, silence: Duration) {
    cluster.set_partition(true);
    let began = Instant::now();
    let mut found = [false; 2];
    while found != [true; 2] {
        assert!(began.elapsed() < silence * 5 / 4 + Duration::from_secs(6), "found: {found:?}");
        for (node, found) in cluster.nodes.iter_mut().zip(&mut found) {
            if let Some((peer, reason)) = node.lost() {
                assert_eq!((peer.0, reason.as_str()), (1 - node.own, "it has not answered for 4s"));
                assert!(began.elapsed() >= silence / 2, "not before the limit");
                *found = true;
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_silent_partition_is_found_while_nothing_is_sent() {
    let silence = Duration::from_secs(4);
    let mut cluster = Cluster::join(silence);
    assert_eq!(exchange(&mut cluster.nodes, 50), None);
    found_at_both_ends(&mut cluster, silence);
}

#[test]
fn a_silent_partition_is_found_while_messages_wait() {
    let silence = Duration::from_secs(4);
    let mut cluster = Cluster::join(silence);
    assert_eq!(exchange(&mut cluster.nodes, 50), None);
    cluster.set_partition(true);
    for _ in 0..100 {
        cluster.nodes[0].send();
    }
    found_at_both_ends(&mut cluster, silence);
}
