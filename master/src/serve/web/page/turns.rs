//! The Ousterhout matrix of the turns to come, and the memory of each node over time.

use coswitch_policies::{ForeseenTurn, JobId, NodeId};
use coswitch_report::{
    page::{
        elements::table,
        pictures::{Source, Strips},
    },
    words::span,
};
use maud::{Markup, html};

use super::{NODES_MAX, Scene, clock, millis, rest};

/// More turns are not shown.
const TURNS_MAX: usize = 12;

/// The columns of so many nodes are equally wide.
const FEW: u32 = 10;

/// A row for each turn, a column for each node. Jobs that have several nodes in a row span them.
pub(super) fn turns(scene: &Scene<'_>) -> Markup {
    let turns = &scene.watched.status.timetable.turns;
    let over = turns.iter().take_while(|turn| turn.until.is_some_and(|until| until <= scene.now)).count();
    let turns = &turns[over.min(turns.len().saturating_sub(1))..];
    let shown = scene.nodes().min(NODES_MAX);
    let heads = html! {
        th scope="col" { "turn" }
        @for node in (0..shown).map(NodeId) { th scope="col" { (scene.watched.node_name(node)) } }
    };
    let rows = html! { @for turn in turns.iter().take(TURNS_MAX) { (row(scene, turn, shown)) } };
    html! {
        p.about {
            "A row is a turn, a column a node. The scheduler looks " (span(scene.window)) " ahead."
        }
        @if turns.is_empty() {
            p.none { "No turns: nothing is to run. " code { "coswitch submit" } " brings jobs." }
        } @else {
            div.matrix.few[shown <= FEW] { (table("Turns by node", &heads, &rows)) }
        }
        (rest(shown as usize, scene.nodes() as usize, "nodes", "`coswitch top` scrolls to the others."))
    }
}

fn row(scene: &Scene<'_>, turn: &ForeseenTurn, nodes: u32) -> Markup {
    let is_present = scene.watched.has_begun(turn, scene.now);
    let here = |node: NodeId| -> Vec<JobId> {
        turn.jobs.iter().filter(|(_, at)| at.count_on(node) > 0).map(|(job, _)| *job).collect()
    };
    let cells: Vec<Vec<JobId>> = (0..nodes).map(NodeId).map(here).collect();
    html! {
        tr.present[is_present] aria-current=[is_present.then_some("true")] {
            th scope="row" {
                (turn.slot)
                small {
                    @match (is_present, turn.until) {
                        (true, Some(until)) => { (clock("left", until, scene.now)) }
                        (true, None) => "until a job ends",
                        (false, _) if turn.from <= scene.now => "after the switch",
                        (false, _) => { (clock("in", turn.from, scene.now)) }
                    }
                }
            }
            @for same in cells.chunk_by(|a, b| a == b) {
                td colspan=[(same.len() > 1).then_some(same.len())] {
                    @for job in &same[0] { (scene.chip(*job)) }
                    @if same[0].is_empty() { span.idle { "idle" } }
                }
            }
        }
    }
}

/// For each node the jobs in its memory, before and after now.
pub(super) fn time(scene: &Scene<'_>) -> Markup {
    let shown = scene.nodes().min(NODES_MAX);
    let jobs = &scene.watched.status.queue.jobs;
    let outlooks = jobs.iter().map(|job| (job.job, job.outlook)).collect();
    let strips = Strips::new(
        Source {
            recent: scene.recent,
            colours: scene.colours,
            turns: &scene.watched.status.timetable.turns,
            outlooks: &outlooks,
            now: scene.now,
            window: scene.window,
        },
        shown,
    );
    html! {
        ul.key aria-label="Key" {
            li { i.solid {} "runs" }
            li { i.pale {} "in memory, stopped" }
            li { i.moving {} "comes or leaves" }
            li { i.outlined {} "is to run" }
            li { i.exposed {} "step of a switch: no job computed" }
            li { i.hidden-step {} "step beside a job that computed" }
        }
        div.bands data-from=(millis(scene.now)) data-window=(scene.window.as_millis()) {
            @for node in (0..shown).map(NodeId) {
                @let name = scene.watched.node_name(node);
                div.band { span.name { (name) } (strips.band(node, &name)) }
            }
            div.band.scale aria-hidden="true" {
                span.name {}
                @let far = span(scene.window);
                div { span { (far) " ago" } span { "now" } span { "in " (far) } }
            }
        }
    }
}
