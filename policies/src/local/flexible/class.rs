//! The process classes of FCS and the rule that finds them (testbed §2.4.2, §2.4.4, Table 2.1).

use std::{ops::AddAssign, time::Duration};

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

impl ProcessClass {
    pub const ALL: [Self; 3] = [Self::Coscheduled, Self::Frustrated, Self::DontCare];

    /// As the papers write it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Coscheduled => "CS",
            Self::Frustrated => "F",
            Self::DontCare => "DC",
        }
    }
}

/// Slots of its own that a process has begun in each class; of several processes the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassSlots {
    pub coscheduled: u64,
    pub frustrated: u64,
    pub dont_care: u64,
}

impl ClassSlots {
    pub(crate) const fn count(&mut self, class: ProcessClass) {
        match class {
            ProcessClass::Coscheduled => self.coscheduled += 1,
            ProcessClass::Frustrated => self.frustrated += 1,
            ProcessClass::DontCare => self.dont_care += 1,
        }
    }

    #[must_use]
    pub const fn of(&self, class: ProcessClass) -> u64 {
        match class {
            ProcessClass::Coscheduled => self.coscheduled,
            ProcessClass::Frustrated => self.frustrated,
            ProcessClass::DontCare => self.dont_care,
        }
    }

    /// In all classes; 0 under a scheduler without classes.
    #[must_use]
    pub const fn all(&self) -> u64 {
        self.coscheduled + self.frustrated + self.dont_care
    }

    /// The part of all slots that were begun in a class; `None` where there was no slot.
    #[must_use]
    pub fn share(&self, class: ProcessClass) -> Option<f64> {
        (self.all() > 0).then(|| self.of(class) as f64 / self.all() as f64)
    }

    /// What has been added since `earlier`, of the same processes.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            coscheduled: self.coscheduled.saturating_sub(earlier.coscheduled),
            frustrated: self.frustrated.saturating_sub(earlier.frustrated),
            dont_care: self.dont_care.saturating_sub(earlier.dont_care),
        }
    }
}

impl AddAssign for ClassSlots {
    fn add_assign(&mut self, other: Self) {
        self.coscheduled += other.coscheduled;
        self.frustrated += other.frustrated;
        self.dont_care += other.dont_care;
    }
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
