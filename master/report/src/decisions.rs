//! Picture of what node schedulers saw and decided in a stretch of time, as SVG that needs no script: a lane
//! for each task of a node, with the intervals in which it had a processor.
//!
//! The same code draws the end of a simulated run, and a stretch of a real one that each daemon has left
//! beside the output of a job.

use std::fmt::Write;

use coswitch_policies::{
    JobId, NodeId, SimTime,
    local::{Doing, Excerpt, Lane, Stretch},
};
use maud::{Markup, html};

use crate::words::list;

/// Further nodes would make a picture long, and look alike.
const NODES_MAX: usize = 8;
/// Further tasks of a node are counted only.
const LANES_MAX: usize = 32;
const WIDTH: f64 = 960.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 944.0;
/// Height of a lane, of its bar, of the bar of a task that is ready, and of a mark for a message.
const LANE: f64 = 17.0;
const BAR: f64 = 11.0;
const READY: f64 = 3.0;
const MESSAGE: f64 = 3.5;
/// Of the name of a node, and of its axis.
const HEAD: f64 = 22.0;
const AXIS: f64 = 26.0;
const KEY: f64 = 26.0;
/// Readable on white and on black.
const GREY: &str = "#7a828c";
const COLOURS: [&str; 8] =
    ["#2f6db3", "#1f8a78", "#b4612a", "#8150a8", "#a83a5b", "#6b7f1e", "#4a86c8", "#c97b45"];

/// What happened on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeExcerpt {
    pub node: NodeId,
    /// By a clock that all nodes share, or nearly so.
    pub excerpt: Excerpt,
}

/// What happened on the nodes of a job before it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decisions {
    pub job: JobId,
    pub nodes: Vec<NodeExcerpt>,
}

impl Decisions {
    /// The job of a run during which most was decided, the first of several.
    #[must_use]
    pub fn busiest(all: Vec<Self>) -> Option<Self> {
        let changes =
            |decisions: &Self| decisions.nodes.iter().map(|node| node.excerpt.changes()).sum::<usize>();
        all.into_iter().rev().max_by_key(changes)
    }
}

/// How jobs are called and coloured.
pub(crate) struct Look<'a> {
    pub(crate) name: &'a dyn Fn(JobId) -> String,
    /// Any colour of CSS.
    pub(crate) colour: &'a dyn Fn(JobId) -> String,
}

/// A picture as a file of its own.
#[must_use]
pub fn svg(title: &str, nodes: &[NodeExcerpt], name: &dyn Fn(JobId) -> String) -> String {
    let colour = |job: JobId| COLOURS[job.0 as usize % COLOURS.len()].to_owned();
    picture(title, nodes, &Look { name, colour: &colour }).into_string() + "\n"
}

/// A picture for a page or for a file.
pub(crate) fn picture(title: &str, nodes: &[NodeExcerpt], look: &Look<'_>) -> Markup {
    let drawn = &nodes[..nodes.len().min(NODES_MAX)];
    let axes = Axes::of(drawn);
    let mut top = KEY;
    let bands: Vec<(f64, &NodeExcerpt)> = drawn
        .iter()
        .map(|node| {
            let lanes = node.excerpt.lanes.len().min(LANES_MAX);
            let at = top;
            top += HEAD + LANE * lanes as f64 + AXIS;
            (at, node)
        })
        .collect();
    let left_out = nodes.len() - drawn.len();
    let bottom = top + if left_out > 0 { HEAD } else { 0.0 };
    let says = format!("{title}: {}", says(drawn, look));
    html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (decimal(bottom)) } role="img"
            aria-label=(says) font-family="system-ui, sans-serif" font-size="12" fill=(GREY) {
            (key())
            @for (top, node) in bands { (band(top, node, axes.begin_of(node), axes.length, look)) }
            @if left_out > 0 { text x="8" y=(decimal(top + 14.0)) { "and " (left_out) " nodes more" } }
        }
    }
}

/// All nodes have one axis where their stretches overlap, else each its own of the same length.
struct Axes {
    common: Option<SimTime>,
    /// In seconds.
    length: f64,
}

