//! Detector of stalled restores: when a process of a restore is killed, CRIU waits for it until its time-out.
//!
//! While CRIU works, its processes use the processor, in the job's cgroup like the processes that it
//! restores. A restore that uses none for long is given up; the snapshot is not harmed, and the dispatcher
//! tries again.

use std::time::{Duration, Instant};

/// Even a busy machine gives each process some time within this period.
const PATIENCE: Duration = Duration::from_secs(10);
/// Less processor time is no progress: CRIU uses as much to wake up and look at the clock.
const PROGRESS_MIN: Duration = Duration::from_millis(5);

pub(super) struct StallDetector {
    since: Instant,
    used: Duration,
}

impl StallDetector {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, used: Duration::ZERO }
    }

    /// Whether there was no progress for too long. `used`: processor time of CRIU and the processes that it
    /// restores; `None`: CRIU does not work there now.
    pub(super) fn is_stalled(&mut self, now: Instant, used: Option<Duration>) -> bool {
        match used {
            Some(used) if used < self.used + PROGRESS_MIN => now - self.since > PATIENCE,
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
    fn a_restore_stalls_only_while_criu_uses_no_processor() {
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        let mut stall = StallDetector::new(began);
        assert!(!stall.is_stalled(after(60), None), "hashing may take long");
        assert!(!stall.is_stalled(after(61), Some(Duration::from_secs(1))));
        assert!(!stall.is_stalled(after(70), Some(Duration::from_millis(1200))));
        assert!(!stall.is_stalled(after(79), Some(Duration::from_millis(1202))));
        assert!(stall.is_stalled(after(81), Some(Duration::from_millis(1203))));
    }
}
