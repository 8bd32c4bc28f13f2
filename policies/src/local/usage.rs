//! What a task was measured to use, beside what its scheduler decided.
//!
//! No model of the papers goes by it. It shows how far the machine carries decisions out: a task that has a
//! processor by decision need not get all of it, and one that has none may get an idle one.

use std::{ops::AddAssign, time::Duration};

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// Since the task began, as far as it is known. Of several tasks the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub processor_time: Duration,
    /// Payload of its messages.
    pub bytes_sent: Bytes,
    /// Memory that it has at this moment; of several tasks, and over time, the most that one of them had.
    pub resident: Bytes,
    /// Page faults that waited for a disk.
    pub faults: u64,
}

impl Usage {
    /// What has been added since `earlier`, a measurement of the same tasks.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            processor_time: self.processor_time.saturating_sub(earlier.processor_time),
            bytes_sent: Bytes(self.bytes_sent.0.saturating_sub(earlier.bytes_sent.0)),
            resident: self.resident,
            faults: self.faults.saturating_sub(earlier.faults),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.processor_time += other.processor_time;
        self.bytes_sent = self.bytes_sent.saturating_add(other.bytes_sent);
        self.resident = self.resident.max(other.resident);
        self.faults = self.faults.saturating_add(other.faults);
    }
}
