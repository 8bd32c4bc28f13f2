//! Tests of the state machine against scripted daemons.

mod away;
mod checkpoint;
mod copies;
mod large;
mod model;
mod older_copies;
mod pause;
mod releasing;
mod residence;
mod sending;

use coswitch_daemon::protocol::{Failure, Holding, PartState, RankEnd, SNAPSHOTS_KEPT};
use coswitch_policies::{CopyRule, Scatter};
use proptest::prelude::*;

use super::*;
use crate::protocol::{Delivery, Wait};

fn rests(app: &App) -> bool {
    matches!(app.state, State::Idle | State::Running | State::Suspended | State::Parked | State::Ended)
}

const RESTORE_ATTEMPTS: u32 = 2;
const MS: Duration = Duration::from_millis(1);

fn launch(nodes: u32) -> LaunchSpec {
    LaunchSpec {
        name: "app".into(),
        placement: (0..nodes).map(NodeId).collect(),
        command: vec!["true".into()],
        env: Vec::new(),
        cwd: "/".into(),
        umask: 0o022,
        user: None,
        memory: Bytes(0),
        output: "/".into(),
        wait: Wait::default(),
        park: Park::default(),
        copies: CopyRule::default(),
        delivery: Delivery::default(),
    }
}

/// An application, and its outputs since they were last looked at.
struct Story {
    app: App,
    asked: Vec<(NodeId, AppRequest)>,
    told: Vec<Report>,
    armed: bool,
    held: Vec<String>,
}

impl Story {
    fn new(nodes: u32) -> Self {
        let app = App::new(launch(nodes), Timeouts::default());
        Self { app, asked: Vec::new(), told: Vec::new(), armed: false, held: Vec::new() }
    }

    fn feed(&mut self, input: Input) {
        for output in self.app.on(input) {
            match output {
                Output::Ask(node, request) => self.asked.push((node, request)),
                Output::Send => self.held.push("send".into()),
                Output::Tell(report) => self.told.push(report),
                Output::Arm(limit) => self.armed = limit.is_some(),
                Output::Settled => self.held.push("settled".into()),
                Output::Paused { ran } => self.held.push(if ran { "paused, ran" } else { "paused" }.into()),
                Output::NotPaused(reason) => self.held.push(format!("not paused: {reason}")),
            }
        }
    }

    fn order(&mut self, order: Order) {
        self.feed(Input::Order(order));
    }

    fn event(&mut self, node: u32, event: AppEvent) {
        self.feed(Input::Event(NodeId(node), event));
    }

    /// Takes the requests, as short words.
    fn asked(&mut self) -> Vec<String> {
        let word = |(node, request): (NodeId, AppRequest)| {
            let request = format!("{request:?}");
            let verb = request.split(['(', ' ']).next().unwrap_or_default().to_string();
            format!("{} {verb}", node.0)
        };
        std::mem::take(&mut self.asked).into_iter().map(word).collect()
    }

    /// Takes what it has said of its pause.
    fn held(&mut self) -> Vec<String> {
        std::mem::take(&mut self.held)
    }

    /// Takes the reports, without the timings.
    fn told(&mut self) -> Vec<Report> {
        let told = std::mem::take(&mut self.told);
        told.into_iter()
            .filter(|report| !matches!(report, Report::StepDone(_) | Report::Stored { .. }))
            .collect()
    }

    fn running(nodes: u32) -> Self {
        let mut story = Self::new(nodes);
        story.order(Order::Launch);
        (0..nodes).for_each(|node| story.event(node, AppEvent::Launched));
        assert_eq!(story.told(), [Report::Running]);
        story.asked();
        story
    }

    fn parked(nodes: u32) -> Self {
        let mut story = Self::running(nodes);
        story.order(Order::Park);
        (0..nodes).for_each(|node| story.event(node, flushed(1)));
        (0..nodes).for_each(|node| story.event(node, dumped(1)));
        assert_eq!(story.told(), [Report::Parked]);
        story.asked();
        story
    }
}

