//! The tables of switches and of their steps.

use maud::{Markup, html};

use crate::{
    history::SwitchHistory,
    page::{
        elements::{bar, number, table, th},
        run::PageRun,
    },
    words::{bytes, clock, list, percent, seconds},
};

/// Maximum rows of the table of switches.
const SWITCHES_MAX: usize = 500;

pub(super) fn switches(run: &PageRun) -> Markup {
    let all = &run.history.switches;
    let mut longest: Vec<&SwitchHistory> = all.iter().collect();
    longest.sort_by_key(|switch| std::cmp::Reverse(switch.span.length()));
    longest.truncate(SWITCHES_MAX);
    longest.sort_by_key(|switch| switch.switch);
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
            @let heads = html! {
                (th("switch", ""))
                (number("at", "since the start"))
                (th("order", "of its steps"))
                (th("out", "stopped or left"))
                (th("in", "came"))
                (number("took", "first order to last answer"))
                (number("exposed", "no job ran"))
                (number("moved out", "dumps"))
                (number("moved in", "restores"))
            };
            @let rows = html! {
                @for switch in longest {
                    tr {
                        th scope="row" { (switch.switch.0) }
                        td.number { (format!("{:.1} s", clock(switch.span.from))) }
                        td { (format!("{:?}", switch.order).to_lowercase()) }
                        td { (names(&switch.outgoing)) }
                        td { (names(&switch.incoming)) }
                        td.number { (seconds(switch.span.length())) }
                        td.number { (seconds(switch.exposed)) }
                        td.number { (bytes(switch.bytes_out)) }
                        td.number { (bytes(switch.bytes_in)) }
                    }
                }
            };
            (table("Table of switches", &heads, &rows))
        }
    }
}

pub(super) fn steps(run: &PageRun) -> Markup {
    html! {
        @if !run.report.steps.is_empty() {
            section {
                h3 { "What the steps of switches took" }
                @let heads = html! {
                    (th("step", ""))
                    (number("times", "each job on each node"))
                    (number("in all", "sum, though many go on side by side"))
                    (number("mean", "in all ÷ times"))
                    (number("longest", ""))
                    (number("hidden", "share during which some job computed"))
                    (number("moved", ""))
                };
                @let rows = html! {
                    @for (step, total) in &run.report.steps {
                        @let total_s = total.total.as_secs_f64().max(f64::MIN_POSITIVE);
                        @let share = total.hidden.as_secs_f64() / total_s;
                        tr {
                            th scope="row" { (step.doing()) }
                            td.number { (total.count) }
                            td.number { (seconds(total.total)) }
                            td.number { (seconds(total.total / total.count.max(1))) }
                            td.number { (seconds(total.longest)) }
                            (bar(share, &percent(share)))
                            td.number { @if total.bytes.0 > 0 { (bytes(total.bytes)) } @else { "–" } }
                        }
                    }
                };
                (table("Table of steps", &heads, &rows))
            }
        }
    }
}
