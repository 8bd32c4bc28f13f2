//! The tables of switches and of their steps.

use maud::{Markup, html};

use super::{
    super::{
        super::history::Switched,
        Run,
        words::{bytes, clock, list, percent, seconds},
    },
    bar, number, th,
};

/// Rows of the table of switches.
const SWITCHES_MAX: usize = 500;

pub(super) fn switches(run: &Run) -> Markup {
    let all = &run.history.switches;
    let mut longest: Vec<&Switched> = all.iter().collect();
    longest.sort_by_key(|switched| std::cmp::Reverse(switched.span.length()));
    longest.truncate(SWITCHES_MAX);
    longest.sort_by_key(|switched| switched.switch);
    let names = |jobs: &[_]| match jobs {
        [] => "–".to_string(),
        jobs => list(&jobs.iter().map(|job| run.history.name(*job)).collect::<Vec<_>>()),
    };
    html! {
        details {
            summary {
                "Switches as a table ("
                @if longest.len() < all.len() { "the " (longest.len()) " that took longest of " }
                (all.len()) ")"
            }
            div.scroll tabindex="0" role="region" aria-label="Table of switches" {
                table {
                    thead { tr {
                        (th("switch", ""))
                        (number("at", "since the start"))
                        (th("order", "of its steps"))
                        (th("out", "stopped or left"))
                        (th("in", "came"))
                        (number("took", "first order to last answer"))
                        (number("exposed", "no job ran"))
                        (number("moved out", "dumps"))
                        (number("moved in", "restores"))
                    } }
                    tbody {
                        @for switched in longest {
                            tr {
                                th scope="row" { (switched.switch.0) }
                                td.number { (format!("{:.1} s", clock(switched.span.from))) }
                                td { (format!("{:?}", switched.order).to_lowercase()) }
                                td { (names(&switched.outgoing)) }
                                td { (names(&switched.incoming)) }
                                td.number { (seconds(switched.span.length())) }
                                td.number { (seconds(switched.exposed)) }
                                td.number { (bytes(switched.bytes_out)) }
                                td.number { (bytes(switched.bytes_in)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn steps(run: &Run) -> Markup {
    html! {
        @if !run.report.phases.is_empty() {
            section {
                h3 { "What the steps of switches took" }
                div.scroll tabindex="0" role="region" aria-label="Table of steps" {
                    table {
                        thead { tr {
                            (th("step", ""))
                            (number("times", "each job on each node"))
                            (number("in all", "sum, though many go on side by side"))
                            (number("mean", "in all ÷ times"))
                            (number("longest", ""))
                            (number("hidden", "share during which some job computed"))
                            (number("moved", ""))
                        } }
                        tbody {
                            @for (phase, total) in &run.report.phases {
                                @let total_s = total.total.as_secs_f64().max(f64::MIN_POSITIVE);
                                @let share = total.hidden.as_secs_f64() / total_s;
                                tr {
                                    th scope="row" { (phase.doing()) }
                                    td.number { (total.count) }
                                    td.number { (seconds(total.total)) }
                                    td.number { (seconds(total.total / total.count.max(1))) }
                                    td.number { (seconds(total.longest)) }
                                    (bar(share, &percent(share)))
                                    td.number { @if total.bytes.0 > 0 { (bytes(total.bytes)) } @else { "–" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