fn flushed(epoch: u64) -> AppEvent {
    AppEvent::Flushed { epoch: Epoch(epoch), freeze: MS, flush: MS, drained: Bytes(0) }
}

fn dumped(epoch: u64) -> AppEvent {
    AppEvent::Dumped { epoch: Epoch(epoch), bytes: Bytes(1), dump: MS, release: MS }
}

fn sealed(epoch: u64) -> AppEvent {
    let kept = epoch.saturating_sub(SNAPSHOTS_KEPT as u64) + 1..=epoch;
    sealed_of(Epoch(epoch), kept.map(Epoch).collect())
}

fn sealed_of(epoch: Epoch, sealed: Vec<Epoch>) -> AppEvent {
    AppEvent::Sealed { epoch, seal: MS, tier: "/store/node".into(), bytes: Bytes(1), sealed }
}

fn restored(epoch: u64) -> AppEvent {
    AppEvent::Restored { epoch: Epoch(epoch), bytes: Bytes(1), restore: MS }
}

fn resumed(epoch: u64) -> AppEvent {
    AppEvent::Resumed { epoch: Epoch(epoch), thaw: Some(MS), stood_still: MS }
}

fn checkpointed(epoch: u64) -> AppEvent {
    AppEvent::Checkpointed { epoch: Epoch(epoch), bytes: Bytes(1) }
}

fn failed(during: Step, alive: bool) -> AppEvent {
    AppEvent::Failed { during, failure: if alive { Failure::alive("no") } else { Failure::dead("no") } }
}

fn exited(rank: u32, exit: Exit) -> AppEvent {
    AppEvent::RankExited { rank, exit, last_output: String::new() }
}

#[test]
fn nothing_is_dumped_before_all_nodes_have_flushed_and_nothing_resumed_before_all_are_restored() {
    let mut story = Story::running(2);
    story.order(Order::Park);
    assert_eq!(story.asked(), ["0 Cut", "1 Cut"]);
    story.event(1, flushed(1));
    assert!(story.asked().is_empty());
    story.event(0, flushed(1));
    assert_eq!(story.asked(), ["0 Dump", "1 Dump"]);
    story.event(0, dumped(1));
    assert!(story.told().is_empty());
    story.event(1, dumped(1));
    assert_eq!(story.told(), [Report::Parked]);

    story.order(Order::Restore);
    assert!(story.asked().is_empty(), "a snapshot that is not sealed is not restored");
    story.event(0, sealed(1));
    assert!(story.asked().is_empty());
    story.event(1, sealed(1));
    assert_eq!(story.asked(), ["0 Restore", "1 Restore"]);
    story.event(0, restored(1));
    assert!(story.asked().is_empty());
    story.event(1, restored(1));
    assert_eq!(story.asked(), ["0 Resume", "1 Resume"]);
    story.event(0, resumed(1));
    story.event(1, resumed(1));
    assert_eq!(story.told(), [Report::Running]);
    assert!(!story.armed, "no answer is outstanding");
}

#[test]
fn a_cut_that_fails_or_is_late_is_aborted_and_the_application_runs_on() {
    for trouble in [Input::Event(NodeId(0), failed(Step::Cut, true)), Input::TimedOut] {
        let mut story = Story::running(2);
        story.order(Order::Park);
        story.asked();
        story.event(1, flushed(1));
        story.feed(trouble);
        assert_eq!(story.asked(), ["0 AbortCut", "1 AbortCut"]);
        // It fails on the other as well, before that hears of it.
        story.event(1, failed(Step::Cut, true));
        story.event(0, resumed(1));
        story.event(1, resumed(1));
        assert!(matches!(story.told()[..], [Report::StillRunning { .. }]));
        story.order(Order::Park);
        story.event(0, flushed(1));
        assert_eq!(story.asked(), ["0 Cut", "1 Cut"], "the next cut has a number of its own");
        story.event(0, flushed(2));
        story.event(1, flushed(2));
        assert_eq!(story.asked(), ["0 Dump", "1 Dump"]);
    }
}

