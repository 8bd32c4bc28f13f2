//! Decides when a rank stops polling and yields or sleeps, by its wait policy. Pure code: time is an
//! argument.
//!
//! MPI libraries poll the completion queue in a tight loop while they wait, but also now and then from a
//! program that computes in between (`MPI_Test`). Only the former may be put to sleep. Therefore polls that
//! find nothing are counted, the clock is read at every [`CHECK_EVERY`]th of them, and a rank counts as
//! waiting only if these polls came fast, and if the time before the last of them was not the program's.

use coswitch_ring::WaitPolicy;
use std::time::Duration;

/// Idle polls between two readings of the clock.
const CHECK_EVERY: u32 = 16;
/// [`CHECK_EVERY`] polls take at most this time if the caller does nothing else, or [`TIGHT_BY_ONE`] times
/// what the last of them took: a poll looks at the rings of all ranks of its node.
const TIGHT_NS: u64 = CHECK_EVERY as u64 * 2_000;
const TIGHT_BY_ONE: u64 = CHECK_EVERY as u64 * 3;
/// A rank computes between its polls if it is away from the driver for longer than this, and for more than
/// two thirds of the time. A library that waits is away for less than half of that.
const AWAY_NS: u64 = 500;
/// A longer yield has given the core to another process.
const CONTENDED_NS: u64 = 1_500;
/// After this time with only contended yields the rank sleeps once. On wake-up the kernel places it on an
/// idle core if there is one. Yields alone do not achieve this: two ranks can take turns on one core for long
/// beside an idle one. Where all cores are shared, more frequent sleeps would only cost time.
const CONTENDED_MAX_NS: u64 = 2_000_000;
/// A longer yield has met a process that computes, and so would the next ones: for [`BUSY_FOR_NS`] large
/// payloads then move without yields.
const BUSY_NS: u64 = 100_000;
const BUSY_FOR_NS: u64 = 10_000_000;
/// Bounds of a sleep, which grows while nothing arrives. The bell ends it in any case.
const SLEEP_MIN: Duration = Duration::from_millis(1);
const SLEEP_MAX: Duration = Duration::from_millis(64);
/// Largest part of a pause that counts as waiting: a longer one contains a stop of the whole job.
const COUNTED_MAX: Duration = Duration::from_millis(100);

/// Action after a poll that found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    None,
    /// Yield the core once.
    Yield,
    /// Sleep on the bell, at most this long.
    Sleep(Duration),
}

/// Wait state of one process, updated at each poll.
#[derive(Debug, Default)]
pub(crate) struct Waiter {
    idle_polls: u32,
    /// Beginning of the present wait; 0 if there is none.
    since_ns: u64,
    last_ns: u64,
    /// When the poll before the next check returned.
    left_ns: u64,
    /// When the next one began.
    began_ns: u64,
    sleeps: u32,
    yielding: bool,
    /// Beginning of the present series of contended yields; 0 if there is none.
    contended_ns: u64,
    /// Until this time another process is expected to compute on this core.
    busy_until_ns: u64,
}

impl Waiter {
    /// Records a poll that found something.
    pub(crate) fn on_active(&mut self) {
        let &mut Waiter { last_ns, contended_ns, busy_until_ns, .. } = self;
        *self = Waiter { last_ns, contended_ns, busy_until_ns, ..Waiter::default() };
    }

    const fn is_before_check(&self) -> bool {
        self.idle_polls % CHECK_EVERY == CHECK_EVERY - 1
    }

    /// Records that a poll begins.
    pub(crate) fn on_poll(&mut self, now_ns: impl FnOnce() -> u64) {
        if self.is_before_check() {
            self.began_ns = now_ns();
        }
    }

    /// Records a poll that found nothing. Returns the pause to take and the nanoseconds to count as waiting.
    pub(crate) fn on_idle(
        &mut self,
        policy: WaitPolicy,
        spin: Duration,
        now_ns: impl Fn() -> u64,
    ) -> (Pause, u64) {
        self.idle_polls += 1;
        if self.is_before_check() {
            self.left_ns = now_ns();
        }
        if !self.idle_polls.is_multiple_of(CHECK_EVERY) {
            return (Pause::None, 0);
        }
        let now = now_ns();
        let passed = now.saturating_sub(self.last_ns);
        self.last_ns = now;
        let tight = now.saturating_sub(self.began_ns).saturating_mul(TIGHT_BY_ONE).max(TIGHT_NS);
        let away = self.began_ns.saturating_sub(self.left_ns);
        let computes = away > AWAY_NS && away.saturating_mul(CHECK_EVERY.into()) > passed / 3 * 2;
        if passed > tight || computes {
            self.since_ns = now;
            self.sleeps = 0;
            return (Pause::None, 0);
        }
        let waited = if self.since_ns == 0 { 0 } else { passed };
        if self.since_ns == 0 || now < self.since_ns {
            self.since_ns = now;
        }
        (self.pause(policy, spin, now), waited)
    }

