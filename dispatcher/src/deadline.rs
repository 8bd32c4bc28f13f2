//! The time-out of an application's order. It counts the time in which the daemons could have answered, and
//! the answer could have been read: a silent node is waited for, and so is this process after it has stood
//! still.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use coswitch_policies::NodeId;

/// A time-out that is noticed so late was not waited for: the process stood still, and answers lie unread.
const LATE: Duration = Duration::from_secs(2);
/// The process may have stood still until just before the time-out was noticed: so long it reads what has
/// come meanwhile.
const GRACE: Duration = Duration::from_secs(2);

/// The one time-out that is armed, if any.
#[derive(Debug, Default)]
pub struct Deadline {
    limit: Option<Duration>,
    at: Option<Instant>,
    /// The limit has passed, and the grace runs.
    is_last: bool,
    /// Nodes of the application that are not heard.
    silent: BTreeSet<NodeId>,
}

impl Deadline {
    /// When to call [`Deadline::has_passed`].
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.at.filter(|_| self.silent.is_empty())
    }

    /// Replaces the time-out.
    pub fn arm(&mut self, now: Instant, limit: Option<Duration>) {
        (self.limit, self.at, self.is_last) = (limit, limit.map(|limit| now + limit), false);
    }

    pub fn on_silent(&mut self, node: NodeId) {
        self.silent.insert(node);
    }

    /// The whole time counts anew.
    pub fn on_heard(&mut self, now: Instant, node: NodeId) {
        if self.silent.remove(&node) && self.silent.is_empty() {
            self.arm(now, self.limit);
        }
    }

    /// Whether the time has passed, and the grace after it; where it was not waited for, it counts anew.
    pub fn has_passed(&mut self, now: Instant) -> bool {
        let Some(at) = self.due().filter(|at| *at <= now) else { return false };
        if now.duration_since(at) > LATE {
            self.arm(now, self.limit);
            return false;
        }
        if !std::mem::replace(&mut self.is_last, true) {
            self.at = Some(now + GRACE);
            return false;
        }
        self.arm(now, None);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);
    const NODE: NodeId = NodeId(1);

    fn armed(now: Instant) -> Deadline {
        let mut deadline = Deadline::default();
        deadline.arm(now, Some(LIMIT));
        deadline
    }

    #[test]
    fn it_passes_once() {
        let now = Instant::now();
        let mut deadline = armed(now);
        assert!(!deadline.has_passed(now));
        assert!(!deadline.has_passed(now + LIMIT));
        assert!(deadline.has_passed(now + LIMIT + GRACE));
        assert_eq!(deadline.due(), None);
    }

    #[test]
    fn it_does_not_run_while_a_node_is_silent() {
        let now = Instant::now();
        let mut deadline = armed(now);
        deadline.on_silent(NODE);
        assert_eq!(deadline.due(), None);
        let heard = now + 2 * LIMIT;
        deadline.on_heard(heard, NODE);
        assert_eq!(deadline.due(), Some(heard + LIMIT));
        deadline.arm(heard, None);
        deadline.on_silent(NODE);
        deadline.on_heard(heard, NODE);
        assert_eq!(deadline.due(), None, "nothing was armed");
    }

    #[test]
    fn it_counts_anew_after_this_process_stood_still() {
        let now = Instant::now();
        let mut deadline = armed(now);
        let woken = now + 2 * LIMIT;
        assert!(!deadline.has_passed(woken));
        assert!(!deadline.has_passed(woken + LIMIT));
        assert!(deadline.has_passed(woken + LIMIT + GRACE));
    }

    #[test]
    fn answers_are_read_where_this_process_stood_still_until_just_after_the_limit() {
        let now = Instant::now();
        let mut deadline = armed(now);
        let woken = now + LIMIT + LATE / 2;
        assert!(!deadline.has_passed(woken), "the answer may lie unread");
        assert_eq!(deadline.due(), Some(woken + GRACE));
        assert!(deadline.has_passed(woken + GRACE));
    }
}
