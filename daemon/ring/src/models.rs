//! Models of rings, slabs and bells, which loom runs in every order that the memory model allows, for threads
//! that are interrupted up to a few times: `cargo xtask test` does so with `--cfg loom`.
//!
//! A record is a cell that loom watches: it fails where a record is read while it may still be written, or is
//! written while it may still be read. A thread that sleeps for ever because a ring came at the wrong moment
//! is a deadlock, which it finds as well: here no wait has a time-out.

use crate::bell::Bell;
use crate::header::Header;
use crate::shared::SharedBytes;
use crate::slab::Slab;
use crate::spsc::{Consumer, Memory, Producer};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::ptr::NonNull;

/// A ring has room for that many records.
const LINES: usize = 2;
const LINE: u64 = 64;
/// More than fit.
const RECORDS: u64 = 3;

/// The kernel's part of a bell.
#[derive(Debug, Default)]
pub(crate) struct Futex {
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Futex {
    pub(crate) fn wait(&self, word: &AtomicU32, value: u32) {
        let sleepers = self.sleepers.lock().expect("no thread panics");
        if word.load(Ordering::SeqCst) == value {
            drop(self.woken.wait(sleepers).expect("no thread panics"));
        }
    }

    pub(crate) fn wake(&self) {
        let _sleepers = self.sleepers.lock().expect("no thread panics");
        self.woken.notify_all();
    }
}

/// A ring of records without payloads, and what is beside it in a segment.
struct Stage {
    tail: AtomicU64,
    head: AtomicU64,
    starved: AtomicU32,
    lines: [UnsafeCell<Header>; LINES],
    /// Rung for the consumer, and for the producer.
    arrived: Bell,
    room: Bell,
    /// A slab of one chunk, and what is in that.
    chunks: [AtomicU32; 1],
    no_chunk: AtomicU32,
    payload: UnsafeCell<u64>,
}

// SAFETY: loom watches all accesses to the cells.
unsafe impl Send for Stage {}
// SAFETY: as above.
unsafe impl Sync for Stage {}

impl Stage {
    fn new() -> Arc<Stage> {
        Arc::new(Stage {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            starved: AtomicU32::new(0),
            lines: std::array::from_fn(|_| UnsafeCell::new(Header::EMPTY)),
            arrived: Bell::new(),
            room: Bell::new(),
            chunks: [AtomicU32::new(0)],
            no_chunk: AtomicU32::new(0),
            payload: UnsafeCell::new(0),
        })
    }

    fn line(&self, position: u64) -> &UnsafeCell<Header> {
        &self.lines[(position / LINE) as usize % LINES]
    }

    /// The bytes of the chunk are those of the model's cell.
    fn slab(&self) -> Slab<'_> {
        // SAFETY: it has no bytes.
        let bytes = unsafe { SharedBytes::new(NonNull::dangling(), 0) };
        Slab { states: &self.chunks, starved: &self.no_chunk, bytes, chunk_bytes: 0 }
    }
}

impl Memory for Arc<Stage> {
    fn capacity(&self) -> u64 {
        LINES as u64 * LINE
    }

    fn tail(&self) -> &AtomicU64 {
        &self.tail
    }

    fn head(&self) -> &AtomicU64 {
        &self.head
    }

    fn starved(&self) -> &AtomicU32 {
        &self.starved
    }

    fn read_header(&self, position: u64) -> Header {
        // SAFETY: loom fails where another thread writes to it.
        self.line(position).with(|line| unsafe { *line })
    }

    fn write_header(&self, position: u64, header: &Header) {
        // SAFETY: loom fails where another thread accesses it.
        self.line(position).with_mut(|line| unsafe { *line = *header });
    }

    fn write_payload(&self, _: u64, _: &[u8]) {
        unreachable!("records have none");
    }
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    let orders = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = std::sync::Arc::clone(&orders);
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        model();
    });
    eprintln!("{} orders", orders.load(std::sync::atomic::Ordering::Relaxed));
}

/// Does it until it succeeds, asleep where it does not.
fn until<T>(bell: &Bell, mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        let ticket = bell.ticket();
        if let Some(done) = attempt() {
            return done;
        }
        bell.wait(ticket, None);
    }
}

#[test]
fn a_waiter_is_woken_whenever_the_ringer_publishes() {
    explore(|| {
        let shared = Arc::new((Bell::new(), AtomicU32::new(0)));
        let ringer = Arc::clone(&shared);
        let ringer = thread::spawn(move || {
            for number in 1..=2 {
                ringer.1.store(number, Ordering::Release);
                ringer.0.ring();
            }
        });
        until(&shared.0, || (shared.1.load(Ordering::Acquire) == 2).then_some(()));
        ringer.join().expect("it does not panic");
    });
}

#[test]
fn records_arrive_whole_and_in_order_and_nobody_sleeps_for_ever() {
    explore(|| {
        let stage = Stage::new();
        let own = Arc::clone(&stage);
        let sender = thread::spawn(move || {
            let mut producer = Producer::of(Arc::clone(&own));
            for message in 1..=RECORDS {
                let header = Header { message, ..Header::EMPTY };
                until(&own.room, || producer.push(&header, &[]).expect("it is whole").then_some(()));
                own.arrived.ring();
            }
        });
        let mut consumer = Consumer::of(Arc::clone(&stage), 0);
        for message in 1..=RECORDS {
            let record = until(&stage.arrived, || consumer.first().expect("it is whole"));
            assert_eq!(record.header.message, message);
            if consumer.release_to(record.end) {
                stage.room.ring();
            }
        }
        sender.join().expect("it does not panic");
    });
}

#[test]
fn a_chunk_has_one_holder_at_a_time_and_its_owner_gets_it_back() {
    explore(|| {
        let stage = Stage::new();
        let own = Arc::clone(&stage);
        let sender = thread::spawn(move || {
            let mut producer = Producer::of(Arc::clone(&own));
            for message in 1..=2 {
                let chunk = until(&own.room, || own.slab().lease());
                // SAFETY: loom fails where another thread accesses it.
                own.payload.with_mut(|payload| unsafe { *payload = message });
                own.slab().publish(chunk);
                let header = Header { message, slot: chunk, ..Header::EMPTY };
                assert!(producer.push(&header, &[]).expect("it is whole"), "the ring has room for both");
                own.arrived.ring();
            }
        });
        let mut consumer = Consumer::of(Arc::clone(&stage), 0);
        for message in 1..=2 {
            let record = until(&stage.arrived, || consumer.first().expect("it is whole"));
            let chunk = record.header.slot;
            assert!(stage.slab().published(chunk, 0).is_some());
            // SAFETY: loom fails where another thread writes to it.
            assert_eq!(stage.payload.with(|payload| unsafe { *payload }), message);
            let is_wanted = stage.slab().free(chunk);
            if consumer.release_to(record.end) | is_wanted {
                stage.room.ring();
            }
        }
        sender.join().expect("it does not panic");
    });
}
