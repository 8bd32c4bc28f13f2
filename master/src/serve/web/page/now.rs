//! The cluster in a few figures, and its nodes.

use coswitch_policies::{Bytes, JobId, NodeId, SimTime};
use coswitch_report::{
    page::{
        elements::{number, table, th},
        pictures::memory_bar,
    },
    words::{bytes, capacity, plural, span},
};
use maud::{Markup, html};

use super::{NODES_MAX, Scene, clock, rest};
use crate::api::JobState;

pub(super) fn now(scene: &Scene<'_>) -> Markup {
    let status = &scene.watched.status;
    let (cluster, jobs) = (&status.cluster, &status.queue.jobs);
    let of = |state: JobState| jobs.iter().filter(|job| job.state == state).count();
    let running: Vec<JobId> =
        jobs.iter().filter(|job| job.state == JobState::Running).map(|job| job.job).collect();
    let others = [
        (of(JobState::Waiting), "waiting"),
        (of(JobState::Suspended), "suspended"),
        (of(JobState::Parked), "parked"),
        (of(JobState::Held), "held"),
    ];
    let others: Vec<String> = others
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    html! {
        p.facts {
            span { b { (plural(scene.nodes() as usize, "node")) } " of " (capacity(&cluster.cluster.memory)) }
            span { "policy " b { (cluster.policy) } }
            span { "turns of " b { (span(cluster.quantum)) } }
            span { "up for " b { (clock("for", SimTime(0), scene.now)) } }
        }
        dl.tiles {
            div.wide {
                dt { "Running" }
                dd {
                    b.chips {
                        @for job in running.iter().take(12) { (scene.chip(*job)) }
                        @if running.len() > 12 { span { "and " (running.len() - 12) " more" } }
                        @if running.is_empty() { (switching_or_idle(scene)) }
                    }
                }
            }
            div { dt { "This turn" } dd { b { (this_turn(scene)) } } }
            div {
                dt { "Jobs" }
                dd {
                    b { (jobs.len()) }
                    small { @if others.is_empty() { "none waits" } @else { (others.join(", ")) } }
                }
            }
            div { dt { "Memory" } dd { (fullest(scene)) } }
            div { dt { "Nodes" } dd { (up(scene)) } }
        }
    }
}

fn switching_or_idle(scene: &Scene<'_>) -> &'static str {
    let switches = scene.watched.switch.as_ref().is_some_and(|view| view.ended.is_none());
    if switches { "no job: a switch is under way" } else { "no job" }
}

fn this_turn(scene: &Scene<'_>) -> Markup {
    let turns = &scene.watched.status.timetable.turns;
    let present = turns.iter().rfind(|turn| scene.watched.has_begun(turn, scene.now));
    match (present.map(|turn| turn.until), turns.first()) {
        (Some(Some(until)), _) => clock("left", until, scene.now),
        (Some(None), _) => html! { "until a job ends" },
        (None, Some(next)) => html! { "begins " (clock("in", next.from, scene.now)) },
        (None, None) => html! { "none" },
    }
}

fn fullest(scene: &Scene<'_>) -> Markup {
    let limit = |node| scene.watched.status.cluster.cluster.memory.on(node);
    let fullest = scene.watched.memory.iter().max_by(|(one, used), (other, also)| {
        // By their shares.
        let cross = |used: Bytes, node| u128::from(used.0) * u128::from(limit(node).0);
        cross(**used, **other).cmp(&cross(**also, **one))
    });
    html! {
        @match fullest {
            Some((node, used)) => {
                b { (share(*used, limit(*node))) }
                @let name = scene.watched.node_name(*node);
                small { (bytes(*used)) " of " (bytes(limit(*node))) " on " (name) ", the fullest" }
            }
            None => b { "not known yet" }
        }
    }
}

fn share(used: Bytes, limit: Bytes) -> String {
    format!("{:.0} %", used.0 as f64 / limit.0.max(1) as f64 * 100.0)
}

fn up(scene: &Scene<'_>) -> Markup {
    let (all, down) = (scene.nodes() as usize, scene.recent.down().len());
    let repeated = scene.recent.repeated();
    html! {
        @if down == 0 { b { "all up" } } @else { b.bad { (down) " of " (all) " down" } }
        small {
            @if repeated.is_zero() { "no work repeated" } @else { (span(repeated)) " of work repeated" }
        }
    }
}

pub(super) fn nodes(scene: &Scene<'_>) -> Markup {
    let shown = scene.nodes().min(NODES_MAX);
    let heads = html! {
        (th("node", "")) (th("state", ""))
        (number("memory", "held by jobs")) (th("of its limit", "")) (th("held by", ""))
    };
    let rows = html! { @for node in (0..shown).map(NodeId) { (row(scene, node)) } };
    html! {
        (table("Nodes and their memory", &heads, &rows))
        (rest(shown as usize, scene.nodes() as usize, "nodes", "`/metrics` has the memory of all."))
    }
}

fn row(scene: &Scene<'_>, node: NodeId) -> Markup {
    let limit = scene.watched.status.cluster.cluster.memory.on(node);
    let name = scene.watched.node_name(node);
    let known = scene.watched.status.timetable.memory.iter().find(|memory| memory.node == node);
    let mut held: Vec<(JobId, Bytes)> =
        known.map_or(vec![], |memory| memory.by_job.iter().map(|job| (job.job, job.used)).collect());
    // The groups of parked jobs hold a few KiB of the kernel's.
    held.retain(|(_, used)| *used >= Bytes::mib(1));
    let used = known.map_or(Bytes(0), |memory| memory.used);
    let by_class =
        held.iter().map(|(job, used)| (scene.colours.class(&scene.watched.name(*job), *job), *used));
    let says = format!("{name}: {} of {}", bytes(used), bytes(limit));
    html! {
        tr {
            th scope="row" { (name) }
            td {
                @match scene.recent.down().get(&node) {
                    Some((since, why)) => {
                        span.bad title=(why) { "down for " (clock("for", *since, scene.now)) }
                    }
                    None => "up"
                }
            }
            td.number { (bytes(used)) }
            td.bar { (memory_bar(&says, limit, &by_class.collect::<Vec<_>>())) }
            td.chips {
                @for (job, used) in held { span.held { (scene.chip(job)) " " small { (bytes(used)) } } }
            }
        }
    }
}
