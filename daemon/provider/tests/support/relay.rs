//! A relay in place of the daemons: one thread carries records between the segments of the "nodes".

use coswitch_ring::{DaemonPort, Header, INLINE_MAX, Segment};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) struct Relay {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Control {
    stop: AtomicBool,
    /// Held by the relay while it touches a segment.
    at_work: Mutex<()>,
    /// The segments were refilled: the relay must create all ports anew.
    refilled: AtomicBool,
}

impl Relay {
    pub(crate) fn start(segments: &[Arc<Segment>]) -> Relay {
        let control = Arc::new(Control::default());
        if segments.len() < 2 {
            return Relay { control, thread: None };
        }
        let (segments, shared) = (segments.to_vec(), control.clone());
        let thread = std::thread::spawn(move || carry(&segments, &shared));
        Relay { control, thread: Some(thread) }
    }

    /// Runs `act` while the relay touches no segment; then the relay creates its ports anew.
    pub(crate) fn pause(&self, act: impl FnOnce()) {
        let _guard = self.control.at_work.lock().unwrap();
        act();
        self.control.refilled.store(true, Ordering::Release);
    }

    pub(crate) fn stop(self) {
        self.control.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread {
            thread.join().expect("the relay thread does not panic");
        }
    }
}

fn open_ports(segments: &[Arc<Segment>]) -> Vec<DaemonPort> {
    let ports = |segment: &Arc<Segment>| {
        let segment = segment.clone();
        (0..segment.local_ranks()).map(move |local| DaemonPort::new(segment.clone(), local))
    };
    segments.iter().flat_map(ports).collect()
}

fn carry(segments: &[Arc<Segment>], control: &Control) {
    let ranks =
        segments.iter().flat_map(|segment| (0..segment.local_ranks()).map(|local| segment.global_of(local)));
    let port_of: HashMap<u32, usize> = ranks.enumerate().map(|(port, rank)| (rank, port)).collect();
    let mut ports = open_ports(segments);
    let mut held: Vec<VecDeque<(Header, Vec<u8>)>> = ports.iter().map(|_| VecDeque::new()).collect();
    let mut idle = 0;
    while !control.stop.load(Ordering::Acquire) {
        let guard = control.at_work.lock().unwrap();
        if control.refilled.swap(false, Ordering::AcqRel) {
            ports.clear();
            ports = open_ports(segments);
        }
        let tickets: Vec<u32> = segments.iter().map(|segment| segment.daemon_bell().ticket()).collect();
        let mut moved = false;
        for from in 0..ports.len() {
            moved |= take(&mut ports, &port_of, &mut held, from);
        }
        for (to, queue) in held.iter_mut().enumerate() {
            while queue.front().is_some_and(|(header, payload)| deliver(&mut ports[to], header, payload)) {
                queue.pop_front();
                moved = true;
            }
        }
        drop(guard);
        idle = if moved { 0 } else { idle + 1 };
        if idle > 200 {
            // There are several bells: sleep on the first, and check the others soon.
            segments[0].daemon_bell().wait(tickets[0], Some(Duration::from_micros(300)));
        } else if idle > 0 {
            std::thread::yield_now();
        }
    }
}

/// Takes one record of a rank and delivers it, or keeps it if the receiver's ring is full.
fn take(
    ports: &mut [DaemonPort],
    port_of: &HashMap<u32, usize>,
    held: &mut [VecDeque<(Header, Vec<u8>)>],
    from: usize,
) -> bool {
    const HELD_MAX: usize = 64;
    let record = ports[from].peek().expect("the ring is not corrupt");
    let Some((header, payload)) = record.map(|record| (record.header, record.payload.to_vec())) else {
        return false;
    };
    let to = port_of[&header.dst];
    if held[to].len() >= HELD_MAX {
        return false;
    }
    if !held[to].is_empty() || !deliver(&mut ports[to], &header, &payload) {
        held[to].push_back((header, payload));
    }
    ports[from].pop().expect("the ring is not corrupt");
    true
}

fn deliver(port: &mut DaemonPort, header: &Header, payload: &[u8]) -> bool {
    if payload.len() <= INLINE_MAX {
        return port.try_deliver(header, payload).expect("the ring is not corrupt");
    }
    let Some(lease) = port.lease_chunk() else { return false };
    lease.bytes().first(payload.len()).copy_from(payload);
    port.deliver_leased(header, lease).expect("the ring is not corrupt").is_ok()
}
