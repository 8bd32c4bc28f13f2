//! Accounts of the CMC model and the metrics computed from them (thesis §2.2.1-2.2.2, formulas 2.4-2.9).
//!
//! Fields keep the paper's meaning under longer names: `since_queued` holds `c`, `co`, `th`, `d` (since the
//! task last reached the ready queue), `total` holds `tc`, `tco`, `tth`, `td` (since it began).

use std::{iter::Sum, ops::AddAssign, time::Duration};

use serde::{Deserialize, Serialize};

use super::{ClassSlots, Usage};

/// Processor time of one task, one node or a whole system, by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Executed (`c`, `tc`).
    pub executed: Duration,
    /// Executed while there was a peer to coschedule with (`co`, `tco`).
    pub coscheduled: Duration,
    /// Not executed although there was a peer to coschedule with: another task had the processor (`th`,
    /// `tth`).
    pub thrashed: Duration,
    /// Waited because another task overtook this one for the sake of coscheduling (`d`, `td`): *TaskD*,
    /// *NodeD*, *SystemD*.
    pub delayed: Duration,
    /// Ready without a processor while others ran. With `executed` it is the time in the ready queue: over a
    /// span of time, its sum over local tasks is the mean length of that queue, the load index of §2.1.2.
    #[serde(default)]
    pub waited: Duration,
}

impl Account {
    /// What has been added since `earlier`, an account of the same tasks.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            executed: self.executed.saturating_sub(earlier.executed),
            coscheduled: self.coscheduled.saturating_sub(earlier.coscheduled),
            thrashed: self.thrashed.saturating_sub(earlier.thrashed),
            delayed: self.delayed.saturating_sub(earlier.delayed),
            waited: self.waited.saturating_sub(earlier.waited),
        }
    }

    /// In the ready queue, with a processor or without.
    #[must_use]
    pub fn ready(&self) -> Duration {
        self.executed + self.waited
    }

    /// Both degrees; none where coscheduling was never possible (a task that never communicated).
    #[must_use]
    pub fn degrees(&self) -> Option<Degrees> {
        let possible = self.coscheduled + self.thrashed;
        (!possible.is_zero()).then(|| {
            let coscheduling = self.coscheduled.as_secs_f64() / possible.as_secs_f64();
            Degrees { coscheduling, thrashing: 1.0 - coscheduling }
        })
    }
}

/// The share of the chances to coschedule that was used and the share that was missed; together 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Degrees {
    /// *TaskCoDe*, *NodeCoDe* or *SystemCoDe*: coscheduled time over all time in which coscheduling was
    /// possible.
    pub coscheduling: f64,
    /// *TaskThDe*, *NodeThDe* or *SystemThDe*.
    pub thrashing: f64,
}

impl AddAssign for Account {
    fn add_assign(&mut self, other: Self) {
        self.executed += other.executed;
        self.coscheduled += other.coscheduled;
        self.thrashed += other.thrashed;
        self.delayed += other.delayed;
        self.waited += other.waited;
    }
}

impl Sum for Account {
    fn sum<I: Iterator<Item = Self>>(accounts: I) -> Self {
        accounts.fold(Self::default(), |mut sum, account| {
            sum += account;
            sum
        })
    }
}

/// What some tasks had by decision, and what they were measured to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    pub account: Account,
    pub usage: Usage,
    /// By the class in which the slots of their own have found them, under FCS.
    #[serde(default)]
    pub slots: ClassSlots,
}

impl Used {
    /// What has been added since `earlier`, of the same tasks.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            account: self.account.since(&earlier.account),
            usage: self.usage.since(&earlier.usage),
            slots: self.slots.since(&earlier.slots),
        }
    }
}

impl AddAssign for Used {
    fn add_assign(&mut self, other: Self) {
        self.account += other.account;
        self.usage += other.usage;
        self.slots += other.slots;
    }
}

/// The same of the tasks of a job, or of a node, by their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByKind {
    /// Of the processes of distributed applications.
    pub distributed: Used,
    /// Of local tasks.
    pub local: Used,
}

impl ByKind {
    /// See [`Used::since`].
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            distributed: self.distributed.since(&earlier.distributed),
            local: self.local.since(&earlier.local),
        }
    }
}

impl AddAssign for ByKind {
    fn add_assign(&mut self, other: Self) {
        self.distributed += other.distributed;
        self.local += other.local;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::ProcessClass;

    const fn account(coscheduled: u64, thrashed: u64) -> Account {
        Account {
            executed: Duration::ZERO,
            coscheduled: Duration::from_millis(coscheduled),
            thrashed: Duration::from_millis(thrashed),
            delayed: Duration::ZERO,
            waited: Duration::ZERO,
        }
    }

    #[test]
    fn the_degree_of_a_node_weighs_tasks_by_their_time_and_not_alike() {
        let node: Account = [account(90, 10), account(0, 100)].into_iter().sum();
        let degrees = node.degrees().unwrap();
        assert!((degrees.coscheduling - 0.45).abs() < 1e-12);
        assert!((degrees.coscheduling + degrees.thrashing - 1.0).abs() < 1e-12);
    }

    #[test]
    fn what_was_added_since_an_earlier_account_makes_it_whole_again() {
        let earlier = account(90, 10);
        let mut later = earlier;
        later += Account { waited: Duration::from_millis(7), ..account(5, 3) };
        let mut again = earlier;
        again += later.since(&earlier);
        assert_eq!(again, later);
        assert_eq!(later.ready(), Duration::from_millis(7));
    }

    #[test]
    fn slots_by_class_are_added_and_told_piece_by_piece() {
        let slots = |coscheduled, frustrated, dont_care| Used {
            slots: ClassSlots { coscheduled, frustrated, dont_care },
            ..Used::default()
        };
        let mut sum = slots(1, 2, 5);
        sum += slots(0, 1, 1);
        assert_eq!((sum.slots.all(), sum.since(&slots(1, 2, 5))), (10, slots(0, 1, 1)));
        let shares = ProcessClass::ALL.map(|class| sum.slots.share(class));
        assert_eq!(shares, [Some(0.1), Some(0.3), Some(0.6)]);
        assert_eq!(Used::default().slots.share(ProcessClass::Frustrated), None);
    }

    /// In the journal of an earlier version.
    #[test]
    fn accounts_without_slots_have_none() {
        let mut written = serde_json::to_value(Used::default()).unwrap();
        written.as_object_mut().unwrap().remove("slots").expect("it is written");
        assert_eq!(serde_json::from_value::<Used>(written).unwrap(), Used::default());
    }

    #[test]
    fn a_task_that_never_communicated_has_no_degree() {
        assert_eq!(account(0, 0).degrees(), None);
    }
}
