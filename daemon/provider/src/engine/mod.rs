//! The engine of the driver: message state and logic between the C interface (`shell`) and the rings.
//!
//! ```text
//!   shell: fi_tsend, fi_trecv, fi_cq_read ...
//!     |  one lock per process (never shared between processes)
//!   Engine = RankPort (rings) + Core (state) + Waiter
//!     send.rs      outgoing messages              matching.rs   pairs messages with receives
//!     receive.rs   incoming messages              rma.rs        one-sided operations
//!     progress.rs  moves records in and out       wait.rs       decides when to yield and sleep
//! ```
//!
//! [`Core`] decides and never touches a ring: it takes records, and produces completions and queued records.
//! `progress.rs` carries records between the core and the rings. A full ring never blocks a rank: records
//! that do not fit wait in an [`Outbox`] and are sent from a later poll of the completion queue.

pub(crate) mod address;
pub(crate) mod buffer;
pub(crate) mod completion;
pub(crate) mod endpoint;
pub(crate) mod matching;
pub(crate) mod poll;
mod progress;
pub(crate) mod receive;
pub(crate) mod rma;
pub(crate) mod send;
#[cfg(test)]
mod tests;
mod wait;
pub(crate) mod wire;

use address::{Address, AddressTable};
use completion::{Completion, CompletionQueue, Counter, Failure};
use coswitch_ring::{Corrupt, Header, Peer, RankPort, Segment};
use endpoint::{Endpoint, Handle, MultiBuffer, Reporting};
use receive::Incoming;
use rma::{Operation, Region};
use send::{Outgoing, Transfer};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A positive error number of libfabric.
pub(crate) type Errno = i32;

/// A table with stable indexes: a removed entry leaves a free place, which a later entry takes.
#[derive(Debug)]
pub(crate) struct Table<T>(Vec<Option<T>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table(Vec::new())
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, value: T) -> Handle {
        let place = self.0.iter().position(Option::is_none).unwrap_or_else(|| {
            self.0.push(None);
            self.0.len() - 1
        });
        self.0[place] = Some(value);
        place
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        self.0.get_mut(handle).and_then(Option::take)
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        self.0.get(handle)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        self.0.get_mut(handle)?.as_mut()
    }
}

/// Records and transfers that wait for free space in the ring to one peer.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Records in their order: first records of messages, and replies without a payload.
    queue: VecDeque<Queued>,
    /// Transfers that may send now, served round-robin.
    streams: VecDeque<u64>,
}

#[derive(Debug)]
enum Queued {
    Control(Header),
    Message(Outgoing),
}

/// Way from this rank to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Own,
    /// Over the rings of this peer, whose outbox has this number.
    Via(Peer, usize),
    /// The rank does not exist.
    Nowhere,
}

/// All state of the engine except the rings.
#[derive(Debug)]
pub(crate) struct Core {
    segment: Arc<Segment>,
    pub(crate) rank: u32,
    local: u32,
    pub(crate) endpoints: Vec<Option<Endpoint>>,
    pub(crate) queues: Table<CompletionQueue>,
    pub(crate) counters: Table<Counter>,
    pub(crate) addresses: Table<AddressTable>,
    pub(crate) domains: Table<()>,
    regions: HashMap<(Handle, u64), Region>,
    multi_buffers: Table<MultiBuffer>,
    /// One per local index, then that of the daemon.
    outboxes: Vec<Outbox>,
    /// Outgoing messages of several records, by message number.
    transfers: HashMap<u64, Transfer>,
    /// Matched messages whose bytes have not all arrived, by sender and message number.
    incoming: HashMap<(u32, u64), Incoming>,
    /// First bytes of long messages that are not yet matched, by sender and message number.
    partials: HashMap<(u32, u64), Vec<u8>>,
    /// One-sided operations that wait for their reply.
    operations: HashMap<u64, Operation>,
    next_message: u64,
    /// Counts the changes that a sleeping thread may wait for.
    changes: u64,
    /// Received since the last update of the shared counters.
    received_messages: u64,
    received_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Engine {
    port: RankPort,
    pub(crate) core: Core,
    waiter: wait::Waiter,
    /// A large payload was taken from the daemon or given to it. One poll moves at most one in each
    /// direction, so that rank and daemon work at the same time.
    bulk: bool,
    /// Number of threads that sleep on the bell.
    sleepers: u32,
    started: std::time::Instant,
}

/// The one engine of a process, shared by all of its fabrics and domains.
#[derive(Debug)]
pub(crate) struct SharedEngine {
    engine: Mutex<Engine>,
    segment: Arc<Segment>,
    local: u32,
}

impl SharedEngine {
    pub(crate) fn new(segment: Arc<Segment>, local: u32) -> SharedEngine {
        let engine = Mutex::new(Engine::new(segment.clone(), local));
        SharedEngine { engine, segment, local }
    }

