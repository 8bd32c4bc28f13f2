//! The process classes of FCS and the rule that finds them (testbed §2.4.2, §2.4.4, Table 2.1).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Counters;

/// What a process needs from the scheduler. (The paper's RE, *rate-equivalent*, behaves as DC for all
/// practical purposes.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessClass {
    /// CS: coscheduling succeeds; the process is not preempted in its slot.
    Coscheduled,
    /// F, frustrated: the process should be coscheduled, but still waits long.
    Frustrated,
    /// DC: the process rarely communicates, or communicates as well without its peers.
    DontCare,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Fewer attempts than this, both in CS and in DC, count as rare.
    pub rare: u32,
    /// A longer mean wait per attempt counts as long.
    pub long_wait: Duration,
    /// A larger `C_CS / C_DC` counts as high.
    pub high_ratio: f64,
}

impl Thresholds {
    /// Table 2.1, row by row: rarely → DC; long waits → F; much more communication when coscheduled → CS;
    /// else DC. Without an attempt as DC the ratio counts as infinite, that is, high.
    #[must_use]
    pub fn classify(&self, counters: &Counters) -> ProcessClass {
        let Counters { coscheduled, uncoordinated, .. } = counters;
        if coscheduled.attempts < self.rare && uncoordinated.attempts < self.rare {
            ProcessClass::DontCare
        } else if counters.mean_wait().is_some_and(|wait| wait > self.long_wait) {
            ProcessClass::Frustrated
        } else if f64::from(coscheduled.attempts) > self.high_ratio * f64::from(uncoordinated.attempts) {
            ProcessClass::Coscheduled
        } else {
            ProcessClass::DontCare
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::flexible::counters::Tally;

    const MS: Duration = Duration::from_millis(1);
    const THRESHOLDS: Thresholds = Thresholds { rare: 10, long_wait: MS, high_ratio: 2.0 };

    fn classify(coscheduled: u32, uncoordinated: u32, mean_wait: Duration) -> ProcessClass {
        let tally = |attempts| Tally { attempts, waited: mean_wait * attempts };
        THRESHOLDS.classify(&Counters::of(tally(coscheduled), tally(uncoordinated)))
    }

    #[test]
    fn the_classes_follow_table_2_1_of_the_testbed() {
        let (short, long) = (MS / 2, MS * 2);
        assert_eq!(classify(20, 20, short), ProcessClass::DontCare, "low ratio, short waits");
        assert_eq!(classify(20, 20, long), ProcessClass::Frustrated, "low ratio, long waits");
        assert_eq!(classify(50, 20, short), ProcessClass::Coscheduled, "high ratio, short waits");
        assert_eq!(classify(50, 20, long), ProcessClass::Frustrated, "high ratio, long waits");
    }

    #[test]
    fn a_process_that_rarely_communicates_is_dc_however_long_it_waits() {
        assert_eq!(classify(9, 9, MS * 1000), ProcessClass::DontCare);
        assert_eq!(
            classify(9, 10, MS * 1000),
            ProcessClass::Frustrated,
            "one count above the threshold is not rare"
        );
        assert_eq!(classify(0, 0, MS), ProcessClass::DontCare);
    }
}
