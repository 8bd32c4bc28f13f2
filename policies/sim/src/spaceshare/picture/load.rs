//! Load of the machine over a log of any length, and the jobs that wait.

use crate::{
    picture::Load,
    spaceshare::{Lived, SpaceJob, Summary},
};

/// The picture of a run on a machine of `nodes` nodes.
#[must_use]
pub fn load(title: &str, nodes: u32, jobs: &[SpaceJob], lived: &[Lived], summary: &Summary) -> String {
    let about = format!(
        "{} jobs on {nodes} nodes: utilisation {:.1} %, mean wait {:.2} h, expansion factor {:.2}",
        summary.jobs,
        100.0 * summary.utilisation,
        summary.wait_mean_s / 3600.0,
        summary.expansion_factor,
    );
    let first = jobs.iter().map(|job| job.queued.submitted).min().unwrap_or_default();
    let last = lived.iter().map(|lived| lived.finished).max().unwrap_or_default();
    let mut load = Load::between(first, last);
    for (job, lived) in jobs.iter().zip(lived) {
        load.uses(job.queued.request.nodes, lived.started, lived.finished);
        load.waits(job.queued.submitted, lived.started);
    }
    load.draw(title, &about, f64::from(nodes))
}
