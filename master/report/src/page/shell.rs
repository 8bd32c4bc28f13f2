//! The frame of every page: head, theme switch, definitions, licences and scripts.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;

use crate::METRICS;

const D3: &str = include_str!("vendor/d3.min.js");
const PLOT: &str = include_str!("vendor/plot.umd.min.js");
const D3_LICENCE: &str = include_str!("vendor/d3.LICENSE");
const PLOT_LICENCE: &str = include_str!("vendor/plot.LICENSE");
const SCRIPT: &str = include_str!("page.js");
/// The style of all pages.
pub const STYLE: &str = include_str!("page.css");
/// The page loads nothing from anywhere.
const SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// A whole page around `main`; the script draws `data` into its figures.
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
                meta http-equiv="Content-Security-Policy" content=(SECURITY_POLICY);
                title { "coswitch " (kind) ": " (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(css)) }
            }
            body {
                a.skip href="#main" { "Skip to the " (kind) }
                header {
                    h1 { "coswitch " span { (kind) } }
                    (nav)
                    (theme_switch())
                }
                main #main tabindex="-1" {
                    (main)
                    (definitions())
                }
                footer {
                    p {
                        "Made by " code { "coswitch" } " from the journals of runs and nothing else; "
                        "needs no network. "
                        "Charts: Observable Plot and D3."
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

/// The choice between light and dark; the script shows it.
#[must_use]
pub fn theme_switch() -> Markup {
    html! {
        fieldset.theme hidden {
            legend.hidden { "Colours" }
            @for (value, text) in [("auto", "Auto"), ("light", "Light"), ("dark", "Dark")] {
                label {
                    input type="radio" name="theme" value=(value) checked[value == "auto"];
                    span { (text) }
                }
            }
        }
    }
}

/// JSON without `<`, so that no text in it can end the script element.
fn embedded(data: &impl Serialize) -> String {
    serde_json::to_string(data).expect("the charts can be written as JSON").replace('<', "\\u003c")
}

/// The definition of each number, as `coswitch metrics` prints it.
fn definitions() -> Markup {
    html! {
        section aria-labelledby="definitions" {
            details {
                summary #definitions { "How every number is computed" }
                pre { (METRICS) }
            }
        }
    }
}
