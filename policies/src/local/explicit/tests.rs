use super::*;
use crate::{
    JobId,
    local::{LocalScheduler, NodeScheduler, TaskId},
};

const MS: Duration = Duration::from_millis(1);
const LOCAL: TaskId = TaskId(0);
const DISTRIBUTED: TaskId = TaskId(1);

fn runs(node: &LocalScheduler<Explicit>) -> Option<TaskId> {
    node.running().first().map(|task| task.id)
}

fn two_tasks(filling: Filling) -> (LocalScheduler<Explicit>, Vec<NodeDecision>) {
    let slices = Slices { parallel: 100 * MS, local: 50 * MS };
    let mut node = LocalScheduler::new(Explicit::fixed(10 * MS, slices, filling));
    let mut decisions = Vec::new();
    for (task, application) in [(LOCAL, None), (DISTRIBUTED, Some(JobId(7)))] {
        node.on_event(SimTime(0), TaskEvent::Arrived { task, application }, &mut decisions).unwrap();
    }
    (node, decisions)
}

#[test]
fn the_slices_take_turns_and_the_console_starts_them_over() {
    let (mut node, mut decisions) = two_tasks(Filling::Both);
    assert_eq!(runs(&node), Some(DISTRIBUTED));
    assert!(decisions.contains(&NodeDecision::SetTimer { at: SimTime(100_000_000) }));
    node.on_event(SimTime(100_000_000), TaskEvent::TimerFired, &mut decisions).unwrap();
    assert_eq!((runs(&node), node.model().current()), (Some(LOCAL), SliceKind::Local));
    decisions.clear();
    let slices = Slices { parallel: 80 * MS, local: 20 * MS };
    node.on_event(SimTime(120_000_000), TaskEvent::SlicesSet(slices), &mut decisions).unwrap();
    assert_eq!(runs(&node), Some(DISTRIBUTED));
    assert!(decisions.contains(&NodeDecision::SetTimer { at: SimTime(200_000_000) }));
}

#[test]
fn a_stopped_distributed_task_leaves_the_local_slice_idle() {
    for (filling, expected) in [(Filling::DistributedStopped, None), (Filling::Both, Some(DISTRIBUTED))] {
        let (mut node, mut decisions) = two_tasks(filling);
        let at = SimTime(100_000_000);
        node.on_event(at, TaskEvent::TimerFired, &mut decisions).unwrap();
        node.on_event(at, TaskEvent::Finished { task: LOCAL }, &mut decisions).unwrap();
        assert_eq!(runs(&node), expected, "{filling:?}");
    }
}

#[test]
fn in_balanced_mode_a_node_reports_its_load_and_waits_for_the_console() {
    let rule = LoadRule { past_weight: 0.0, samples: 1, ..LoadRule::default() };
    let mut node = LocalScheduler::new(Explicit::balanced(10 * MS, 1000 * MS, rule, Filling::Both));
    let mut decisions = Vec::new();
    node.on_event(SimTime(0), TaskEvent::Arrived { task: LOCAL, application: None }, &mut decisions).unwrap();
    node.on_event(SimTime(900_000_000), TaskEvent::TimerFired, &mut decisions).unwrap();
    assert!(!decisions.contains(&NodeDecision::ReportLoad { index: 1.0 }), "not in the parallel slice");
    node.on_event(SimTime(1_000_000_000), TaskEvent::TimerFired, &mut decisions).unwrap();
    assert!(decisions.contains(&NodeDecision::ReportLoad { index: 1.0 }));
    assert_eq!(node.model().slices().local, 100 * MS);
}

#[test]
fn in_distributed_mode_a_busy_node_gives_more_to_local_tasks() {
    let rule = LoadRule { past_weight: 0.0, ..LoadRule::default() };
    let model = Explicit::distributed(10 * MS, Duration::from_secs(1), rule, Filling::Both);
    let mut node = LocalScheduler::new(model);
    let mut decisions = Vec::new();
    for task in 0..3 {
        let event = TaskEvent::Arrived { task: TaskId(task), application: None };
        node.on_event(SimTime(0), event, &mut decisions).unwrap();
    }
    assert_eq!(node.model().slices().local, 100 * MS);
    let mut timer = SimTime(0);
    while timer < SimTime(40_000_000_000) {
        if let Some(NodeDecision::SetTimer { at }) =
            decisions.iter().rev().find(|decision| matches!(decision, NodeDecision::SetTimer { .. }))
        {
            timer = *at;
        }
        decisions.clear();
        node.on_event(timer, TaskEvent::TimerFired, &mut decisions).unwrap();
    }
    assert_eq!(node.model().slices().local, 600 * MS, "three ready local tasks: sixth line of Table 2.1");
}
