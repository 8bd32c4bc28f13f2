//! Copies of sealed snapshots on partner nodes, and their way back.
//!
//! ```text
//!   owner                              partner                          a node that needs the part
//!     Keep{whose, manifest} ──────────▶  room in the store?
//!         ◀────────────────── Go, Have, No
//!     Chunk … Chunk, End ─────────────▶  each checked; synced, renamed
//!         ◀────────────────── Have, No
//!                                        looks it up  ◀──────────────── Fetch{whose}
//!                                        Manifest{…}  ────────────────▶
//!                                                     ◀──────────────── Want{chunks}
//!                                        Chunk … End  ────────────────▶ each checked, then all files; sealed
//! ```
//! Each exchange has a connection of its own to the port of the data links, in TLS under the cluster's
//! authority ([`crate::plane::connect`]). A partner may need long for an answer, for which it reads what it
//! holds or syncs what has come: all partners of a copy do that side by side. Copies go out below all that
//! runs: one snapshot at a time, on a thread that has the processor and the disk only where these are idle.
//! [`coswitch_ckpt::copies`] is what lies on the disk, [`coswitch_policies::partners`] says where.

mod fetch;
mod receive;
mod send;
mod wire;

use std::{
    io,
    net::TcpStream,
    sync::{
        Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use coswitch_ckpt::copies::CopyId;
use coswitch_policies::{Bytes, Epoch, JobId, NodeId};
use nix::sys::socket::{
    setsockopt,
    sockopt::{KeepAlive, TcpKeepCount, TcpKeepIdle, TcpKeepInterval},
};
use rustls::{ClientConnection, StreamOwned};

pub(crate) use self::{fetch::fetch, receive::serve, send::send};
use crate::{
    app::NodeServices,
    plane::connect::{self, COPIES},
    protocol::{HeldCopy, moving_time},
};

/// To reach the daemon of another node.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// A connection ends where the other side neither sends nor takes anything for so long. An answer for which
/// the other side reads or syncs much has a longer limit: [`working_time`].
const SILENCE: Duration = Duration::from_secs(60);
/// In seconds: a connection on which nothing is sent is probed so often, and ends after so many probes
/// without an answer. So a host that is gone is noticed within any limit.
const PROBE_EVERY: u32 = 15;
const PROBES: u32 = 3;

/// How often a transfer looks whether it is its turn.
const TURN_EVERY: Duration = Duration::from_millis(20);
/// For a write that has begun when the daemon ends.
const END_LIMIT: Duration = Duration::from_secs(2);

/// The copies of a daemon.
#[derive(Default)]
pub(crate) struct Copies {
    /// One snapshot goes out at a time.
    outgoing: Mutex<()>,
    /// Read-locked while something is written.
    written: RwLock<()>,
    /// The daemon ends: nothing is written any more.
    ends: AtomicBool,
}

impl Copies {
    /// `None` where that is void before it is this one's turn.
    fn outgoing(&self, is_void: &AtomicBool) -> Option<MutexGuard<'_, ()>> {
        while !is_void.load(Ordering::Relaxed) {
            match self.outgoing.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(TURN_EVERY),
            }
        }
        None
    }

    /// Held while something is written to the store.
    fn writing(&self) -> anyhow::Result<RwLockReadGuard<'_, ()>> {
        let written = self.written.read().unwrap_or_else(PoisonError::into_inner);
        if self.ends.load(Ordering::Relaxed) {
            bail!("the daemon ends");
        }
        Ok(written)
    }

    /// From now on nothing is written, so that the store can be removed. Waits for a write that has begun,
    /// but not for long: its thread may not get the processor.
    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + END_LIMIT;
        while self.written.try_write().is_err() && Instant::now() < deadline {
            std::thread::sleep(TURN_EVERY);
        }
    }
}

/// All frames that these bytes begin with; for [`crate::fuzzing`].
pub(crate) fn read_frames(mut bytes: &[u8]) {
    while wire::read(&mut bytes).is_ok() {}
}

fn copy_id(job: JobId, owner: NodeId, epoch: Epoch) -> CopyId {
    CopyId { application: job.to_string(), owner: owner.0, epoch: epoch.0 }
}

/// The limit of an answer for which a daemon reads or syncs so many bytes.
fn working_time(bytes: u64) -> Duration {
    SILENCE + moving_time(Bytes(bytes))
}

/// Makes the kernel probe the other end of a connection while nothing is sent.
fn probe(stream: &TcpStream) -> io::Result<()> {
    setsockopt(stream, TcpKeepIdle, &PROBE_EVERY)?;
    setsockopt(stream, TcpKeepInterval, &PROBE_EVERY)?;
    setsockopt(stream, TcpKeepCount, &PROBES)?;
    Ok(setsockopt(stream, KeepAlive, &true)?)
}

/// A connection to the daemon of a node.
fn connect_to(node: &NodeServices, peer: NodeId) -> anyhow::Result<StreamOwned<ClientConnection, TcpStream>> {
    let connect = || {
        let member = node.links.member(peer).context("it is not of the cluster")?;
        let client = node.config.identity.client()?;
        let to = (peer, member.data);
        let (found, tls) =
            connect::connect_for(COPIES, to, node.link_end(), &client, CONNECT_LIMIT, SILENCE)?;
        if found.node != peer {
            bail!("at {} answers {}", member.data, found.node);
        }
        probe(&tls.sock)?;
        anyhow::Ok(tls)
    };
    connect().with_context(|| format!("failed to reach {peer}"))
}

impl NodeServices {
    /// The copies that this node holds.
    pub(crate) fn held_copies(&self) -> Vec<(JobId, HeldCopy)> {
        let held = self.store.copies().into_iter().filter_map(|copy| {
            let job = crate::control::job_of(&copy.id.application)?;
            Some((job, serde_json::from_str(&copy.note).ok()?))
        });
        held.collect()
    }
}

/// Gives this thread the processor and the disk only where these are idle. Where the kernel refuses
/// that, copies are made as everything else.
fn step_back() {
    /// The lowest of all.
    const NICE: i32 = 19;
    const IOPRIO_WHO_PROCESS: i32 = 1;
    const IOPRIO_CLASS_IDLE: i32 = 3;
    const IOPRIO_CLASS_SHIFT: i32 = 13;
    let own_thread = 0;
    // SAFETY: both calls take numbers alone, and 0 names the calling thread.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, own_thread, NICE);
        libc::syscall(
            libc::SYS_ioprio_set,
            IOPRIO_WHO_PROCESS,
            own_thread,
            IOPRIO_CLASS_IDLE << IOPRIO_CLASS_SHIFT,
        );
    }
}
