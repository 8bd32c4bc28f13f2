//! The comparison as a page: one HTML file that needs no network.

use coswitch_policies::Bytes;
use maud::{Markup, html};
use serde::Serialize;

use super::{ArmReport, Comparison, MedianRange, Medians};
use crate::{
    page::{
        elements::{bar, figure, number, table, th},
        shell::shell,
    },
    words::{self, percent},
};

/// What the script draws.
#[derive(Serialize)]
struct Data {
    names: [(); 0],
    runs: [(); 0],
    bars: [(); 0],
    arms: Vec<ArmMark>,
}

/// The makespan of an arm, in seconds.
#[derive(Serialize)]
struct ArmMark {
    name: String,
    #[serde(flatten)]
    makespan: MedianRange,
    best: bool,
    says: String,
}

/// The page of a comparison.
#[must_use]
pub fn page(comparison: &Comparison) -> String {
    let mark = |arm: &ArmReport| {
        let makespan = arm.makespan?;
        let says = format!("{}: {}{}", arm.arm, in_words(makespan), by_batch(arm));
        Some(ArmMark { name: arm.arm.to_string(), makespan, best: is_best(arm), says })
    };
    let arms = comparison.arms.iter().filter_map(mark).collect();
    let data = Data { names: [], runs: [], bars: [], arms };
    shell("comparison", &comparison.name, "", &html! {}, &main(comparison), &data).into_string()
}

fn in_words(of: MedianRange) -> String {
    format!("{:.1} s (from {:.1} s to {:.1} s)", of.median, of.min, of.max)
}

fn by_batch(arm: &ArmReport) -> String {
    arm.by_batch.map_or_else(String::new, |ratio| format!(", {ratio:.2} of batch"))
}

fn is_best(arm: &ArmReport) -> bool {
    arm.by_best.is_some_and(|ratio| ratio <= 1.0)
}

fn main(comparison: &Comparison) -> Markup {
    let turns = if comparison.turns == 1 { "once" } else { &format!("{} times, in turns", comparison.turns) };
    html! {
        section #comparison aria-labelledby="compared" {
            h2 #compared { (comparison.name) }
            p.facts {
                span { (comparison.jobs) " jobs" }
                span { "each policy " b { (turns) } }
                span { "medians of the runs that were done" }
            }
            dl.story aria-label="In short" {
                @for (about, text) in points(comparison) { div { dt { (about) } dd { (text) } } }
            }
            section {
                h3 { "Makespan" }
                (figure(
                    "arms",
                    "Makespan of each policy",
                    "Seconds from the first submission to the last end: bars are medians, lines go \
                     from the fastest run to the slowest."
                ))
                (times(comparison))
            }
            section {
                h3 { "What each policy cost" }
                p.about { "Faults, swap and stalls are those of the whole machine, other programs included." }
                (costs(comparison))
            }
        }
    }
}

fn points(comparison: &Comparison) -> Vec<(&'static str, String)> {
    let mut points = Vec::new();
    points.extend(comparison.partial.iter().map(|partial| ("Partial", format!("{partial}."))));
    if let Some((best, makespan)) =
        comparison.arms.iter().find(|arm| is_best(arm)).and_then(|arm| Some((arm, arm.makespan?)))
    {
        points.push(("Least makespan", format!("{}: {}{}.", best.arm, in_words(makespan), by_batch(best))));
    }
    let spread = |arm: &ArmReport| arm.medians.map_or(f64::INFINITY, |medians| medians.spread);
    let fairest = comparison.arms.iter().filter(|arm| arm.medians.is_some());
    if let Some(fairest) = fairest.min_by(|a, b| spread(a).total_cmp(&spread(b))) {
        let text =
            format!("{}: turnarounds deviate from their mean by {}.", fairest.arm, percent(spread(fairest)));
        points.push(("Most even", text));
    }
    for arm in comparison.arms.iter().filter(|arm| arm.timed_out + arm.failed > 0) {
        let ArmReport { arm, done, timed_out, failed, .. } = arm;
        let text =
            format!("{arm}: {done} runs done, {failed} with failed jobs, {timed_out} not done in time.");
        points.push(("Not done", text));
    }
    points.extend(comparison.left_out.iter().map(|left| ("Left out", format!("{left}."))));
    points
}

fn cell(value: Option<f64>, decimals: usize, unit: &str) -> Markup {
    html! { td.number { @match value { Some(value) => (format!("{value:.decimals$}{unit}")), None => "–" } } }
}

