//! Which copies are removed and which stay, while some node cannot copy its part.

use super::*;

/// Two nodes of three, each of which sends what it has sealed to the two others.
fn copying() -> Story {
    let mut story = Story::running(2);
    story.app.launch.copies = CopyRule { nodes: 3, copies: 1 };
    story.app.copies = Copies::new(story.app.launch.copies);
    story.app.copies.on_launch(1);
    story
}

/// One turn: afterwards both nodes have the snapshots of these epochs, and are to copy the last one.
fn turn(story: &mut Story, kept: &[u64]) {
    let kept: Vec<Epoch> = kept.iter().copied().map(Epoch).collect();
    let last = *kept.last().unwrap();
    story.order(Order::Park);
    (0..2).for_each(|node| story.event(node, flushed(last.0)));
    (0..2).for_each(|node| story.event(node, dumped(last.0)));
    (0..2).for_each(|node| story.event(node, sealed_of(last, kept.clone())));
    story.order(Order::Restore);
    (0..2).for_each(|node| story.event(node, restored(last.0)));
    (0..2).for_each(|node| story.event(node, resumed(last.0)));
    assert_eq!(story.asked().iter().filter(|asked| asked.ends_with(" Copy")).count(), 2);
}

/// The node has sent its snapshot to all partners but those that are lost.
fn copied(story: &mut Story, node: u32, epoch: u64, lost: &[u32]) {
    let lost: Nodes = lost.iter().copied().map(NodeId).collect();
    let scatter = story.app.launch.copies.partners(NodeId(node), &lost).unwrap();
    story.event(node, AppEvent::Copied { epoch: Epoch(epoch), scatter, bytes: Bytes(1), took: MS });
}

fn not_copied(story: &mut Story, node: u32, epoch: u64) {
    story.event(node, AppEvent::CopyFailed { epoch: Epoch(epoch), reason: "no room".into() });
}

/// Takes the requests; returns the epochs whose copies node 1 is to remove, from the first to the last.
fn removed(story: &mut Story) -> Vec<(u64, u64)> {
    let range = |(node, request): (NodeId, AppRequest)| match request {
        AppRequest::DropCopies { from, to } if node == NodeId(1) => Some((from.0, to.0)),
        _ => None,
    };
    std::mem::take(&mut story.asked).into_iter().filter_map(range).collect()
}

#[test]
fn copies_of_one_node_do_not_pile_up_while_the_other_one_cannot_copy() {
    let mut story = copying();
    turn(&mut story, &[1]);
    (0..2).for_each(|node| copied(&mut story, node, 1, &[]));
    let mut ranges = Vec::new();
    for epoch in 2..=5 {
        turn(&mut story, &[1, epoch - 1, epoch]);
        copied(&mut story, 0, epoch, &[]);
        not_copied(&mut story, 1, epoch);
        ranges.extend(removed(&mut story));
    }
    assert_eq!(ranges, [(2, 2), (2, 3), (2, 4)], "one copy goes for each that comes");
    assert_eq!(story.app.newest_copied(), Some(Epoch(1)));
    turn(&mut story, &[1, 5, 6]);
    (0..2).for_each(|node| copied(&mut story, node, 6, &[]));
    assert_eq!(removed(&mut story), [(0, 5)]);
}

#[test]
fn chunks_that_partners_keep_of_copies_that_failed_are_removed() {
    let mut story = copying();
    for kept in [&[1][..], &[1, 2]] {
        turn(&mut story, kept);
        let epoch = *kept.last().unwrap();
        (0..2).for_each(|node| not_copied(&mut story, node, epoch));
    }
    assert_eq!(removed(&mut story), [(0, 1)]);
}

#[test]
fn the_only_copy_of_a_node_stays_and_leads_back_where_its_disk_is_lost() {
    let mut story = copying();
    turn(&mut story, &[1]);
    copied(&mut story, 0, 1, &[]);
    not_copied(&mut story, 1, 1);
    turn(&mut story, &[1, 2]);
    not_copied(&mut story, 0, 2);
    copied(&mut story, 1, 2, &[]);
    assert!(removed(&mut story).is_empty());
    story.feed(Input::NodeLost(NodeId(0), "gone".into()));
    story.event(1, went_back(2, &[1, 2]));
    story.feed(Input::NodeBack(NodeId(0)));
    story.event(0, went_back(2, &[]));
    let fetched = story.asked.iter().find_map(|(node, request)| match request {
        AppRequest::FetchCopy(fetch) => Some((*node, fetch.epoch)),
        _ => None,
    });
    assert_eq!(fetched, Some((NodeId(0), Epoch(1))));
}

#[test]
fn the_last_whole_copies_stay_while_a_holder_of_them_is_lost() {
    let mut story = copying();
    turn(&mut story, &[1]);
    (0..2).for_each(|node| copied(&mut story, node, 1, &[]));
    turn(&mut story, &[1, 2]);
    copied(&mut story, 0, 2, &[]);
    not_copied(&mut story, 1, 2);
    // Both are asked again, with the one partner that is left.
    story.feed(Input::NodeLost(NodeId(2), "gone".into()));
    copied(&mut story, 0, 2, &[2]);
    not_copied(&mut story, 1, 2);
    assert!(removed(&mut story).is_empty());
    let mut ranges = Vec::new();
    for epoch in 3..=5 {
        // No node has its own snapshot of epoch 1 any more.
        turn(&mut story, &[epoch - 1, epoch]);
        copied(&mut story, 0, epoch, &[2]);
        not_copied(&mut story, 1, epoch);
        ranges.extend(removed(&mut story));
    }
    assert_eq!(ranges, [(2, 2), (2, 3), (2, 4)]);
    story.feed(Input::NodeBack(NodeId(2)));
    assert_eq!(story.app.newest_copied(), Some(Epoch(1)));
}
