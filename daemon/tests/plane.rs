//! Test of two data planes with a TCP link, segments and threads as ranks: every record arrives once, whole
//! and in order, although at random instants the ranks are frozen, the network is flushed, and the segments
//! are overwritten and refilled, as by a dump and a restore.

use std::{
    fs::File,
    net::{TcpListener, TcpStream},
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use coswitch_daemon::plane::{AppPlaneEvent, Command, Connection, Plane, PlaneEvent};
use coswitch_policies::{Epoch, JobId, NodeId};
use coswitch_ring::{Header, INLINE_MAX, MessagePort, Peer, RankPort, Segment, SegmentSpec};
use tokio::sync::{
    mpsc::{UnboundedReceiver, unbounded_channel},
    oneshot,
};

const JOB: JobId = JobId(7);
const LIMIT: Duration = Duration::from_secs(60);
const RECORDS: u64 = 1500;
const CUTS: u64 = 40;

/// A generator with a fixed seed: runs of the test differ only in timing.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Freezes the ranks of a node, in place of a cgroup.
#[derive(Default)]
struct Freezer {
    wanted: AtomicBool,
    standing: AtomicU32,
    /// There are no further cuts.
    done: AtomicBool,
}

impl Freezer {
    fn pass(&self) {
        if self.wanted.load(Ordering::SeqCst) {
            self.standing.fetch_add(1, Ordering::SeqCst);
            wait_until(|| !self.wanted.load(Ordering::SeqCst));
            self.standing.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn freeze(&self, ranks: u32) {
        self.wanted.store(true, Ordering::SeqCst);
        wait_until(|| self.standing.load(Ordering::SeqCst) == ranks);
    }

    fn thaw(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        wait_until(|| self.standing.load(Ordering::SeqCst) == 0);
    }
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < LIMIT, "waited for too long");
        std::thread::sleep(Duration::from_micros(100));
    }
}

struct Node {
    plane: Plane,
    events: UnboundedReceiver<PlaneEvent>,
    segment: Arc<Segment>,
    freezer: Arc<Freezer>,
}

impl Node {
    fn start(node: u32, dir: &Path, placement: &[NodeId]) -> Self {
        let here = (0..).zip(placement).filter(|(_, at)| at.0 == node).map(|(rank, _)| rank).collect();
        let spec = SegmentSpec::new(u32::try_from(placement.len()).unwrap(), here);
        let segment = Arc::new(Segment::create(dir.join(format!("segment-{node}")), &spec).unwrap());
        let (sender, events) = unbounded_channel();
        let plane = Plane::start(NodeId(node), sender).unwrap();
        plane.tell(Command::AddApp(JOB, Arc::clone(&segment), placement.to_vec()));
        Self { plane, events, segment, freezer: Arc::default() }
    }

    /// Answers the plane's events; true once it has flushed.
    fn has_flushed(&mut self) -> bool {
        while let Ok(event) = self.events.try_recv() {
            match event {
                PlaneEvent::App { event: AppPlaneEvent::Freeze { epoch }, .. } => {
                    self.freezer.freeze(self.segment.local_ranks());
                    self.plane.tell(Command::Frozen(JOB, epoch, true));
                }
                PlaneEvent::App { event: AppPlaneEvent::Flushed { .. }, .. } => return true,
                other => panic!("unexpected event of a cut without faults: {other:?}"),
            }
        }
        false
    }

    /// Does to the segment and the channels what a dump and a restore do.
    fn dump_and_restore(&self, epoch: Epoch) {
        let (reply, states) = oneshot::channel();
        self.plane.tell(Command::ChannelStates(JOB, epoch, reply));
        let states = states.blocking_recv().unwrap();
        let file = File::options().read(true).write(true).open(self.segment.path()).unwrap();
        let mut kept = vec![0; usize::try_from(self.segment.len()).unwrap()];
        file.read_exact_at(&mut kept, 0).unwrap();
        file.write_all_at(&vec![0xa5; kept.len()], 0).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        file.write_all_at(&kept, 0).unwrap();
        let (reply, restored) = oneshot::channel();
        self.plane.tell(Command::RestoreChannels(JOB, epoch, states, reply));
        assert!(restored.blocking_recv().unwrap(), "channel states decode");
    }
}

fn join(nodes: &[Node; 2]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let here = listener.accept().unwrap().0;
    for (node, stream, peer) in [(&nodes[0], here, 1), (&nodes[1], there, 0)] {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        node.plane.tell(Command::AddLink(Connection {
            peer: NodeId(peer),
            incarnation: 1,
            stream,
            keys: None,
            silence: LIMIT,
        }));
    }
}

/// Writes the payload of a record, which depends on its sender, its receiver and its number.
fn fill(payload: &mut [u8], src: u32, dst: u32, number: u64) {
    let first = (u64::from(src) * 31 + u64::from(dst) * 7 + number) as u8;
    payload.iter_mut().enumerate().for_each(|(at, byte)| *byte = first.wrapping_add(at as u8));
}

/// A rank that sends [`RECORDS`] records to each of `others` and takes as many from each.
struct Player<'a> {
    own: u32,
    port: RankPort,
    others: &'a [u32],
    draws: Draws,
    sent: Vec<u64>,
    taken: Vec<u64>,
}