#[test]
fn a_dump_that_fails_on_one_node_is_undone_from_the_same_cut() {
    let mut story = Story::running(3);
    story.order(Order::Park);
    (0..3).for_each(|node| story.event(node, flushed(1)));
    story.asked();
    story.event(0, dumped(1));
    story.event(1, failed(Step::Dump, true));
    story.event(2, dumped(1));
    assert!(story.asked().is_empty(), "a dump is restored only once it is sealed");
    story.event(0, sealed(1));
    story.event(2, sealed(1));
    assert_eq!(story.asked(), ["0 Restore", "2 Restore"]);
    story.event(0, restored(1));
    story.event(2, restored(1));
    assert_eq!(story.asked(), ["0 Resume", "1 Resume", "2 Resume"]);
    (0..3).for_each(|node| story.event(node, resumed(1)));
    assert!(matches!(story.told()[..], [Report::StillRunning { .. }]));
}

#[test]
fn a_restore_that_fails_on_one_node_is_taken_back_on_all_and_tried_once_more() {
    let mut story = Story::parked(2);
    (0..2).for_each(|node| story.event(node, sealed(1)));
    story.order(Order::Restore);
    story.asked();
    story.event(0, failed(Step::Restore, false));
    assert!(story.asked().is_empty());
    story.event(1, restored(1));
    assert_eq!(story.asked(), ["0 Discard", "1 Discard", "0 Restore", "1 Restore"]);
    assert!(matches!(story.told()[..], [Report::Mended { .. }]));
    story.event(0, failed(Step::Restore, false));
    story.event(1, restored(1));
    assert_eq!(story.asked(), ["0 Release", "1 Release"], "half a gang is not run");
    (0..2).for_each(|node| story.event(node, AppEvent::Released));
    assert!(matches!(story.told()[..], [Report::Ended(AppOutcome::Lost { .. })]));
    assert!(story.app.has_ended());
}

#[test]
fn a_snapshot_that_cannot_be_restored_is_passed_over_for_the_one_before_it() {
    let mut story = Story::parked(2);
    story.event(0, AppEvent::Fence { sequence: 1, puts: Vec::new() });
    story.event(1, AppEvent::Fence { sequence: 1, puts: Vec::new() });
    (0..2).for_each(|node| story.event(node, sealed(1)));
    story.order(Order::Restore);
    (0..2).for_each(|node| story.event(node, restored(1)));
    (0..2).for_each(|node| story.event(node, resumed(1)));
    story.order(Order::Park);
    (0..2).for_each(|node| story.event(node, flushed(2)));
    (0..2).for_each(|node| story.event(node, dumped(2)));
    (0..2).for_each(|node| story.event(node, sealed(2)));
    story.order(Order::Restore);
    for _ in 0..RESTORE_ATTEMPTS {
        story.event(0, failed(Step::Restore, false));
        story.event(1, restored(2));
    }
    assert_eq!(story.app.epoch, Epoch(1));
    story.asked();
    (0..2).for_each(|node| story.event(node, restored(1)));
    assert_eq!(story.asked(), ["0 Resume", "1 Resume", "0 FenceDone", "1 FenceDone"]);
    (0..2).for_each(|node| story.event(node, resumed(1)));
    assert_eq!(story.told().last(), Some(&Report::Running));
    story.order(Order::Park);
    assert_eq!(story.app.epoch, Epoch(3), "the number of a cut is never used again");
}

