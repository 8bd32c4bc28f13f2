//! Report of a simulated run: its journal and its metrics.

use std::time::Duration;

use coswitch_policies::{
    Bytes, Decision, JobId, RejectReason, SchedulerEvent, SimTime,
    metrics::{JobMetrics, Metrics, RunTimes},
};
use serde::{Deserialize, Serialize};

use crate::spaceshare::jain;

/// One event and the decisions that followed. The steps of a run replay it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub at: SimTime,
    pub event: SchedulerEvent,
    pub decisions: Vec<Decision>,
}

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimReport {
    /// Every event and decision, in order.
    pub journal: Vec<Step>,
    /// Measured times of the jobs that ran.
    pub times: RunTimes,
    pub metrics: Metrics,
    /// Jobs that ended badly.
    pub failed: Vec<JobId>,
    /// Jobs that were rejected.
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

impl SimReport {
    /// Every metric of the set by its name, as defined in [`coswitch_policies::metrics`], for tables and for
    /// means over seeds; times in seconds.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "shown with four digits")]
    pub fn figures(&self) -> Vec<(&'static str, f64)> {
        let jobs = &self.metrics.jobs;
        let mean = |values: Vec<f64>| {
            if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
        };
        let times =
            |of: fn(&JobMetrics) -> Duration| mean(jobs.iter().map(|job| of(job).as_secs_f64()).collect());
        let bounded: Vec<f64> = jobs.iter().filter_map(|job| job.bounded_slowdown).collect();
        vec![
            ("jobs", jobs.len() as f64),
            ("makespan_s", self.metrics.makespan.as_secs_f64()),
            ("utilisation", self.metrics.utilisation),
            ("wait_mean_s", times(|job| job.wait)),
            ("run_mean_s", times(|job| job.run)),
            ("parked_mean_s", times(|job| job.parked)),
            ("turnaround_mean_s", times(|job| job.turnaround)),
            ("slowdown_mean", mean(jobs.iter().filter_map(|job| job.slowdown).collect())),
            ("bounded_slowdown_mean", mean(bounded.clone())),
            ("expansion_factor", self.metrics.expansion_factor().unwrap_or(f64::NAN)),
            ("relative_makespan", self.metrics.tradeoff.relative_makespan.unwrap_or(f64::NAN)),
            ("spread", self.metrics.tradeoff.spread),
            ("jain", jain(&bounded)),
            ("switches", f64::from(self.switches)),
            ("bytes_out", self.bytes_out.0 as f64),
            ("bytes_in", self.bytes_in.0 as f64),
            ("exposed_s", self.metrics.exposed.as_secs_f64()),
            ("overhead", self.metrics.overhead),
        ]
    }
}
