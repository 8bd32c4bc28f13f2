//! The switch under way, step by step for each job, or what the last one took.

use std::time::Duration;

use coswitch_policies::{JobId, Purpose, SwitchStep};
use coswitch_report::words::span;
use ratatui::{
    style::Stylize,
    text::{Line, Span},
};

use super::shortened;
use crate::{
    top::model::Model,
    watching::{SwitchEnd, SwitchView, step_in_words},
};

const NAME: usize = 22;

pub(super) fn lines(model: &Model, at: Duration, width: usize) -> Vec<Line<'static>> {
    let now = model.watched.now(at);
    match &model.watched.switch {
        None => vec![Line::from("none is under way").dim()],
        Some(SwitchView { ended: Some(end), status, .. }) => {
            let SwitchEnd { at, exposed, bytes_out, bytes_in } = end;
            let text = format!(
                "{}, {} ago: took {}, {bytes_out} out, {bytes_in} in; nothing ran for {}",
                status.switch,
                span(now.since(*at)),
                span(at.since(status.began)),
                span(*exposed)
            );
            vec![Line::from(shortened(&text, width)).dim()]
        }
        Some(view) => {
            let beside = match view.status.purpose {
                Purpose::Turn => "",
                Purpose::Ahead => ", beside the turn",
            };
            let text = format!("{} for {}{beside}", view.status.switch, span(now.since(view.status.began)));
            let stays = |job: &&JobId| !view.status.outgoing.contains(job);
            let leaves = view.status.outgoing.iter().map(|job| job_line(model, view, *job, "◀", width));
            let comes = view.status.incoming.iter().filter(stays);
            let comes = comes.map(|job| job_line(model, view, *job, "▶", width));
            [Line::from(text).bold()].into_iter().chain(leaves).chain(comes).collect()
        }
    }
}

/// `◀ heat        freeze ✓  flush ✓  dump 45 %`
fn job_line(model: &Model, view: &SwitchView, job: JobId, mark: &str, width: usize) -> Line<'static> {
    let name = shortened(&model.watched.name(job), NAME - 3);
    let done: Vec<String> = (view.steps.iter())
        .filter(|((of, step), _)| *of == job && *step != SwitchStep::Seal)
        .map(|((_, step), nodes)| step_in_words(*step, nodes))
        .collect();
    let done = if done.is_empty() { String::from("asked") } else { done.join("  ") };
    let text = format!("{mark} {name:<NAME$}{done}");
    vec![Span::from(shortened(&text, width))].into()
}
