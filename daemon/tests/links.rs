//! Tests of data links: what is done to the bytes of an encrypted one on the way, and what is lost with one
//! that breaks. Real planes, handshakes and TCP connections.

mod pair;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use coswitch_daemon::{
    pki::{Authority, Holder},
    plane::{AppPlaneEvent, Command, Connection, LinkRules, PlaneEvent, connect},
};
use coswitch_policies::{Epoch, JobId, NodeId};
use pair::{FIRST, JOB, LARGE, LIMIT, Node, RECORDS, end, exchange};
use tokio::sync::oneshot;

/// The incarnation of no daemon here.
const OTHER: u64 = FIRST + 1;
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
    let server = authority.certify(Holder::Node(NodeId(0))).unwrap().server().unwrap();
    let accepting = thread::spawn(move || {
        connect::accept(listener.accept().unwrap().0, end(0), ENCRYPTED, &server).unwrap()
    });
    let client = authority.certify(Holder::Node(NodeId(1))).unwrap().client().unwrap();
    let connection = connect::connect((NodeId(0), in_between), end(1), ENCRYPTED, &client, LIMIT).unwrap();
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
    // What each data frame begins with, and chance does not bring forth: magic number, kind.
    let frame = *b"CSWD\0\0\0\0";
    assert!(!seen.lock().unwrap().windows(frame.len()).any(|bytes| bytes == frame), "no frame can be read");
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