#[test]
fn only_snapshots_that_nodes_still_have_are_gone_back_to() {
    let mut story = Story::running(1);
    for epoch in 1..=5 {
        story.order(Order::Park);
        story.event(0, flushed(epoch));
        story.event(0, dumped(epoch));
        story.event(0, sealed(epoch));
        story.order(Order::Restore);
        if epoch < 5 {
            story.event(0, restored(epoch));
            story.event(0, resumed(epoch));
        }
    }
    story.asked();
    for _ in 0..RESTORE_ATTEMPTS * SNAPSHOTS_KEPT as u32 {
        assert_eq!(story.app.epoch.0 / 4, 1, "epochs 5 and 4, no older one");
        story.event(0, failed(Step::Restore, false));
    }
    assert_eq!(story.asked().last().map(String::as_str), Some("0 Release"));
}

#[test]
fn it_has_succeeded_when_the_ranks_of_all_nodes_have_ended_well() {
    let mut story = Story::running(2);
    story.event(0, exited(0, Exit::Status(0)));
    story.event(0, AppEvent::Exited);
    assert!(story.told().is_empty());
    story.order(Order::Park);
    assert!(matches!(story.told()[..], [Report::StillRunning { .. }]), "a job that is ending is not parked");
    story.event(1, AppEvent::Exited);
    assert_eq!(story.asked(), ["0 Release", "1 Release"]);
    (0..2).for_each(|node| story.event(node, AppEvent::Released));
    assert_eq!(story.told(), [Report::Ended(AppOutcome::Succeeded)]);
}

#[test]
fn a_cut_is_aborted_when_ranks_end_in_it() {
    let mut story = Story::running(2);
    story.order(Order::Park);
    story.asked();
    story.event(0, AppEvent::Exited);
    assert_eq!(story.asked(), ["0 AbortCut", "1 AbortCut"]);
    story.event(1, AppEvent::Exited);
    (0..2).for_each(|node| story.event(node, resumed(1)));
    assert!(matches!(story.told()[..], [Report::StillRunning { .. }]));
    assert_eq!(story.asked(), ["0 Release", "1 Release"], "both have ended meanwhile");
}

#[test]
fn ranks_that_are_about_to_end_are_no_fault_of_the_application() {
    let ending = |during| AppEvent::Failed { during, failure: Failure::Ending };
    let mut story = Story::running(2);
    story.order(Order::Suspend);
    story.event(1, flushed(1));
    story.asked();
    // Its last word came before the freeze, and it cannot be reaped before the thaw.
    story.event(0, ending(Step::Cut));
    assert_eq!(story.asked(), ["0 AbortCut", "1 AbortCut"]);
    (0..2).for_each(|node| story.event(node, resumed(1)));
    assert_eq!(story.told(), [Report::StillRunning { cause: StayCause::Ending }]);
    story.order(Order::Suspend);
    (0..2).for_each(|node| story.event(node, flushed(2)));
    story.order(Order::Park);
    story.told();
    story.event(0, failed(Step::Dump, true));
    story.event(1, ending(Step::Dump));
    assert_eq!(story.told(), [Report::StillSuspended { cause: StayCause::Ending }]);
}

#[test]
fn the_first_rank_that_fails_is_reported() {
    let mut story = Story::running(2);
    story.event(1, exited(1, Exit::Signal(11)));
    story.event(0, exited(0, Exit::Signal(9)));
    (0..2).for_each(|node| story.event(node, AppEvent::Released));
    let told = story.told();
    let [Report::Ended(AppOutcome::RankFailed { rank: 1, exit: Exit::Signal(11), .. })] = &told[..] else {
        panic!("told {told:?}");
    };
}

fn went_back(life: u32, epochs: &[u64]) -> AppEvent {
    AppEvent::WentBack { life, sealed: epochs.iter().copied().map(Epoch).collect() }
}

#[test]
fn a_fence_of_ranks_that_are_being_removed_is_not_answered() {
    let mut story = Story::running(2);
    story.event(1, AppEvent::Fence { sequence: 1, puts: Vec::new() });
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    assert_eq!(story.asked(), ["0 Release"]);
    story.event(0, AppEvent::Fence { sequence: 1, puts: Vec::new() });
    assert!(story.asked().is_empty(), "its node has nothing of the application any more");
}

