//! Tests of data links as they are between machines: what is done to their bytes on the way, and what happens
//! when the other end is silent. Real planes, handshakes and TCP connections; partitions between network
//! namespaces.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::Command as Program,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use coswitch_daemon::{
    pki::{Authority, Identity},
    plane::{AppPlaneEvent, Command, Connection, LinkEnd, LinkRules, Plane, PlaneEvent, connect},
    virtual_net,
};
use coswitch_policies::{Epoch, JobId, NodeId};
use coswitch_ring::{Header, Peer, RankPort, Segment, SegmentSpec};
use tokio::sync::{
    mpsc::{UnboundedReceiver, unbounded_channel},
    oneshot,
};

const JOB: JobId = JobId(3);
const LIMIT: Duration = Duration::from_secs(60);
const RECORDS: u64 = 400;
/// Larger than what lies in a ring, so that it goes through a chunk.
const LARGE: usize = 100_000;

/// The incarnation of each daemon, and another one.
const FIRST: u64 = 1;
const OTHER: u64 = 2;

fn end(node: u32) -> LinkEnd {
    LinkEnd { node: NodeId(node), incarnation: FIRST }
}

/// One of two nodes with a rank each.
struct Node {
    plane: Plane,
    events: UnboundedReceiver<PlaneEvent>,
    rank: RankPort,
    own: u32,
    sent: u64,
    taken: u64,
}

impl Node {
    fn start(own: u32, dir: &tempfile::TempDir) -> Self {
        let spec = SegmentSpec::new(2, vec![own]);
        let segment = Arc::new(Segment::create(dir.path().join(format!("segment-{own}")), &spec).unwrap());
        let (sender, events) = unbounded_channel();
        let plane = Plane::start(NodeId(own), sender).unwrap();
        plane.tell(Command::AddApp(JOB, Arc::clone(&segment), vec![NodeId(0), NodeId(1)]));
        Self { plane, events, rank: RankPort::new(segment, 0), own, sent: 0, taken: 0 }
    }

    fn payload(src: u32, number: u64) -> Vec<u8> {
        let length = if number.is_multiple_of(3) { LARGE } else { 10 + number as usize };
        (0..length).map(|at| (at as u64 * 7 + number + u64::from(src)) as u8).collect()
    }

    /// Sends the next record, if the ring takes it.
    fn send(&mut self) {
        let (dst, payload) = (1 - self.own, Self::payload(self.own, self.sent));
        let len = u32::try_from(payload.len()).unwrap();
        let header = Header { src: self.own, dst, message: self.sent, len, ..Header::EMPTY };
        let sent = if payload.len() < LARGE {
            self.rank.push(Peer::Daemon, &header, &[&payload]).unwrap()
        } else if let Some(mut chunk) = self.rank.lease_chunk(Peer::Daemon) {
            self.rank.chunk_mut(&mut chunk)[..LARGE].copy_from_slice(&payload);
            let refused = self.rank.push_chunk(&header, chunk).unwrap().err();
            let sent = refused.is_none();
            refused.into_iter().for_each(|chunk| self.rank.release(chunk));
            sent
        } else {
            false
        };
        self.sent += u64::from(sent);
    }

    /// Takes what has come, and compares it with what was sent.
    fn take(&mut self) {
        while let Some(record) = self.rank.peek(Peer::Daemon).unwrap() {
            let header = record.header;
            assert_eq!((header.dst, header.message), (self.own, self.taken), "each record once, in order");
            assert!(
                record.payload == Self::payload(header.src, header.message),
                "record {} is whole",
                self.taken
            );
            self.rank.pop(Peer::Daemon).unwrap();
            self.taken += 1;
        }
    }

    fn lost(&mut self) -> Option<(NodeId, String)> {
        match self.events.try_recv() {
            Ok(PlaneEvent::LinkLost { peer, reason, .. }) => Some((peer, reason)),
            Ok(other) => panic!("unexpected event: {other:?}"),
            Err(_) => None,
        }
    }
}

/// Both nodes send and take until each has taken `upto`, or one has lost its link: says which, and why.
fn exchange(nodes: &mut [Node; 2], upto: u64) -> Option<(u32, NodeId, String)> {
    let began = Instant::now();
    while nodes.iter().any(|node| node.taken < upto) {
        assert!(began.elapsed() < LIMIT, "taken {:?}", nodes.each_ref().map(|node| node.taken));
        for node in &mut *nodes {
            if node.sent < upto {
                node.send();
            }
            node.take();
            if let Some((peer, reason)) = node.lost() {
                return Some((node.own, peer, reason));
            }
        }
        thread::sleep(Duration::from_micros(50));
    }
    None
}

const ENCRYPTED: LinkRules = LinkRules { encrypt: true, silence: LIMIT };

/// What happens to the bytes of one read on their way from node 1 to node 0.
type Change = Box<dyn FnMut(&mut Vec<u8>) + Send>;

