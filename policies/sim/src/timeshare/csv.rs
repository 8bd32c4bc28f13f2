//! CSV file (RFC 4180) of the jobs of a time-sharing run, one job a line. Times in seconds, memory in bytes.

use std::fmt::Write;

use coswitch_policies::SimTime;

use crate::{SimJob, SimReport};

/// A job that was refused has no times.
#[must_use]
pub fn jobs_csv(jobs: &[SimJob], report: &SimReport) -> String {
    let mut out = String::from(
        "job,name,ranks,memory_per_rank,submitted_s,alone_s,wait_s,run_s,parked_s,turnaround_s,slowdown,\
         outcome\n",
    );
    for job in jobs {
        let spec = &job.spec;
        let name = quoted(&spec.name);
        let (ranks, memory, alone) = (spec.ranks, spec.memory_per_rank.0, job.work.as_secs_f64());
        let _ = write!(out, "{},{name},{ranks},{memory},{},{alone},", spec.id.0, seconds(spec.arrival));
        let failed = report.failed.contains(&spec.id);
        let _ = match report.metrics.jobs.iter().find(|of| of.job == spec.id) {
            Some(of) => writeln!(
                out,
                "{},{},{},{},{},{}",
                of.wait.as_secs_f64(),
                of.run.as_secs_f64(),
                of.parked.as_secs_f64(),
                of.turnaround.as_secs_f64(),
                of.slowdown.map(|slowdown| format!("{slowdown:.4}")).unwrap_or_default(),
                if failed { "failed" } else { "done" },
            ),
            None => writeln!(out, ",,,,,refused"),
        };
    }
    out
}

fn seconds(at: SimTime) -> f64 {
    at.since(SimTime(0)).as_secs_f64()
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_a_comma_or_a_quote_is_quoted() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("a"), "a");
    }
}
