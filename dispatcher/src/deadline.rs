//! The time-out of an application's order. It counts the time in which the daemons could have answered, and
//! the answer could have been read: a silent node is waited for, and so is this process after it has stood
//! still.
//!
//! A node counts as silent only some heartbeats after its last one. So a time-out whose limit has passed
//! waits for a heartbeat of each node that came later. A node that gives none is lost after a time, or it is
//! heard again, and the whole time counts anew.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use coswitch_daemon::protocol::HEARTBEAT;
use coswitch_policies::NodeId;

/// A time-out that is noticed so late was not waited for: the process stood still, and answers lie unread.
const LATE: Duration = Duration::from_secs(2);
/// The process may have stood still until just before the time-out was noticed: so long it reads what has
/// come meanwhile, and hears the nodes.
const GRACE: Duration = HEARTBEAT.saturating_mul(2);

/// The one time-out that is armed, if any.
#[derive(Debug, Default)]
pub struct Deadline {
    limit: Option<Duration>,
    at: Option<Instant>,
    /// When it was noticed that the limit has passed: the grace runs.
    passed: Option<Instant>,
    /// Some node was not heard within the grace.
    was_unheard: bool,
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
        (self.limit, self.at) = (limit, limit.map(|limit| now + limit));
        (self.passed, self.was_unheard) = (None, false);
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
    /// `are_heard` says whether all nodes of the application have given a heartbeat since a time.
    pub fn has_passed(&mut self, now: Instant, are_heard: impl FnOnce(Instant) -> bool) -> bool {
        let Some(at) = self.due().filter(|at| *at <= now) else { return false };
        if now.duration_since(at) > LATE {
            self.arm(now, self.limit);
            return false;
        }
        match self.passed {
            None => (self.passed, self.at) = (Some(now), Some(now + GRACE)),
            Some(since) if !are_heard(since) => (self.was_unheard, self.at) = (true, Some(now + HEARTBEAT)),
            Some(_) if self.was_unheard => self.arm(now, self.limit),
            Some(_) => {
                self.arm(now, None);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);
    const NODE: NodeId = NodeId(1);

    /// All nodes give their heartbeats.
    const fn all(_since: Instant) -> bool {
        true
    }

    fn armed(now: Instant) -> Deadline {
        let mut deadline = Deadline::default();
        deadline.arm(now, Some(LIMIT));
        deadline
    }

    #[test]
    fn it_passes_once() {
        let now = Instant::now();
        let mut deadline = armed(now);
        assert!(!deadline.has_passed(now, all));
        assert!(!deadline.has_passed(now + LIMIT, all));
        assert!(deadline.has_passed(now + LIMIT + GRACE, all));
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
        assert!(!deadline.has_passed(woken, all));
        assert!(!deadline.has_passed(woken + LIMIT, all));
        assert!(deadline.has_passed(woken + LIMIT + GRACE, all));
    }

    #[test]
    fn answers_are_read_where_this_process_stood_still_until_just_after_the_limit() {
        let now = Instant::now();
        let mut deadline = armed(now);
        let woken = now + LIMIT + LATE / 2;
        assert!(!deadline.has_passed(woken, all), "the answer may lie unread");
        assert_eq!(deadline.due(), Some(woken + GRACE));
        assert!(deadline.has_passed(woken + GRACE, all));
    }

    #[test]
    fn a_node_that_is_not_heard_any_more_is_waited_for_before_it_counts_as_silent() {
        let now = Instant::now();
        let last = now + LIMIT - HEARTBEAT;
        let mut deadline = armed(now);
        assert!(!deadline.has_passed(now + LIMIT, |since| last >= since));
        let mut time = now + LIMIT + GRACE;
        for _ in 0..3 {
            assert!(!deadline.has_passed(time, |since| last >= since), "the node may stand still");
            time = deadline.due().expect("it is armed");
        }
        assert!(!deadline.has_passed(time, |since| time >= since));
        assert_eq!(deadline.due(), Some(time + LIMIT), "the node has the whole time again");
    }
}
