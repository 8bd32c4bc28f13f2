//! The switch under way, step by step, and the last ones.

use std::time::Duration;

use coswitch_policies::{JobId, Purpose, SwitchStep};
use coswitch_report::{
    RecentSwitch,
    page::elements::{number, table, th},
    words::{bytes, list, seconds},
};
use maud::{Markup, html};

use super::{Scene, clock};
use crate::watching::{Progress, SwitchView, step_in_words, verb};

pub(super) fn switches(scene: &Scene<'_>) -> Markup {
    let under_way = scene.watched.switch.as_ref().filter(|view| view.ended.is_none());
    let past = scene.recent.switches();
    html! {
        div.under-way {
            @match under_way {
                Some(view) => (switch(scene, view)),
                None => p.none { "None is under way." }
            }
        }
        @if !past.is_empty() { (last(scene, &past)) }
    }
}

fn switch(scene: &Scene<'_>, view: &SwitchView) -> Markup {
    let status = &view.status;
    let stays = |job: &&JobId| !status.outgoing.contains(job);
    let outgoing = status.outgoing.iter().map(|job| (*job, "leaves"));
    let incoming = status.incoming.iter().filter(stays).map(|job| (*job, "comes"));
    html! {
        p {
            b { (status.switch) } " for " (clock("for", status.began, scene.now))
            @if status.purpose == Purpose::Ahead { ", beside the turn" }
        }
        ul.moves {
            @for (job, verb) in outgoing.chain(incoming) {
                li {
                    span.verb { (verb) } (scene.chip(job))
                    span.steps { (steps(view, job)) }
                    (progress(view, job))
                }
            }
        }
    }
}

fn steps(view: &SwitchView, job: JobId) -> String {
    let steps: Vec<String> = (view.steps.iter())
        .filter(|((of, step), _)| *of == job && *step != SwitchStep::Seal)
        .map(|((_, step), nodes)| step_in_words(*step, nodes))
        .collect();
    if steps.is_empty() { "asked".into() } else { steps.join(" · ") }
}

/// How much of the bytes of a step under way has been moved.
fn progress(view: &SwitchView, job: JobId) -> Markup {
    let of_job = view.steps.iter().filter(|((of, _), _)| *of == job);
    let mut moves = of_job.filter_map(|(_, nodes)| {
        let (mut moved, mut total, mut open) = (0, 0, false);
        for progress in nodes.values() {
            if let Progress::Moved { bytes, total: all } = progress {
                (moved, total, open) = (moved + bytes.0, total + all.0.max(bytes.0), true);
            }
        }
        (open && total > 0).then(|| (moved as f64 / total as f64 * 100.0).round())
    });
    html! {
        @if let Some(share) = moves.next_back() {
            progress max="100" value=(share) aria-label="moved" { (share) " %" }
        }
    }
}

fn last(scene: &Scene<'_>, switches: &[RecentSwitch]) -> Markup {
    let heads = html! {
        (th("switch", "")) (th("ended", "")) (th("out", "")) (th("in", ""))
        (number("took", "")) (number("exposed", "no job ran"))
        (number("moved out", "")) (number("moved in", ""))
        (th("steps", "first start to last end"))
    };
    let rows = html! { @for switch in switches { (row(scene, switch)) } };
    table("The last switches", &heads, &rows)
}

fn row(scene: &Scene<'_>, of: &RecentSwitch) -> Markup {
    let step = |(step, took): &(SwitchStep, Duration)| format!("{} {}", verb(*step), seconds(*took));
    let steps: Vec<String> = of.steps.iter().map(step).collect();
    html! {
        tr {
            th scope="row" { (of.switch) }
            td { (clock("ago", of.span.to, scene.now)) }
            td { (shortened(&of.outgoing)) }
            td { (shortened(&of.incoming)) }
            td.number { (seconds(of.span.length())) }
            td.number { (seconds(of.exposed)) }
            td.number { (bytes(of.bytes_out)) }
            td.number { (bytes(of.bytes_in)) }
            td.why { (steps.join(" · ")) }
        }
    }
}

fn shortened(names: &[String]) -> String {
    const MOST: usize = 4;
    match names {
        [] => "–".into(),
        names if names.len() > MOST => {
            format!("{} and {} more", names[..MOST].join(", "), names.len() - MOST)
        }
        names => list(names),
    }
}
