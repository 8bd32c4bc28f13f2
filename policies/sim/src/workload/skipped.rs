//! Count of the records of a log that cannot be simulated.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Records of a log that are left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub no_run_time: u32,
    /// The log does not give the number of processors.
    pub no_size: u32,
    /// They ask for more than the machine, their node group or their queue has.
    pub too_large: u32,
    /// They are of another partition than the simulated one.
    pub other_partition: u32,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { no_run_time, no_size, too_large, other_partition } = self;
        write!(f, "{no_run_time} without a run time, {no_size} without a size, {too_large} too large")?;
        if *other_partition > 0 { write!(f, ", {other_partition} of another partition") } else { Ok(()) }
    }
}

impl Skipped {
    #[must_use]
    pub const fn total(&self) -> u32 {
        self.no_run_time + self.no_size + self.too_large + self.other_partition
    }
}
