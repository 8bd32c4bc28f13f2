//! Tests of applications whose processes survive the daemon of their node.

use super::*;

fn story(nodes: u32) -> Story {
    let mut story = Story::new(nodes);
    story.app.timeouts = Timeouts::standing();
    story.order(Order::Launch);
    (0..nodes).for_each(|node| story.event(node, AppEvent::Launched));
    assert_eq!(story.told(), [Report::Running]);
    story.asked();
    story
}

fn suspended(nodes: u32) -> Story {
    let mut story = story(nodes);
    story.order(Order::Suspend);
    (0..nodes).for_each(|node| story.event(node, flushed(1)));
    assert_eq!(story.told(), [Report::Suspended]);
    story.asked();
    story
}

fn lose(story: &mut Story, node: u32) {
    story.feed(Input::NodeLost(NodeId(node), "killed".into()));
}

/// The next daemon of the node holds the part in this state.
fn back(story: &mut Story, node: u32, state: PartState) {
    story.feed(Input::NodeBack(NodeId(node)));
    assert_eq!(story.asked(), [format!("{node} Describe")]);
    let life = story.app.life;
    let holding =
        Holding { state, life, epoch: story.app.epoch, generation: life.into(), ..Holding::default() };
    story.event(node, AppEvent::Holds(Box::new(holding)));
}

#[test]
fn a_running_application_of_one_node_goes_on_and_the_order_that_waited_is_carried_out() {
    let mut story = story(1);
    lose(&mut story, 0);
    assert!(story.told().is_empty() && story.armed);
    story.order(Order::Suspend);
    back(&mut story, 0, PartState::Running);
    assert_eq!(story.told(), [Report::Survived { node: NodeId(0) }]);
    assert_eq!(story.asked(), ["0 Cut"]);
    story.event(0, flushed(1));
    assert_eq!(story.told(), [Report::Suspended]);
}

/// Its nodes do not learn of the numbers of a new master.
#[test]
fn one_that_a_new_master_has_adopted_goes_on_as_well() {
    let mut story = Story::new(1);
    let adoption = Adoption { generation: 2, ended: None };
    story.app = App::adopted(launch(1), Timeouts::standing(), adoption).in_life(2000);
    story.feed(Input::Adopt);
    let holds = |generation| {
        let holding = Holding { state: PartState::Running, life: 7, generation, ..Holding::default() };
        AppEvent::Holds(Box::new(holding))
    };
    story.event(0, holds(2));
    assert_eq!(story.told(), [Report::Running]);
    lose(&mut story, 0);
    story.feed(Input::NodeBack(NodeId(0)));
    story.event(0, holds(2000));
    assert_eq!(story.told(), [Report::Survived { node: NodeId(0) }]);
}

#[test]
fn one_that_has_ended_meanwhile_has_succeeded() {
    let mut story = story(1);
    lose(&mut story, 0);
    back(&mut story, 0, PartState::Ended);
    assert_eq!(story.asked(), ["0 Release"]);
    story.event(0, AppEvent::Released);
    let told = story.told();
    assert_eq!(told, [Report::Survived { node: NodeId(0) }, Report::Ended(AppOutcome::Succeeded)]);
}

#[test]
fn one_that_has_failed_meanwhile_has_failed() {
    let mut story = story(1);
    lose(&mut story, 0);
    story.feed(Input::NodeBack(NodeId(0)));
    let end = RankEnd { rank: 0, exit: Exit::Status(3), last_output: String::new() };
    let (life, failed_rank) = (story.app.life, Some(end));
    let state = PartState::Ended;
    let holding = Holding { state, life, generation: life.into(), failed_rank, ..Holding::default() };
    story.event(0, AppEvent::Holds(Box::new(holding)));
    story.event(0, AppEvent::Released);
    let told = story.told();
    assert!(
        matches!(told[..], [Report::Ended(AppOutcome::RankFailed { exit: Exit::Status(3), .. })]),
        "{told:?}"
    );
}

#[test]
fn what_is_not_whole_begins_again_or_goes_back() {
    let mut without = story(1);
    lose(&mut without, 0);
    back(&mut without, 0, PartState::Absent);
    assert_eq!(without.asked(), ["0 Release"]);
    without.event(0, AppEvent::Released);
    assert!(matches!(without.told()[..], [Report::Mended { .. }, Report::Unlaunched]));

    // Of an earlier line.
    let mut story = suspended(2);
    lose(&mut story, 1);
    story.feed(Input::NodeBack(NodeId(1)));
    let (life, state) = (story.app.life, PartState::Frozen { flushed: true });
    let holding = Holding { state, life, generation: life.into(), epoch: Epoch(0), ..Holding::default() };
    story.event(1, AppEvent::Holds(Box::new(holding)));
    assert_eq!(story.asked(), ["1 Describe", "0 Release", "1 Release"]);
}

#[test]
fn a_suspended_application_waits_for_all_of_its_nodes() {
    let mut story = suspended(2);
    lose(&mut story, 0);
    lose(&mut story, 1);
    back(&mut story, 1, PartState::Frozen { flushed: true });
    story.order(Order::Resume);
    assert!(story.asked().is_empty());
    back(&mut story, 0, PartState::Frozen { flushed: true });
    assert_eq!(story.asked(), ["0 Resume", "1 Resume"]);
    (0..2).for_each(|node| story.event(node, resumed(1)));
    assert_eq!(story.told().last(), Some(&Report::Running));
}

#[test]
fn a_node_that_stays_away_is_not_waited_for_long() {
    let mut story = suspended(2);
    lose(&mut story, 0);
    story.feed(Input::TimedOut);
    assert_eq!(story.asked(), ["1 Release"], "there is no snapshot");
}

#[test]
fn an_application_that_runs_on_several_nodes_or_leaves_is_not_waited_for() {
    let mut runs = story(2);
    lose(&mut runs, 0);
    assert_eq!(runs.asked(), ["1 Release"]);
    let mut leaves = story(1);
    leaves.order(Order::Park);
    lose(&mut leaves, 0);
    assert!(matches!(leaves.told()[..], [Report::Mended { .. }, Report::Unlaunched]));
    // Nor where processes end with their daemon.
    let mut run = Story::running(1);
    lose(&mut run, 0);
    assert!(matches!(run.told()[..], [Report::Mended { .. }, Report::Unlaunched]));
}
