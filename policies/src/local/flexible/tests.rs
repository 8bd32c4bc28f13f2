use super::*;
use crate::{
    SimTime,
    local::{LocalScheduler, NodeScheduler, Used, linux::Linux},
};

const MS: Duration = Duration::from_millis(1);
const GANG: JobId = JobId(1);
const PARALLEL: TaskId = TaskId(1);
const LOCAL: TaskId = TaskId(2);

fn rule(trial_slots: u32) -> FlexibleRule {
    FlexibleRule {
        slice: 10 * MS,
        trial_slots,
        forget_after: None,
        thresholds: Thresholds { rare: 4, long_wait: 5 * MS, high_ratio: 2.0 },
        context_switch: MS,
    }
}

struct Node {
    scheduler: LocalScheduler<Flexible>,
    decisions: Vec<NodeDecision>,
}

impl Node {
    /// A process of the gang and a local task arrive at time 0.
    fn new(trial_slots: u32) -> Self {
        let mut node =
            Self { scheduler: LocalScheduler::new(Flexible::new(rule(trial_slots))), decisions: Vec::new() };
        node.tell(0, TaskEvent::Arrived { task: PARALLEL, application: Some(GANG) });
        node.tell(0, TaskEvent::Arrived { task: LOCAL, application: None });
        node
    }

    fn tell(&mut self, at_ms: u64, event: TaskEvent) -> Option<TaskId> {
        self.decisions.clear();
        let now = SimTime(at_ms * 1_000_000);
        self.scheduler.on_event(now, event, &mut self.decisions).unwrap();
        self.scheduler.running().first().map(|task| task.id)
    }

    fn slot_of_gang(&mut self, at_ms: u64) -> Option<TaskId> {
        self.tell(at_ms, TaskEvent::Strobe { application: Some(GANG) })
    }

    fn class(&self) -> ProcessClass {
        self.scheduler.model().class(PARALLEL)
    }
}

#[test]
fn a_cs_process_keeps_its_slot_and_is_last_outside_of_it() {
    let mut node = Node::new(1);
    assert_eq!(node.slot_of_gang(0), Some(PARALLEL));
    assert_eq!(node.tell(10, TaskEvent::QuantumEnd { task: PARALLEL }), Some(PARALLEL));
    node.tell(12, TaskEvent::Waits { task: PARALLEL });
    assert_eq!(node.decisions, [NodeDecision::Spin { task: PARALLEL, at_most: None }]);
    assert_eq!(node.tell(20, TaskEvent::Strobe { application: None }), Some(LOCAL));
    assert_eq!(node.tell(30, TaskEvent::QuantumEnd { task: LOCAL }), Some(LOCAL));
}

#[test]
fn a_new_process_is_first_cs_and_then_dc_for_the_trial_slots() {
    let mut node = Node::new(2);
    let classes: Vec<_> = (0..5)
        .map(|slot| {
            node.slot_of_gang(slot * 10);
            node.class()
        })
        .collect();
    let (cs, dc) = (ProcessClass::Coscheduled, ProcessClass::DontCare);
    assert_eq!(classes, [cs, cs, dc, dc, dc], "it never communicated: it stays DC");
}

/// Slots of others are none of its own, and a process that has left keeps its count.
#[test]
fn slots_of_its_own_are_counted_by_the_class_in_which_they_find_a_process() {
    let mut node = Node::new(2);
    for slot in 0..5 {
        node.slot_of_gang(slot * 20);
        for application in [None, Some(JobId(9))] {
            node.tell(slot * 20 + 10, TaskEvent::Strobe { application });
        }
    }
    let classes = [PARALLEL, LOCAL, TaskId(7)].map(|task| node.scheduler.class(task));
    assert_eq!(classes, [Some(ProcessClass::DontCare), Some(ProcessClass::DontCare), None]);
    let slots = ClassSlots { coscheduled: 2, frustrated: 0, dont_care: 3 };
    let counted = |task| node.scheduler.task(task).map(Task::used).unwrap_or_default().slots;
    assert_eq!([PARALLEL, LOCAL].map(counted), [slots, ClassSlots::default()]);
    node.tell(100, TaskEvent::Finished { task: PARALLEL });
    let left = |decision: &NodeDecision| match *decision {
        NodeDecision::Left { used, .. } => Some(used),
        _ => None,
    };
    let left: Vec<Used> = node.decisions.iter().filter_map(left).collect();
    assert_eq!(left.iter().map(|used| used.slots).collect::<Vec<_>>(), [slots]);
}

#[test]
fn without_classes_no_slot_is_counted() {
    let mut plain = LocalScheduler::new(Linux { slice: MS });
    let events = [
        TaskEvent::Arrived { task: PARALLEL, application: Some(GANG) },
        TaskEvent::Strobe { application: Some(GANG) },
    ];
    for event in events {
        plain.on_event(SimTime(0), event, &mut Vec::new()).unwrap();
    }
    assert_eq!(plain.class(PARALLEL), None);
    assert_eq!(plain.task(PARALLEL).unwrap().slots, ClassSlots::default());
}

#[test]
fn a_process_that_communicates_without_waiting_long_is_cs() {
    let mut node = Node::new(0);
    for _ in 0..8 {
        node.tell(0, TaskEvent::MessageSent { task: PARALLEL });
    }
    node.slot_of_gang(0);
    assert_eq!(node.class(), ProcessClass::Coscheduled);
}

#[test]
fn an_f_process_gives_its_gaps_away_and_comes_back_at_once() {
    let mut node = Node::new(1);
    assert_eq!(node.slot_of_gang(0), Some(PARALLEL));
    node.tell(0, TaskEvent::Waits { task: PARALLEL });
    for _ in 0..4 {
        node.tell(100, TaskEvent::MessageArrived { task: PARALLEL });
    }
    node.tell(100, TaskEvent::WaitOver { task: PARALLEL });
    node.slot_of_gang(100);
    assert_eq!(node.class(), ProcessClass::DontCare, "its second slot is its trial as DC");
    assert_eq!(node.slot_of_gang(100), Some(PARALLEL));
    assert_eq!(node.class(), ProcessClass::Frustrated, "100 ms in 4 attempts");
    node.tell(101, TaskEvent::Waits { task: PARALLEL });
    assert_eq!(node.decisions, [NodeDecision::Spin { task: PARALLEL, at_most: Some(MS) }]);
    assert_eq!(node.tell(102, TaskEvent::SpinOver { task: PARALLEL }), Some(LOCAL));
    assert_eq!(node.tell(103, TaskEvent::Unblocked { task: PARALLEL }), Some(PARALLEL));
}
