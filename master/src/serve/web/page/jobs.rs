//! The jobs that have not ended, and what happened lately.

use coswitch_policies::SimTime;
use coswitch_report::{
    page::elements::{number, table, th},
    words::{bytes, span},
};
use maud::{Markup, html};

use super::{JOBS_MAX, Scene, clock, rest};
use crate::api::{JobState, JobStatus};

pub(super) fn jobs(scene: &Scene<'_>) -> Markup {
    let all = &scene.watched.status.queue.jobs;
    if all.is_empty() {
        return html! { p.none { "No jobs. " code { "coswitch submit" } " brings some." } };
    }
    let mut jobs: Vec<&JobStatus> = all.iter().collect();
    jobs.sort_by_key(|job| (job.state != JobState::Running, next(job), job.job));
    let with_priorities = all.iter().any(|job| job.priority != 0);
    let heads = html! {
        (number("job", "")) (th("name", "")) (th("state", ""))
        (number("ranks", "")) (number("memory", "of a rank"))
        @if with_priorities { (number("priority", "")) }
        (number("has run", "")) (th("next turn", "")) (th("done", "as foreseen"))
    };
    let rows = html! { @for job in jobs.iter().take(JOBS_MAX) { (row(scene, job, with_priorities)) } };
    html! {
        (table("Jobs, the running ones first, then by their next turn", &heads, &rows))
        (rest(jobs.len().min(JOBS_MAX), jobs.len(), "jobs", "`coswitch queue` lists all."))
    }
}

fn next(job: &JobStatus) -> (bool, SimTime) {
    job.outlook.runs_from.map_or((true, SimTime(0)), |from| (false, from))
}

fn row(scene: &Scene<'_>, job: &JobStatus, with_priorities: bool) -> Markup {
    let asked = scene.watched.status.timetable.now;
    let since = SimTime(asked.0.saturating_sub(job.ran.as_nanos() as u64));
    html! {
        tr id={ "job-" (job.job.0) } {
            td.number { (job.job.0) }
            th scope="row" { (scene.chip(job.job)) }
            td { span.state.(job.state.to_string()) { (job.state) } }
            td.number { (job.ranks) }
            td.number { (bytes(job.memory)) }
            @if with_priorities { td.number { (job.priority) } }
            td.number {
                @if job.state == JobState::Running {
                    (clock("for", since, scene.now))
                } @else { (span(job.ran)) }
            }
            td { (next_turn(scene, job)) }
            td {
                @match job.outlook.done.filter(|_| job.state != JobState::Held) {
                    Some(at) => { (clock("done", at, scene.now)) }
                    None => span.quiet { "not known" }
                }
            }
        }
    }
}

fn next_turn(scene: &Scene<'_>, job: &JobStatus) -> Markup {
    match (job.state, job.outlook.runs_until, job.outlook.runs_from) {
        (JobState::Running, Some(until), _) => html! { "now, " (clock("left", until, scene.now)) },
        (JobState::Running, None, _) => html! { "now" },
        (JobState::Held, ..) => html! { span.quiet { "when its user resumes it" } },
        (_, _, Some(from)) => clock("in", from, scene.now),
        _ => html! { span.quiet { (job.next_turn(scene.now)) } },
    }
}

/// The newest first.
pub(super) fn news(scene: &Scene<'_>) -> Markup {
    let mut news = scene.recent.news().peekable();
    html! {
        @if news.peek().is_none() { p.none { "Nothing since this master began." } }
        ol.news {
            @for news in news {
                li.bad[news.grave] {
                    span.when { (clock("ago", news.at, scene.now)) }
                    span { @if news.grave { span aria-hidden="true" { "⚠ " } } (news.text) }
                }
            }
        }
    }
}
