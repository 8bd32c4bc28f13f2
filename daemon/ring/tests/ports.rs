//! The three kinds of port exchange records with each other, in one thread and across threads.

use coswitch_ring::{
    DaemonPort, Header, INLINE_MAX, MESSAGE_MAX, MessagePort, Peer, RankPort, Segment, SegmentSpec,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(120);

fn segment(locals: u32) -> (tempfile::TempDir, Arc<Segment>) {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = SegmentSpec::new(locals + 2, (1..=locals).collect());
    if cfg!(miri) {
        (spec.ring_bytes, spec.direct_ring_bytes) = (32 << 10, 32 << 10);
    }
    let segment = Segment::create(dir.path().join("segment"), &spec).unwrap();
    (dir, Arc::new(segment))
}

fn header(message: u64, len: usize) -> Header {
    Header { src: 1, dst: 0, message, len: len as u32, ..Header::EMPTY }
}

/// A payload that depends on its message, so that a mix-up is detected.
fn pattern(message: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (message.wrapping_mul(0x9e37_79b9).wrapping_add(i) >> 3) as u8).collect()
}

/// The length of a message: mostly small, sometimes so large that it needs a chunk.
fn length(message: u64, chunk: usize) -> usize {
    let random = message.wrapping_mul(0xd134_2543_de82_ef95) >> 33;
    match random % 7 {
        0 => 0,
        1..=3 => (random as usize >> 3) % 200,
        4 => (random as usize >> 3) % (INLINE_MAX + 1),
        _ => INLINE_MAX + 1 + (random as usize >> 3) % (chunk - INLINE_MAX),
    }
}

fn send(rank: &mut RankPort, peer: Peer, message: u64) -> bool {
    let payload = pattern(message, length(message, rank.segment().chunk_bytes()));
    let header = header(message, payload.len());
    if payload.len() <= INLINE_MAX {
        let (a, b) = payload.split_at(payload.len() / 3);
        return rank.push(peer, &header, &[a, b]).unwrap();
    }
    let Some(chunk) = rank.lease_chunk(peer) else { return false };
    rank.chunk(&chunk).first(payload.len()).copy_from(&payload);
    match rank.push_chunk(&header, chunk).unwrap() {
        Ok(()) => true,
        Err(chunk) => {
            rank.release(chunk);
            false
        }
    }
}

fn deliver(daemon: &mut DaemonPort, message: u64, chunk_bytes: usize) -> bool {
    let payload = pattern(message, length(message, chunk_bytes));
    let header = header(message, payload.len());
    if payload.len() <= INLINE_MAX {
        return daemon.try_deliver(&header, &payload).unwrap();
    }
    let Some(lease) = daemon.lease_chunk() else { return false };
    lease.bytes().first(payload.len()).copy_from(&payload);
    daemon.deliver_leased(&header, lease).unwrap().is_ok()
}

fn take(rank: &mut RankPort, peer: Peer, expected: u64) -> bool {
    let Some(record) = rank.peek(peer).unwrap() else { return false };
    assert_eq!(record.header.message, expected);
    assert_eq!(record.payload.to_vec(), pattern(expected, record.payload.len()));
    rank.pop(peer).unwrap();
    true
}

#[test]
fn opened_segment_has_the_locality_tables_of_the_created_one() {
    let (_dir, created) = segment(3);
    let opened = Segment::open(created.path()).unwrap();
    assert_eq!((opened.world_size(), opened.local_ranks()), (5, 3));
    assert_eq!((0..3).map(|local| opened.global_of(local)).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(
        (0..6).map(|rank| opened.local_of(rank)).collect::<Vec<_>>(),
        [None, Some(0), Some(1), Some(2), None, None]
    );
    assert_eq!((opened.inode(), opened.len()), (created.inode(), created.len()));
}

#[test]
fn creating_over_an_existing_file_fails_and_leaves_it() {
    let (_dir, existing) = segment(1);
    assert!(Segment::create(existing.path(), &SegmentSpec::new(1, vec![0])).is_err());
    assert!(Segment::open(existing.path()).is_ok());
}

#[test]
fn file_that_is_not_a_segment_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("noise");
    std::fs::write(&path, vec![7u8; 100_000]).unwrap();
    assert!(Segment::open(&path).unwrap_err().to_string().contains("not a segment"));
    std::fs::write(&path, b"short").unwrap();
    assert!(Segment::open(&path).is_err());
}

