//! Launches whose program is sent first.

use coswitch_daemon::protocol::Checksum;

use super::*;

/// What the task that sends has to say in the end.
pub(super) fn sent() -> (SentProgram, Report) {
    let program = SentProgram { name: "app".into(), bytes: 7, checksum: Checksum(7) };
    (program, Report::Sent { bytes: Bytes(7), took: MS })
}

fn sending(nodes: u32) -> Story {
    let mut story = Story::new(nodes);
    story.app.launch.delivery = Delivery::Sent;
    story.order(Order::Launch);
    assert_eq!((story.held(), story.asked()), (vec!["send".to_owned()], Vec::new()));
    assert!(story.app.is_sending() && !story.armed, "others may be sent before it");
    story.feed(Input::MoreSent);
    assert!(story.armed);
    story
}

#[test]
fn ranks_start_when_all_nodes_have_their_program() {
    let mut story = sending(2);
    story.feed(Input::Sent(Ok(sent())));
    assert_eq!(story.told(), [sent().1]);
    let launches = std::mem::take(&mut story.asked);
    for (_, request) in &launches {
        let AppRequest::Launch(launch) = request else { panic!("{request:?}") };
        assert_eq!(launch.program, Some(sent().0));
    }
    assert_eq!(launches.len(), 2);
    (0..2).for_each(|node| story.event(node, AppEvent::Launched));
    assert_eq!(story.told(), [Report::Running]);
}

#[test]
fn a_node_without_room_and_a_changed_file_end_it_with_the_reason() {
    let mut story = sending(2);
    let failure = Failure::dead("its program could not be kept: the store is full");
    story.event(1, AppEvent::Failed { during: Step::Launch, failure });
    assert!(!story.app.is_sending(), "the rest is not sent");
    assert_eq!(story.asked(), ["0 Release", "1 Release"]);
    story.feed(Input::Sent(Ok(sent())));
    (0..2).for_each(|node| story.event(node, AppEvent::Released));
    let reason = "node-1 failed to launch it: its program could not be kept: the store is full".to_owned();
    assert_eq!(story.told(), [Report::Ended(AppOutcome::Lost { reason })]);

    let mut story = sending(1);
    story.feed(Input::Sent(Err("its program /app was changed while it was sent".into())));
    story.event(0, AppEvent::Released);
    let reason = "its program /app was changed while it was sent".to_owned();
    assert_eq!(story.told(), [Report::Ended(AppOutcome::Lost { reason })]);
}

#[test]
fn a_lost_node_takes_the_launch_back() {
    let mut story = sending(2);
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    assert!(!story.app.is_sending());
    assert_eq!(story.asked(), ["0 Release"]);
    story.event(0, AppEvent::Released);
    assert_eq!(story.told().last(), Some(&Report::Unlaunched), "it is launched when the node is back");
}

#[test]
fn nodes_that_take_nothing_end_it() {
    let mut story = sending(2);
    story.feed(Input::TimedOut);
    (0..2).for_each(|node| story.event(node, AppEvent::Released));
    let reason = "no answer in time while sending its program".to_owned();
    assert_eq!(story.told(), [Report::Ended(AppOutcome::Lost { reason })]);
}
