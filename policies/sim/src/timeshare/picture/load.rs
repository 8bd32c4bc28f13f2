//! Load chart of a time-sharing run that has too many turns to draw.

use coswitch_policies::metrics::RunTimes;

use crate::picture::LoadChart;

/// A job that is not active counts as waiting.
pub(super) fn load_of_turns(title: &str, about: &str, run: &RunTimes) -> String {
    let first = run.jobs.iter().map(|job| job.submitted).min().unwrap_or_default();
    let last = run.jobs.iter().map(|job| job.finished).max().unwrap_or_default();
    let mut load = LoadChart::between(first, last);
    for job in &run.jobs {
        let nodes = u32::try_from(job.nodes.len()).unwrap_or(u32::MAX);
        let mut rested = job.submitted;
        for span in &job.active {
            load.uses(nodes, span.from, span.to);
            load.waits(rested, span.from);
            rested = span.to;
        }
        load.waits(rested, job.finished);
    }
    // Jobs that share nodes may use more nodes than there are.
    let most = load.used.iter().map(|used| used.iter().sum()).fold(f64::from(run.nodes), f64::max);
    let shared = if most > f64::from(run.nodes) { "; a node counts for each job on it" } else { "" };
    load.draw(title, &format!("{about}{shared}"), most)
}