impl Axes {
    fn of(nodes: &[NodeExcerpt]) -> Self {
        let times = |of: fn(&Excerpt) -> SimTime| nodes.iter().map(move |node| of(&node.excerpt));
        let from = |excerpt: &Excerpt| excerpt.from;
        let to = |excerpt: &Excerpt| excerpt.to;
        let overlap = times(from).max() < times(to).min();
        let begin = times(from).min().filter(|_| overlap);
        let longest = nodes.iter().map(|node| node.excerpt.to.since(node.excerpt.from)).max();
        let length = match begin {
            Some(begin) => times(to).max().map(|end| end.since(begin)),
            None => longest,
        };
        Self { common: begin, length: length.unwrap_or_default().as_secs_f64().max(1e-6) }
    }

    fn begin_of(&self, node: &NodeExcerpt) -> SimTime {
        self.common.unwrap_or(node.excerpt.from)
    }
}

fn key() -> Markup {
    html! {
        rect x="8" y="4" width="22" height=(BAR) {}
        text x="36" y="14" { "has a processor by decision" }
        rect x="210" y="4" width="22" height=(BAR) fill-opacity="0.4" {}
        text x="238" y="14" { "spins with it" }
        rect x="330" y=(4.0 + (BAR - READY) / 2.0) width="22" height=(READY) {}
        text x="358" y="14" { "ready" }
        path d="M410 10h22" stroke=(GREY) stroke-opacity="0.4" {}
        text x="438" y="14" { "waits" }
        path d="M492 6v7M498 6v7" stroke=(GREY) {}
        text x="508" y="14" { "a message calls it" }
        path d="M632 4v11" stroke=(GREY) stroke-dasharray="2 2" {}
        text x="640" y="14" { "a slot begins" }
    }
}

fn band(top: f64, node: &NodeExcerpt, begin: SimTime, length: f64, look: &Look<'_>) -> Markup {
    let Excerpt { lanes, slots, .. } = &node.excerpt;
    let x = |at: SimTime| LEFT + at.since(begin).as_secs_f64() / length * (RIGHT - LEFT);
    let (first, shown) = (top + HEAD, lanes.len().min(LANES_MAX));
    let bottom = first + LANE * shown as f64;
    let more = lanes.len() - shown;
    let slots: String = slots.iter().map(|at| format!("M{:.2} {first:.1}V{bottom:.1}", x(*at))).collect();
    html! {
        g {
            text x="8" y=(decimal(top + 14.0)) font-weight="600" {
                (node.node) @if more > 0 { ", without " (more) " more tasks" }
            }
            (axis(first, bottom, length))
            @for (number, lane) in lanes.iter().take(LANES_MAX).enumerate() {
                (lane_of(lane, first + LANE * number as f64, &x, look))
            }
            @if !slots.is_empty() { path d=(slots) stroke=(GREY) stroke-dasharray="2 2" {} }
        }
    }
}

fn lane_of(lane: &Lane, y: f64, x: &dyn Fn(SimTime) -> f64, look: &Look<'_>) -> Markup {
    let colour = lane.job.map_or_else(|| GREY.to_owned(), |job| (look.colour)(job));
    let of = |doing: Doing| lane.stretches.iter().filter(move |stretch| stretch.doing == doing);
    let bars = [(Doing::Ready, READY, None), (Doing::Spins, BAR, Some("0.4")), (Doing::Runs, BAR, None)];
    let bars =
        bars.map(|(doing, height, opacity)| (path(of(doing), y + (LANE - height) / 2.0, height, x), opacity));
    let middle = y + LANE / 2.0;
    let mut messages = String::new();
    for at in &lane.messages {
        let _ = write!(messages, "M{:.2} {:.1}v{MESSAGE}", x(*at), y + LANE - MESSAGE);
    }
    let mut waits = String::new();
    for Stretch { from, to, .. } in of(Doing::Waits) {
        let _ = write!(waits, "M{:.2} {middle:.1}H{:.2}", x(*from), x(*to));
    }
    html! {
        g style={ "fill:" (colour) } {
            title { (in_words(lane, look)) }
            text x=(decimal(LEFT - 8.0)) y=(decimal(middle + 4.0)) text-anchor="end" fill=(GREY) {
                (short(&called(lane, look)))
            }
            @if !waits.is_empty() { path d=(waits) stroke=(GREY) stroke-opacity="0.4" {} }
            @for (bars, opacity) in bars.iter().filter(|(bars, _)| !bars.is_empty()) {
                path d=(bars) fill-opacity=[*opacity] {}
            }
            @if !messages.is_empty() { path d=(messages) stroke=(GREY) {} }
        }
    }
}

