//! Checkpoints: the application computes on, and the master's orders wait for it.

use super::*;

fn begun() -> Story {
    let mut story = Story::running(2);
    story.order(Order::Checkpoint);
    assert_eq!(story.asked(), ["0 Cut", "1 Cut"]);
    (0..2).for_each(|node| story.event(node, flushed(1)));
    assert_eq!(story.asked(), ["0 Checkpoint", "1 Checkpoint"]);
    story
}

/// A checkpoint that all nodes have sealed.
fn made() -> Story {
    let mut story = begun();
    (0..2).for_each(|node| story.event(node, checkpointed(1)));
    (0..2).for_each(|node| story.event(node, resumed(1)));
    (0..2).for_each(|node| story.event(node, sealed(1)));
    let (epoch, bytes, stood_still) = (Epoch(1), Bytes(2), MS);
    assert_eq!(story.told(), [Report::Checkpointed { epoch, bytes, stood_still }]);
    story.asked();
    story
}

fn reasons(told: Vec<Report>) -> Vec<String> {
    let reason = |report| match report {
        Report::NotCheckpointed { cause } => cause.to_string(),
        other => panic!("{other:?}"),
    };
    told.into_iter().map(reason).collect()
}

#[test]
fn it_counts_when_all_nodes_have_sealed_it_and_the_ranks_run_before() {
    let mut story = begun();
    story.event(0, checkpointed(1));
    story.event(0, sealed(1));
    assert!(story.asked().is_empty(), "no rank runs before all images are written");
    story.event(1, checkpointed(1));
    assert_eq!(story.asked(), ["0 Resume", "1 Resume"]);
    (0..2).for_each(|node| story.event(node, resumed(1)));
    assert!(rests(&story.app) && !story.armed && story.told().is_empty());
    // The next one waits for this one.
    story.order(Order::Checkpoint);
    assert_eq!(reasons(story.told()), ["the one before it is being sealed"]);
    story.event(1, sealed(1));
    assert!(matches!(story.told()[..], [Report::Checkpointed { epoch: Epoch(1), .. }]));
}

#[test]
fn an_order_waits_for_it_and_a_later_cut_is_another_line() {
    let mut story = begun();
    story.order(Order::Park);
    (0..2).for_each(|node| story.event(node, checkpointed(1)));
    story.asked();
    (0..2).for_each(|node| story.event(node, resumed(1)));
    assert_eq!(story.asked(), ["0 Cut", "1 Cut"], "the ranks have run");
    (0..2).for_each(|node| story.event(node, flushed(2)));
    assert_eq!(story.asked(), ["0 DropSnapshot", "1 DropSnapshot", "0 Dump", "1 Dump"]);
    (0..2).for_each(|node| story.event(node, dumped(2)));
    assert!(matches!(story.told()[..], [Report::NotCheckpointed { .. }, Report::Parked]));
    story.order(Order::Restore);
    assert!(story.asked().is_empty(), "its own snapshot is not sealed");
    (0..2).for_each(|node| story.event(node, sealed(2)));
    assert_eq!(story.asked(), ["0 Restore", "1 Restore"]);
}

#[test]
fn where_a_node_cannot_write_it_the_others_drop_theirs_and_the_application_runs_on() {
    let mut story = begun();
    let full = Failure::store_full("the disk is full");
    story.event(0, checkpointed(1));
    story.event(1, AppEvent::Failed { during: Step::Dump, failure: full });
    assert_eq!(story.asked(), ["0 DropSnapshot", "0 Resume", "1 Resume"]);
    assert_eq!(reasons(story.told()), ["node-1 failed to find room for it: the disk is full"]);
    (0..2).for_each(|node| story.event(node, resumed(1)));
    assert!(matches!(story.app.state, State::Running) && !story.armed);
    // Node 0 had sealed it before it was asked.
    story.event(0, sealed(1));
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    assert_eq!(story.asked(), ["0 Release"], "there is nothing to go back to");
}

#[test]
fn a_snapshot_that_cannot_be_made_durable_leaves_the_one_before_it() {
    let mut story = made();
    story.order(Order::Checkpoint);
    (0..2).for_each(|node| story.event(node, flushed(2)));
    (0..2).for_each(|node| story.event(node, checkpointed(2)));
    (0..2).for_each(|node| story.event(node, resumed(2)));
    story.asked();
    story.event(0, sealed(2));
    story.event(1, AppEvent::SealFailed { epoch: Epoch(2), reason: "no".into() });
    assert_eq!(story.asked(), ["0 DropSnapshot"]);
    assert_eq!(reasons(story.told()), ["node-1 failed to make its snapshot durable: no"]);
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    assert_eq!(story.asked(), ["0 GoBack"]);
    story.event(0, AppEvent::WentBack { life: 2, sealed: vec![Epoch(1)] });
    story.feed(Input::NodeBack(NodeId(1)));
    story.event(1, AppEvent::WentBack { life: 2, sealed: vec![Epoch(1)] });
    let told = story.told();
    assert!(matches!(told[..], [Report::Displaced { .. }, Report::WentBack { epoch: Epoch(1), .. }]));
}