#[test]
#[cfg_attr(miri, ignore = "Miri maps no file: two mappings are not the same memory")]
fn rank_sees_the_wait_policy_that_the_daemon_sets() {
    use coswitch_ring::WaitPolicy;
    let (_dir, daemon) = segment(1);
    let rank = Segment::open(daemon.path()).unwrap();
    daemon.set_wait_policy(WaitPolicy::Block, Duration::from_micros(7));
    assert_eq!(rank.wait_policy(), (WaitPolicy::Block, Duration::from_micros(7)));
}

#[test]
#[cfg_attr(miri, ignore = "it fills a ring, for which Miri needs minutes")]
fn full_ring_rejects_a_record_and_accepts_it_once_there_is_space() {
    let (_dir, segment) = segment(1);
    let mut rank = RankPort::new(segment.clone(), 0);
    let mut daemon = DaemonPort::new(segment, 0);
    let mut sent = 0;
    while send(&mut rank, Peer::Daemon, sent) {
        sent += 1;
    }
    assert!(sent > 10);
    assert_eq!(daemon.records().nth(3).unwrap().unwrap().header.message, 3);
    assert_eq!(daemon.records().count() as u64, sent);
    (0..sent).for_each(|_| daemon.pop().unwrap());
    assert!(daemon.peek().unwrap().is_none());
    assert!(send(&mut rank, Peer::Daemon, sent));
    assert_eq!(daemon.peek().unwrap().unwrap().header.message, sent);
}

#[test]
fn sleeping_reader_cannot_hold_all_chunks_of_a_rank() {
    let (_dir, segment) = segment(3);
    let mut rank = RankPort::new(segment.clone(), 0);
    let big = header(0, 60_000);
    let mut pushed = 0;
    while let Some(chunk) = rank.lease_chunk(Peer::Rank(1)) {
        rank.push_chunk(&big, chunk).unwrap().unwrap();
        pushed += 1;
    }
    assert_eq!(pushed, segment.chunks_per_rank() / 2);
    let chunk = rank.lease_chunk(Peer::Rank(2)).expect("another peer still gets a chunk");
    rank.release(chunk);
}

#[test]
#[cfg_attr(miri, ignore = "it forgets leases on purpose, and Miri reports leaks")]
fn dropped_and_orphaned_leases_become_free() {
    let (_dir, segment) = segment(1);
    let daemon = DaemonPort::new(segment.clone(), 0);
    for _ in 0..3 * segment.chunks_per_rank() {
        drop(daemon.lease_chunk().unwrap());
    }
    let leases: Vec<_> = std::iter::from_fn(|| daemon.lease_chunk()).collect();
    assert_eq!(leases.len() as u32, segment.chunks_per_rank());
    std::mem::forget(leases);
    assert!(daemon.lease_chunk().is_none());
    segment.free_orphan_leases();
    assert!(daemon.lease_chunk().is_some());
}

