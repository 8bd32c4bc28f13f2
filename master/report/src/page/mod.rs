//! The report as a page: one HTML file that needs no network, with pictures, tables and words.
//!
//! ```text
//!   journal ─▶ Report (numbers) ──▶ sections: tables and tiles, as HTML
//!         └──▶ History ──▶ story: the run in words        ─┘
//!                     └──▶ charts: JSON ─▶ page.js, Observable Plot ─▶ SVG
//! ```
//!
//! Tables and words need no script. docs/decisions/0003 explains the choice of libraries.

mod blocks;
mod charts;
pub mod elements;
mod palette;
pub mod pictures;
mod run;
mod sections;
pub(crate) mod shell;
mod steps;
mod story;

use std::iter::{repeat, zip};

use maud::{Markup, html};
use serde::Serialize;

use crate::{decisions::Decisions, fold, history::History, journal::RunEvent, report::Report};
use charts::{Bar, Charts};
pub use palette::LiveColours;
use palette::Palette;
use run::PageRun;
use shell::shell;
pub use shell::{STYLE, theme_switch};

/// The data of the script.
#[derive(Serialize)]
struct Data<'a> {
    names: Vec<&'a str>,
    runs: Vec<Charts>,
    bars: Vec<Bar>,
}

/// The page of one or several runs.
#[must_use]
pub fn page(journals: &[Vec<RunEvent>]) -> String {
    page_with(journals, Vec::new())
}

/// The same with what node schedulers decided in each run, as far as that is known.
#[must_use]
pub fn page_with(journals: &[Vec<RunEvent>], decisions: Vec<Option<Decisions>>) -> String {
    let decisions = decisions.into_iter().chain(repeat(None));
    let reports: Vec<Report> = journals.iter().map(fold).collect();
    let labels = labels(&reports);
    let runs: Vec<PageRun> = zip(zip(journals, decisions), zip(reports, labels))
        .map(|((events, decisions), (report, label))| {
            let history = History::of(events);
            PageRun { label, report, history, decisions }
        })
        .collect();
    let names = runs.iter().flat_map(|run| run.history.jobs.keys().map(|job| run.history.name(*job)));
    let palette = Palette::of(names);
    let data = Data {
        names: palette.names(),
        runs: runs.iter().map(|run| charts::charts(&run.history, &palette)).collect(),
        bars: runs.iter().flat_map(|run| charts::bars(&run.label, &run.report)).collect(),
    };
    document(&runs, &palette, &data).into_string()
}

/// A different label for each run: its name, or name and policy, or these and a number.
fn labels(reports: &[Report]) -> Vec<String> {
    let names: Vec<String> = reports.iter().map(named).collect();
    let policy = |report: &Report| report.policy.map_or_else(String::new, |policy| format!(" ({policy})"));
    let longers: Vec<String> = reports.iter().map(|report| named(report) + &policy(report)).collect();
    let once = |labels: &[String], label: &String| labels.iter().filter(|other| *other == label).count() == 1;
    let label = |(number, (name, longer)): (usize, (&String, &String))| match () {
        () if once(&names, name) => name.clone(),
        () if once(&longers, longer) => longer.clone(),
        () => format!("{longer} #{}", number + 1),
    };
    names.iter().zip(&longers).enumerate().map(label).collect()
}

fn named(report: &Report) -> String {
    if report.name.is_empty() { "run".into() } else { report.name.clone() }
}

fn document(runs: &[PageRun], palette: &Palette, data: &Data<'_>) -> Markup {
    let title = runs.iter().map(|run| run.label.as_str()).collect::<Vec<_>>().join(", ");
    let nav = html! {
        @if runs.len() > 1 {
            nav aria-label="Runs" {
                a href="#comparison" { "Comparison" }
                @for (number, run) in runs.iter().enumerate() {
                    a href={ "#run-" (number) } { (run.label) }
                }
            }
        }
    };
    let main = html! {
        @if runs.len() > 1 { (sections::comparison(runs)) }
        @for (number, run) in runs.iter().enumerate() {
            (sections::run(number, run, palette, &data.runs[number], runs.len() == 1))
        }
    };
    shell("report", &title, &palette.css(), &nav, &main, data)
}

#[cfg(test)]
mod tests;
