//! The table of jobs: where the time of each job went, and what kept it from running.

use std::time::Duration;

use maud::{Markup, html};

use crate::{
    page::{
        elements::{figure, number, table, th},
        run::PageRun,
        story::{Story, in_short},
    },
    paging::Paging,
    report::{JobReport, JobTimes},
    words::{bytes, percent, seconds},
};

pub(super) fn jobs(run: &PageRun, story: &Story, alone: bool) -> Markup {
    let alone_known =
        run.report.jobs.iter().any(|job| job.times.as_ref().is_some_and(|times| times.alone.is_some()));
    let paged = run.report.jobs.iter().any(|job| job.paging != Paging::default());
    let span = |times: Option<&JobTimes>, of: fn(&JobTimes) -> Duration| {
        known(times.map(|times| seconds(of(times))))
    };
    html! {
        section {
            h3 { "Jobs" }
            @if alone {
                (figure(
                    "bars",
                    "Where each job's time went",
                    "Seconds from submission to end, of the jobs that ended."
                ))
            }
            @let heads = html! {
                (th("job", ""))
                (number("ranks", "and what each declares"))
                (number("wait", "first run − submission"))
                (number("run", "time running"))
                (number("suspended", "stopped in memory, or on its way"))
                (number("parked", "out of memory"))
                (number("turnaround", "end − submission"))
                @if alone_known { (number("alone", "with the cluster to itself")) }
                (number("slowdown", "turnaround ÷ alone; * ÷ run"))
                (number("restores", ""))
                (number("communicates", "mean share of running"))
                (number("waited", "for messages, all ranks; of the time they ran"))
                (number("sent", "payload of messages"))
                @if paged {
                    (number("major faults", "page faults that waited for a disk, as sampled"))
                    (number("in swap", "at most, over its nodes, as sampled"))
                }
                (th("outcome", ""))
                (th("longest stood still because", ""))
            };
            @let rows = html! {
                @for job in &run.report.jobs {
                    @let times = job.times.as_ref();
                    @let time_alone = times.and_then(|times| times.alone);
                    @let outcome = job.outcome.as_ref().map(ToString::to_string);
                    @let history = run.history.jobs.get(&job.job);
                    tr {
                        th scope="row" { (job.name) }
                        td.number {
                            (job.ranks)
                            @if let Some(history) = history { " × " (bytes(history.memory)) }
                        }
                        td.number { (span(times, |times| times.wait)) }
                        td.number { (span(times, |times| times.run)) }
                        td.number { (span(times, |times| times.suspended)) }
                        td.number { (span(times, |times| times.parked)) }
                        td.number { (span(times, |times| times.turnaround)) }
                        @if alone_known { td.number { (known(time_alone.map(seconds))) } }
                        td.number { (slowdown(times)) }
                        td.number { (job.restores) }
                        td.number {
                            (known(history.and_then(|job| communicates(&job.communication))))
                        }
                        td.number { (waited(job)) }
                        td.number { (bytes(job.sent)) }
                        @if paged {
                            td.number { (job.paging.major_faults) }
                            td.number { (bytes(job.paging.swapped)) }
                        }
                        td { (outcome.unwrap_or_else(|| "not ended".into())) }
                        td.why { (in_short(&run.history, story.causes_of(job.job))) }
                    }
                }
            };
            (table("Table of jobs", &heads, &rows))
            @for job in run.report.jobs.iter().filter(|job| !job.last_output.is_empty()) {
                details { summary { "Last output of " (job.name) } pre { (job.last_output) } }
            }
        }
    }
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".into())
}

fn slowdown(times: Option<&JobTimes>) -> String {
    let Some((times, slowdown)) = times.and_then(|times| Some((times, times.slowdown?))) else {
        return "–".into();
    };
    format!("{slowdown:.2}{}", if times.alone.is_none() { "*" } else { "" })
}

fn waited(job: &JobReport) -> String {
    let share = job.waiting_share().map_or_else(String::new, |share| format!(" ({})", percent(share)));
    seconds(job.waiting) + &share
}

fn communicates(shares: &[u16]) -> Option<String> {
    let sum: f64 = shares.iter().map(|share| f64::from(*share)).sum();
    (!shares.is_empty()).then(|| format!("{:.0} %", sum / shares.len() as f64 / 10.0))
}
