//! Copies of snapshots, and the part of a lost node that moves by them.

use super::*;

/// Two nodes of three, parked at a sealed snapshot; what node 1 has sealed is on the others. Node 1 is lost.
pub(super) fn stranded_with_copies() -> Story {
    let mut story = Story::parked(2);
    story.app.launch.copies = CopyRule { nodes: 3, copies: 1 };
    story.app.copies = Copies::new(story.app.launch.copies);
    story.app.copies.on_launch(1);
    (0..2).for_each(|node| story.event(node, sealed(1)));
    assert_eq!(story.asked(), ["0 Copy", "1 Copy"]);
    let scatter = Scatter { ring: vec![NodeId(2), NodeId(0)], copies: 1 };
    for node in 0..2 {
        let scatter = scatter.clone();
        story.event(node, AppEvent::Copied { epoch: Epoch(1), scatter, bytes: Bytes(1), took: MS });
    }
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    story.event(0, went_back(2, &[1]));
    story.asked();
    story.told();
    story
}

#[test]
fn the_part_of_a_node_that_stays_away_moves_to_another_one_and_the_gang_goes_on() {
    let mut story = stranded_with_copies();
    story.feed(Input::Move { from: NodeId(1), to: NodeId(2) });
    assert_eq!(story.asked(), ["0 GoBack", "2 FetchCopy"]);
    story.event(0, went_back(3, &[1]));
    story.event(2, went_back(3, &[1]));
    let placement = vec![NodeId(0), NodeId(2)];
    let moved = Report::Moved { from: NodeId(1), to: NodeId(2), placement };
    let told = story.told();
    assert!(matches!(&told[..], [first, Report::WentBack { .. }] if *first == moved), "{told:?}");
    assert_eq!(story.asked(), ["2 Copy"], "the other copy is whole");
    story.order(Order::Restore);
    assert_eq!(story.asked(), ["0 Restore", "2 Restore"]);
    story.feed(Input::NodeBack(NodeId(1)));
    assert_eq!(story.asked(), [] as [&str; 0], "it has no part any more");
}

/// Node 0 may be sealing a newer snapshot when node 1 is lost, and removes older ones then.
#[test]
fn a_node_keeps_what_it_will_go_back_to_when_the_one_is_lost_that_held_its_copy() {
    let mut story = Story::parked(2);
    story.app.launch.copies = CopyRule { nodes: 3, copies: 1 };
    story.app.copies = Copies::new(story.app.launch.copies);
    story.app.copies.on_launch(1);
    (0..2).for_each(|node| story.event(node, sealed(1)));
    for node in 0..2 {
        let scatter = story.app.launch.copies.partners(NodeId(node), &Nodes::new()).unwrap();
        story.event(node, AppEvent::Copied { epoch: Epoch(1), scatter, bytes: Bytes(1), took: MS });
    }
    (0..2).for_each(|node| story.event(node, sealed_of(Epoch(2), vec![Epoch(1), Epoch(2)])));
    let needed = |story: &mut Story| -> Vec<(u32, Option<Epoch>)> {
        let of_copy = |(node, request): (NodeId, AppRequest)| match request {
            AppRequest::Copy { needed, .. } => Some((node.0, needed)),
            _ => None,
        };
        std::mem::take(&mut story.asked).into_iter().filter_map(of_copy).collect()
    };
    assert_eq!(needed(&mut story), [(0, None), (1, None), (0, Some(Epoch(1))), (1, Some(Epoch(1)))]);
    // It notices the end of its partner before the master does.
    story.event(0, AppEvent::CopyFailed { epoch: Epoch(2), reason: "gone".into() });
    story.feed(Input::NodeLost(NodeId(1), "gone".into()));
    assert_eq!(needed(&mut story), [(0, Some(Epoch(1)))]);
}

#[test]
fn a_part_that_cannot_move_waits_for_its_node_and_goes_on_there() {
    let mut story = stranded_with_copies();
    story.feed(Input::Move { from: NodeId(1), to: NodeId(2) });
    story.asked();
    story.event(0, went_back(3, &[1]));
    story.event(2, AppEvent::FetchFailed { epoch: Epoch(1), reason: "damaged".into() });
    story.event(2, went_back(3, &[]));
    assert!(matches!(story.told()[..], [Report::NotCopied { .. }, Report::NotMoved { .. }]));
    assert_eq!(story.asked(), ["2 Release", "0 GoBack"]);
    story.event(0, went_back(4, &[1]));
    story.feed(Input::NodeBack(NodeId(1)));
    assert_eq!(story.asked(), ["1 GoBack"]);
    story.event(1, went_back(4, &[1]));
    assert!(matches!(story.told()[..], [Report::WentBack { epoch: Epoch(1), .. }]));
    story.feed(Input::Move { from: NodeId(1), to: NodeId(2) });
    assert!(matches!(story.told()[..], [Report::NotMoved { .. }]));
}
