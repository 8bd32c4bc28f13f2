//! A restore that does not go on: one in which a process was killed waits for it until its limit.
//!
//! While CRIU works its processes use the processor, in the job's cgroup like all that it restores. Where they have not
//! for long, it is given up; the snapshot is not harmed, and the dispatcher tries again.

use std::time::{Duration, Instant};

/// A starved machine gives each process some time in that long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Waking up to look at the time is no progress.
const LEAST: Duration = Duration::from_millis(5);

/// See the module's description.
pub(super) struct Stall {
    since: Instant,
    used: Duration,
}

impl Stall {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, used: Duration::ZERO }
    }

    /// Whether nothing has moved for too long. `used`: of the processor by CRIU and what it restores; `None`: CRIU is
    /// not at work there, before the restore or after it.
    pub(super) fn look(&mut self, now: Instant, used: Option<Duration>) -> bool {
        match used {
            Some(used) if used < self.used + LEAST => now - self.since > PATIENCE,
            used => {
                *self = Self { since: now, used: used.unwrap_or_default() };
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_criu_at_work_without_using_the_processor_stalls() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut stall = Stall::new(began);
        assert!(!stall.look(after(60), None), "hashing may take long");
        assert!(!stall.look(after(61), Some(Duration::from_secs(1))));
        assert!(!stall.look(after(70), Some(Duration::from_millis(1200))));
        assert!(!stall.look(after(79), Some(Duration::from_millis(1202))));
        assert!(stall.look(after(81), Some(Duration::from_millis(1203))));
    }
}
