//! HTML elements that several sections use: figures, and cells of tables.

use coswitch_policies::Policy;
use maud::{Markup, html};

pub(super) fn policy(policy: Option<Policy>) -> String {
    policy.map_or_else(|| "?".into(), |policy| policy.to_string())
}

/// A figure that the script draws.
pub(crate) fn figure(chart: &str, label: &str, note: &str) -> Markup {
    html! {
        figure data-chart=(chart) data-label=(label) {
            @if chart == "bars" {
                ul.key aria-label="Key" {
                    @for part in ["running", "waiting", "suspended", "parked"] {
                        li { i style={ "background:var(--" (part) ")" } {} (part) }
                    }
                }
            } @else if chart == "matrix" {
                ul.key aria-label="Key" {
                    li { i.solid {} "runs" }
                    li { i.pale {} "in memory, stopped" }
                    li { i.moving {} "comes or leaves" }
                    li { i.exposed {} "step exposed: no job computed" }
                    li { i.hidden-step {} "step hidden: a job computed" }
                }
            }
            div.chart {}
            noscript { "The chart needs JavaScript; the tables do not." }
            figcaption { (note) }
        }
    }
}

/// A number over a bar that takes `share` of its cell.
pub(crate) fn bar(share: f64, number: &str) -> Markup {
    html! { td.number.bar style={ "--w:" (format!("{:.1}%", share * 100.0)) } { span { (number) } } }
}

/// A table that scrolls sideways; `label` names it for screen readers.
#[must_use]
pub fn table(label: &str, heads: &Markup, rows: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table { thead { tr { (heads) } } tbody { (rows) } }
        }
    }
}

/// The header of a column of numbers.
#[must_use]
pub fn number(name: &str, how: &str) -> Markup {
    html! { th.number scope="col" { (name) @if !how.is_empty() { small { (how) } } } }
}

/// The header of a column.
#[must_use]
pub fn th(name: &str, how: &str) -> Markup {
    html! { th scope="col" { (name) @if !how.is_empty() { small { (how) } } } }
}