/// The bars of some stretches.
fn path<'a>(
    stretches: impl Iterator<Item = &'a Stretch>,
    y: f64,
    height: f64,
    x: &dyn Fn(SimTime) -> f64,
) -> String {
    let mut path = String::new();
    for Stretch { from, to, .. } in stretches {
        // A stretch of some microseconds is to be seen as well.
        let (from, width) = (x(*from), (x(*to) - x(*from)).max(0.3));
        let _ = write!(path, "M{from:.2} {y:.1}h{width:.2}v{height}h-{width:.2}z");
    }
    path
}

/// Ticks of a round length, about eight of them.
fn axis(top: f64, bottom: f64, length: f64) -> Markup {
    const STEPS: [f64; 3] = [1.0, 2.0, 5.0];
    let wanted = length / 10.0;
    let power = 10f64.powf(wanted.log10().floor());
    let step = STEPS.into_iter().map(|step| step * power).find(|step| *step >= wanted);
    let step = step.unwrap_or(10.0 * power);
    let (unit, name) = if step < 1e-3 { (1e-6, "µs") } else { (1e-3, "ms") };
    let count = (length / step).floor() as u32;
    let x = |number: u32| LEFT + f64::from(number) * step / length * (RIGHT - LEFT);
    html! {
        @for number in 0..=count {
            path d=(format!("M{:.1} {top:.1}V{:.1}", x(number), bottom + 3.0)) stroke=(GREY)
                stroke-opacity="0.25" {}
            text x=(decimal(x(number))) y=(decimal(bottom + 15.0)) text-anchor="middle" font-size="11" {
                (format!("{:.0} {name}", f64::from(number) * step / unit))
            }
        }
    }
}

/// How each task on these nodes spent the time.
fn says(nodes: &[NodeExcerpt], look: &Look<'_>) -> String {
    let of_node = |NodeExcerpt { node, excerpt }: &NodeExcerpt| {
        let lanes = excerpt.lanes.iter().take(LANES_MAX);
        let lanes: Vec<String> = lanes.map(|lane| in_words(lane, look)).collect();
        format!("on {node} {}", list(&lanes))
    };
    nodes.iter().map(of_node).collect::<Vec<_>>().join("; ")
}

fn called(lane: &Lane, look: &Look<'_>) -> String {
    match (lane.job, lane.is_local) {
        (Some(job), false) => (look.name)(job),
        (Some(job), true) => format!("{} (local)", (look.name)(job)),
        (None, _) => format!("local {}", lane.task.0),
    }
}

