//! Tests with two engines on one segment, in one process: the semantics that libfabric's callers rely on.

use super::address::{Address, AddressTable};
use super::buffer::{Source, Spans};
use super::completion::{Completion, CompletionQueue, Counter};
use super::endpoint::{BoundCounters, Endpoint, Reporting};
use super::matching::Pattern;
use super::receive::{Peek, Receive};
use super::rma::{Region, Rma};
use super::send::{Outgoing, SendReport};
use super::*;
use crate::abi::*;
use coswitch_ring::SegmentSpec;

/// An engine with one endpoint, one queue (handle 0) and one counter (handle 0).
struct Side {
    engine: Engine,
    address: Address,
}

struct Pair {
    sides: [Side; 2],
    _dir: tempfile::TempDir,
}

const ANY_TAG: u64 = u64::MAX;

fn pair() -> Pair {
    let dir = tempfile::tempdir().unwrap();
    let spec = SegmentSpec { chunks_per_rank: 8, ..SegmentSpec::new(2, vec![0, 1]) };
    let segment = Arc::new(Segment::create(dir.path().join("segment"), &spec).unwrap());
    let side = |local| {
        let mut engine = Engine::new(segment.clone(), local);
        let queue = engine.core.queues.insert(CompletionQueue::default());
        let counter = engine.core.counters.insert(Counter::default());
        let addresses = engine.core.addresses.insert(AddressTable::default());
        let reporting = Reporting { queue: Some(queue), selective: false, default_flags: 0 };
        let endpoint = Endpoint {
            addresses: Some(addresses),
            sending: reporting,
            receiving: reporting,
            counters: BoundCounters { read: Some(counter), write: Some(counter), ..BoundCounters::default() },
            multi_receive_min: 100,
            ..Endpoint::default()
        };
        let endpoint = engine.open_endpoint(endpoint).unwrap();
        Side { engine, address: Address { rank: local, endpoint } }
    };
    Pair { sides: [side(0), side(1)], _dir: dir }
}

fn memory(bytes: &mut [u8]) -> Spans {
    // SAFETY: the tests keep their buffers alive and read them only when the operation is complete.
    unsafe { Spans::one(bytes.as_mut_ptr(), bytes.len()) }
}

fn message(from: Address, to: Address, bytes: &mut [u8], tag: Option<u64>, context: usize) -> Outgoing {
    let report = SendReport { endpoint: from.endpoint, tagged: tag.is_some(), context, reports: true };
    let source = Source::User(memory(bytes));
    Outgoing { from, to, source, tag: tag.unwrap_or(0), tagged: tag.is_some(), data: Some(7), report }
}

fn receive(endpoint: u16, bytes: &mut [u8], tag: Option<u64>, context: usize) -> Receive {
    let pattern =
        Pattern { source: None, tag: tag.unwrap_or(0), ignore: if tag.is_some() { 0 } else { ANY_TAG } };
    let (tagged, spans) = (tag.is_some(), memory(bytes));
    Receive { endpoint, tagged, pattern, context, reports: true, spans, multi: false }
}

impl Side {
    fn done(&mut self) -> Vec<Completion> {
        self.engine.core.queues.get_mut(0).unwrap().done.drain(..).collect()
    }

    /// Error numbers and contexts of the failed operations.
    fn failed(&mut self) -> Vec<(i32, usize)> {
        let failures = self.engine.core.queues.get_mut(0).unwrap().failed.drain(..);
        failures.map(|failure| (failure.error, failure.completion.context)).collect()
    }
}

impl Pair {
    fn send(&mut self, from: usize, bytes: &mut [u8], tag: Option<u64>, context: usize) {
        let (source, target) = (self.sides[from].address, self.sides[1 - from].address);
        self.sides[from].engine.send(message(source, target, bytes, tag, context), false).unwrap();
    }

    fn receive(&mut self, at: usize, bytes: &mut [u8], tag: Option<u64>, context: usize) {
        let endpoint = self.sides[at].address.endpoint;
        self.sides[at].engine.core.receive(receive(endpoint, bytes, tag, context));
    }

    fn run_until_idle(&mut self) {
        while self.sides.iter_mut().any(|side| side.engine.progress()) {}
    }

    fn rma(&self, address: u64, key: u64, context: usize) -> Rma {
        Rma { from: self.sides[0].address, to: self.sides[1].address, address, key, context, reports: true }
    }
}

