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
        let _ = (0..seen).try_for_each(|_| daemon.pop());
        let _ = daemon.try_deliver(&Header::EMPTY, b"hello");
        if let Some(lease) = daemon.lease_chunk() {
            lease.bytes().copy_from(&vec![1; lease.bytes().len()]);
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
    #[cfg_attr(miri, ignore = "Miri maps no file: two mappings are not the same memory")]
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

/// What a daemon does with a segment does not end the process, which knows of the damage afterwards.
fn survives(damage: impl FnOnce(&std::fs::File, u64)) {
    coswitch_ring::survive_missing_pages().unwrap();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let [hurt, whole] =
        ["hurt", "whole"].map(|name| Arc::new(Segment::create(dir.path().join(name), &small()).unwrap()));
    let mut daemons: Vec<_> = (0..2).map(|local| DaemonPort::new(hurt.clone(), local)).collect();
    let mut messages = MessagePort::daemon_side(hurt.clone());
    exercise(&hurt, &mut daemons, &mut messages);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(hurt.path()).unwrap();
    damage(&file, hurt.len());
    for _ in 0..20 {
        exercise(&hurt, &mut daemons, &mut messages);
    }
    assert!(hurt.is_damaged());
    let error = hurt.allocate().unwrap_err().to_string();
    assert!(error.contains("bytes long"), "{error}");
    let mut daemons: Vec<_> = (0..2).map(|local| DaemonPort::new(whole.clone(), local)).collect();
    exercise(&whole, &mut daemons, &mut MessagePort::daemon_side(whole.clone()));
    assert!(!whole.is_damaged());
    whole.allocate().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no pages and no bus errors")]
fn a_segment_that_is_cut_to_nothing_or_to_a_part_does_not_end_its_daemon() {
    survives(|file, _| file.set_len(0).unwrap());
    survives(|file, len| file.set_len(len / 2).unwrap());
    survives(|file, _| file.set_len(4096).unwrap());
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no pages and no bus errors")]
fn a_bus_error_elsewhere_ends_the_process() {
    const CHILD: &str = "COSWITCH_TEST_BUS_ERROR";
    if std::env::var_os(CHILD).is_some() {
        coswitch_ring::survive_missing_pages().unwrap();
        let _segment = tempfile::tempdir_in("/dev/shm")
            .map(|dir| Segment::create(dir.path().join("segment"), &small()).unwrap());
        // SAFETY: a mapping of its own, of a file without a page; the read ends the process.
        unsafe {
            let file = libc::memfd_create(c"empty".as_ptr(), 0);
            let page = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file, 0);
            page.cast::<u8>().read_volatile();
        }
        unreachable!("the page is missing");
    }
    use std::os::unix::process::ExitStatusExt;
    let own = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(own);
    child.args(["--exact", "a_bus_error_elsewhere_ends_the_process"]).env(CHILD, "1");
    let status = child.stdout(std::process::Stdio::null()).status().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGBUS));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no pages and no bus errors")]
fn a_segment_for_which_there_is_no_room_is_refused_and_leaves_no_file() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let huge = SegmentSpec {
        ring_bytes: 64 << 20,
        direct_ring_bytes: 64 << 20,
        chunk_bytes: 16 << 20,
        chunks_per_rank: 4096,
        ..SegmentSpec::new(1000, (0..1000).collect())
    };
    let error = Segment::create(dir.path().join("segment"), &huge).unwrap_err().to_string();
    assert!(error.contains("it needs") && error.contains("are free there"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    Segment::create(dir.path().join("segment"), &small()).unwrap();
}
