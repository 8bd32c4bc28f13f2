//! What is shown, on screens of several sizes.

use coswitch_policies::{Bytes, JobId, NodeId, Purpose, SwitchId, SwitchStep};
use coswitch_report::journal::{Event, JobOutcome, RunEvent};
use insta::assert_snapshot;

use super::{model::Key, *};
use crate::watching::example::{at, status};

fn model(nodes: u32) -> Model {
    Model::new(Duration::ZERO, status(nodes))
}

fn shown(model: &Model, seconds: f64, width: u16, height: u16) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    render::render(model, Duration::from_secs_f64(seconds), buffer.area, &mut buffer);
    text_of(&buffer)
}

fn tell(model: &mut Model, seconds: f64, kind: Event) {
    let event = RunEvent { at: at(100.0 + seconds), kind };
    assert_eq!(model.on(Duration::from_secs_f64(seconds), News::Event(Box::new(event))), None);
}

fn step(job: u32, step: SwitchStep, node: u32) -> Event {
    let (switch, job, node) = (SwitchId(7), JobId(job), NodeId(node));
    Event::StepDone { switch, job, node, step, began: at(106.0), ended: at(106.2), bytes: Bytes(0) }
}

#[test]
fn a_screen_of_80_by_24_shows_all() {
    assert_snapshot!(shown(&model(2), 1.5, 80, 24));
}

#[test]
fn a_switch_is_shown_step_by_step_and_then_what_it_took() {
    let mut model = model(2);
    let (outgoing, incoming) = (vec![JobId(0), JobId(1)], vec![JobId(2)]);
    let (switch, purpose) = (SwitchId(7), Purpose::Turn);
    let parked = Some(outgoing.clone());
    let order = Default::default();
    tell(&mut model, 6.0, Event::SwitchStarted { switch, purpose, order, outgoing, parked, incoming });
    for node in [0, 1] {
        tell(&mut model, 6.1, step(0, SwitchStep::Freeze, node));
        tell(&mut model, 6.1, step(0, SwitchStep::Flush, node));
    }
    let (bytes, total) = (Bytes::mib(45), Bytes::mib(100));
    for (node, job) in [(0, 0), (1, 0), (0, 1)] {
        let (job, node, step) = (JobId(job), NodeId(node), SwitchStep::Dump);
        tell(&mut model, 6.3, Event::Progress { job, node, step, bytes, total });
    }
    tell(&mut model, 6.4, step(1, SwitchStep::Dump, 1));
    assert_snapshot!(shown(&model, 6.5, 100, 24));
    let late = shown(&model, 7.5, 80, 24);
    assert!(late.contains(" slot-1 after switch"), "it takes longer than was foreseen: {late}");
    let (exposed, bytes_out, bytes_in) = (Duration::from_secs(2), Bytes::mib(200), Bytes::mib(300));
    let (restore, misplaced) = (None, vec![]);
    tell(&mut model, 8.0, Event::SwitchEnded { switch, restore, exposed, bytes_out, bytes_in, misplaced });
    let (outcome, last_output) = (JobOutcome::Exit(3), String::new());
    tell(&mut model, 8.5, Event::JobFinished { job: JobId(1), outcome, last_output });
    assert_snapshot!(shown(&model, 9.0, 80, 24));
}

#[test]
fn many_nodes_are_scrolled_and_a_small_screen_shows_less() {
    let mut model = model(100);
    for _ in 0..3 {
        assert_eq!(model.on(Duration::ZERO, News::Key(Key::Right)), None);
    }
    assert_snapshot!(shown(&model, 0.0, 90, 16));
    assert_snapshot!(shown(&model, 0.0, 60, 12));
    assert_eq!(shown(&model, 0.0, 39, 12).lines().next(), Some("coswitch top needs 40 columns and 10 li"));
}

#[test]
fn a_lost_master_is_told_and_the_clock_stands_still() {
    let mut model = model(2);
    assert_eq!(model.on(Duration::from_secs(2), News::Lost("connection refused".into())), None);
    let text = shown(&model, 30.0, 80, 24);
    assert!(
        text.contains("NO ANSWER") && text.contains("waiting for a master (connection refused)"),
        "{text}"
    );
    assert!(text.contains("▶slot-0 4.0 s left"), "as it was when it was lost: {text}");
    let mut next = status(2);
    next.timetable.now = at(103.0);
    assert_eq!(model.on(Duration::from_secs(31), News::Status(Box::new(next))), None);
    let text = shown(&model, 31.0, 80, 24);
    assert!(!text.contains("NO ANSWER") && text.contains("▶slot-0 3.0 s left"), "{text}");
    let silent = shown(&model, 38.0, 80, 24);
    assert!(silent.contains("no answer for 7.0 s"), "a master that is stopped: {silent}");
}

#[test]
fn keys_sort_and_scroll_the_jobs_and_end_all() {
    let mut model = model(2);
    let first = |model: &Model| model.sorted_jobs()[0].name.clone();
    assert_eq!(first(&model), "heat");
    model.watched.status.queue.jobs[2].memory = Bytes::mib(900);
    for (word, name) in [("next turn", "heat"), ("state", "heat"), ("memory", "big"), ("time run", "heat")] {
        assert_eq!(model.on(Duration::ZERO, News::Key(Key::Sort)), None);
        assert_eq!((model.sort.word(), first(&model)), (word, name.to_owned()));
    }
    for _ in 0..9 {
        assert_eq!(model.on(Duration::ZERO, News::Key(Key::Down)), None);
    }
    assert_eq!(model.first_job, 2, "the last one");
    assert_eq!(model.on(Duration::ZERO, News::Key(Key::Help)), None);
    assert!(shown(&model, 0.0, 80, 24).contains("quit"));
    assert_eq!(model.on(Duration::ZERO, News::Key(Key::Quit)), Some(Over::Quit));
    assert_eq!(model.on(Duration::ZERO, News::Ended), Some(Over::ClusterEnded));
}

#[test]
fn a_printed_frame_has_all_turns_and_jobs() {
    let text = frame(&status(2));
    assert_eq!(text.lines().filter(|line| line.contains("slot-")).count(), 6, "{text}");
    assert!(text.lines().all(|line| !line.ends_with(' ')));
    let mut empty = status(1);
    (empty.queue.jobs, empty.timetable.turns) = (vec![], vec![]);
    assert!(frame(&empty).contains("none; `coswitch submit` brings some"));
}