fn counted(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn message_of_any_length_arrives_before_or_after_its_receive() {
    for len in [0, 1, 8128, 8129, 65536, 65537, 300_000, 5_000_000] {
        for late in [false, true] {
            let mut pair = pair();
            let (mut out, mut target) = (counted(len), vec![0; len]);
            if !late {
                pair.receive(1, &mut target, Some(5), 11);
            }
            pair.send(0, &mut out, Some(5), 10);
            pair.run_until_idle();
            if late {
                pair.receive(1, &mut target, Some(5), 11);
                pair.run_until_idle();
            }
            let (sent, received) = (pair.sides[0].done(), pair.sides[1].done());
            assert_eq!((sent.len(), received.len()), (1, 1), "{len} bytes, late {late}");
            assert_eq!((sent[0].context, sent[0].flags), (10, FI_SEND | FI_TAGGED));
            assert_eq!(
                (received[0].context, received[0].len, received[0].tag, received[0].data),
                (11, len, 5, 7)
            );
            assert_eq!(received[0].flags, FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA);
            assert_eq!(received[0].source, Some(pair.sides[0].address));
            assert!(target == out, "{len} bytes, late {late}");
        }
    }
}

#[test]
fn sender_keeps_most_of_a_long_unexpected_message() {
    let mut pair = pair();
    let mut out = counted(20_000_000);
    pair.send(0, &mut out, Some(1), 1);
    pair.run_until_idle();
    let here: usize = pair.sides[1].engine.core.partials.values().map(Vec::len).sum();
    assert!(here as u64 <= wire::UNSOLICITED_BYTES, "{here} bytes wait in the receiver");
    assert!(pair.sides[0].done().is_empty(), "the send is not complete");
}

#[test]
fn message_longer_than_its_receive_fails_there_and_succeeds_at_the_sender() {
    for len in [100, 50_000, 1_000_000] {
        let mut pair = pair();
        let (mut out, mut target) = (counted(len), vec![0; len / 2]);
        pair.receive(1, &mut target, Some(5), 11);
        pair.send(0, &mut out, Some(5), 10);
        pair.run_until_idle();
        assert_eq!(pair.sides[1].failed(), [(FI_ETRUNC, 11)]);
        assert_eq!(pair.sides[0].done().len(), 1);
        assert_eq!(target, out[..len / 2]);
        assert!(
            pair.sides[1].engine.core.incoming.is_empty() && pair.sides[0].engine.core.transfers.is_empty()
        );
    }
}

#[test]
fn multi_receive_buffer_takes_messages_until_it_is_used_up_and_is_then_returned() {
    let mut pair = pair();
    let mut target = vec![0; 400_000];
    let endpoint = pair.sides[1].address.endpoint;
    let posted = Receive { multi: true, ..receive(endpoint, &mut target, None, 9) };
    pair.sides[1].engine.core.receive(posted);
    let mut outs = [counted(50), counted(399_900), counted(10)];
    pair.send(0, &mut outs[0], None, 0);
    pair.send(0, &mut outs[1], None, 1);
    pair.run_until_idle();
    let done = pair.sides[1].done();
    assert_eq!(done.iter().map(|done| done.len).collect::<Vec<_>>(), [50, 399_900]);
    assert_eq!(done[0].flags & FI_MULTI_RECV, 0);
    assert_eq!(done[1].flags & FI_MULTI_RECV, FI_MULTI_RECV, "50 bytes are left, fewer than the minimum");
    assert_eq!(done[1].buffer, target.as_ptr() as usize + 50);
    assert!(target[..50] == outs[0] && target[50..399_950] == outs[1]);
    pair.send(0, &mut outs[2], None, 2);
    pair.run_until_idle();
    assert!(pair.sides[1].done().is_empty(), "the buffer is no longer posted");
}

#[test]
fn peek_reports_claims_or_discards_a_message_and_fails_without_one() {
    let mut pair = pair();
    let mut outs = [counted(10), counted(500_000), counted(30)];
    for (context, out) in outs.iter_mut().enumerate() {
        pair.send(0, out, Some(3), context);
    }
    pair.run_until_idle();
    let look = receive(0, &mut [], Some(3), 21);
    let engine = &mut pair.sides[1].engine;
    assert!(!engine.peek(&receive(0, &mut [], Some(4), 20), Peek::Look));
    assert!(engine.peek(&look, Peek::Look));
    assert!(engine.peek(&look, Peek::Discard));
    assert!(engine.peek(&receive(0, &mut [], Some(3), 22), Peek::Claim));
    assert_eq!(pair.sides[1].failed(), [(FI_ENOMSG, 20)]);
    assert_eq!(pair.sides[1].done().iter().map(|found| found.len).collect::<Vec<_>>(), [10, 10, 500_000]);

    let (mut third, mut second) = (vec![0; 30], vec![0; 500_000]);
    pair.receive(1, &mut third, Some(3), 23);
    let claimed = receive(0, &mut second, Some(3), 22);
    pair.sides[1].engine.core.receive_claimed(claimed).unwrap();
    pair.run_until_idle();
    assert!(third == outs[2] && second == outs[1]);
    assert_eq!(pair.sides[0].done().len(), 3);
    assert!(
        pair.sides[1].engine.core.receive_claimed(receive(0, &mut [], Some(3), 22)).is_err(),
        "a message is claimed only once"
    );
}

#[test]
fn cancelled_receive_fails_once_and_takes_no_message() {
    let mut pair = pair();
    let (mut target, mut out) = (vec![0; 4], counted(4));
    pair.receive(1, &mut target, Some(1), 31);
    let core = &mut pair.sides[1].engine.core;
    assert_eq!(core.cancel(0, 31), Ok(()));
    assert_eq!(core.cancel(0, 31), Err(FI_ENOENT));
    pair.send(0, &mut out, Some(1), 0);
    pair.run_until_idle();
    assert_eq!(pair.sides[1].failed(), [(FI_ECANCELED, 31)]);
    assert!(pair.sides[1].done().is_empty() && target == [0; 4]);
}

#[test]
fn sleeping_receiver_blocks_no_sender_and_loses_no_message() {
    const MANY: usize = 3000;
    let mut pair = pair();
    let mut outs: Vec<_> = (0..MANY).map(|i| counted(if i % 50 == 0 { 70_000 } else { i % 200 })).collect();
    for (context, out) in outs.iter_mut().enumerate() {
        pair.send(0, out, Some(context as u64), context);
    }
    let [sender, receiver] = [pair.sides[0].address, pair.sides[1].address];
    let inject = message(sender, receiver, &mut [1, 2, 3], Some(ANY_TAG), 0);
    assert_eq!(pair.sides[0].engine.send(inject, true), Err(FI_EAGAIN), "a send that must not wait fails");
    for (tag, out) in outs.iter().enumerate() {
        let mut target = vec![0; out.len()];
        pair.receive(1, &mut target, Some(tag as u64), tag);
        pair.run_until_idle();
        assert!(target == *out, "message {tag}");
    }
    assert_eq!(pair.sides[0].done().len(), MANY);
}

#[test]
fn remote_memory_is_written_and_read_only_within_its_bounds() {
    for len in [0, 5, 100_000, 3_000_000] {
        let mut pair = pair();
        let mut window = vec![0; len + 10];
        let access = FI_REMOTE_READ | FI_REMOTE_WRITE;
        let region = Region { base: window.as_mut_ptr() as usize, len: window.len(), access };
        pair.sides[1].engine.core.register(0, 42, region).unwrap();
        assert_eq!(pair.sides[1].engine.core.register(0, 42, region), Err(FI_ENOKEY), "keys are unique");
        let (mut out, mut back) = (counted(len), vec![0; len]);
        let [good, beyond, unknown] =
            [(10, 42, 1), (11, 42, 2), (0, 43, 3)].map(|(at, key, n)| pair.rma(at, key, n));
        let engine = &mut pair.sides[0].engine;
        for rma in [&good, &beyond, &unknown] {
            engine.write(rma, Source::User(memory(&mut out))).unwrap();
        }
        pair.run_until_idle();
        assert_eq!(pair.sides[0].failed(), [(FI_EINVAL, 2), (FI_ENOKEY, 3)]);
        assert_eq!(
            pair.sides[0].done().iter().map(|done| done.flags).collect::<Vec<_>>(),
            [FI_RMA | FI_WRITE]
        );
        assert!(window[10..] == out);
        pair.sides[0].engine.read(&good, memory(&mut back)).unwrap();
        pair.sides[0].engine.read(&unknown, memory(&mut back)).unwrap();
        pair.run_until_idle();
        assert_eq!(pair.sides[0].failed(), [(FI_ENOKEY, 3)]);
        assert_eq!(
            pair.sides[0].done().iter().map(|done| done.flags).collect::<Vec<_>>(),
            [FI_RMA | FI_READ]
        );
        assert!(back == out);
        assert_eq!(*pair.sides[0].engine.core.counters.get(0).unwrap(), Counter { done: 2, failed: 3 });
    }
}

#[test]
fn memory_registered_for_reading_cannot_be_written() {
    let mut pair = pair();
    let mut window = [5u8; 8];
    let region = Region { base: window.as_mut_ptr() as usize, len: 8, access: FI_REMOTE_READ };
    pair.sides[1].engine.core.register(0, 1, region).unwrap();
    let rma = pair.rma(0, 1, 1);
    pair.sides[0].engine.write(&rma, Source::Owned([9u8; 8].into())).unwrap();
    pair.run_until_idle();
    assert_eq!(pair.sides[0].failed(), [(FI_EACCES, 1)]);
    assert_eq!(window, [5; 8]);
}

#[test]
fn send_to_the_own_rank_is_matched_like_any_other() {
    for len in [0, 100, 1_000_000] {
        for late in [false, true] {
            let mut pair = pair();
            let (mut out, mut target) = (counted(len), vec![0; len]);
            let own = pair.sides[0].address;
            if !late {
                pair.receive(0, &mut target, Some(8), 2);
            }
            pair.sides[0].engine.send(message(own, own, &mut out, Some(8), 1), false).unwrap();
            if late {
                pair.receive(0, &mut target, Some(8), 2);
            }
            let mut contexts: Vec<_> = pair.sides[0].done().iter().map(|done| done.context).collect();
            contexts.sort_unstable();
            assert_eq!(contexts, [1, 2]);
            assert!(target == out);
        }
    }
}

#[test]
fn rank_that_does_not_exist_is_unreachable() {
    let mut pair = pair();
    let from = pair.sides[0].address;
    let nowhere = Address { rank: 9, endpoint: 0 };
    assert_eq!(
        pair.sides[0].engine.send(message(from, nowhere, &mut [], None, 0), false),
        Err(FI_EHOSTUNREACH)
    );
}