#[test]
fn where_a_node_is_lost_the_others_end_and_all_go_back_to_what_they_have_when_it_is_back() {
    let mut story = Story::parked(2);
    (0..2).for_each(|node| story.event(node, sealed(1)));
    story.order(Order::Restore);
    (0..2).for_each(|node| story.event(node, restored(1)));
    (0..2).for_each(|node| story.event(node, resumed(1)));
    story.asked();
    story.told();
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    assert_eq!(story.asked(), ["0 GoBack"]);
    // What the end of the processes looks like means nothing.
    story.event(0, exited(0, Exit::Signal(9)));
    story.event(0, went_back(2, &[1]));
    assert!(matches!(story.told()[..], [Report::Displaced { .. }]));
    story.order(Order::Restore);
    assert_eq!(story.told(), [Report::Parked], "it cannot come back yet");
    story.feed(Input::NodeBack(NodeId(1)));
    assert_eq!(story.asked(), ["1 GoBack"]);
    story.event(1, went_back(2, &[1]));
    assert!(matches!(story.told()[..], [Report::WentBack { epoch: Epoch(1), .. }]));
    story.order(Order::Restore);
    assert_eq!(story.asked(), ["0 Restore", "1 Restore"]);
    (0..2).for_each(|node| story.event(node, restored(1)));
    assert_eq!(story.asked(), ["0 Resume", "1 Resume"]);
}

#[test]
fn an_order_to_a_parked_one_whose_node_is_back_before_all_have_ended_is_answered_once() {
    let mut story = Story::parked(2);
    (0..2).for_each(|node| story.event(node, sealed(1)));
    story.asked();
    story.told();
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    story.feed(Input::NodeBack(NodeId(1)));
    assert_eq!(story.asked(), ["0 GoBack", "1 GoBack"]);
    story.order(Order::Restore);
    (0..2).for_each(|node| story.event(node, went_back(2, &[1])));
    assert!(matches!(story.told()[..], [Report::WentBack { epoch: Epoch(1), .. }]));
    assert_eq!(story.asked(), ["0 Restore", "1 Restore"]);
}

#[test]
fn an_order_that_crosses_the_loss_of_a_node_is_answered_by_what_that_has_done() {
    let mut story = Story::parked(2);
    (0..2).for_each(|node| story.event(node, sealed(1)));
    story.order(Order::Prefetch);
    (0..2).for_each(|node| story.event(node, restored(1)));
    story.asked();
    story.told();
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    story.feed(Input::NodeBack(NodeId(1)));
    story.order(Order::Restore);
    story.asked();
    (0..2).for_each(|node| story.event(node, went_back(2, &[1])));
    assert!(matches!(story.told()[..], [Report::Displaced { .. }, Report::WentBack { .. }]));
    assert!(story.asked().is_empty(), "the master plans anew");
}

#[test]
fn a_node_that_is_done_goes_back_with_one_that_is_at_its_snapshot() {
    let mut story = Story::new(2);
    let adoption = Adoption { generation: 2, ended: None };
    story.app = App::adopted(launch(2), Timeouts::standing(), adoption);
    story.feed(Input::Adopt);
    story.asked();
    let held = |state| {
        let sealed = vec![Epoch(1)];
        let holding =
            Holding { generation: 2, state, epoch: Epoch(1), cuts: Epoch(1), sealed, ..<_>::default() };
        AppEvent::Holds(Box::new(holding))
    };
    // Both have run to their ends, and only one of them is still known by its daemon.
    story.event(0, held(PartState::Parked));
    story.event(1, held(PartState::Ended));
    assert_eq!(story.asked(), ["0 GoBack", "1 GoBack"]);
}