    fn pause(&mut self, policy: WaitPolicy, spin: Duration, now: u64) -> Pause {
        match policy {
            WaitPolicy::Spin => Pause::None,
            WaitPolicy::Yield => Pause::Yield,
            WaitPolicy::SpinBlock if self.may_spin(spin, now) => {
                self.yielding = true;
                Pause::Yield
            }
            WaitPolicy::Block | WaitPolicy::SpinBlock => {
                let bound = SLEEP_MIN.saturating_mul(1 << self.sleeps.min(10)).min(SLEEP_MAX);
                self.sleeps += 1;
                self.contended_ns = 0;
                Pause::Sleep(bound)
            }
        }
    }

    fn may_spin(&self, spin: Duration, now: u64) -> bool {
        let contended = self.contended_ns != 0 && now.saturating_sub(self.contended_ns) > CONTENDED_MAX_NS;
        u128::from(now - self.since_ns) < spin.as_nanos() && !contended
    }

    /// Decides whether to yield after a large payload has moved between rank and daemon. The daemon should
    /// process it in parallel, perhaps on this core. After true, the caller yields once and calls
    /// [`Waiter::on_paused`]. Never true under [`WaitPolicy::Spin`].
    pub(crate) fn on_bulk(&mut self, policy: WaitPolicy, now_ns: u64) -> bool {
        if policy == WaitPolicy::Spin {
            return false;
        }
        let busy = self.busy_until_ns.checked_sub(now_ns).is_some_and(|left| left > 0 && left <= BUSY_FOR_NS);
        if !busy {
            (self.last_ns, self.yielding) = (now_ns, true);
        }
        !busy
    }