/// Passes bytes on between two connections; those of one direction through `change`.
fn forward(mut from: TcpStream, mut to: TcpStream, mut change: Change) {
    let mut bytes = vec![0; 60_000];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let mut some = bytes[..read].to_vec();
        change(&mut some);
        if to.write_all(&some).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Two nodes whose link leads through somebody who sees every byte.
fn joined_through(change: Change) -> (tempfile::TempDir, [Node; 2]) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let nodes = [0, 1].map(|node| Node::start(node, &dir));
    let (listener, middle) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (address, in_between) = (listener.local_addr().unwrap(), middle.local_addr().unwrap());
    thread::spawn(move || {
        let (from, to) = (middle.accept().unwrap().0, TcpStream::connect(address).unwrap());
        let (back_from, back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
        thread::spawn(move || forward(back_from, back_to, Box::new(|_| {})));
        forward(from, to, change);
    });
    let authority = Authority::new().unwrap();
    let server = authority.member().unwrap().server().unwrap();
    let accepting = thread::spawn(move || {
        connect::accept(listener.accept().unwrap().0, end(0), ENCRYPTED, &server).unwrap()
    });
    let client = authority.member().unwrap().client().unwrap();
    let connection = connect::connect(in_between, end(1), ENCRYPTED, &client, LIMIT).unwrap();
    nodes[1].plane.tell(Command::AddLink(connection));
    nodes[0].plane.tell(Command::AddLink(accepting.join().unwrap()));
    (dir, nodes)
}

/// Lets `change` change a link in use, and returns why node 0 has lost it.
fn reason_after(mut change: impl FnMut(&mut Vec<u8>) + Send + 'static) -> String {
    let armed = Arc::new(Mutex::new(false));
    let is_armed = Arc::clone(&armed);
    let change = move |bytes: &mut Vec<u8>| {
        if std::mem::take(&mut *is_armed.lock().unwrap()) {
            change(bytes);
        }
    };
    let (_dir, mut nodes) = joined_through(Box::new(change));
    assert_eq!(exchange(&mut nodes, 50), None, "untouched, the link stands");
    *armed.lock().unwrap() = true;
    let (at, peer, reason) = exchange(&mut nodes, RECORDS).expect("the link is lost");
    assert_eq!((at, peer), (0, NodeId(1)), "{reason}");
    reason
}

const TAMPERED: &str = "was changed, dropped, repeated or reordered on its way";

#[test]
fn an_encrypted_link_carries_every_record_once_whole_and_in_order() {
    let (seen, watch) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
    let (all, count) = (Arc::clone(&seen), Arc::clone(&watch));
    let (_dir, mut nodes) = joined_through(Box::new(move |bytes| {
        *count.lock().unwrap() += bytes.len();
        all.lock().unwrap().extend_from_slice(bytes);
    }));
    assert_eq!(exchange(&mut nodes, RECORDS), None);
    assert!(*watch.lock().unwrap() > RECORDS as usize / 3 * LARGE, "it went this way");
    let plain = Node::payload(1, 1);
    assert!(!seen.lock().unwrap().windows(plain.len()).any(|bytes| bytes == plain), "no message can be read");
    assert!(!seen.lock().unwrap().windows(4).any(|bytes| bytes == b"CSWD"), "no frame can be read");
}

#[test]
fn a_changed_byte_ends_an_encrypted_link() {
    assert!(reason_after(|bytes| *bytes.last_mut().unwrap() ^= 1).ends_with(TAMPERED));
}

#[test]
fn a_dropped_byte_ends_an_encrypted_link() {
    let reason = reason_after(|bytes| bytes.truncate(bytes.len() - 1));
    assert!(reason.ends_with(TAMPERED) || reason.contains("more than a record has"), "{reason}");
}

#[test]
fn repeated_bytes_end_an_encrypted_link() {
    let reason = reason_after(|bytes| bytes.extend_from_within(..));
    assert!(reason.ends_with(TAMPERED) || reason.contains("more than a record has"), "{reason}");
}

#[test]
fn bytes_of_earlier_in_the_place_of_later_ones_end_an_encrypted_link() {
    let reason = reason_after(|bytes| bytes.rotate_left(1));
    assert!(reason.ends_with(TAMPERED) || reason.contains("more than a record has"), "{reason}");
}

/// Joins two nodes by a new link, in the clear.
fn join(nodes: &[Node; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let here = listener.accept().unwrap().0;
    for (node, stream, peer) in [(&nodes[0], here, 1), (&nodes[1], there, 0)] {
        stream.set_nonblocking(true).unwrap();
        let connection =
            Connection { peer: NodeId(peer), incarnation: FIRST, stream, keys: None, silence: LIMIT };
        node.plane.tell(Command::AddLink(connection));
    }
}

fn unjoined() -> (tempfile::TempDir, [Node; 2]) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let nodes = [0, 1].map(|node| Node::start(node, &dir));
    (dir, nodes)
}

fn wait_for<T>(mut what: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(there) = what() {
            return there;
        }
        assert!(began.elapsed() < LIMIT, "waited for too long");
        thread::sleep(Duration::from_micros(200));
    }
}