impl<'a> Player<'a> {
    fn new(segment: Arc<Segment>, local: u32, others: &'a [u32]) -> Self {
        let own = segment.global_of(local);
        let (sent, taken) = (vec![0; others.len()], vec![0; others.len()]);
        Self {
            own,
            port: RankPort::new(segment, local),
            others,
            draws: Draws(u64::from(own) + 1),
            sent,
            taken,
        }
    }

    fn play(&mut self, freezer: &Freezer) {
        let began = Instant::now();
        while self.sent.iter().chain(&self.taken).any(|done| *done < RECORDS) {
            let Self { own, sent, taken, .. } = self;
            assert!(began.elapsed() < LIMIT, "rank {own} has sent {sent:?} and taken {taken:?}");
            freezer.pass();
            let at = self.draws.below(self.others.len() as u64) as usize;
            if self.sent[at] < RECORDS && self.send(self.others[at], self.sent[at]) {
                self.sent[at] += 1;
            }
            self.take_all();
        }
        // Later cuts need this rank.
        while !freezer.done.load(Ordering::SeqCst) && began.elapsed() < LIMIT {
            freezer.pass();
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn send(&mut self, dst: u32, number: u64) -> bool {
        if self.draws.below(3) > 0 {
            let header = Header { src: self.own, dst, message: number, ..Header::EMPTY };
            let mut payload = vec![0; self.draws.below(INLINE_MAX as u64 + 1) as usize];
            fill(&mut payload, self.own, dst, number);
            return self.port.push(Peer::Daemon, &header, &[&payload]).unwrap();
        }
        let extra_max = self.port.segment().chunk_bytes() - INLINE_MAX;
        let len = INLINE_MAX + 1 + self.draws.below(extra_max as u64) as usize;
        self.send_chunk(dst, number, len)
    }

    fn send_chunk(&mut self, dst: u32, number: u64, len: usize) -> bool {
        let header = Header { src: self.own, dst, message: number, ..Header::EMPTY };
        let Some(chunk) = self.port.lease_chunk(Peer::Daemon) else { return false };
        let mut payload = vec![0; len];
        fill(&mut payload, self.own, dst, number);
        self.port.chunk(&chunk).first(len).copy_from(&payload);
        let header = Header { len: u32::try_from(len).unwrap(), ..header };
        match self.port.push_chunk(&header, chunk).unwrap() {
            Ok(()) => true,
            Err(chunk) => {
                self.port.release(chunk);
                false
            }
        }
    }

    fn take_all(&mut self) {
        while let Some(record) = self.port.peek(Peer::Daemon).unwrap() {
            let header = record.header;
            let from = self.others.iter().position(|other| *other == header.src).unwrap();
            assert_eq!((header.dst, header.message), (self.own, self.taken[from]), "from {}", header.src);
            let mut expected = vec![0; header.len as usize];
            fill(&mut expected, header.src, self.own, header.message);
            assert!(
                record.payload.to_vec() == expected,
                "record {} from {} is whole",
                header.message,
                header.src
            );
            self.taken[from] += 1;
            self.port.pop(Peer::Daemon).unwrap();
        }
    }
}

#[test]
fn every_record_arrives_once_whole_and_in_order_through_cuts_and_refilled_segments() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let placement = [0, 0, 1, 1].map(NodeId);
    let mut nodes = [0, 1].map(|node| Node::start(node, dir.path(), &placement));
    join(&nodes);
    std::thread::scope(|scope| {
        for (node, others) in nodes.iter().zip([[2, 3], [0, 1]]) {
            for local in 0..2 {
                let (segment, freezer) = (Arc::clone(&node.segment), Arc::clone(&node.freezer));
                scope.spawn(move || Player::new(segment, local, &others).play(&freezer));
            }
        }
        let mut draws = Draws(99);
        for epoch in (1..=CUTS).map(Epoch) {
            std::thread::sleep(Duration::from_micros(draws.below(20_000)));
            let first = draws.below(2) as usize;
            nodes[first].plane.tell(Command::BeginCut(JOB, epoch));
            nodes[1 - first].plane.tell(Command::BeginCut(JOB, epoch));
            let mut flushed = [false; 2];
            wait_until(|| {
                nodes.iter_mut().zip(&mut flushed).for_each(|(node, flushed)| *flushed |= node.has_flushed());
                flushed == [true; 2]
            });
            if draws.below(3) > 0 {
                nodes.iter().for_each(|node| node.dump_and_restore(epoch));
            }
            for node in &nodes {
                node.plane.tell(Command::Resume(JOB, epoch));
                node.freezer.thaw();
            }
        }
        nodes.iter().for_each(|node| node.freezer.done.store(true, Ordering::SeqCst));
    });
}

#[test]
fn a_rank_that_does_not_read_stops_no_record_for_its_neighbour() {
    const LEN: usize = 9 << 10;
    /// Of these, more than half of the credit waits for the rank.
    const UNREAD: u64 = 180;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let placement = [0, 1, 1].map(NodeId);
    let nodes = [0, 1].map(|node| Node::start(node, dir.path(), &placement));
    join(&nodes);
    let mut sender = Player::new(Arc::clone(&nodes[0].segment), 0, &[1, 2]);
    let [mut silent, mut reader] =
        [0, 1].map(|local| Player::new(Arc::clone(&nodes[1].segment), local, &[0]));
    for number in 0..UNREAD {
        wait_until(|| sender.send_chunk(1, number, LEN));
    }
    for number in 0..RECORDS {
        wait_until(|| sender.send(2, number));
        wait_until(|| {
            reader.take_all();
            reader.taken == [number + 1]
        });
    }
    wait_until(|| {
        silent.take_all();
        silent.taken == [UNREAD]
    });
}

#[test]
fn what_a_launcher_says_before_it_is_frozen_is_heard_before_the_cut_ends() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut node = Node::start(0, dir.path(), &[NodeId(0)]);
    let mut launcher = MessagePort::launcher_side(Arc::clone(&node.segment));
    node.plane.tell(Command::BeginCut(JOB, Epoch(1)));
    let mut next = || {
        let mut event = None;
        wait_until(|| {
            event = node.events.try_recv().ok();
            event.is_some()
        });
        event
    };
    let is = |event, wanted: fn(&AppPlaneEvent) -> bool| match event {
        Some(PlaneEvent::App { event, .. }) => wanted(&event),
        _ => false,
    };
    assert!(is(next(), |event| matches!(event, AppPlaneEvent::Freeze { .. })));
    // The data plane uses no rings any more, and the ranks still run.
    assert!(launcher.send(b"all have ended"));
    std::thread::sleep(Duration::from_millis(20));
    node.plane.tell(Command::Frozen(JOB, Epoch(1), true));
    assert!(is(
        next(),
        |event| matches!(event, AppPlaneEvent::FromLauncher { message, .. } if message == b"all have ended")
    ));
    assert!(is(next(), |event| matches!(event, AppPlaneEvent::Flushed { .. })));
}

