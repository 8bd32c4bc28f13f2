//! Accounts of the CMC model and the metrics computed from them (thesis §2.2.1-2.2.2, formulas 2.4-2.9).
//!
//! Fields keep the paper's meaning under longer names: `since_queued` holds `c`, `co`, `th`, `d` (since the
//! task last reached the ready queue), `total` holds `tc`, `tco`, `tth`, `td` (since it began).

use std::{iter::Sum, ops::AddAssign, time::Duration};

use serde::{Deserialize, Serialize};

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
}

impl Account {
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

#[cfg(test)]
mod tests {
    use super::*;

    const fn account(coscheduled: u64, thrashed: u64) -> Account {
        Account {
            executed: Duration::ZERO,
            coscheduled: Duration::from_millis(coscheduled),
            thrashed: Duration::from_millis(thrashed),
            delayed: Duration::ZERO,
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
    fn a_task_that_never_communicated_has_no_degree() {
        assert_eq!(account(0, 0).degrees(), None);
    }
}