#[test]
#[cfg_attr(miri, ignore = "it fills a ring, for which Miri needs more than eight minutes")]
fn messages_pass_between_launcher_and_daemon_in_both_directions() {
    let (_dir, segment) = segment(1);
    let mut launcher = MessagePort::launcher_side(segment.clone());
    let mut daemon = MessagePort::daemon_side(segment.clone());
    let mut got = vec![1, 2, 3];
    assert!(!daemon.recv(&mut got).unwrap());
    let ticket = segment.daemon_bell().ticket();
    assert!(launcher.send(&pattern(1, MESSAGE_MAX)));
    segment.daemon_bell().wait(ticket, Some(DEADLINE));
    assert!(daemon.recv(&mut got).unwrap());
    assert_eq!(got, pattern(1, MESSAGE_MAX));
    let mut sent = 0;
    while daemon.send(&pattern(sent, 3000)) {
        sent += 1;
    }
    assert!(sent > 50);
    for message in 0..sent {
        assert!(launcher.recv(&mut got).unwrap());
        assert_eq!(got, pattern(message, 3000));
    }
    assert!(!launcher.recv(&mut got).unwrap());
    assert!(daemon.send(b"again"));
}

/// Two ranks and the daemon run in three threads, and each sleeps on its bell. Ports are created anew now and
/// then, as after a restore. Every message must arrive once, in order, with its payload.
#[test]
#[cfg_attr(miri, ignore = "Miri needs more than eight minutes; loom explores what threads see")]
fn no_message_is_lost_with_threads_sleeps_and_ports_created_anew() {
    const MESSAGES: u64 = 3_000;
    let (_dir, segment) = segment(2);
    let start = Instant::now();
    let pause = |bell: &coswitch_ring::Bell, ticket| {
        assert!(start.elapsed() < DEADLINE, "stuck");
        bell.wait(ticket, Some(Duration::from_millis(50)));
    };
    std::thread::scope(|scope| {
        for local in 0..2u32 {
            let segment = segment.clone();
            scope.spawn(move || {
                let other = Peer::Rank(1 - local);
                let mut rank = RankPort::new(segment.clone(), local);
                let (mut to_daemon, mut to_peer, mut from_daemon, mut from_peer) = (0, 0, 0, 0);
                while [to_daemon, to_peer, from_daemon, from_peer].iter().any(|&done| done < MESSAGES) {
                    let ticket = segment.rank_bell(local).ticket();
                    let mut idle = true;
                    let mut count = |did: bool, done: &mut u64| {
                        *done += u64::from(did);
                        idle &= !did;
                    };
                    count(to_daemon < MESSAGES && send(&mut rank, Peer::Daemon, to_daemon), &mut to_daemon);
                    count(to_peer < MESSAGES && send(&mut rank, other, to_peer), &mut to_peer);
                    count(take(&mut rank, Peer::Daemon, from_daemon), &mut from_daemon);
                    count(take(&mut rank, other, from_peer), &mut from_peer);
                    if to_peer % 501 == 0 {
                        rank = RankPort::new(segment.clone(), local);
                    }
                    if idle {
                        pause(segment.rank_bell(local), ticket);
                    }
                }
            });
        }
        let mut ports: Vec<_> = (0..2).map(|local| DaemonPort::new(segment.clone(), local)).collect();
        let (mut taken, mut given) = ([0u64; 2], [0u64; 2]);
        while taken.iter().chain(&given).any(|&done| done < MESSAGES) {
            let ticket = segment.daemon_bell().ticket();
            let mut idle = true;
            for (local, port) in ports.iter_mut().enumerate() {
                let mut batch = 0;
                for record in port.records().take(5) {
                    let record = record.unwrap();
                    assert_eq!(record.header.message, taken[local]);
                    assert_eq!(record.payload.to_vec(), pattern(taken[local], record.payload.len()));
                    taken[local] += 1;
                    batch += 1;
                }
                (0..batch).for_each(|_| port.pop().unwrap());
                let gave = given[local] < MESSAGES && deliver(port, given[local], segment.chunk_bytes());
                given[local] += u64::from(gave);
                idle &= batch == 0 && !gave;
                if taken[local] % 499 == 0 {
                    *port = DaemonPort::new(segment.clone(), local as u32);
                }
            }
            if idle {
                pause(segment.daemon_bell(), ticket);
            }
        }
    });
}
