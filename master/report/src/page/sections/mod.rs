//! The sections of the page: words and tiles here, tables and figures in the other files.

mod comparison;
mod coscheduling;
mod jobs;
mod switching;
mod timeline;

use std::path::PathBuf;

use coswitch_policies::{Bytes, Policy};
use maud::{Markup, html};

use super::{
    charts::Charts,
    elements::policy,
    palette::Palette,
    run::PageRun,
    story::{Story, story},
};
use crate::{
    journal::MachineUse,
    words::{bytes, capacity, list, percent, seconds},
};
pub(super) use comparison::comparison;

/// The section of one run.
pub(super) fn run(number: usize, run: &PageRun, palette: &Palette, charts: &Charts, alone: bool) -> Markup {
    let story = story(&run.history, &run.report);
    html! {
        article #{ "run-" (number) } data-run=(number) aria-labelledby={ "run-" (number) "-title" } {
            h2 #{ "run-" (number) "-title" } { (run.label) }
            (facts(run))
            (points(&story))
            (tiles(run))
            (timeline::matrix(run, palette, charts))
            (timeline::memory(run))
            (coscheduling::coscheduling(run, palette))
            (jobs::jobs(run, &story, alone))
            (switching::steps(run))
            (warnings(run))
        }
    }
}

fn facts(run: &PageRun) -> Markup {
    let (report, history) = (&run.report, &run.history);
    let switching = history.config.as_ref().map(|config| format!("{:?}", config.switching).to_lowercase());
    html! {
        p.facts {
            span { "policy " b { (policy(report.policy)) } }
            @if let Some(space) = &report.space {
                span { "queue " b { (space.queue) } }
            }
            span { (report.nodes) " nodes of " (capacity(&report.capacity)) }
            @if report.policy != Some(Policy::Batch) && report.policy != Some(Policy::Cosched) {
                span { "quantum " (seconds(history.quantum)) }
                @if let Some(switching) = switching { span { "switching " (switching) } }
            }
            @if !report.run.is_empty() { span { "run " code { (report.run) } } }
        }
    }
}

fn points(story: &Story) -> Markup {
    html! {
        dl.story aria-label="In short" {
            @for point in &story.points {
                div { dt { (point.about) } dd { (point.text) } }
            }
        }
    }
}

fn tiles(run: &PageRun) -> Markup {
    let set = &run.report.set;
    let number = |number: Option<f64>| number.map(|number| format!("{number:.3}"));
    let peak = run.report.memory.iter().max_by_key(|memory| memory.peak);
    let limit = capacity(&run.report.capacity);
    let (waiting, sent) = (run.report.waiting(), run.report.jobs.iter().map(|job| job.sent).sum());
    let machine = run.report.machine.as_ref();
    let stored = |(root, of): (&PathBuf, &Bytes)| format!("{} in {}", bytes(*of), root.display());
    let used = |of: fn(&MachineUse) -> String| machine.map(of);
    let slices = run.report.slices.as_ref();
    // Slots of node schedulers stop no job.
    let warm = slices.filter(|slices| slices.switches > 0);
    let (checkpoints, copies) = (run.report.checkpoints.as_ref(), run.report.copies.as_ref());
    let switches = match set.fallbacks {
        0 => set.switches.to_string(),
        n => format!("{} ({n} sequential)", set.switches),
    };
    let tiles = [
        ("Makespan", Some(seconds(set.makespan)), "last end − first submission"),
        ("Utilisation", Some(percent(set.utilisation)), "node time with a job running ÷ (nodes × makespan)"),
        ("Switches", Some(switches), "a set was stopped to let another run"),
        (
            "Exposed",
            Some(format!("{} ({})", seconds(set.exposed), percent(set.overhead))),
            "no job ran because of a switch; share of the makespan",
        ),
        (
            "Slices",
            slices.map(|slices| format!("{} for {} rows of jobs", seconds(slices.slice), slices.rows)),
            "their length, and the most rows of jobs in memory that took turns",
        ),
        (
            "Warm switches",
            warm.map(|slices| format!("{} of {} each", slices.switches, seconds(slices.each()))),
            "a node stopped jobs in memory and let others run, without a cut",
        ),
        (
            "Overlap of slices",
            warm.map(|slices| seconds(slices.overlap)),
            "what jobs computed in slices of others, by the kernel's count",
        ),
        ("Moved out", Some(bytes(set.bytes_out)), "written by dumps"),
        ("Moved in", Some(bytes(set.bytes_in)), "read by restores"),
        (
            "Stored",
            Some(list(&run.report.stored.iter().map(stored).collect::<Vec<_>>()))
                .filter(|_| !run.report.stored.is_empty()),
            "what each directory of the store took, compressed where it pays",
        ),
        (
            "Checkpoints",
            checkpoints.map(|all| format!("{} of {}", all.count, bytes(all.bytes))),
            "of jobs that stayed in memory, and the size of all",
        ),
        (
            "Stood still for checkpoints",
            checkpoints.map(|all| seconds(all.stood_still)),
            "sum over the jobs; part of their running times",
        ),
        (
            "Copies",
            copies.map(|all| format!("{} of {}", all.count, bytes(all.bytes))),
            "snapshots of a node that are on other nodes as well, and the size of all",
        ),
        (
            "Memory peak",
            peak.map(|memory| format!("{} of {limit}", bytes(memory.peak))),
            "highest sample of the fullest node",
        ),
        ("Waited for messages", Some(percent(waiting)), "time ranks waited for messages ÷ time they ran"),
        ("Sent", Some(bytes(sent)), "payload of messages, by the drivers' count"),
        (
            "Major faults",
            used(|used| used.major_faults.to_string()),
            "of the whole machine: page faults that waited for a disk",
        ),
        (
            "Swap in, out",
            used(|used| format!("{}, {}", bytes(used.swapped_in), bytes(used.swapped_out))),
            "read from and written to swap by the whole machine",
        ),
        (
            "Memory stall",
            machine.and_then(|used| used.memory_stall).map(seconds),
            "some process of the machine was held up for want of memory (PSI, some)",
        ),
        ("Spread", number(Some(set.spread)), "standard deviation ÷ mean of the turnarounds"),
        ("Relative makespan", number(set.relative_makespan), "makespan ÷ sum of the times alone"),
        ("Trade-off metric", number(set.tradeoff), "relative makespan + spread; lower is better"),
    ];
    html! {
        dl.tiles aria-label="The set in numbers" {
            @for (name, value, how) in tiles {
                @if let Some(value) = value {
                    div { dt { (name) } dd { b { (value) } small { (how) } } }
                }
            }
        }
    }
}

fn warnings(run: &PageRun) -> Markup {
    let mut texts = run.report.outgrown.iter().chain(&run.report.warnings).peekable();
    html! {
        @if texts.peek().is_some() {
            section {
                h3 { "Warnings" }
                ul.warnings { @for text in texts { li { (text) } } }
            }
        }
    }
}