/// Fits on the left of its lane.
fn short(name: &str) -> String {
    const MOST: usize = 20;
    match name.chars().count() > MOST {
        true => name.chars().take(MOST - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

fn in_words(lane: &Lane, look: &Look<'_>) -> String {
    let all: f64 = lane.stretches.iter().map(|stretch| stretch.to.since(stretch.from).as_secs_f64()).sum();
    let percent = |doing| 100.0 * lane.time(doing).as_secs_f64() / all.max(f64::MIN_POSITIVE);
    let parts =
        [(Doing::Runs, "ran"), (Doing::Spins, "spun"), (Doing::Ready, "was ready"), (Doing::Waits, "waited")];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(doing, _)| lane.stretches.iter().any(|stretch| stretch.doing == *doing))
        .map(|(doing, word)| format!("{word} {:.0} %", percent(doing)))
        .collect();
    let measured = lane.measured_share().map(|(share, span)| {
        let percent = 100.0 * share;
        format!("; measured over {:.0} ms: {percent:.0} % of a processor", 1e3 * span.as_secs_f64())
    });
    format!("{} {}{}", called(lane, look), list(&parts), measured.unwrap_or_default())
}

fn decimal(of: f64) -> String {
    format!("{of:.1}")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use coswitch_policies::local::TaskId;

    use super::*;

    fn stretch(doing: Doing, from: u64, to: u64) -> Stretch {
        Stretch { doing, from: SimTime(from * 1_000_000), to: SimTime(to * 1_000_000) }
    }

    /// A rank of job 0 that runs, spins and waits, and a local task that runs when that one waits.
    pub(crate) fn node(node: u32, from: u64, to: u64) -> NodeExcerpt {
        let middle = from.midpoint(to);
        let lane = |task, job: Option<u32>, stretches: Vec<Stretch>| Lane {
            task: TaskId(task),
            job: job.map(JobId),
            is_local: task == 2,
            stretches,
            messages: vec![SimTime(middle * 1_000_000)],
            measured: [(from, 0), (middle, (middle - from) / 2)]
                .map(|(at, ms)| (SimTime(at * 1_000_000), Duration::from_millis(ms)))
                .into(),
        };
        let (runs, spins) = (stretch(Doing::Runs, from, middle), stretch(Doing::Spins, middle, to - 1));
        let rank = vec![runs, spins, stretch(Doing::Waits, to - 1, to)];
        let local = vec![stretch(Doing::Ready, from, to - 1), stretch(Doing::Runs, to - 1, to)];
        let lanes = vec![lane(1, Some(0), rank), lane(2, None, local)];
        let time = |ms: u64| SimTime(ms * 1_000_000);
        let excerpt = Excerpt { from: time(from), to: time(to), lanes, slots: vec![time(middle)] };
        NodeExcerpt { node: NodeId(node), excerpt }
    }

    fn drawn(nodes: &[NodeExcerpt]) -> String {
        svg("<decisions>", nodes, &|job| format!("<{job}>"))
    }

    #[test]
    fn lanes_have_bars_where_a_task_has_a_processor_and_names_cannot_break_out() {
        let text = drawn(&[node(0, 0, 100), node(1, 50, 150)]);
        assert!(text.starts_with("<svg xmlns=") && text.ends_with("</svg>\n"), "{text}");
        assert!(text.contains("&lt;job-0&gt; ran 50 %, spun 49 % and waited 1 %"), "{text}");
        let measured = "; measured over 50 ms: 50 % of a processor";
        assert!(text.contains(&format!("local 2 ran 1 % and was ready 99 %{measured}")), "{text}");
        assert!(!text.contains("<job-0>") && !text.contains("<decisions>"), "{text}");
        // One axis of 150 ms: the second node begins after a third of it.
        let third = (RIGHT - LEFT) / 3.0;
        for x in [LEFT, LEFT + third] {
            assert!(text.contains(&format!("M{x:.2} ")), "{x} in {text}");
        }
        assert!(text.contains(&format!("h{third:.2}v{BAR}")), "a bar of 50 ms");
        assert_eq!(text.matches("stroke-dasharray").count(), 1 + 2, "of the key and of each node's slot");
    }

    #[test]
    fn nodes_that_do_not_overlap_have_axes_of_their_own() {
        let text = drawn(&[node(0, 0, 100), node(1, 5000, 5100)]);
        let half = (RIGHT - LEFT) / 2.0;
        assert_eq!(text.matches(&format!("M{LEFT:.2} ")).count(), 4, "all lanes begin at the left");
        assert!(text.contains(&format!("h{half:.2}v{BAR}")));
        assert!(drawn(&[]).contains("</svg>"));
    }

    #[test]
    fn of_many_nodes_and_tasks_some_are_drawn_and_the_rest_is_counted() {
        let all = 0..NODES_MAX as u32 + 2;
        let mut nodes: Vec<NodeExcerpt> = all.map(|number| node(number, 0, 10)).collect();
        let lane = nodes[0].excerpt.lanes[0].clone();
        nodes[0].excerpt.lanes.resize(LANES_MAX + 3, lane);
        let text = drawn(&nodes);
        assert!(text.contains("and 2 nodes more") && text.contains("without 3 more tasks"), "{text}");
    }

    #[test]
    fn the_busiest_job_is_the_first_of_those_with_most_changes() {
        let decisions = |job, nodes| Decisions { job: JobId(job), nodes };
        let idle = decisions(1, vec![node(0, 0, 10)]);
        let busy = |job| decisions(job, vec![node(0, 0, 10), node(1, 0, 10)]);
        assert_eq!(Decisions::busiest(vec![idle, busy(2), busy(3)]), Some(busy(2)));
        assert_eq!(Decisions::busiest(Vec::new()), None);
    }
}
