//! Pauses: an application stands still while a daemon is replaced, and nobody is told.

use super::*;

#[test]
fn a_running_one_is_cut_for_a_pause_and_goes_on_and_orders_wait() {
    let mut story = Story::running(2);
    story.feed(Input::Settle);
    assert_eq!(story.held(), ["settled"]);
    story.order(Order::Park);
    story.feed(Input::Pause);
    assert_eq!(story.asked(), ["0 Cut", "1 Cut"]);
    story.event(0, flushed(1));
    assert!(story.held().is_empty());
    story.event(1, flushed(1));
    assert_eq!(story.held(), ["paused, ran"]);
    assert!(!story.armed && story.asked().is_empty());
    story.feed(Input::Continue);
    assert_eq!(story.asked(), ["0 Resume", "1 Resume"]);
    (0..2).for_each(|node| story.event(node, resumed(1)));
    assert!(story.told().is_empty(), "for the master it ran all the time");
    assert_eq!(story.asked(), ["0 Cut", "1 Cut"], "the order is carried out now");
    (0..2).for_each(|node| story.event(node, flushed(2)));
    assert_eq!(story.asked(), ["0 Dump", "1 Dump"]);
}

#[test]
fn it_settles_when_its_order_is_carried_out_and_its_snapshot_is_sealed() {
    let mut story = Story::running(2);
    story.order(Order::Park);
    story.feed(Input::Settle);
    (0..2).for_each(|node| story.event(node, flushed(1)));
    (0..2).for_each(|node| story.event(node, dumped(1)));
    assert_eq!(story.told(), [Report::Parked]);
    story.order(Order::Restore);
    story.event(0, sealed(1));
    assert!(story.held().is_empty());
    story.event(1, sealed(1));
    assert_eq!(story.held(), ["settled"]);
    story.asked();
    story.feed(Input::Pause);
    assert_eq!(story.held(), ["paused"], "there is nothing to stop");
    story.feed(Input::Continue);
    assert_eq!(story.asked(), ["0 Restore", "1 Restore"]);
}

#[test]
fn a_cut_for_a_pause_that_fails_or_is_given_up_is_taken_back_and_the_master_is_not_told() {
    for given_up in [false, true] {
        let mut story = Story::running(2);
        story.feed(Input::Settle);
        story.feed(Input::Pause);
        story.event(0, flushed(1));
        story.asked();
        match given_up {
            true => story.feed(Input::Continue),
            false => story.event(1, AppEvent::Exited),
        }
        assert_eq!(story.asked(), ["0 AbortCut", "1 AbortCut"]);
        assert!(story.held().iter().any(|held| held.starts_with("not paused")));
        story.feed(Input::Continue);
        (0..2).for_each(|node| story.event(node, resumed(1)));
        assert!(story.told().is_empty() && !story.armed);
        assert!(matches!(story.app.state, State::Running));
    }
}

#[test]
fn one_that_is_ending_does_not_settle_and_an_end_does_not_wait() {
    let mut story = Story::running(2);
    story.event(0, AppEvent::Exited);
    story.feed(Input::Settle);
    assert!(story.held().is_empty());
    story.feed(Input::Pause);
    assert_eq!(story.held(), ["not paused: it has not stayed at rest"]);
    story.order(Order::End);
    assert_eq!(story.asked(), ["0 Release", "1 Release"]);
}

#[test]
fn a_node_that_is_lost_in_a_pause_is_a_lost_node() {
    let mut story = Story::parked(2);
    (0..2).for_each(|node| story.event(node, sealed(1)));
    story.order(Order::Restore);
    (0..2).for_each(|node| story.event(node, restored(1)));
    (0..2).for_each(|node| story.event(node, resumed(1)));
    story.feed(Input::Settle);
    story.feed(Input::Pause);
    (0..2).for_each(|node| story.event(node, flushed(2)));
    story.asked();
    story.told();
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    assert_eq!(story.asked(), ["0 GoBack"]);
    story.feed(Input::Continue);
    story.event(0, went_back(2, &[1]));
    assert!(matches!(story.told()[..], [Report::Displaced { .. }]));
    story.feed(Input::NodeBack(NodeId(1)));
    story.event(1, went_back(2, &[1]));
    story.order(Order::Restore);
    (0..2).for_each(|node| story.event(node, restored(1)));
    (0..2).for_each(|node| story.event(node, resumed(1)));
    assert_eq!(story.told().last(), Some(&Report::Running), "this return is not of the pause");
}