/// The applications whose messages a lost link of `node` may have held.
fn jobs_of_lost(node: &mut Node) -> Vec<JobId> {
    wait_for(|| match node.events.try_recv() {
        Ok(PlaneEvent::LinkLost { jobs, .. }) => Some(jobs),
        Ok(other) => panic!("unexpected event: {other:?}"),
        Err(_) => None,
    })
}

/// Cuts the application on both nodes; no rank plays meanwhile.
fn cut(nodes: &mut [Node; 2], epoch: Epoch) {
    nodes.iter().for_each(|node| node.plane.tell(Command::BeginCut(JOB, epoch)));
    let mut flushed = [false; 2];
    wait_for(|| {
        for (node, flushed) in nodes.iter_mut().zip(&mut flushed) {
            match node.events.try_recv() {
                Ok(PlaneEvent::App { event: AppPlaneEvent::Freeze { epoch }, .. }) => {
                    node.plane.tell(Command::Frozen(JOB, epoch, true));
                }
                Ok(PlaneEvent::App { event: AppPlaneEvent::Flushed { .. }, .. }) => *flushed = true,
                Ok(other) => panic!("unexpected event: {other:?}"),
                Err(_) => {}
            }
        }
        (flushed == [true; 2]).then_some(())
    });
}

#[test]
fn who_waits_for_links_is_answered_when_all_are_there() {
    let (_dir, nodes) = unjoined();
    let missing = |node: &Node, peers: &[u32]| {
        let (reply, answer) = oneshot::channel();
        let peers = peers.iter().copied().map(NodeId).collect();
        node.plane.tell(Command::MissingLinks(peers, reply));
        answer.blocking_recv().unwrap().into_iter().map(|node| node.0).collect::<Vec<_>>()
    };
    assert_eq!(missing(&nodes[0], &[1, 2]), [1, 2]);
    let (reply, mut one) = oneshot::channel();
    nodes[0].plane.tell(Command::AwaitLinks([NodeId(1)].into(), reply));
    let (reply, mut both) = oneshot::channel();
    nodes[0].plane.tell(Command::AwaitLinks([NodeId(1), NodeId(2)].into(), reply));
    assert_eq!(missing(&nodes[0], &[1, 2]), [1, 2]);
    assert!(one.try_recv().is_err(), "not before the link is there");
    join(&nodes);
    one.blocking_recv().expect("answered");
    assert_eq!(missing(&nodes[0], &[1, 2]), [2]);
    assert!(both.try_recv().is_err(), "one of them is not there");
}

#[test]
fn messages_wait_for_a_link_that_is_not_there_yet() {
    let (_dir, mut nodes) = unjoined();
    for _ in 0..20 {
        nodes.iter_mut().for_each(Node::send);
    }
    thread::sleep(Duration::from_millis(50));
    join(&nodes);
    assert_eq!(exchange(&mut nodes, RECORDS), None);
}

#[test]
fn a_link_lost_at_a_complete_cut_is_no_loss_and_another_one_takes_its_place() {
    let (_dir, mut nodes) = unjoined();
    join(&nodes);
    let rounds = 6;
    for round in 1..=rounds {
        let epoch = Epoch(round);
        // Not all of these are taken before the cut.
        assert_eq!(exchange(&mut nodes, 60 * round), None);
        for _ in 0..40 {
            nodes[0].send();
        }
        cut(&mut nodes, epoch);
        nodes[round as usize % 2].plane.tell(Command::DropOtherLink(NodeId(1 - round as u32 % 2), OTHER));
        for node in &mut nodes {
            assert_eq!(jobs_of_lost(node), [], "nothing was in it");
        }
        join(&nodes);
        nodes.iter().for_each(|node| node.plane.tell(Command::Resume(JOB, epoch)));
    }
    assert_eq!(exchange(&mut nodes, RECORDS), None);
}

#[test]
fn a_link_lost_below_running_ranks_is_a_loss_at_both_ends() {
    let (_dir, mut nodes) = unjoined();
    join(&nodes);
    assert_eq!(exchange(&mut nodes, 50), None);
    nodes[1].plane.tell(Command::DropOtherLink(NodeId(0), OTHER));
    for node in &mut nodes {
        assert_eq!(jobs_of_lost(node), [JOB]);
    }
    // Also where one end has not noticed before the other has made a new link.
    join(&nodes);
    assert_eq!(exchange(&mut nodes, 50), None);
    join(&nodes);
    for node in &mut nodes {
        assert_eq!(jobs_of_lost(node), [JOB]);
    }
}

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
        let (one, other): (Identity, Identity) = (authority.member().unwrap(), authority.member().unwrap());
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
        let connected: Connection = namespaces[1]
            .run(move || connect::connect(address, end(1), rules, &other.client().unwrap(), LIMIT).unwrap());
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

/// Both ends lose the link within the limit and a quarter, and a second for the timers of the kernel; the rest
/// is for a machine under load.
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
