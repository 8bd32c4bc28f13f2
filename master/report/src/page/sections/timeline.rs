//! The figures over time: the matrix, and the memory of each node.

use coswitch_policies::NodeId;
use maud::{Markup, html};

use super::switching;
use crate::{
    page::{
        charts::{Charts, fullest},
        elements::{figure, number, table, th},
        palette::Palette,
        run::PageRun,
    },
    words::{bytes, percent, seconds},
};

pub(super) fn matrix(run: &PageRun, palette: &Palette, charts: &Charts) -> Markup {
    let about = "Each node is a band as high as its memory; each block is a job, as high as the memory it \
                 declared there. Below a band are the steps of switches on that node.";
    let shortest = (!charts.shortest.is_zero()).then(|| seconds(charts.shortest));
    html! {
        section {
            h3 { "The matrix over time" }
            p.about {
                (about)
                @if let Some(shortest) = &shortest { " Stays shorter than " (shortest) " are not drawn." }
                @if charts.in_columns { " Of steps is drawn how long they took in each stretch of time." }
                @if charts.in_columns || shortest.is_some() { " The trace has all." }
            }
            div.bar-of-tools hidden {
                div.jobs role="group" aria-label="Show one job only" {
                    @for job in run.history.jobs.keys() {
                        @let name = run.history.name(*job);
                        @let index = palette.index(&name);
                        @let style = format!("--j:var(--j{index})");
                        button type="button" aria-pressed="false" data-job=(index) style=(style) { (name) }
                    }
                }
                div.zoom role="group" aria-label="Stretch of time" {
                    button type="button" data-zoom="earlier" aria-label="Earlier" { "←" }
                    button type="button" data-zoom="in" aria-label="Zoom in" { "+" }
                    button type="button" data-zoom="out" aria-label="Zoom out" { "−" }
                    button type="button" data-zoom="later" aria-label="Later" { "→" }
                    button type="button" data-zoom="all" { "All" }
                }
            }
            (figure(
                "matrix",
                "Who was in the memory of each node, and what switches did",
                "Arrow keys go from block to block; the table of switches below tells the same in numbers."
            ))
            (switching::switches(run))
        }
    }
}

pub(super) fn memory(run: &PageRun) -> Markup {
    let holders = |node: NodeId| {
        let (at, by_job) = fullest(&run.history, node)?;
        let parts: Vec<String> = by_job
            .iter()
            .filter(|(_, used)| used.0 > 0)
            .map(|(job, used)| format!("{} {}", run.history.name(*job), bytes(*used)))
            .collect();
        Some((format!("{at:.1} s"), parts.join(", ")))
    };
    html! {
        section {
            h3 { "Memory of each node" }
            p.about {
                "What the jobs of a node held, measured by its cgroup and stacked by job, against the \
                 node's limit."
            }
            (figure(
                "memory",
                "Memory that jobs held on each node over time",
                "Of each stretch of time the highest sample is drawn."
            ))
            @let heads = html! {
                (th("node", ""))
                (number("peak", "highest sample"))
                (number("limit", "what it may hold of jobs"))
                (number("share", "peak ÷ limit"))
                (number("samples", ""))
                (number("fullest at", "since the start"))
                (th("then held by", "measured"))
            };
            @let rows = html! {
                @for memory in &run.report.memory {
                    @let (at, held) = holders(memory.node).unwrap_or_default();
                    tr {
                        th scope="row" { (memory.node) }
                        td.number { (bytes(memory.peak)) }
                        td.number { (bytes(memory.capacity)) }
                        td.number {
                            (percent(memory.peak.0 as f64 / memory.capacity.0.max(1) as f64))
                            @if !memory.is_within() { " ⚠ above" }
                        }
                        td.number { (memory.samples) }
                        td.number { (at) }
                        td { (held) }
                    }
                }
            };
            (table("Table of nodes", &heads, &rows))
        }
    }
}
