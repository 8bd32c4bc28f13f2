use coswitch_policies::{Bytes, JobId, NodeId, Purpose, SwitchId};
use coswitch_report::journal::{Event, JobOutcome, RunEvent};

use super::*;
use crate::{
    api::JobState,
    watching::{
        Status,
        example::{at, job, status},
    },
};

fn event(seconds: f64, kind: Event) -> RunEvent {
    RunEvent { at: at(seconds), kind }
}

/// All parts together.
fn drawn(status: Status, events: &[RunEvent]) -> String {
    let cluster = &status.cluster.cluster;
    let mut recent = Recent::new(cluster.nodes, cluster.memory.clone(), Duration::from_secs(60));
    let mut colours = LiveColours::default();
    colours.live(status.queue.jobs.iter().map(|job| job.name.as_str()));
    for job in &status.queue.jobs {
        recent.learn(job.job, &job.name, job.memory);
    }
    let mut watched = Watched::new(Duration::ZERO, status);
    for event in events {
        recent.on_event(event);
        watched.on_event(Duration::ZERO, event);
    }
    let (now, window) = (at(100.0), Duration::from_secs(60));
    let scene = Scene { watched: &watched, recent: &recent, colours: &colours, window, now };
    parts(&scene).into_iter().map(|(id, part)| format!("\n{id}: {}", part.into_string())).collect()
}

#[test]
fn turns_nodes_jobs_and_their_times_are_shown() {
    let text = drawn(status(2), &[]);
    for part in [
        "aria-current=\"true\"><th scope=\"row\">slot-0<small>",
        "<span class=\"clock\" data-clock=\"left\" data-at=\"106000\">6.0 s left",
        "colspan=\"2\"><span class=\"chip",
        "data-clock=\"in\" data-at=\"107000\">in 7.0 s",
        "node-0: 612 MiB of 1 GiB",
        "1 parked",
        "<span class=\"state running\">running</span>",
        "data-clock=\"done\" data-at=\"500000\">in 6 min 40 s",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_switch_its_steps_and_what_happened_are_shown() {
    let (switch, purpose, order) = (SwitchId(7), Purpose::Turn, Default::default());
    let (outgoing, incoming) = (vec![JobId(0)], vec![JobId(2)]);
    let parked = Some(outgoing.clone());
    let (job, node, step) = (JobId(0), NodeId(0), coswitch_policies::SwitchStep::Dump);
    let outcome = JobOutcome::Exit(3);
    let name = "conjugate-gradient".into();
    let submitted =
        Event::JobSubmitted { job: JobId(1), name, ranks: 2, memory: Bytes::mib(300), alone: None };
    let text = drawn(
        status(2),
        &[
            event(90.0, submitted),
            event(98.0, Event::SwitchStarted { switch, purpose, order, outgoing, parked, incoming }),
            event(99.0, Event::Progress { job, node, step, bytes: Bytes::mib(25), total: Bytes::mib(100) }),
            event(99.0, Event::JobFinished { job: JobId(1), outcome, last_output: String::new() }),
            event(99.0, Event::NodeLost { node: NodeId(1), reason: "killed".into() }),
            event(99.0, Event::JobRepeats { job: JobId(2), work: Duration::from_secs(12) }),
        ],
    );
    for part in [
        "<b>switch-7</b> for <span class=\"clock\" data-clock=\"for\" data-at=\"98000\">2.0 s",
        "dump 25MiB of 100MiB",
        "<progress max=\"100\" value=\"25\" aria-label=\"moved\">",
        "conjugate-gradient ended: exit code 3",
        "1 of 2 down",
        "12 s of work repeated",
        "title=\"killed\">down for ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn names_cannot_break_out_and_nothing_is_inline() {
    let mut status = status(2);
    status.queue.jobs[0].name = "<script>alert(1)</script>\"onload='x".into();
    let parts = drawn(status, &[]);
    assert!(!parts.contains("<script>") && parts.contains("&lt;script&gt;"), "{parts}");
    let all = page(&View::empty()).into_string() + &parts + &entrance("/live-1/").into_string();
    for inline in ["style=", "onclick", "javascript:", "http:", "https:", "<style"] {
        assert!(!all.contains(inline), "{inline}");
    }
    assert_eq!(all.matches("<script").count(), 1);
}

#[test]
fn a_large_cluster_stays_a_small_page() {
    let mut large = status(1000);
    let names = |number: u32| format!("job-of-somebody-{number}");
    large.queue.jobs =
        (0..1000).map(|number| job(number, &names(number), JobState::Parked, [200.0, 210.0])).collect();
    let text = drawn(large, &[]);
    assert!(text.contains("The first 48 of 1000 nodes") && text.contains("The first 200 of 1000 jobs"));
    assert!(text.len() < 300 << 10, "{} bytes", text.len());
}