fn times(comparison: &Comparison) -> Markup {
    let longest =
        comparison.arms.iter().filter_map(|arm| arm.makespan).map(|of| of.median).fold(0.0, f64::max);
    let heads = html! {
        (th("policy", ""))
        (number("makespan", "median"))
        (number("from – to", "fastest and slowest run"))
        (number("by batch", "median of the ratios within a turn"))
        (number("by best", "÷ the least of all"))
        (number("wait", "mean until a job first ran"))
        (number("turnaround", "mean from submission to end"))
        (number("relative", "makespan ÷ sum of times alone"))
        (number("spread", "deviation ÷ mean of turnarounds"))
        (number("trade-off", "sum of these two"))
    };
    let rows = html! {
        @for arm in &comparison.arms {
            @let of = |what: fn(&Medians) -> Option<f64>| arm.medians.as_ref().and_then(what);
            tr {
                th scope="row" { (arm.arm) }
                @match arm.makespan {
                    Some(of) => {
                        (bar(of.median / longest.max(1e-9), &format!("{:.1} s", of.median)))
                        td.number { (format!("{:.1} – {:.1} s", of.min, of.max)) }
                    }
                    None => { td.number { "not done" } td.number { "–" } }
                }
                (cell(arm.by_batch, 2, " ×"))
                (cell(arm.by_best, 2, " ×"))
                (cell(of(|medians| Some(medians.wait_s)), 1, " s"))
                (cell(of(|medians| Some(medians.turnaround_s)), 1, " s"))
                (cell(of(|medians| medians.relative_makespan), 3, ""))
                (cell(of(|medians| Some(medians.spread)), 3, ""))
                (cell(of(|medians| medians.tradeoff), 3, ""))
            }
        }
    };
    table("Table of makespans", &heads, &rows)
}

fn costs(comparison: &Comparison) -> Markup {
    let heads = html! {
        (th("policy", ""))
        (number("exposed", "no job ran because of a switch"))
        (number("switched", "written by dumps + read by restores"))
        (number("waiting", "ranks waited for messages ÷ ran"))
        (number("major faults", "waited for a disk"))
        (number("swapped", "in + out"))
        (number("memory stall", "PSI, some: held up for want of memory"))
    };
    let text = |text: Option<String>| html! { td.number { (text.unwrap_or_else(|| "–".into())) } };
    let bytes = |value: Option<f64>| text(value.map(|value| words::bytes(Bytes(value as u64))));
    let rows = html! {
        @for arm in &comparison.arms {
            @let of = |what: fn(&Medians) -> Option<f64>| arm.medians.as_ref().and_then(what);
            tr {
                th scope="row" { (arm.arm) }
                (cell(of(|medians| Some(medians.exposed_s)), 1, " s"))
                (bytes(of(|medians| Some(medians.moved))))
                (text(of(|medians| Some(medians.waiting)).map(percent)))
                (cell(of(|medians| Some(medians.major_faults)), 0, ""))
                (bytes(of(|medians| Some(medians.swapped))))
                (cell(of(|medians| medians.memory_stall_s), 1, " s"))
            }
        }
    };
    table("Table of costs", &heads, &rows)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coswitch_policies::Policy;

    use super::*;
    use crate::{
        compare::{Arm, compare},
        fold,
        journal::RunOutcome,
    };

    #[test]
    fn the_page_names_the_best_arm_and_arms_that_were_never_done() {
        let ran = |seconds, outcome| {
            let mut report = fold(&[]);
            (report.set.makespan, report.outcome) = (Duration::from_secs(seconds), Some(outcome));
            vec![report]
        };
        let arm = |policy| Arm { policy, switching: None };
        let runs = [
            (arm(Policy::Batch), ran(40, RunOutcome::Done)),
            (arm(Policy::Hybrid), ran(30, RunOutcome::Done)),
            (arm(Policy::Cosched), ran(90, RunOutcome::TimedOut)),
        ];
        let page = page(&compare("<set>".into(), &runs, vec!["paired: no".into()]));
        assert!(page.contains("hybrid: 30.0 s (from 30.0 s to 30.0 s), 0.75 of batch."), "in words");
        assert!(page.contains("cosched: 0 runs done, 0 with failed jobs, 1 not done in time."));
        assert!(page.contains("&lt;set&gt;") && !page.contains("<set>") && page.contains("paired: no."));
    }
}
