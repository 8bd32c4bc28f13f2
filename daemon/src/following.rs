//! Whom a daemon follows, and for how long it goes on without anybody. Pure: the control loop and the
//! simulation of the control plane feed it.
//!
//! ```text
//!   Alone ─master─▶ Followed ⇄ (silent: its jobs stand still)
//!     ▲ │               │
//!     │ └patience─▶ end │
//!     └──session ends───┘ standing; else end
//! ```

use std::time::{Duration, Instant};

/// At least so long the first master is waited for.
const FIRST_CONTACT_LIMIT: Duration = Duration::from_secs(30);
/// A master that ends closes two connections. The one without its last word may be seen to end first.
const LAST_WORD_LIMIT: Duration = Duration::from_secs(2);

/// What is left to do after an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing about the jobs.
    GoOn,
    /// Jobs that stood still for a silent master run again; how long they did.
    Thaw { frozen: Duration },
    /// The daemon ends its jobs and itself.
    End,
}

#[derive(Clone, Copy, Debug)]
pub struct Following {
    /// The daemon outlives its masters, once it has had one.
    standing: bool,
    stop_after: Duration,
    is_followed: bool,
    /// The process that started this daemon has to live.
    needs_starter: bool,
    /// That process has ended: the daemon ends at this time, unless its master says before how.
    last_word: Option<Instant>,
    /// When the daemon ends, where it has no master by then.
    give_up: Instant,
    /// Since when the master counts as silent.
    silent_since: Option<Instant>,
}

impl Following {
    #[must_use]
    pub fn new(standing: bool, stop_after: Duration, now: Instant) -> Self {
        Self {
            standing,
            stop_after,
            is_followed: false,
            needs_starter: true,
            last_word: None,
            give_up: now + stop_after.max(FIRST_CONTACT_LIMIT),
            silent_since: None,
        }
    }

    /// The master of the program before comes again, or another one. Only a standing daemon hands over.
    #[must_use]
    pub fn after_handover(stop_after: Duration, now: Instant) -> Self {
        Self { needs_starter: false, ..Self::new(true, stop_after, now) }
    }

    #[must_use]
    pub const fn is_followed(&self) -> bool {
        self.is_followed
    }

    #[must_use]
    pub const fn needs_starter(&self) -> bool {
        self.needs_starter
    }

    /// The jobs stand still.
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        self.silent_since.is_some()
    }

    /// When the daemon gives up, if it has no master, or no starter.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        if self.is_followed { self.last_word } else { Some(self.give_up) }
    }

    /// The process that started this daemon has ended. A master may still say how its jobs are to be left.
    pub fn on_starter_end(&mut self, now: Instant) -> Then {
        self.needs_starter = false;
        self.last_word = Some(now + LAST_WORD_LIMIT);
        if self.is_followed { Then::GoOn } else { Then::End }
    }

    /// A later master has come: what the one before has asked and what was not read by now is void.
    pub fn on_master(&mut self, now: Instant) -> Then {
        self.is_followed = true;
        self.needs_starter = !self.standing;
        self.thaw(now)
    }

    /// The session with the master has ended.
    pub fn on_session_end(&mut self, now: Instant) -> Then {
        if !self.standing {
            return Then::End;
        }
        self.is_followed = false;
        self.give_up = now + self.stop_after;
        self.thaw(now)
    }

    /// The master is not heard: it may have stopped, and cannot switch the jobs.
    pub const fn on_silence(&mut self, now: Instant) {
        self.silent_since = Some(now);
    }

    /// It is heard again.
    pub fn on_heard_again(&mut self, now: Instant) -> Then {
        self.thaw(now)
    }

    fn thaw(&mut self, now: Instant) -> Then {
        let since = self.silent_since.take();
        since.map_or(Then::GoOn, |since| Then::Thaw { frozen: now.duration_since(since) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_standing_daemon_waits_for_the_next_master_and_its_jobs_go_on_meanwhile() {
        let now = Instant::now();
        let mut following = Following::new(true, 60 * SECOND, now);
        assert_eq!(following.due(), Some(now + 60 * SECOND));
        assert!(following.needs_starter());
        assert_eq!(following.on_master(now + SECOND), Then::GoOn);
        assert!(following.is_followed() && !following.needs_starter() && following.due().is_none());
        following.on_silence(now + 2 * SECOND);
        assert!(following.is_silent());
        assert_eq!(following.on_session_end(now + 5 * SECOND), Then::Thaw { frozen: 3 * SECOND });
        assert_eq!(following.due(), Some(now + 65 * SECOND));
        assert_eq!(following.on_master(now + 7 * SECOND), Then::GoOn);
    }

    #[test]
    fn a_daemon_of_one_run_ends_with_its_first_master_and_waits_long_for_it() {
        let now = Instant::now();
        let mut following = Following::new(false, SECOND, now);
        assert_eq!(following.due(), Some(now + FIRST_CONTACT_LIMIT));
        assert_eq!(following.on_master(now), Then::GoOn);
        assert!(following.needs_starter());
        assert_eq!(following.on_session_end(now), Then::End);
    }

    #[test]
    fn the_last_word_of_a_master_is_waited_for_where_the_starter_is_seen_to_end_first() {
        let now = Instant::now();
        let mut following = Following::new(false, SECOND, now);
        assert_eq!(following.clone().on_starter_end(now), Then::End);
        following.on_master(now);
        assert_eq!(following.on_starter_end(now), Then::GoOn);
        assert!(!following.needs_starter());
        assert_eq!(following.due(), Some(now + LAST_WORD_LIMIT));
        assert_eq!(following.on_session_end(now), Then::End);
    }
}
