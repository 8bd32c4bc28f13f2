//! A daemon's part of the conversation with a rank and a launcher that write what they like into their
//! segment.

use std::{cell::RefCell, fs::File, os::unix::fs::FileExt, sync::Arc, time::Duration};

use coswitch_ring::{DaemonPort, Header, INLINE_MAX, MessagePort, Segment, SegmentSpec, WaitPolicy};

const CHUNK: u32 = 16 << 10;

/// Small, so that inputs reach all of it.
fn spec() -> SegmentSpec {
    SegmentSpec {
        world_size: 3,
        local_ranks: vec![0, 2],
        ring_bytes: 32 << 10,
        direct_ring_bytes: 32 << 10,
        chunk_bytes: CHUNK,
        chunks_per_rank: 4,
        wait: WaitPolicy::Block,
        spin: Duration::ZERO,
    }
}

/// A segment that is as it was made before each conversation.
struct Stage {
    segment: Arc<Segment>,
    file: File,
    fresh: Vec<u8>,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let path = dir.path().join("segment");
        let segment = Arc::new(Segment::create(&path, &spec()).expect("a segment"));
        let file = File::options().read(true).write(true).open(&path).expect("it is there");
        let mut fresh = vec![0; usize::try_from(segment.len()).expect("it is small")];
        file.read_exact_at(&mut fresh, 0).expect("it can be read");
        Self { segment, file, fresh }
    }
}

/// Each six bytes are a step: what the daemon does, where something is written before, and what.
pub(crate) fn conversation(bytes: &[u8]) {
    thread_local!(static STAGE: RefCell<Stage> = RefCell::new(Stage::new()));
    STAGE.with_borrow_mut(|stage| {
        stage.file.write_all_at(&stage.fresh, 0).expect("it can be written");
        let ports = [0, 1].map(|local| DaemonPort::new(Arc::clone(&stage.segment), local));
        let launcher = MessagePort::daemon_side(Arc::clone(&stage.segment));
        let mut daemon = Daemon { ports, launcher, message: Vec::new(), payload: vec![1; CHUNK as usize] };
        for step in bytes.as_chunks::<6>().0 {
            let [what, a, b, c, value, more] = *step;
            let at = u64::from(u32::from_le_bytes([a, b, c, 0])) % stage.fresh.len() as u64;
            // One byte, or a word whose other bytes are as many.
            let written = if more & 1 == 0 { vec![value] } else { vec![value, more, value, more] };
            if at + (written.len() as u64) < stage.fresh.len() as u64 {
                stage.file.write_all_at(&written, at).expect("it can be written");
            }
            daemon.act(what);
        }
        stage.segment.free_orphan_leases();
    });
}

struct Daemon {
    ports: [DaemonPort; 2],
    launcher: MessagePort,
    message: Vec<u8>,
    payload: Vec<u8>,
}

impl Daemon {
    /// What is corrupt ends the job: here the conversation goes on, and must not get worse.
    fn act(&mut self, what: u8) {
        let port = &mut self.ports[usize::from(what & 1)];
        let length = self.payload.len();
        match what >> 1 & 7 {
            0 => {
                if let Ok(Some(record)) = port.peek() {
                    assert!(record.payload.to_vec().len() <= CHUNK as usize);
                }
            }
            1 => drop(port.pop()),
            2 => assert!(port.records().take(10_000).count() < 10_000, "a ring has room for fewer"),
            3 => drop(port.try_deliver(&Header::EMPTY, &self.payload[..INLINE_MAX.min(length)])),
            4 => {
                if let Some(lease) = port.lease_chunk() {
                    lease.bytes().first(length).copy_from(&self.payload);
                    let header = Header { len: length as u32, ..Header::EMPTY };
                    drop(port.deliver_leased(&header, lease));
                }
            }
            5 => drop(self.launcher.recv(&mut self.message)),
            6 => drop(self.launcher.send(b"said")),
            _ => drop(self.launcher.position()),
        }
    }
}
