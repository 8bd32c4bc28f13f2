//! Steps that move much memory.

use super::{copies::stranded_with_copies, *};

/// The limit that is armed after these outputs.
fn armed(outputs: Vec<Output>) -> Option<Duration> {
    outputs.into_iter().rev().find_map(|output| if let Output::Arm(limit) = output { limit } else { None })
}

/// The node says how much it moves; returns the limit that is armed because of that.
fn progress(story: &mut Story, node: u32, mib: u64) -> Option<Duration> {
    let moved = AppEvent::Progress { step: Step::Dump, bytes: Bytes(1), total: Bytes::mib(mib) };
    armed(story.app.on(Input::Event(NodeId(node), moved)))
}

fn dump_limit(seconds: u64) -> Option<Duration> {
    Some(Timeouts::default().dump + Duration::from_secs(seconds))
}

fn restore_limit(seconds: u64) -> Option<Duration> {
    Some(Timeouts::default().restore + Duration::from_secs(seconds))
}

fn large_dump(mib: u64) -> AppEvent {
    AppEvent::Dumped { epoch: Epoch(1), bytes: Bytes::mib(mib), dump: MS, release: MS }
}

/// Another master asks the nodes what they hold.
fn adopting(nodes: u32) -> Story {
    let mut story = Story::new(nodes);
    let adoption = Adoption { generation: 2, ended: None };
    story.app = App::adopted(launch(nodes), Timeouts::default(), adoption);
    story.feed(Input::Adopt);
    story.asked();
    story
}

/// The node is parked at a snapshot of 640 MiB, which it still seals.
fn holds_unsealed() -> AppEvent {
    let (state, epoch) = (PartState::Parked, Epoch(1));
    let image_bytes = Bytes::mib(640);
    let holding = Holding {
        generation: 2,
        state,
        epoch,
        cuts: epoch,
        sealing: vec![epoch],
        image_bytes,
        ..Holding::default()
    };
    AppEvent::Holds(Box::new(holding))
}

#[test]
fn a_dump_of_much_memory_has_more_time_once() {
    let mut story = Story::running(2);
    story.order(Order::Park);
    (0..2).for_each(|node| story.event(node, flushed(1)));
    assert_eq!(progress(&mut story, 0, 640), dump_limit(10));
    assert_eq!(progress(&mut story, 0, 640), None, "a daemon that only says so does not get more");
    assert_eq!(progress(&mut story, 1, 1280), dump_limit(20), "the other node moves more");
    story.event(0, dumped(1));
    assert_eq!(progress(&mut story, 0, 6400), None, "it has answered");
}

#[test]
fn a_large_snapshot_is_waited_for_as_long_as_a_slow_disk_takes() {
    let mut story = Story::running(1);
    story.order(Order::Park);
    story.event(0, flushed(1));
    story.event(0, large_dump(640 << 10));
    let limit = armed(story.app.on(Input::Order(Order::Restore)));
    assert_eq!(limit, restore_limit(10_240));
}

#[test]
fn a_failed_dump_is_undone_after_the_others_are_sealed_and_each_step_has_its_time() {
    let mut story = Story::running(2);
    story.order(Order::Park);
    (0..2).for_each(|node| story.event(node, flushed(1)));
    story.event(0, large_dump(640));
    let no = Input::Event(NodeId(1), failed(Step::Dump, true));
    assert_eq!(armed(story.app.on(no)), restore_limit(10));
    let is_sealed = Input::Event(NodeId(0), sealed(1));
    assert_eq!(armed(story.app.on(is_sealed)), restore_limit(10), "the restore begins");
}

#[test]
fn another_master_waits_for_a_long_dump_and_then_for_its_seal() {
    let mut story = adopting(2);
    assert_eq!(progress(&mut story, 0, 640), restore_limit(10));
    assert_eq!(progress(&mut story, 0, 640), None);
    story.event(0, holds_unsealed());
    assert_eq!(progress(&mut story, 0, 6400), None, "it has answered");

    let mut story = adopting(2);
    (0..2).for_each(|node| story.event(node, holds_unsealed()));
    assert_eq!(story.told(), [Report::Parked]);
    assert_eq!(armed(story.app.on(Input::Order(Order::Restore))), restore_limit(10));
}

#[test]
fn a_node_that_dumps_and_seals_is_waited_for_where_another_one_is_lost() {
    let mut story = Story::parked(2);
    (0..2).for_each(|node| story.event(node, sealed(1)));
    story.order(Order::Restore);
    (0..2).for_each(|node| story.event(node, restored(1)));
    (0..2).for_each(|node| story.event(node, resumed(1)));
    story.order(Order::Park);
    (0..2).for_each(|node| story.event(node, flushed(2)));
    assert_eq!(progress(&mut story, 0, 640), dump_limit(10));
    let lost = Input::NodeLost(NodeId(1), "gone".into());
    assert_eq!(armed(story.app.on(lost)), dump_limit(20));
    assert_eq!(progress(&mut story, 0, 640), None);
    assert_eq!(progress(&mut story, 0, 1280), dump_limit(40));
    let back = Input::NodeBack(NodeId(1));
    assert_eq!(armed(story.app.on(back)), dump_limit(40), "the first node still dumps");
    story.event(0, went_back(2, &[1]));
    assert_eq!(progress(&mut story, 0, 6400), None, "it has answered");
}

#[test]
fn a_part_that_comes_from_copies_has_the_time_that_its_size_takes() {
    let mut story = stranded_with_copies();
    story.feed(Input::NodeBack(NodeId(1)));
    story.event(1, went_back(2, &[]));
    assert_eq!(story.asked(), ["1 GoBack", "1 FetchCopy"]);
    assert_eq!(progress(&mut story, 1, 640), dump_limit(20));
}
