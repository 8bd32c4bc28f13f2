//! CSV file (RFC 4180) of the jobs of a space-sharing run, one job a line. Times in seconds.

use std::fmt::Write;

use coswitch_policies::SimTime;

use super::{Execution, Jobs};
use crate::workload::swf::Log;

#[must_use]
pub fn jobs_csv(log: &Log, jobs: &Jobs, executions: &[Execution]) -> String {
    let mut out = String::from("job,queue,nodes,submitted_s,wait_s,execution_s,turnaround_s,slowdown\n");
    for ((job, record), execution) in jobs.jobs.iter().zip(&jobs.records).zip(executions) {
        let number =
            log.records.get(*record as usize).map_or(u64::from(job.queued.job.0), |record| record.number);
        let submitted = job.queued.submitted;
        let wait = execution.started.since(submitted).as_secs_f64();
        let (execution, turnaround) = (
            execution.finished.since(execution.started).as_secs_f64(),
            execution.finished.since(submitted).as_secs_f64(),
        );
        let slowdown = if execution > 0.0 { format!("{:.4}", turnaround / execution) } else { String::new() };
        let (queue, nodes) = (job.queued.queue.0, job.queued.request.nodes);
        let submitted = seconds(submitted);
        let _ =
            writeln!(out, "{number},{queue},{nodes},{submitted},{wait},{execution},{turnaround},{slowdown}");
    }
    out
}

fn seconds(at: SimTime) -> f64 {
    at.since(SimTime(0)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spaceshare::{AllocatorName, NoObserver, QueueName, machine, mesh_of, run};

    #[test]
    fn a_job_is_a_line_with_its_number_in_the_log() {
        let log: Log =
            "7 5 -1 10 4 -1 -1 4 -1 -1 1 1 1 1 3 1 -1 -1\n9 6 -1 0 1 -1 -1 1 -1 -1 1 1 1 1 3 1 -1 -1\n"
                .parse()
                .unwrap();
        let mut machine = machine(mesh_of(4), AllocatorName::FirstFit);
        let jobs = Jobs::of_log(&log, &machine, |_| Default::default());
        let executions =
            run(&jobs.jobs, &mut machine, &mut *QueueName::Fcfs.order(), &mut NoObserver).unwrap();
        let csv = jobs_csv(&log, &jobs, &executions);
        assert_eq!(csv.lines().skip(1).collect::<Vec<_>>(), ["7,0,4,5,0,10,10,1.0000", "9,0,1,6,9,0,9,"]);
    }
}
