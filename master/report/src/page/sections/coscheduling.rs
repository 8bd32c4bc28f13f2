//! What the node schedulers counted, and a picture of what they decided.

use coswitch_policies::JobId;
use maud::{Markup, html};

use crate::{
    coscheduling::{LOCAL_TASKS, Tasks},
    decisions::{Decisions, Look, picture},
    page::{
        elements::{number, table, th},
        palette::Palette,
        run::PageRun,
    },
    words::{percent, seconds},
};

pub(super) fn coscheduling(run: &PageRun, palette: &Palette) -> Markup {
    let (report, decisions) = (&run.report, run.decisions.as_ref());
    html! {
        @if !report.nodes_scheduled.is_empty() || decisions.is_some() {
            section {
                h3 { "Node schedulers" }
                p.about {
                    "What the scheduler of each node saw and decided: when a task was ready, and whether it \
                     had a processor then. A page of several runs compares what parallel jobs gain and local \
                     tasks lose."
                }
                @if let Some(decisions) = decisions { (decided(run, decisions, palette)) }
                @if !report.nodes_scheduled.is_empty() {
                    (counted(run))
                    (by_node(run))
                }
            }
        }
    }
}

fn decided(run: &PageRun, decisions: &Decisions, palette: &Palette) -> Markup {
    let name = |job: JobId| run.history.name(job);
    let colour = |job: JobId| format!("var(--j{})", palette.index(&run.history.name(job)));
    let title = format!("What node schedulers decided before the end of {}", name(decisions.job));
    html! {
        figure.decisions {
            (picture(&title, &decisions.nodes, &Look { name: &name, colour: &colour }))
            figcaption {
                "A stretch of time before the end of " (name(decisions.job))
                ": more was decided in it than before the ends of other jobs."
            }
        }
    }
}

fn counted(run: &PageRun) -> Markup {
    let heads = html! {
        (th("job", ""))
        (th("tasks", ""))
        (heads())
        (number("response", "of local tasks: end − submission"))
    };
    let rows = html! {
        @for job in &run.report.jobs {
            @for (kind, tasks) in job.tasks.iter().flat_map(|tasks| tasks.kinds()) {
                @let response = job.times.as_ref().filter(|_| kind == LOCAL_TASKS);
                tr {
                    th scope="row" { (job.name) }
                    td { (kind) }
                    (cells(tasks))
                    td.number { (known(response.map(|times| seconds(times.turnaround)))) }
                }
            }
        }
    };
    table("Table of tasks by job", &heads, &rows)
}

fn by_node(run: &PageRun) -> Markup {
    let heads = html! {
        (th("node", ""))
        (heads())
        (number("local load", "ready local tasks, mean over the run"))
    };
    let rows = html! {
        @for node in &run.report.nodes_scheduled {
            tr {
                th scope="row" { (node.node) }
                (cells(&node.tasks))
                td.number { (format!("{:.2}", node.local_load)) }
            }
        }
    };
    table("Table of tasks by node", &heads, &rows)
}

fn heads() -> Markup {
    html! {
        (number("executed", "had a processor by decision"))
        (number("processor", "time by the kernel's count"))
        (number("ready", "without a processor"))
        (number("delay", "overtaken for the sake of coscheduling"))
        (number("CoDe", "of the time when coscheduling was possible"))
        (number("ThDe", "the rest of it"))
        (number("CS/F/DC", "slots of its own in each class, under fcs"))
    }
}

fn cells(tasks: &Tasks) -> Markup {
    html! {
        td.number { (seconds(tasks.executed)) }
        td.number { (seconds(tasks.processor)) }
        td.number { (seconds(tasks.waited)) }
        td.number { (seconds(tasks.delayed)) }
        td.number { (known(tasks.coscheduling.map(percent))) }
        td.number { (known(tasks.thrashing.map(percent))) }
        td.number { (known(tasks.classes())) }
    }
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".into())
}
