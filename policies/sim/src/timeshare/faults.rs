//! What goes wrong in the simulated cluster, by seed.

use coswitch_policies::{JobId, Left, Misplaced, Start, SwitchPlan};
use serde::{Deserialize, Serialize};

use crate::Seed;

/// Chances, each in a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Which sequence.
    pub seed: u64,
    /// A dump is aborted and its job thawed.
    pub dump: u32,
    /// A restore or launch fails; the snapshot stays good.
    pub restore: u32,
    /// A failed dump, restore or launch has also lost the job.
    pub lost: u32,
    /// A job dies half-way.
    pub crash: u32,
}

/// The dice.
pub(crate) struct Misfortune {
    faults: Faults,
    seed: Seed,
}

impl Misfortune {
    pub(crate) const fn new(faults: Faults) -> Self {
        Self { faults, seed: Seed::new(faults.seed) }
    }

    pub(crate) const fn crashes(&mut self) -> bool {
        self.seed.chance(self.faults.crash)
    }

    /// Those of `leaving` that could not be dumped; some of them run on.
    pub(crate) fn dumps(&mut self, leaving: &[JobId], runs_on: impl Fn(JobId) -> bool) -> Vec<Misplaced> {
        let mut misplaced = Vec::new();
        for &job in leaving {
            if self.seed.chance(self.faults.dump) {
                let stays = if runs_on(job) { Left::Active } else { Left::Suspended };
                let left = if self.seed.chance(self.faults.lost) { Left::Lost } else { stays };
                misplaced.push(Misplaced::new(job, left));
            }
        }
        misplaced
    }

    /// Those that could not be brought in.
    pub(crate) fn restores(&mut self, plan: &SwitchPlan) -> Vec<Misplaced> {
        let mut misplaced = Vec::new();
        for incoming in plan.incoming.iter().filter(|incoming| incoming.start != Start::Resume) {
            if self.seed.chance(self.faults.restore) {
                let left =
                    if self.seed.chance(self.faults.lost) { Left::Lost } else { left_by(incoming.start) };
                misplaced.push(Misplaced::new(incoming.job, left));
            }
        }
        misplaced
    }
}

/// Where a job is that was to be brought in so and was not.
pub(crate) const fn left_by(start: Start) -> Left {
    match start {
        Start::Launch => Left::Unlaunched,
        Start::Restore => Left::Parked,
        Start::Resume => Left::Suspended,
    }
}