#[test]
fn it_goes_back_to_its_checkpoint_where_a_node_is_lost() {
    let mut story = made();
    story.feed(Input::NodeLost(NodeId(0), "gone".into()));
    assert_eq!(story.asked(), ["1 GoBack"]);
    story.event(1, AppEvent::WentBack { life: 2, sealed: vec![Epoch(1)] });
    story.feed(Input::NodeBack(NodeId(0)));
    story.event(0, AppEvent::WentBack { life: 2, sealed: vec![Epoch(1)] });
    story.asked();
    story.order(Order::Restore);
    assert_eq!(story.asked(), ["0 Restore", "1 Restore"]);
}

#[test]
fn it_begins_again_where_it_cannot_be_restored_after_a_node_was_lost() {
    let mut story = made();
    story.feed(Input::NodeLost(NodeId(0), "gone".into()));
    story.event(1, AppEvent::WentBack { life: 2, sealed: vec![Epoch(1)] });
    story.feed(Input::NodeBack(NodeId(0)));
    story.event(0, AppEvent::WentBack { life: 2, sealed: vec![Epoch(1)] });
    story.order(Order::Restore);
    for _ in 0..RESTORE_ATTEMPTS {
        story.asked();
        story.event(0, restored(1));
        story.event(1, failed(Step::Restore, false));
    }
    assert_eq!(story.asked(), ["0 Release", "1 Release"]);
    (0..2).for_each(|node| story.event(node, AppEvent::Released));
    assert_eq!(story.told().last(), Some(&Report::Unlaunched));
}

#[test]
fn ranks_that_a_checkpoint_has_lost_are_restored_from_the_one_before_it_or_launched_again() {
    let mut story = made();
    story.order(Order::Checkpoint);
    (0..2).for_each(|node| story.event(node, flushed(2)));
    story.event(0, checkpointed(2));
    story.asked();
    story.event(1, failed(Step::Dump, false));
    let asked = story.asked();
    assert_eq!(asked, ["0 DropSnapshot", "0 Discard", "1 Discard", "0 Restore", "1 Restore"]);
    (0..2).for_each(|node| story.event(node, restored(1)));
    (0..2).for_each(|node| story.event(node, resumed(1)));
    assert!(matches!(story.app.state, State::Running));

    let mut first = begun();
    first.event(0, checkpointed(1));
    first.event(1, failed(Step::Dump, false));
    assert_eq!(first.asked(), ["0 DropSnapshot", "0 Release", "1 Release"]);
    (0..2).for_each(|node| first.event(node, AppEvent::Released));
    assert_eq!(first.told().last(), Some(&Report::Unlaunched));
}

#[test]
fn it_is_refused_where_the_application_does_not_run_or_has_no_images() {
    let mut story = Story::parked(2);
    story.order(Order::Checkpoint);
    assert_eq!(reasons(story.told()), ["it does not run"]);
    let mut story = Story::running(2);
    story.app.launch.park = Park::PageOut;
    story.order(Order::Checkpoint);
    assert_eq!(reasons(story.told()), ["it parks by page-out"]);
    assert!(story.asked().is_empty());
}

#[test]
fn a_new_master_lets_it_run_on_after_the_checkpoint_of_the_one_before() {
    let adoption = Adoption { generation: 2, ended: None };
    let mut story = Story::new(2);
    story.app = App::adopted(launch(2), Timeouts::default(), adoption);
    story.feed(Input::Adopt);
    story.asked();
    let (state, epoch) = (PartState::Frozen { flushed: true }, Epoch(3));
    let held = Holding { generation: 2, state, epoch, cuts: epoch, life: 1, ..Holding::default() };
    story.event(0, AppEvent::Holds(Box::new(Holding { sealing: vec![epoch], ..held.clone() })));
    story.event(1, AppEvent::Holds(Box::new(Holding { sealed: vec![epoch], ..held })));
    assert_eq!(story.asked(), ["0 Resume", "1 Resume"]);
    (0..2).for_each(|node| story.event(node, resumed(3)));
    assert_eq!(story.told(), [Report::Running]);
    story.event(0, sealed(3));
    assert!(matches!(story.told()[..], [Report::Checkpointed { epoch: Epoch(3), .. }]));
}