#[test]
fn without_a_snapshot_on_all_nodes_it_is_launched_again() {
    let mut story = Story::running(2);
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    assert_eq!(story.asked(), ["0 Release"]);
    story.event(0, AppEvent::Released);
    assert!(matches!(story.told()[..], [Report::Mended { .. }, Report::Unlaunched]));
    assert!(story.app.has_ended());
}

#[test]
fn a_node_that_has_lost_its_disk_costs_the_snapshots() {
    let mut story = Story::parked(2);
    (0..2).for_each(|node| story.event(node, sealed(1)));
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    story.event(0, went_back(2, &[1]));
    story.feed(Input::NodeBack(NodeId(1)));
    story.event(1, went_back(2, &[]));
    (0..2).for_each(|node| story.event(node, AppEvent::Released));
    assert_eq!(story.told().last(), Some(&Report::Unlaunched));
}

#[test]
fn a_node_that_it_does_not_use_changes_nothing() {
    let mut story = Story::running(2);
    story.feed(Input::NodeLost(NodeId(2), "gone".into()));
    // Ranks of an earlier launch had ended there.
    story.event(2, AppEvent::Exited);
    story.event(0, AppEvent::Exited);
    story.event(1, AppEvent::Exited);
    assert_eq!(story.asked(), ["0 Release", "1 Release"]);
}

#[test]
fn a_daemon_that_does_not_even_release_does_not_hold_up_the_end() {
    let mut story = Story::running(2);
    story.order(Order::End);
    story.event(0, AppEvent::Released);
    story.feed(Input::TimedOut);
    let told = story.told();
    assert!(matches!(told[..], [Report::Mended { .. }, Report::Ended(AppOutcome::Stopped)]), "told {told:?}");
}

const ORDERS: [Order; 6] =
    [Order::Launch, Order::Suspend, Order::Park, Order::Prefetch, Order::Resume, Order::Restore];

fn any_input() -> impl Strategy<Value = Input> {
    let node = (0..2u32).prop_map(NodeId);
    let step = prop::sample::select(vec![Step::Cut, Step::Dump, Step::Restore, Step::Run, Step::Release]);
    let event = prop_oneof![
        4 => Just(AppEvent::Launched),
        8 => (1..4u64).prop_map(flushed),
        8 => (1..4u64).prop_map(dumped),
        8 => (1..4u64).prop_map(sealed),
        2 => Just(AppEvent::Discarded),
        8 => (1..4u64).prop_map(restored),
        8 => (1..4u64).prop_map(resumed),
        1 => Just(AppEvent::Exited),
        4 => Just(AppEvent::Released),
        1 => (step, any::<bool>()).prop_map(|(step, alive)| failed(step, alive)),
    ];
    let order = prop::sample::select(ORDERS.to_vec());
    prop_oneof![
        12 => (node, event).prop_map(|(node, event)| Input::Event(node, event)),
        4 => order.prop_map(Input::Order),
        1 => Just(Input::TimedOut),
    ]
}

proptest! {
    /// For all events in any order: a gang resumes only on all of its nodes, the end is reported once and
    /// last, and an application that waits for daemons has a time-out armed.
    #[test]
    fn a_gang_stays_whole_whatever_daemons_report(inputs in prop::collection::vec(any_input(), 0..120)) {
        let mut story = Story::new(2);
        let mut ends = 0;
        for input in inputs {
            story.feed(input);
            let resumes = story.asked().iter().filter(|asked| asked.ends_with("Resume")).count();
            prop_assert!(resumes == 0 || resumes == 2, "a gang is resumed on all nodes or on none");
            prop_assert!(ends == 0 || story.told.is_empty(), "the end is the last report");
            ends += story.told().iter().filter(|report| matches!(report, Report::Ended(_))).count();
            let rests = rests(&story.app);
            prop_assert_eq!(story.armed, !rests, "in {:?}", story.app.state);
        }
        prop_assert!(ends <= 1);
        prop_assert_eq!(ends == 1, story.app.has_ended());
    }
}
