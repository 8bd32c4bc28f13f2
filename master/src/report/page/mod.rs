//! The report as a page: one HTML file that needs no network, with pictures, tables and words.
//!
//! ```text
//!   journal ─▶ Report (numbers) ──▶ sections: tables and tiles, as HTML
//!         └──▶ History ──▶ story: the run in words        ─┘
//!                     └──▶ charts: JSON ─▶ page.js, Observable Plot ─▶ SVG
//! ```
//!
//! Tables and words are there without the script. Why these libraries: docs/decisions/0003.

mod blocks;
mod charts;
mod palette;
pub(crate) mod sections;
mod steps;
mod story;
pub(crate) mod words;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;

use super::{Report, fold, history::History};
use crate::journal::RunEvent;
use charts::{Bar, Charts};
use palette::Palette;

const D3: &str = include_str!("vendor/d3.min.js");
const PLOT: &str = include_str!("vendor/plot.umd.min.js");
const D3_LICENCE: &str = include_str!("vendor/d3.LICENSE");
const PLOT_LICENCE: &str = include_str!("vendor/plot.LICENSE");
const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");
/// Nothing is loaded from anywhere.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// A run, as the page shows it.
struct Run {
    label: String,
    report: Report,
    history: History,
}

/// What the script is given.
#[derive(Serialize)]
struct Data<'a> {
    names: Vec<&'a str>,
    runs: Vec<Charts>,
    bars: Vec<Bar>,
}

/// The page of these runs, each told by its journal.
#[must_use]
pub fn page(journals: &[Vec<RunEvent>]) -> String {
    let reports: Vec<Report> = journals.iter().map(fold).collect();
    let labels = labels(&reports);
    let runs: Vec<Run> = std::iter::zip(journals, std::iter::zip(reports, labels))
        .map(|(events, (report, label))| Run { label, report, history: History::of(events) })
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

/// What tells the runs apart: their names, else name and policy, else a number as well.
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

fn document(runs: &[Run], palette: &Palette, data: &Data<'_>) -> Markup {
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

/// What all pages have around what they are about: `main`, and what the script draws in it.
pub(crate) fn shell(
    kind: &str,
    title: &str,
    css: &str,
    nav: &Markup,
    main: &Markup,
    data: &impl Serialize,
) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { "coswitch " (kind) ": " (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(css)) }
            }
            body {
                a.skip href="#main" { "Skip to the " (kind) }
                header {
                    h1 { "coswitch " span { (kind) } }
                    (nav)
                    fieldset.theme hidden {
                        legend.hidden { "Colours" }
                        @for (value, text) in [("auto", "Auto"), ("light", "Light"), ("dark", "Dark")] {
                            label { input type="radio" name="theme" value=(value) checked[value == "auto"]; span { (text) } }
                        }
                    }
                }
                main #main tabindex="-1" {
                    (main)
                    (sections::definitions())
                }
                footer {
                    p {
                        "Made by " code { "coswitch" } " from the journals of runs and nothing else; needs no network. Charts: "
                        "Observable Plot and D3."
                    }
                    details {
                        summary { "Licences of the charts" }
                        pre { (PLOT_LICENCE) "\n" (D3_LICENCE) }
                    }
                }
                div #tip role="presentation" hidden {}
                script type="application/json" id="data" { (PreEscaped(embedded(data))) }
                script { (PreEscaped(D3)) }
                script { (PreEscaped(PLOT)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

/// JSON that no text in it can break out of.
fn embedded(data: &impl Serialize) -> String {
    serde_json::to_string(data).expect("what is drawn can be written as JSON").replace('<', "\\u003c")
}

#[cfg(test)]
mod tests;