    /// Records the end of a pause. Returns the nanoseconds to count as waiting.
    pub(crate) fn on_paused(&mut self, now_ns: u64) -> u64 {
        let took = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        if std::mem::take(&mut self.yielding) {
            if took > BUSY_NS {
                self.busy_until_ns = now_ns + BUSY_FOR_NS;
            }
            match (took > CONTENDED_NS, self.contended_ns) {
                (false, _) => self.contended_ns = 0,
                (true, 0) => self.contended_ns = now_ns - took,
                (true, _) => {}
            }
        }
        took.min(COUNTED_MAX.as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Duration = Duration::from_micros(50);

    /// Polls `polls` times, `gap_ns` apart, of which the rank spends a fourth elsewhere. Returns the pauses
    /// and the nanoseconds counted as waiting.
    fn poll(
        waiter: &mut Waiter,
        policy: WaitPolicy,
        now: &mut u64,
        gap_ns: u64,
        polls: u32,
    ) -> (Vec<Pause>, u64) {
        let mut pauses = Vec::new();
        let mut waited = 0;
        for _ in 0..polls {
            *now += gap_ns / 4;
            waiter.on_poll(|| *now);
            *now += gap_ns - gap_ns / 4;
            let (pause, ns) = waiter.on_idle(policy, SPIN, || *now);
            waited += ns;
            if pause != Pause::None {
                pauses.push(pause);
                waited += waiter.on_paused(*now);
            }
        }
        (pauses, waited)
    }

    #[test]
    fn stop_of_the_job_does_not_count_as_waiting() {
        let mut waiter = Waiter::default();
        let (mut now, stopped) = (0, 5_000_000_000);
        poll(&mut waiter, WaitPolicy::Block, &mut now, 200, 1_000);
        assert!(waiter.on_paused(now + stopped) <= COUNTED_MAX.as_nanos() as u64);
        assert_eq!(waiter.on_paused(now + stopped + 7), 7, "time after the stop counts again");
    }

    #[test]
    fn tight_polling_spins_first_and_then_sleeps() {
        let (mut waiter, mut now) = (Waiter::default(), 1_000_000);
        let (pauses, waited) = poll(&mut waiter, WaitPolicy::SpinBlock, &mut now, 200, 1_000);
        let first_sleep = pauses.iter().position(|pause| matches!(pause, Pause::Sleep(_))).unwrap();
        assert!((10..30).contains(&first_sleep), "50 us are about 16 checks: {first_sleep}");
        assert!(pauses[..first_sleep].iter().all(|&pause| pause == Pause::Yield));
        assert!((150_000..200_000).contains(&waited), "nearly all of 200 us counts as waiting: {waited}");
    }

    #[test]
    fn program_that_computes_between_its_polls_never_pauses() {
        for policy in [WaitPolicy::Block, WaitPolicy::SpinBlock, WaitPolicy::Yield] {
            let (mut waiter, mut now) = (Waiter::default(), 1_000_000);
            for _ in 0..10_000 {
                now += 5_000;
                assert_eq!(poll(&mut waiter, policy, &mut now, 200, 1), (vec![], 0));
            }
        }
    }

    #[test]
    fn program_that_computes_for_a_microsecond_between_its_polls_never_pauses_either() {
        let (mut waiter, mut now) = (Waiter::default(), 1_000_000);
        for _ in 0..10_000 {
            now += 1_000;
            waiter.on_poll(|| now);
            now += 200;
            assert_eq!(waiter.on_idle(WaitPolicy::SpinBlock, SPIN, || now), (Pause::None, 0));
        }
    }

    #[test]
    fn slow_library_that_waits_is_put_to_sleep_all_the_same() {
        for gap_ns in [1_900, 9_000] {
            let (mut waiter, mut now) = (Waiter::default(), 1_000_000);
            let pauses = poll(&mut waiter, WaitPolicy::Block, &mut now, gap_ns, 64).0;
            assert!(matches!(pauses[..], [Pause::Sleep(_), ..]), "{gap_ns}: {pauses:?}");
        }
    }

    /// As one that tests many requests, and computes then.
    #[test]
    fn program_that_computes_after_many_polls_never_pauses() {
        let (mut waiter, mut now) = (Waiter::default(), 1_000_000);
        for _ in 0..1_000 {
            assert_eq!(poll(&mut waiter, WaitPolicy::Block, &mut now, 200, 15), (vec![], 0));
            now += 40_000;
        }
    }

    #[test]
    fn each_policy_asks_for_its_own_pause() {
        let seen = |policy| {
            let (mut waiter, mut now) = (Waiter::default(), 1_000_000);
            poll(&mut waiter, policy, &mut now, 200, 64).0
        };
        assert_eq!(seen(WaitPolicy::Spin), []);
        assert!(seen(WaitPolicy::Yield).iter().all(|&pause| pause == Pause::Yield));
        assert!(seen(WaitPolicy::Block).iter().all(|pause| matches!(pause, Pause::Sleep(_))));
        assert!(!seen(WaitPolicy::Block).is_empty());
    }

    #[test]
    fn rank_on_a_shared_core_sleeps_now_and_then_to_be_placed_on_another_core() {
        let (mut waiter, mut now) = (Waiter::default(), 1_000_000);
        let mut pauses = Vec::new();
        for _ in 0..4 * CONTENDED_MAX_NS / (4 * CONTENDED_NS) {
            // A record arrives after every second check, so the rank never spins for long.
            for _ in 0..2 * CHECK_EVERY {
                now += 100;
                let (pause, _) = waiter.on_idle(WaitPolicy::SpinBlock, SPIN, || now);
                if pause != Pause::None {
                    now += 2 * CONTENDED_NS;
                    waiter.on_paused(now);
                    pauses.push(pause);
                }
            }
            waiter.on_active();
        }
        let sleeps = pauses.iter().filter(|pause| matches!(pause, Pause::Sleep(_))).count();
        let yields = pauses.len() - sleeps;
        assert!((2..8).contains(&sleeps) && yields > 100 * sleeps, "{sleeps} sleeps, {yields} yields");
    }

    #[test]
    fn large_payload_yields_the_core_unless_another_process_computes_there() {
        let (mut waiter, mut now) = (Waiter::default(), 1_000_000);
        for took in [500, 500, BUSY_NS + 1] {
            assert!(!waiter.on_bulk(WaitPolicy::Spin, now));
            assert!(waiter.on_bulk(WaitPolicy::Yield, now));
            now += took;
            assert_eq!(waiter.on_paused(now), took);
            waiter.on_active();
        }
        assert!(!waiter.on_bulk(WaitPolicy::Yield, now + BUSY_FOR_NS - 1));
        assert!(waiter.on_bulk(WaitPolicy::Yield, now + BUSY_FOR_NS));
        assert!(
            waiter.on_bulk(WaitPolicy::Yield, 5),
            "a clock that jumps back after a restore is no reason to wait"
        );
    }

    #[test]
    fn sleeps_grow_to_a_bound_and_are_short_again_after_activity() {
        let (mut waiter, mut now) = (Waiter::default(), 1_000_000);
        let sleeps = poll(&mut waiter, WaitPolicy::Block, &mut now, 200, 640).0;
        assert_eq!(sleeps.first(), Some(&Pause::Sleep(SLEEP_MIN)));
        assert_eq!(sleeps.last(), Some(&Pause::Sleep(SLEEP_MAX)));
        waiter.on_active();
        let again = poll(&mut waiter, WaitPolicy::Block, &mut now, 200, 64).0;
        assert_eq!(again.first(), Some(&Pause::Sleep(SLEEP_MIN)));
    }

    #[test]
    fn clock_that_jumps_back_after_a_restore_only_delays_the_sleep() {
        let (mut waiter, mut now) = (Waiter::default(), 1_000_000_000);
        poll(&mut waiter, WaitPolicy::SpinBlock, &mut now, 200, 200);
        now = 5_000;
        let back = poll(&mut waiter, WaitPolicy::SpinBlock, &mut now, 200, 2_000).0;
        assert!(matches!(back.last(), Some(Pause::Sleep(_))));
    }
}
