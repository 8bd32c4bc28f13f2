//! The live page, pure: its frame, and the parts of it that follow the cluster.
//!
//! Styles, colours, tables and pictures are those of the report. Each part is an element with an `id`; the
//! script puts what has changed in its place and counts the clocks. The first picture needs no script.

mod jobs;
mod now;
mod switches;
mod turns;

use std::time::Duration;

use coswitch_policies::{JobId, SimTime};
use coswitch_report::{
    Recent,
    page::{LiveColours, STYLE, theme_switch},
    words::span,
};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::watch::{State, View};
use crate::watching::Watched;

pub(super) const SCRIPT: &str = include_str!("live.js");
pub(super) const ICON: &str = include_str!("icon.svg");
/// More nodes, and jobs, are counted and not shown.
const NODES_MAX: u32 = 48;
const JOBS_MAX: usize = 200;

/// The parts, with the titles of their sections.
const PARTS: [(&str, &str); 7] = [
    ("now", "Now"),
    ("turns", "Turns"),
    ("time", "Past and next"),
    ("jobs", "Jobs"),
    ("news", "What happened"),
    ("nodes", "Nodes"),
    ("switches", "Switches"),
];

/// What is drawn.
pub(super) struct Scene<'a> {
    pub(super) watched: &'a Watched,
    pub(super) recent: &'a Recent,
    pub(super) colours: &'a LiveColours,
    /// So much of the past and of the time to come is shown.
    pub(super) window: Duration,
    pub(super) now: SimTime,
}

impl Scene<'_> {
    fn nodes(&self) -> u32 {
        self.watched.status.cluster.cluster.nodes
    }

    /// A job's name in its colour.
    fn chip(&self, job: JobId) -> Markup {
        let name = self.watched.name(job);
        html! { span.chip.(self.colours.class(&name, job)) { (name) } }
    }
}

/// The style of the page.
pub(super) fn style() -> String {
    format!("{STYLE}{}{}", LiveColours::css(), include_str!("live.css"))
}

/// Draws each part.
pub(super) fn parts(scene: &Scene<'_>) -> Vec<(&'static str, Markup)> {
    vec![
        ("now", now::now(scene)),
        ("turns", turns::turns(scene)),
        ("time", turns::time(scene)),
        ("jobs", jobs::jobs(scene)),
        ("news", jobs::news(scene)),
        ("nodes", now::nodes(scene)),
        ("switches", switches::switches(scene)),
    ]
}

/// The page with what is known.
pub(super) fn page(view: &View) -> Markup {
    let part = |id: &str| view.parts.iter().find(|(of, _)| *of == id).map(|(_, text)| PreEscaped(&**text));
    let main = html! {
        header {
            h1 { "coswitch " span { "live" } }
            p #state role="status" { (state_in_words(view.state)) }
            (theme_switch())
        }
        main #main tabindex="-1" {
            h2.hidden { "The cluster now" }
            noscript { p.about { "Without JavaScript the page shows the moment at which it was opened." } }
            div.live {
                @for (id, title) in PARTS {
                    section.{ "part-" (id) } aria-labelledby={ (id) "-title" } {
                        h3 #{ (id) "-title" } .hidden[id == "now"] { (title) }
                        div #(id) {
                            @match part(id) {
                                Some(text) => (text),
                                None => p.about { "The cluster is being asked." }
                            }
                        }
                    }
                }
            }
        }
        footer {
            p {
                "All jobs of the cluster, of all users, as its own scheduler sees them. Times to come are "
                "forecasts: they know nothing of jobs that are still to be submitted."
            }
        }
    };
    frame("live", &html! { script src="script.js" defer {} }, &main, millis(view.now()), view.state)
}

/// Leads a browser, which has the cookie now, to the page.
pub(super) fn entrance(path: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content={ "0;url=" (path) };
                title { "coswitch live" }
            }
            body { p { a href=(path) { "The live page of the cluster" } } }
        }
    }
}

fn frame(title: &str, head: &Markup, body: &Markup, now: u64, state: State) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "coswitch " (title) }
                link rel="icon" href="icon.svg";
                link rel="stylesheet" href="style.css";
                (head)
            }
            body data-now=(now) data-state=(state_word(state)) {
                a.skip href="#main" { "Skip to the cluster" }
                (body)
            }
        }
    }
}

/// The word of a state for the script.
pub(super) const fn state_word(state: State) -> &'static str {
    match state {
        State::Asking => "asking",
        State::Live => "live",
        State::Silent => "silent",
        State::Ended => "ended",
    }
}

const fn state_in_words(state: State) -> &'static str {
    match state {
        State::Asking => "Asking the cluster",
        State::Live => "Live",
        State::Silent => "The cluster does not answer",
        State::Ended => "The cluster has ended",
    }
}

/// Of the cluster's clock, for the script.
pub(super) const fn millis(at: SimTime) -> u64 {
    at.0 / 1_000_000
}

/// A time that the script keeps up to date: `left` until it, `in` so long, so long `ago`, `for` so long since
/// it, `done`.
fn clock(kind: &'static str, at: SimTime, now: SimTime) -> Markup {
    let (before, after) = (span(at.since(now)), span(now.since(at)));
    let text = match kind {
        "left" => format!("{before} left"),
        "in" | "done" if at <= now => "now".into(),
        "in" | "done" => format!("in {before}"),
        "ago" => format!("{after} ago"),
        _ => after,
    };
    html! { span.clock data-clock=(kind) data-at=(millis(at)) { (text) } }
}

/// A note below a table that does not show all.
fn rest(shown: usize, all: usize, noun: &str, how: &str) -> Markup {
    html! { @if all > shown { p.about { "The first " (shown) " of " (all) " " (noun) "; " (how) } } }
}

#[cfg(test)]
mod tests;
