//! Plays the daemons: one thread that carries records between the segments of the "nodes".

use coswitch_ring::{DaemonPort, Header, INLINE_MAX, Segment};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) struct Relay {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    pub(crate) fn start(segments: &[Arc<Segment>]) -> Relay {
        let stop = Arc::new(AtomicBool::new(false));
        if segments.len() < 2 {
            return Relay { stop, thread: None };
        }
        let (segments, flag) = (segments.to_vec(), stop.clone());
        let thread = std::thread::spawn(move || carry(&segments, &flag));
        Relay { stop, thread: Some(thread) }
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread {
            thread.join().expect("the relay saw only sound records");
        }
    }
}

fn carry(segments: &[Arc<Segment>], stop: &AtomicBool) {
    let mut ports = Vec::new();
    let mut port_of = HashMap::new();
    for segment in segments {
        for local in 0..segment.local_ranks() {
            port_of.insert(segment.global_of(local), ports.len());
            ports.push(DaemonPort::new(segment.clone(), local));
        }
    }
    let mut held: Vec<VecDeque<(Header, Vec<u8>)>> = ports.iter().map(|_| VecDeque::new()).collect();
    let mut idle = 0;
    while !stop.load(Ordering::Acquire) {
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
        idle = if moved { 0 } else { idle + 1 };
        if idle > 200 {
            // Several bells and one thread: sleep on the first, look at the others soon.
            segments[0].daemon_bell().wait(tickets[0], Some(Duration::from_micros(300)));
        } else if idle > 0 {
            std::thread::yield_now();
        }
    }
}

/// Takes one record of a rank and passes it on, or keeps it if its receiver has no room.
fn take(
    ports: &mut [DaemonPort],
    port_of: &HashMap<u32, usize>,
    held: &mut [VecDeque<(Header, Vec<u8>)>],
    from: usize,
) -> bool {
    const HELD_MAX: usize = 64;
    let record = ports[from].peek().expect("a sound record");
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
    ports[from].pop(1).expect("a sound record");
    true
}

fn deliver(port: &mut DaemonPort, header: &Header, payload: &[u8]) -> bool {
    if payload.len() <= INLINE_MAX {
        return port.try_deliver(header, payload).expect("a sound ring");
    }
    let Some(mut lease) = port.lease_chunk() else { return false };
    lease.bytes_mut()[..payload.len()].copy_from_slice(payload);
    port.deliver_leased(header, lease).expect("a sound ring").is_ok()
}
