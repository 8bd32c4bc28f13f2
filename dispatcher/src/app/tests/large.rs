//! Steps that move much memory.

use super::*;

fn armed(outputs: Vec<Output>) -> Option<Duration> {
    outputs.into_iter().find_map(|output| if let Output::Arm(limit) = output { limit } else { None })
}

#[test]
fn a_node_that_says_how_far_it_has_come_is_given_time() {
    let mut story = Story::running(2);
    story.order(Order::Park);
    (0..2).for_each(|node| story.event(node, flushed(1)));
    let limit = Timeouts::default().dump;
    let progress = |story: &mut Story, node| {
        let moved = AppEvent::Progress { step: Step::Dump, bytes: Bytes(1), total: Bytes(2) };
        armed(story.app.on(Input::Event(NodeId(node), moved)))
    };
    assert_eq!(progress(&mut story, 0), Some(limit));
    story.event(0, dumped(1));
    assert_eq!(progress(&mut story, 0), None, "it has answered");
    assert_eq!(progress(&mut story, 1), Some(limit));
}

#[test]
fn a_large_snapshot_is_waited_for_as_long_as_a_slow_disk_takes() {
    let mut story = Story::running(1);
    story.order(Order::Park);
    story.event(0, flushed(1));
    story.event(0, AppEvent::Dumped { epoch: Epoch(1), bytes: Bytes::mib(640 << 10), dump: MS, release: MS });
    let limit = armed(story.app.on(Input::Order(Order::Restore)));
    assert_eq!(limit, Some(Timeouts::default().restore + 10_240 * 1000 * MS));
}
