//! The table and the figure that compare several runs.

use std::time::Duration;

use maud::{Markup, html};

use crate::{
    gain::{distributed_gain, local_overhead, local_tasks},
    page::{
        elements::{bar, figure, number, policy, table, th},
        run::PageRun,
        story::stood_still,
    },
    words::{bytes, percent, seconds},
};

pub(in crate::page) fn comparison(runs: &[PageRun]) -> Markup {
    let first = runs.first().map_or(0.0, |run| run.report.set.makespan.as_secs_f64());
    let reports = || runs.iter().map(|run| &run.report);
    let local = local_tasks(reports());
    let gain = |run: &PageRun| {
        let gain = reports().next().and_then(|first| distributed_gain(first, &run.report, &local));
        gain.map_or_else(|| "–".into(), |gain| format!("{gain:.2} ×"))
    };
    let overhead = |run: &PageRun| local_overhead(&run.report, &local).map_or_else(|| "–".into(), percent);
    let longest = runs.iter().map(|run| run.report.set.makespan.as_secs_f64()).fold(0.0, f64::max);
    html! {
        section #comparison aria-labelledby="comparison-title" {
            h2 #comparison-title { "Comparison of " (runs.len()) " runs" }
            @let heads = html! {
                (th("run", ""))
                (th("policy", ""))
                (number("makespan", "last end − first submission"))
                (number("by the first", "makespan ÷ the first run's"))
                (number("stood still", "mean over jobs of turnaround − run"))
                (number("utilisation", "node time with a job running ÷ all"))
                (number("switches", "a set stopped for another"))
                (number("exposed", "no job ran because of a switch"))
                (number("moved", "dumps + restores"))
                (number("spread", "deviation ÷ mean of turnarounds"))
                @if !local.is_empty() {
                    (number("distributed gain", "time of parallel jobs in the first run ÷ in this one"))
                    (number("local overhead", "time of local tasks ÷ alone − 1, mean over their jobs"))
                }
            };
            @let rows = html! {
                @for (number, run) in runs.iter().enumerate() {
                    @let set = &run.report.set;
                    @let makespan = set.makespan.as_secs_f64();
                    tr {
                        th scope="row" { a href={ "#run-" (number) } { (run.label) } }
                        td { (policy(run.report.policy)) }
                        (bar(makespan / longest.max(1e-9), &seconds(set.makespan)))
                        td.number { (format!("{:.2} ×", makespan / first.max(1e-9))) }
                        td.number { (seconds(mean_still(run))) }
                        td.number { (percent(set.utilisation)) }
                        td.number { (set.switches) }
                        td.number { (seconds(set.exposed)) }
                        td.number { (bytes(set.bytes_out.saturating_add(set.bytes_in))) }
                        td.number { (format!("{:.3}", set.spread)) }
                        @if !local.is_empty() {
                            td.number { (gain(run)) }
                            td.number { (overhead(run)) }
                        }
                    }
                }
            };
            (table("Table of the runs", &heads, &rows))
            (figure(
                "bars",
                "Where each job's time went, run by run",
                "Seconds from submission to end, of the jobs that ended. The tables of jobs below have \
                 the numbers."
            ))
        }
    }
}

fn mean_still(run: &PageRun) -> Duration {
    let times = run.report.jobs.iter().filter_map(|job| job.times.as_ref());
    let (sum, count) =
        times.fold((Duration::ZERO, 0), |(sum, count), times| (sum + stood_still(times), count + 1));
    sum / count.max(1)
}