/// So the ranks of a job go on in the same slot on all nodes.
#[test]
fn a_launcher_is_told_with_the_first_exchange_from_a_time_on() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let node = Node::start(0, dir.path(), &[NodeId(0), NodeId(1)]);
    let mut launcher = MessagePort::launcher_side(Arc::clone(&node.segment));
    let mut heard = || {
        let mut message = Vec::new();
        launcher.recv(&mut message).unwrap().then_some(message)
    };
    let hears = |heard: &mut dyn FnMut() -> Option<Vec<u8>>, wanted: &[u8]| {
        let mut message = None;
        wait_until(|| {
            message = heard();
            message.is_some()
        });
        assert_eq!(message.as_deref(), Some(wanted));
    };
    let tell = |message: &[u8], due| node.plane.tell(Command::ToLauncher(JOB, message.to_vec(), due));
    tell(b"without exchanges", 1000);
    hears(&mut heard, b"without exchanges");
    node.plane.tell(Command::Exchange(100));
    tell(b"in time", 100);
    hears(&mut heard, b"in time");
    tell(b"first", 101);
    tell(b"second", 105);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(heard(), None);
    node.plane.tell(Command::Exchange(105));
    hears(&mut heard, b"first");
    hears(&mut heard, b"second");
    tell(b"by the clock of another master", i64::MAX);
    hears(&mut heard, b"by the clock of another master");
    tell(b"before they end", 200);
    node.plane.tell(Command::SendAtOnce);
    hears(&mut heard, b"before they end");
}
