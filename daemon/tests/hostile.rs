//! A data plane with two applications, one of which has a hostile rank, and with a hostile peer: what they
//! do hurts neither the other application nor its link.

use std::{
    fs::File,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use coswitch_daemon::plane::{AppPlaneEvent, Command, Connection, Plane, PlaneEvent};
use coswitch_policies::{JobId, NodeId};
use coswitch_ring::{
    HEADER_BYTES, Header, MessagePort, Peer, RankPort, Segment, SegmentSpec, survive_missing_pages,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const HOSTILE: JobId = JobId(1);
const OTHER: JobId = JobId(2);
const LIMIT: Duration = Duration::from_secs(20);
const LARGE: usize = 100_000;
const HEAD: usize = 24;

/// A part of an application of two ranks; rank 0 is here.
struct Part {
    /// As the daemon has it mapped.
    segment: Arc<Segment>,
    /// As the rank has it mapped.
    rank: RankPort,
}

impl Part {
    fn file(&self) -> File {
        File::options().read(true).write(true).open(self.segment.path()).unwrap()
    }

    fn send(&mut self, number: u64, payload: &[u8]) {
        let header = Header { dst: 1, message: number, len: payload.len() as u32, ..Header::EMPTY };
        if payload.len() < LARGE {
            return assert!(self.rank.push(Peer::Daemon, &header, &[payload]).unwrap());
        }
        let chunk = self.rank.lease_chunk(Peer::Daemon).expect("a free chunk");
        self.rank.chunk(&chunk).first(payload.len()).copy_from(payload);
        assert!(self.rank.push_chunk(&header, chunk).unwrap().is_ok());
    }

    /// The next record that the daemon delivers.
    fn receive(&mut self) -> (u64, Vec<u8>) {
        let began = Instant::now();
        loop {
            if let Some(record) = self.rank.peek(Peer::Daemon).unwrap() {
                let received = (record.header.message, record.payload.to_vec());
                self.rank.pop(Peer::Daemon).unwrap();
                return received;
            }
            assert!(began.elapsed() < LIMIT, "no record has come");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Node 0, and what its peer on node 1 has in its hands.
struct Stage {
    plane: Plane,
    events: UnboundedReceiver<PlaneEvent>,
    hostile: Part,
    other: Part,
    _dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        survive_missing_pages().unwrap();
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (sender, events) = unbounded_channel();
        let plane = Plane::start(NodeId(0), sender).unwrap();
        let [hostile, other] = [HOSTILE, OTHER].map(|job| {
            let path = dir.path().join(job.to_string());
            let segment = Arc::new(Segment::create(&path, &SegmentSpec::new(2, vec![0])).unwrap());
            plane.tell(Command::AddApp(job, Arc::clone(&segment), vec![NodeId(0), NodeId(1)]));
            Part { segment, rank: RankPort::new(Arc::new(Segment::open(&path).unwrap()), 0) }
        });
        Self { plane, events, hostile, other, _dir: dir }
    }

    /// Another link to node 1; returns its other end.
    fn link(&self) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.set_read_timeout(Some(LIMIT)).unwrap();
        let stream = listener.accept().unwrap().0;
        stream.set_nonblocking(true).unwrap();
        let connection = Connection { peer: NodeId(1), incarnation: 1, stream, keys: None, silence: LIMIT };
        self.plane.tell(Command::AddLink(connection));
        peer
    }

    fn event(&mut self) -> PlaneEvent {
        let began = Instant::now();
        loop {
            match self.events.try_recv() {
                Ok(event) => return event,
                Err(_) => assert!(began.elapsed() < LIMIT, "nothing was told"),
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn assert_damaged(&mut self) {
        match self.event() {
            PlaneEvent::App { job: HOSTILE, event: AppPlaneEvent::Corrupt { reason } } => {
                assert!(reason.starts_with("pages are missing"), "{reason}");
            }
            other => panic!("unexpected event {other:?}"),
        }
    }

    /// The other application goes on over the same link.
    fn assert_unharmed(&mut self, peer: &mut TcpStream) {
        for (number, payload) in [(70, vec![7; 10]), (71, vec![8; LARGE])] {
            self.other.send(number, &payload);
            assert_eq!(take(peer, OTHER), (number, payload));
            peer.write_all(&frame(OTHER, number, &[9; LARGE])).unwrap();
            assert_eq!(self.other.receive(), (number, vec![9; LARGE]));
        }
        assert!(self.events.try_recv().is_err(), "nothing else was told");
    }
}

fn head(job: JobId, announced: u32, header: &Header) -> Vec<u8> {
    let words = [u32::from_le_bytes(*b"CSWD"), 0, job.0, announced, 0, 0];
    [words.map(u32::to_le_bytes).concat(), header.as_bytes().to_vec()].concat()
}

/// As a peer sends a record to rank 0.
fn frame(job: JobId, number: u64, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u32;
    let header = Header { src: 1, dst: 0, message: number, len, ..Header::EMPTY };
    [head(job, len, &header), payload.to_vec()].concat()
}

/// The next record of this job that has come over the link.
fn take(peer: &mut TcpStream, job: JobId) -> (u64, Vec<u8>) {
    loop {
        let mut head = [0; HEAD];
        peer.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        if word(4) != 0 {
            continue;
        }
        let (mut header, mut payload) = ([0; HEADER_BYTES], vec![0; word(12) as usize]);
        peer.read_exact(&mut header).unwrap();
        peer.read_exact(&mut payload).unwrap();
        if word(8) == job.0 {
            return (Header::from_bytes(&header).message, payload);
        }
    }
}

#[test]
fn a_segment_that_is_cut_ends_its_own_application() {
    for left in [0, 4096, 1 << 20] {
        let mut stage = Stage::new();
        let mut peer = stage.link();
        stage.hostile.file().set_len(left).unwrap();
        // Rings and slab; the rank writes to pages of its own, perhaps.
        peer.write_all(&frame(HOSTILE, 1, &[1; LARGE])).unwrap();
        stage.assert_damaged();
        stage.assert_unharmed(&mut peer);
    }
}

#[test]
fn a_chunk_that_is_cut_off_while_the_kernel_sends_it_costs_no_link() {
    let mut stage = Stage::new();
    stage.hostile.send(1, &[1; LARGE]);
    let slabs =
        2 * u64::from(stage.hostile.segment.chunks_per_rank()) * stage.hostile.segment.chunk_bytes() as u64;
    stage.hostile.file().set_len(stage.hostile.segment.len() - slabs).unwrap();
    let mut peer = stage.link();
    assert_eq!(take(&mut peer, HOSTILE), (1, vec![0; LARGE]), "its own message is wrong");
    stage.assert_damaged();
    stage.assert_unharmed(&mut peer);
}

#[test]
fn a_chunk_that_is_cut_off_while_the_kernel_fills_it_costs_no_link() {
    let mut stage = Stage::new();
    let mut peer = stage.link();
    let whole = frame(HOSTILE, 1, &[1; LARGE]);
    let (begin, rest) = whole.split_at(whole.len() / 2);
    peer.write_all(begin).unwrap();
    thread::sleep(Duration::from_millis(50));
    let slabs =
        2 * u64::from(stage.hostile.segment.chunks_per_rank()) * stage.hostile.segment.chunk_bytes() as u64;
    stage.hostile.file().set_len(stage.hostile.segment.len() - slabs).unwrap();
    peer.write_all(rest).unwrap();
    stage.assert_damaged();
    stage.assert_unharmed(&mut peer);
}

#[test]
fn a_flood_of_launcher_messages_waits_and_delays_nobody_else() {
    let mut stage = Stage::new();
    let mut peer = stage.link();
    let mut launcher = MessagePort::launcher_side(Arc::clone(&stage.hostile.segment));
    let (mut sent, began) = (0u32, Instant::now());
    while began.elapsed() < Duration::from_millis(500) {
        sent += u32::from(launcher.send(&sent.to_le_bytes()));
    }
    assert!(sent > 1000, "{sent} were sent: the ring was full from then on");
    let unread = stage.events.len() as u32;
    assert!((64..100).contains(&unread), "{unread} of {sent} messages wait for the control side");
    // Those that are read make room for others, and all come in their order.
    for number in 0..sent {
        match stage.event() {
            PlaneEvent::App { job: HOSTILE, event: AppPlaneEvent::FromLauncher { message, .. } } => {
                assert_eq!(message, number.to_le_bytes());
            }
            other => panic!("unexpected event {other:?}"),
        }
    }
    stage.assert_unharmed(&mut peer);
}

#[test]
fn frames_of_unknown_applications_are_dropped_and_impossible_ones_end_the_link() {
    let mut stage = Stage::new();
    let mut peer = stage.link();
    for payload in [&[1; 10][..], &[2; LARGE]] {
        peer.write_all(&frame(JobId(999), 1, payload)).unwrap();
    }
    stage.assert_unharmed(&mut peer);
    for announced in [u32::MAX, (16 << 20) + 1] {
        let header = Header { dst: 0, len: announced, ..Header::EMPTY };
        peer.write_all(&head(OTHER, announced, &header)).unwrap();
        match stage.event() {
            PlaneEvent::LinkLost { reason, .. } => {
                assert_eq!(
                    reason,
                    format!("data frame announces {announced} bytes, and no record has more than 16777216")
                );
            }
            other => panic!("unexpected event {other:?}"),
        }
        peer = stage.link();
    }
    // What was on the way is lost with its link, and the peer begins anew.
    stage.assert_unharmed(&mut peer);
}
