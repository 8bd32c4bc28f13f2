//! Hostile ranks: random bytes written anywhere into the segment must not crash the daemon.

use coswitch_ring::{DaemonPort, Header, MessagePort, Peer, RankPort, Segment, SegmentSpec};
use proptest::prelude::*;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Offset of a random write, weighted towards control words.
fn offset(len: u64) -> impl Strategy<Value = u64> {
    prop_oneof![4096..len, 4096..20_000u64, (20_000..2_000_000u64).prop_map(|o| o / 64 * 64)]
}

fn word() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..4u64, (0..100_000u64).prop_map(|n| n * 64), Just(u64::MAX), Just(1 << 62)]
}

fn small() -> SegmentSpec {
    SegmentSpec {
        ring_bytes: 32 << 10,
        direct_ring_bytes: 32 << 10,
        chunk_bytes: 16 << 10,
        chunks_per_rank: 4,
        ..SegmentSpec::new(3, vec![0, 1])
    }
}

fn exercise(segment: &Arc<Segment>, daemons: &mut [DaemonPort], messages: &mut MessagePort) {
    for daemon in daemons {
        let seen = daemon.records().take(40).filter(Result::is_ok).count();
        let _ = daemon.pop(seen);
        let _ = daemon.try_deliver(&Header::EMPTY, b"hello");
        if let Some(mut lease) = daemon.lease_chunk() {
            lease.bytes_mut().fill(1);
            let _ = daemon.deliver_leased(&Header { len: 9000, ..Header::EMPTY }, lease);
        }
    }
    let mut message = Vec::new();
    let _ = messages.recv(&mut message);
    let _ = messages.send(b"command");
    segment.counters(0);
    segment.wait_policy();
    assert!((0..4).filter_map(|rank| segment.local_of(rank)).all(|local| local < 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn random_writes_cause_errors_and_no_panic(
        writes in prop::collection::vec((offset(400_000), word()), 1..60)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let segment = Arc::new(Segment::create(dir.path().join("segment"), &small()).unwrap());
        let file = std::fs::OpenOptions::new().write(true).open(segment.path()).unwrap();
        let mut rank = RankPort::new(segment.clone(), 0);
        let mut daemons: Vec<_> = (0..2).map(|local| DaemonPort::new(segment.clone(), local)).collect();
        let mut messages = MessagePort::daemon_side(segment.clone());
        for (at, value) in writes {
            let _ = rank.push(Peer::Daemon, &Header::EMPTY, &[b"payload"]);
            if let Some(chunk) = rank.lease_chunk(Peer::Daemon) {
                let _ = rank.push_chunk(&Header { len: 16_000, ..Header::EMPTY }, chunk);
            }
            let at = at.min(segment.len() - 8);
            file.write_all_at(&value.to_le_bytes(), at).unwrap();
            exercise(&segment, &mut daemons, &mut messages);
            daemons = (0..2).map(|local| DaemonPort::new(segment.clone(), local)).collect();
            messages = MessagePort::daemon_side(segment.clone());
            exercise(&segment, &mut daemons, &mut messages);
        }
    }
}
