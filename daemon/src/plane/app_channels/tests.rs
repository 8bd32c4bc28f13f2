//! Tests of the inbox of one application's part: a rank that does not read, and a cut.
//!
//! The part has the ranks 2 and 3. Records come from the ranks 0 and 1, on one other node.

use coswitch_policies::JobId;
use coswitch_ring::{Bell, Peer, RankPort, SegmentSpec};
use tempfile::TempDir;

use super::*;
use crate::cut::CutReport;

const OWN: NodeId = NodeId(1);
const PEER: NodeId = NodeId(0);
const E1: Epoch = Epoch(1);
/// Such a record takes a chunk.
const LEN: u32 = 9 << 10;
/// Records of this length that a rank can take without reading: one in each chunk.
const CHUNKS: u64 = 32;

fn segment() -> (TempDir, Arc<Segment>) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let segment = Segment::create(dir.path().join("segment"), &SegmentSpec::new(4, vec![2, 3])).unwrap();
    assert_eq!(u64::from(segment.chunks_per_rank()), CHUNKS);
    (dir, Arc::new(segment))
}

fn channels(segment: &Arc<Segment>) -> AppChannels {
    let backlog = Backlog::new(Arc::new(Bell::new()));
    AppChannels::new(OWN, Arc::clone(segment), vec![PEER, PEER, OWN, OWN], backlog)
}

/// The ranks 2 and 3.
fn ranks(segment: &Arc<Segment>) -> [RankPort; 2] {
    [0, 1].map(|local| RankPort::new(Arc::clone(segment), local))
}

fn record(src: u32, dst: u32, message: u64, len: u32) -> Header {
    Header { src, dst, message, len, ..Header::EMPTY }
}

/// A record comes over the link, with its number in each byte.
fn arrive(app: &mut AppChannels, header: Header) {
    let len = header.len as usize;
    let bytes = vec![header.message as u8; len];
    if len <= INLINE_MAX {
        return app.on_small_record(PEER, header, &bytes).unwrap();
    }
    let mut payload = app.lease(PEER, &header).unwrap_or_else(|| Incoming::heap(len));
    payload.place(0..len).fill(&bytes);
    app.on_record(PEER, header, payload).unwrap();
}

/// Records with these numbers come from each rank of the other node for each rank here.
fn arrive_all(app: &mut AppChannels, numbers: std::ops::Range<u64>) {
    for number in numbers {
        for (src, dst) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
            arrive(app, record(src, dst, number, LEN));
        }
    }
}

fn pump(app: &mut AppChannels) {
    let life = AppLife { job: JobId(1), life: 0 };
    assert!(app.pump(life, &mut BTreeMap::new(), |_, _, _| {}).is_ok());
}

/// The rank reads all that lies in its ring: sender and number of each record.
fn read(rank: &mut RankPort) -> Vec<(u32, u64)> {
    let mut found = Vec::new();
    while let Some(Record { header, payload }) = rank.peek(Peer::Daemon).unwrap() {
        assert!(payload.to_vec().iter().all(|byte| *byte == header.message as u8), "{header:?} is whole");
        found.push((header.src, header.message));
        rank.pop(Peer::Daemon).unwrap();
    }
    found
}

/// The rank reads on until it has so many records.
fn read_all(app: &mut AppChannels, rank: &mut RankPort, count: usize) -> Vec<(u32, u64)> {
    let mut found = read(rank);
    while found.len() < count {
        pump(app);
        let more = read(rank);
        assert!(!more.is_empty(), "only {} of {count} records have come", found.len());
        found.extend(more);
    }
    found
}

#[test]
fn a_rank_that_does_not_read_holds_up_no_record_for_another_rank() {
    let (_dir, segment) = segment();
    let mut app = channels(&segment);
    let [mut silent, mut reader] = ranks(&segment);
    for number in 0..40 {
        arrive(&mut app, record(0, 2, number, LEN));
        arrive(&mut app, record(0, 3, number, LEN));
        arrive(&mut app, record(1, 3, number, 100));
        pump(&mut app);
        assert_eq!(read(&mut reader), [(0, number), (1, number)]);
    }
    // Behind records that wait for a chunk also a record waits that would find room in the ring.
    arrive(&mut app, record(0, 2, 40, 100));
    let expected: Vec<(u32, u64)> = (0..=40).map(|number| (0, number)).collect();
    assert_eq!(read_all(&mut app, &mut silent, 41), expected);
    assert!(app.inbox.is_empty());
}

#[test]
fn records_that_wait_for_two_ranks_are_saved_at_a_cut_and_come_after_it_in_order() {
    let (_dir, segment) = segment();
    let mut app = channels(&segment);
    let mut ranks = ranks(&segment);
    arrive_all(&mut app, 0..20);
    pump(&mut app);
    assert_eq!(app.on_cut(Input::Begin { epoch: E1 }), [Output::FreezeRanks { epoch: E1 }]);
    assert_eq!(app.on_cut(Input::Frozen { epoch: E1 }), [Output::SendMarker { to: PEER, epoch: E1 }]);
    arrive_all(&mut app, 20..22);
    let flushed = Output::Report(CutReport::Flushed { epoch: E1 });
    assert_eq!(app.on_cut(Input::Marker { from: PEER, epoch: E1 }), [flushed]);
    assert_eq!(app.drained(), 8 * cost(&record(0, 2, 0, LEN)));

    let states = app.channel_states(E1);
    let saved = ChannelStates::decode(&states, segment.chunk_bytes()).unwrap().inbox;
    assert_eq!(saved.len() as u64, 22 * 4 - 2 * CHUNKS, "what is not in a ring is saved");
    drop(app);
    let mut app = channels(&segment);
    app.restore(E1, &states).unwrap();
    // The other node goes on a little earlier.
    arrive_all(&mut app, 22..24);
    assert_eq!(app.channel_states(E1), states, "what was sent after the cut is no part of it");
    assert_eq!(app.on_cut(Input::Resumed { epoch: E1 }), []);
    arrive_all(&mut app, 24..26);

    for rank in &mut ranks {
        let found = read_all(&mut app, rank, 2 * 26);
        for src in [0, 1] {
            let from_src = found.iter().filter(|(from, _)| *from == src);
            assert!(from_src.map(|(_, number)| *number).eq(0..26), "rank {src}: {found:?}");
        }
    }
    assert!(app.inbox.is_empty());
}

#[test]
fn credit_comes_back_for_other_ranks_where_one_holds_more_than_half_of_it() {
    let (_dir, segment) = segment();
    let mut app = channels(&segment);
    let [_, mut reader] = ranks(&segment);
    let mut sender = FlowControl::new();
    let mut send = |app: &mut AppChannels, header: Header| {
        assert!(sender.may_send(&header), "no credit for {header:?}");
        sender.on_sent(&header);
        arrive(app, header);
        app.credit_due().for_each(|(_, bytes)| sender.on_credit(bytes));
    };
    (0..CHUNKS + 150).for_each(|number| send(&mut app, record(0, 2, number, LEN)));
    for number in 0..1000 {
        send(&mut app, record(0, 3, number, LEN));
        assert_eq!(read(&mut reader), [(0, number)]);
    }
}
