//! Nodes that cannot remove all of an application.

use super::*;

fn left() -> AppEvent {
    failed(Step::Release, false)
}

#[test]
fn what_is_to_begin_again_ends_with_the_reason_where_a_node_cannot_remove_it() {
    let mut story = Story::running(3);
    story.feed(Input::NodeLost(NodeId(2), "gone".into()));
    assert_eq!(story.asked(), ["0 Release", "1 Release"]);
    story.event(0, left());
    assert!(story.armed && !story.app.has_ended(), "the other node has not answered");
    story.event(1, AppEvent::Released);
    let told = story.told();
    let [Report::Mended { .. }, Report::Ended(AppOutcome::Lost { reason })] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(reason.starts_with("node-0 failed to remove all of it"), "{reason}");
    assert!(story.asked().is_empty() && !story.armed, "no node is asked again");
}

/// The node has said it before it heard of the release.
#[test]
fn ranks_that_could_not_be_kept_running_do_not_keep_it_from_beginning_again() {
    let mut story = Story::running(2);
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    story.event(0, failed(Step::Run, false));
    story.event(0, AppEvent::Released);
    assert_eq!(story.told().last(), Some(&Report::Unlaunched));
}

#[test]
fn the_end_does_not_wait_for_a_node_that_cannot_remove_it() {
    let mut story = Story::running(2);
    story.order(Order::End);
    story.event(0, AppEvent::Released);
    story.event(1, left());
    let told = story.told();
    let [Report::Mended { what }, Report::Ended(AppOutcome::Stopped)] = &told[..] else {
        panic!("{told:?}");
    };
    assert!(what.starts_with("node-1 failed to remove all of it"), "{what}");
    assert!(!story.armed);
}

#[test]
fn what_is_left_of_an_earlier_launch_does_not_end_this_one() {
    let mut story = Story::running(2);
    story.event(0, left());
    assert!(story.told().is_empty() && !story.app.has_ended());
}
