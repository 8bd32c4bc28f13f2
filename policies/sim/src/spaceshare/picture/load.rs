//! Load chart of a space-sharing run of any length.

use crate::{
    picture::LoadChart,
    spaceshare::{Execution, SpaceJob, Summary},
};

#[must_use]
pub fn load(
    title: &str,
    nodes: u32,
    jobs: &[SpaceJob],
    executions: &[Execution],
    summary: &Summary,
) -> String {
    let about = format!(
        "{} jobs on {nodes} nodes: utilisation {:.1} %, mean wait {:.2} h, expansion factor {:.2}",
        summary.jobs,
        100.0 * summary.utilisation,
        summary.wait_mean_s / 3600.0,
        summary.expansion_factor,
    );
    let first = jobs.iter().map(|job| job.queued.submitted).min().unwrap_or_default();
    let last = executions.iter().map(|execution| execution.finished).max().unwrap_or_default();
    let mut load = LoadChart::between(first, last);
    for (job, execution) in jobs.iter().zip(executions) {
        load.uses(job.queued.request.nodes, execution.started, execution.finished);
        load.waits(job.queued.submitted, execution.started);
    }
    load.draw(title, &about, f64::from(nodes))
}
