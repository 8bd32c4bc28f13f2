//! What a simulated run leaves behind.

use coswitch_policies::{
    Bytes, Decision, Event, JobId, RejectReason, SimTime,
    metrics::{Metrics, RunTimes},
};
use serde::{Deserialize, Serialize};

/// One event with what the scheduler made of it. The steps of a run replay it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When.
    pub at: SimTime,
    /// What happened.
    pub event: Event,
    /// What followed.
    pub decisions: Vec<Decision>,
}

/// A finished simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimReport {
    /// Every event and decision, in order.
    pub journal: Vec<Step>,
    /// What was measured of the jobs that ran.
    pub times: RunTimes,
    /// What follows from it.
    pub metrics: Metrics,
    /// Jobs that ended badly.
    pub failed: Vec<JobId>,
    /// Jobs that were refused.
    pub rejected: Vec<(JobId, RejectReason)>,
    /// The most memory that working sets took at any instant, by node.
    pub memory_peak: Vec<Bytes>,
    /// Switches with something to dump.
    pub switches: u32,
    /// Dumped in all.
    pub bytes_out: Bytes,
    /// Restored in all.
    pub bytes_in: Bytes,
}
