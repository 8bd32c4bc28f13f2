//! Steps that move much memory.

use super::*;

fn armed(outputs: Vec<Output>) -> Option<Duration> {
    outputs.into_iter().find_map(|output| if let Output::Arm(limit) = output { limit } else { None })
}

#[test]
fn a_dump_of_much_memory_has_more_time_once() {
    let mut story = Story::running(2);
    story.order(Order::Park);
    (0..2).for_each(|node| story.event(node, flushed(1)));
    let progress = |story: &mut Story, node, mib| {
        let moved = AppEvent::Progress { step: Step::Dump, bytes: Bytes(1), total: Bytes::mib(mib) };
        armed(story.app.on(Input::Event(NodeId(node), moved)))
    };
    let limit = |seconds| Some(Timeouts::default().dump + Duration::from_secs(seconds));
    assert_eq!(progress(&mut story, 0, 640), limit(10));
    assert_eq!(progress(&mut story, 0, 640), None, "a daemon that only says so does not get more");
    assert_eq!(progress(&mut story, 1, 1280), limit(20), "the other node moves more");
    story.event(0, dumped(1));
    assert_eq!(progress(&mut story, 0, 6400), None, "it has answered");
}

#[test]
fn a_large_snapshot_is_waited_for_as_long_as_a_slow_disk_takes() {
    let mut story = Story::running(1);
    story.order(Order::Park);
    story.event(0, flushed(1));
    story.event(0, AppEvent::Dumped { epoch: Epoch(1), bytes: Bytes::mib(640 << 10), dump: MS, release: MS });
    let limit = armed(story.app.on(Input::Order(Order::Restore)));
    assert_eq!(limit, Some(Timeouts::default().restore + Duration::from_secs(10_240)));
}
