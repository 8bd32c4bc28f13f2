//! Utilisation of a space-sharing run by calendar month.

use coswitch_policies::SimTime;

use super::{Execution, SpaceJob};
use crate::workload::{LogStart, Month};

#[must_use]
pub fn by_month(start: LogStart, jobs: &[SpaceJob], executions: &[Execution], nodes: u32) -> Vec<Month> {
    let first = jobs.iter().map(|job| job.queued.submitted).min().unwrap_or_default();
    let last = executions.iter().map(|execution| execution.finished).max().unwrap_or_default();
    let mut months = start.months(first, last);
    let ends: Vec<SimTime> = months.iter().map(|(_, part)| part.to).collect();
    let index = |at: SimTime| ends.partition_point(|end| *end <= at);
    for (job, execution) in jobs.iter().zip(executions) {
        if let Some((month, _)) = months.get_mut(index(job.queued.submitted)) {
            month.jobs += 1;
        }
        let (mut at, units) = (execution.started, f64::from(job.queued.request.units()));
        while at < execution.finished {
            let to = ends[index(at)].min(execution.finished);
            months[index(at)].0.utilisation += units * to.since(at).as_secs_f64();
            at = to;
        }
    }
    for (month, part) in &mut months {
        month.utilisation /= f64::from(nodes) * part.length().as_secs_f64();
    }
    months.into_iter().map(|(month, _)| month).collect()
}
