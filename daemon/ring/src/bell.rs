//! A doorbell: an event count in shared memory, based on a futex.
//!
//! ```text
//!   waiter                               ringer
//!   t = ticket()   t = sequence          publish the work
//!                  armed := 1
//!   look for work; if none:              ring()   if armed: armed := 0, sequence += 1, wake all
//!   wait(t)        sleep while sequence = t
//! ```
//!
//! Either the waiter sees the work, or the ringer sees `armed`: both sides put a full fence between their
//! write and their read. The ring for work that the waiter has already done may come late and clear `armed`.
//! For this reason the waiter reads the sequence first: such a ring ends its wait. A ring without an armed
//! waiter costs the fence and one load. The futex is not private, because the two sides are different
//! processes. Callers bound every wait, so a ringer that is frozen in the middle of `ring` delays a waiter by
//! the time-out at most.

use crate::sync::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// An event count shared between processes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Bell {
    sequence: AtomicU32,
    armed: AtomicU32,
    #[cfg(loom)]
    futex: crate::models::Futex,
}

impl Bell {
    /// A bell outside a segment, between threads of one process.
    #[cfg(not(loom))]
    pub const fn new() -> Bell {
        Bell { sequence: AtomicU32::new(0), armed: AtomicU32::new(0) }
    }

    /// Announces that the caller may sleep soon. Look for work *after* this call, then call [`Bell::wait`].
    pub fn ticket(&self) -> u32 {
        let ticket = self.sequence.load(Ordering::Acquire);
        self.armed.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        ticket
    }

    /// Sleeps until the bell has been rung since `ticket` was drawn, or `timeout` has passed. May return
    /// early (a signal, a restore from an image), so the caller looks for work again in any case.
    pub fn wait(&self, ticket: u32, timeout: Option<Duration>) {
        #[cfg(not(loom))]
        self.sleep(ticket, timeout);
        #[cfg(loom)]
        if timeout.is_none() {
            self.futex.wait(&self.sequence, ticket);
        }
    }

    #[cfg(not(loom))]
    fn sleep(&self, ticket: u32, timeout: Option<Duration>) {
        let timespec = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs().min(i64::MAX as u64) as libc::time_t,
            tv_nsec: t.subsec_nanos().into(),
        });
        let timespec_ptr = timespec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the futex word is a live, aligned u32; the time-out is null or points to a local that
        // outlives the call. After every error (EAGAIN, EINTR, ETIMEDOUT) the caller looks again, so the
        // result is not needed.
        unsafe {
            libc::syscall(libc::SYS_futex, self.sequence.as_ptr(), libc::FUTEX_WAIT, ticket, timespec_ptr)
        };
    }

    /// Wakes all waiters that drew a ticket. Call it after publishing the work.
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) != 0 && self.armed.swap(0, Ordering::SeqCst) != 0 {
            self.sequence.fetch_add(1, Ordering::SeqCst);
            self.wake();
        }
    }

    #[cfg(not(loom))]
    fn wake(&self) {
        // SAFETY: the futex word is a live, aligned u32; FUTEX_WAKE reads no other argument.
        unsafe { libc::syscall(libc::SYS_futex, self.sequence.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    #[cfg(loom)]
    fn wake(&self) {
        self.futex.wake();
    }

    /// In a model.
    #[cfg(loom)]
    pub fn new() -> Bell {
        let [sequence, armed] = [0; 2].map(AtomicU32::new);
        Bell { sequence, armed, futex: Default::default() }
    }
}

impl Default for Bell {
    fn default() -> Bell {
        Bell::new()
    }
}

/// Sleeps until one of the bells has been rung since its ticket was drawn, or `timeout` has passed. May
/// return early, as [`Bell::wait`] does. The kernel takes at most 128 bells: later ones are noticed only at
/// the time-out.
#[cfg(not(loom))]
pub fn wait_any(tickets: &[(&Bell, u32)], timeout: Duration) {
    const WAITERS_MAX: usize = 128;
    // Miri does not support this system call. Returning early is allowed.
    if cfg!(miri) {
        return std::thread::sleep(timeout.min(Duration::from_millis(20)));
    }
    let waiters: Vec<libc::futex_waitv> = tickets
        .iter()
        .take(WAITERS_MAX)
        .map(|(bell, ticket)| {
            // SAFETY: an all-zero futex_waitv is valid: it consists of integers, and its reserved field must
            // be zero.
            let mut waiter: libc::futex_waitv = unsafe { std::mem::zeroed() };
            waiter.val = u64::from(*ticket);
            waiter.uaddr = bell.sequence.as_ptr() as u64;
            waiter.flags = libc::FUTEX2_SIZE_U32 as u32;
            waiter
        })
        .collect();
    let mut deadline = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is written to a local; the system call reads `waiters` and the deadline, which
    // outlive it. After every error the caller looks again, so the result is not needed.
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut deadline);
        let nanos = deadline.tv_nsec + i64::from(timeout.subsec_nanos());
        deadline.tv_sec += timeout.as_secs() as libc::time_t + nanos / 1_000_000_000;
        deadline.tv_nsec = nanos % 1_000_000_000;
        let count = waiters.len() as libc::c_uint;
        libc::syscall(libc::SYS_futex_waitv, waiters.as_ptr(), count, 0, &deadline, libc::CLOCK_MONOTONIC);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;
    use std::time::Instant;

    fn bell() -> Bell {
        Bell { sequence: AtomicU32::new(0), armed: AtomicU32::new(0) }
    }

    #[test]
    fn wait_returns_at_once_if_the_bell_was_rung_after_the_ticket() {
        let bell = bell();
        let ticket = bell.ticket();
        bell.ring();
        let start = Instant::now();
        bell.wait(ticket, Some(Duration::from_secs(20)));
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn wait_ends_at_its_time_out() {
        let bell = bell();
        let start = Instant::now();
        bell.wait(bell.ticket(), Some(Duration::from_millis(20)));
        assert!(start.elapsed() >= Duration::from_millis(15));
    }

    #[test]
    fn ring_of_one_of_several_bells_ends_the_wait() {
        let bells = [bell(), bell(), bell()];
        let tickets: Vec<_> = bells.iter().map(|bell| (bell, bell.ticket())).collect();
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| bells[2].ring());
            wait_any(&tickets, Duration::from_secs(20));
        });
        assert!(start.elapsed() < Duration::from_secs(10));
        let start = Instant::now();
        wait_any(&[(&bells[0], bells[0].ticket())], Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(15));
    }

    #[test]
    fn no_wake_up_is_lost_between_two_threads() {
        let bell = bell();
        let work = AtomicU64::new(0);
        const ROUNDS: u64 = if cfg!(miri) { 100 } else { 20_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    while work.load(Ordering::Acquire) != 2 * round - 1 {
                        let ticket = bell.ticket();
                        if work.load(Ordering::Acquire) != 2 * round - 1 {
                            let start = Instant::now();
                            bell.wait(ticket, Some(Duration::from_secs(30)));
                            let waited = start.elapsed();
                            assert!(
                                waited < Duration::from_secs(25),
                                "a wake-up was lost: {bell:?}, {ticket}"
                            );
                        }
                    }
                    work.store(2 * round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                work.store(2 * round - 1, Ordering::Release);
                bell.ring();
                let began = Instant::now();
                while work.load(Ordering::Acquire) != 2 * round {
                    assert!(began.elapsed() < Duration::from_secs(60), "the waiter gave up in round {round}");
                    std::thread::yield_now();
                }
            }
        });
    }
}
