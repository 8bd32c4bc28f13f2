//! The rules of a session, without IO: which master a daemon follows, and when a peer counts as silent or is
//! given up. The sessions and the simulation of the control plane go by them.

use std::time::{Duration, Instant};

use super::SessionError;

/// A daemon that has followed the master of generation `last` is asked by one of generation `asks`; `last`
/// is then that of the new one.
///
/// # Errors
/// [`SessionError::Fenced`] where the one that asks is not later.
pub fn admit(asks: u64, last: &mut u64) -> Result<(), SessionError> {
    if asks <= *last {
        return Err(SessionError::Fenced(asks, *last));
    }
    *last = asks;
    Ok(())
}

/// How long nothing has come from a peer, and what follows from that.
#[derive(Clone, Copy, Debug)]
pub struct Hearing {
    /// The last message, or the beginning.
    since: Instant,
    quiet_after: Duration,
    patience: Duration,
    is_silent: bool,
}

/// What a time without a message means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lull {
    /// Nothing yet.
    Short,
    /// The peer counts as silent from now on.
    Silent,
    /// The peer is given up.
    GivenUp,
}

impl Hearing {
    #[must_use]
    pub const fn new(now: Instant, quiet_after: Duration, patience: Duration) -> Self {
        Self { since: now, quiet_after, patience, is_silent: false }
    }

    /// When to call [`Hearing::on_due`].
    #[must_use]
    pub fn due(&self) -> Instant {
        self.since + if self.is_silent { self.patience } else { self.quiet_after.min(self.patience) }
    }

    /// The time that [`Hearing::due`] named has come, perhaps.
    pub fn on_due(&mut self, now: Instant) -> Lull {
        if now < self.due() {
            return Lull::Short;
        }
        if self.is_silent {
            return Lull::GivenUp;
        }
        self.is_silent = true;
        Lull::Silent
    }

    /// A message has come; returns the length of the silence that it ends, if the peer counted as silent.
    pub fn on_message(&mut self, now: Instant) -> Option<Duration> {
        let silence = now.duration_since(self.since);
        self.since = now;
        std::mem::take(&mut self.is_silent).then_some(silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_follows_only_a_later_master_than_its_last() {
        let mut last = 3;
        assert!(matches!(admit(3, &mut last), Err(SessionError::Fenced(3, 3))));
        assert!(matches!(admit(2, &mut last), Err(SessionError::Fenced(2, 3))));
        admit(5, &mut last).unwrap();
        assert_eq!(last, 5);
    }

    #[test]
    fn a_peer_is_silent_first_and_given_up_later_and_any_message_ends_that() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let mut hearing = Hearing::new(began, 5 * second, 20 * second);
        assert_eq!(hearing.on_due(began + 4 * second), Lull::Short);
        assert_eq!(hearing.on_message(began + 4 * second), None);
        assert_eq!(hearing.due(), began + 9 * second);
        assert_eq!(hearing.on_due(began + 9 * second), Lull::Silent);
        assert_eq!(hearing.due(), began + 24 * second);
        assert_eq!(hearing.on_message(began + 14 * second), Some(10 * second));
        assert_eq!(hearing.on_due(began + 19 * second), Lull::Silent);
        assert_eq!(hearing.on_due(began + 34 * second), Lull::GivenUp);
    }
}