    /// Global rank of this process.
    pub(crate) fn rank(&self) -> u32 {
        self.segment.global_of(self.local)
    }

    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the process if the shared memory is corrupt: messages are lost, and MPI could not go on.
fn or_abort<T>(result: Result<T, Corrupt>) -> T {
    result.unwrap_or_else(|corrupt| {
        eprintln!("coswitch: shared memory of this rank is corrupt: {corrupt}");
        std::process::abort()
    })
}

impl Engine {
    fn new(segment: Arc<Segment>, local: u32) -> Engine {
        let port = RankPort::new(segment.clone(), local);
        port.activity().set_process(std::process::id());
        let started = std::time::Instant::now();
        Engine {
            port,
            core: Core::new(segment, local),
            waiter: wait::Waiter::default(),
            bulk: false,
            sleepers: 0,
            started,
        }
    }

    /// Opens an endpoint and returns its number, which is never reused.
    pub(crate) fn open_endpoint(&mut self, endpoint: Endpoint) -> Option<u16> {
        let number = u16::try_from(self.core.endpoints.len()).ok()?;
        self.core.endpoints.push(Some(endpoint));
        Some(number)
    }

    /// Closes an endpoint. From then on no operation of it touches the program's memory.
    pub(crate) fn close_endpoint(&mut self, number: u16) {
        let core = &mut self.core;
        core.endpoints[number as usize] = None;
        core.incoming.retain(|_, incoming| incoming.endpoint != number);
        core.operations.retain(|_, operation| operation.endpoint != number);
        core.transfers.retain(|_, transfer| transfer.header.src_endpoint != number);
        for outbox in &mut core.outboxes {
            outbox
                .queue
                .retain(|queued| !matches!(queued, Queued::Message(send) if send.from.endpoint == number));
        }
    }
}

impl Core {
    fn new(segment: Arc<Segment>, local: u32) -> Core {
        let outboxes = (0..=segment.local_ranks()).map(|_| Outbox::default()).collect();
        Core {
            rank: segment.global_of(local),
            local,
            segment,
            endpoints: Vec::new(),
            queues: Table::default(),
            counters: Table::default(),
            addresses: Table::default(),
            domains: Table::default(),
            regions: HashMap::new(),
            multi_buffers: Table::default(),
            outboxes,
            transfers: HashMap::new(),
            incoming: HashMap::new(),
            partials: HashMap::new(),
            operations: HashMap::new(),
            next_message: 1,
            changes: 0,
            received_messages: 0,
            received_bytes: 0,
        }
    }

    pub(crate) fn endpoint(&mut self, number: u16) -> Option<&mut Endpoint> {
        self.endpoints.get_mut(number as usize)?.as_mut()
    }

    /// The address that a caller's number stands for.
    pub(crate) fn address(&self, endpoint: u16, number: u64) -> Option<Address> {
        let table = self.endpoints.get(endpoint as usize)?.as_ref()?.addresses?;
        self.addresses.get(table)?.get(number)
    }

    fn route(&self, rank: u32) -> Route {
        if rank == self.rank {
            return Route::Own;
        }
        match self.segment.local_of(rank) {
            Some(peer) if peer != self.local => Route::Via(Peer::Rank(peer), peer as usize),
            _ if rank < self.segment.world_size() => Route::Via(Peer::Daemon, self.outboxes.len() - 1),
            _ => Route::Nowhere,
        }
    }

    fn control(&mut self, header: Header) {
        if let Route::Via(_, outbox) = self.route(header.dst) {
            self.outboxes[outbox].queue.push_back(Queued::Control(header));
        }
    }

    fn new_message(&mut self) -> u64 {
        self.next_message += 1;
        self.next_message
    }

    fn complete(&mut self, reporting: Reporting, reports: bool, completion: Completion) {
        self.changes += 1;
        if let Some(queue) = reporting.queue.filter(|_| reports).and_then(|queue| self.queues.get_mut(queue))
        {
            queue.done.push_back(completion);
        }
    }

    /// Reports a failure, even if the operation asked for no report.
    pub(crate) fn fail(&mut self, reporting: Reporting, failure: Failure) {
        self.changes += 1;
        if let Some(queue) = reporting.queue.and_then(|queue| self.queues.get_mut(queue)) {
            queue.failed.push_back(failure);
        }
    }

    fn count(&mut self, counter: Option<Handle>, error: bool) {
        if let Some(counter) = counter.and_then(|counter| self.counters.get_mut(counter)) {
            self.changes += 1;
            if error {
                counter.failed += 1;
            } else {
                counter.done += 1;
            }
        }
    }
}
