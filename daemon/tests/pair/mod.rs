//! Two planes with a rank each, that send each other records of all sizes and check what comes.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use coswitch_daemon::plane::{Command, LinkEnd, Plane, PlaneEvent};
use coswitch_policies::{JobId, NodeId};
use coswitch_ring::{Header, Peer, RankPort, Segment, SegmentSpec};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

pub(crate) const JOB: JobId = JobId(3);
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const RECORDS: u64 = 400;
/// Larger than what lies in a ring, so that it goes through a chunk.
pub(crate) const LARGE: usize = 100_000;

/// The incarnation of each daemon.
pub(crate) const FIRST: u64 = 1;

pub(crate) fn end(node: u32) -> LinkEnd {
    LinkEnd { node: NodeId(node), incarnation: FIRST }
}

/// One of two nodes with a rank each.
pub(crate) struct Node {
    pub(crate) plane: Plane,
    pub(crate) events: UnboundedReceiver<PlaneEvent>,
    rank: RankPort,
    pub(crate) own: u32,
    sent: u64,
    taken: u64,
}

impl Node {
    pub(crate) fn start(own: u32, dir: &tempfile::TempDir) -> Self {
        let spec = SegmentSpec::new(2, vec![own]);
        let segment = Arc::new(Segment::create(dir.path().join(format!("segment-{own}")), &spec).unwrap());
        let (sender, events) = unbounded_channel();
        let plane = Plane::start(NodeId(own), sender).unwrap();
        plane.tell(Command::AddApp(JOB, Arc::clone(&segment), vec![NodeId(0), NodeId(1)]));
        Self { plane, events, rank: RankPort::new(segment, 0), own, sent: 0, taken: 0 }
    }

    pub(crate) fn payload(src: u32, number: u64) -> Vec<u8> {
        let length = if number.is_multiple_of(3) { LARGE } else { 10 + number as usize };
        (0..length).map(|at| (at as u64 * 7 + number + u64::from(src)) as u8).collect()
    }

    /// Sends the next record, if the ring takes it.
    pub(crate) fn send(&mut self) {
        let (dst, payload) = (1 - self.own, Self::payload(self.own, self.sent));
        let len = u32::try_from(payload.len()).unwrap();
        let header = Header { src: self.own, dst, message: self.sent, len, ..Header::EMPTY };
        let sent = if payload.len() < LARGE {
            self.rank.push(Peer::Daemon, &header, &[&payload]).unwrap()
        } else if let Some(chunk) = self.rank.lease_chunk(Peer::Daemon) {
            self.rank.chunk(&chunk).first(LARGE).copy_from(&payload);
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
    pub(crate) fn take(&mut self) {
        while let Some(record) = self.rank.peek(Peer::Daemon).unwrap() {
            let header = record.header;
            assert_eq!((header.dst, header.message), (self.own, self.taken), "each record once, in order");
            assert!(
                record.payload.to_vec() == Self::payload(header.src, header.message),
                "record {} is whole",
                self.taken
            );
            self.rank.pop(Peer::Daemon).unwrap();
            self.taken += 1;
        }
    }

    pub(crate) fn lost(&mut self) -> Option<(NodeId, String)> {
        match self.events.try_recv() {
            Ok(PlaneEvent::LinkLost { peer, reason, .. }) => Some((peer, reason)),
            Ok(other) => panic!("unexpected event: {other:?}"),
            Err(_) => None,
        }
    }
}

/// Both nodes send and take until each has taken `upto`, or one has lost its link: says which, and why.
pub(crate) fn exchange(nodes: &mut [Node; 2], upto: u64) -> Option<(u32, NodeId, String)> {
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
