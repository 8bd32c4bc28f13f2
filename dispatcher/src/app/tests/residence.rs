//! Tests of suspended jobs: those that were stopped, and those that were prefetched and have not run.

use super::*;

fn suspended(nodes: u32) -> Story {
    let mut story = Story::running(nodes);
    story.order(Order::Suspend);
    (0..nodes).for_each(|node| story.event(node, flushed(1)));
    assert_eq!(story.told(), [Report::Suspended]);
    assert!(!story.armed);
    story.asked();
    story
}

fn prefetched(nodes: u32) -> Story {
    let mut story = Story::parked(nodes);
    (0..nodes).for_each(|node| story.event(node, sealed(1)));
    story.order(Order::Prefetch);
    (0..nodes).for_each(|node| story.event(node, restored(1)));
    assert_eq!(story.told(), [Report::Suspended]);
    story.asked();
    story
}

#[test]
fn a_suspended_job_is_resumed_from_its_cut() {
    let mut story = suspended(2);
    story.order(Order::Resume);
    assert_eq!(story.asked(), ["0 Resume", "1 Resume"]);
    (0..2).for_each(|node| story.event(node, resumed(1)));
    assert_eq!(story.told(), [Report::Running]);
}

#[test]
fn a_suspended_job_is_parked_from_its_cut_without_another_one() {
    let mut story = suspended(2);
    story.order(Order::Park);
    assert_eq!(story.asked(), ["0 Dump", "1 Dump"]);
    (0..2).for_each(|node| story.event(node, dumped(1)));
    assert_eq!(story.told(), [Report::Parked]);
}

#[test]
fn a_prefetched_job_that_has_not_run_is_parked_without_writing() {
    let mut story = prefetched(2);
    story.order(Order::Park);
    assert_eq!(story.asked(), ["0 Discard", "1 Discard"]);
    story.event(0, AppEvent::Discarded);
    assert!(story.told().is_empty());
    story.event(1, AppEvent::Discarded);
    assert_eq!(story.told(), [Report::Parked]);
    story.order(Order::Restore);
    assert_eq!(story.asked(), ["0 Restore", "1 Restore"]);
    assert_eq!(story.app.epoch, Epoch(1));
}

#[test]
fn a_prefetched_job_that_has_run_is_parked_by_a_new_cut() {
    let mut story = prefetched(1);
    story.order(Order::Resume);
    story.event(0, resumed(1));
    story.order(Order::Park);
    story.event(0, flushed(2));
    assert_eq!(story.asked(), ["0 Resume", "0 Cut", "0 Dump"]);
}

#[test]
fn a_full_store_leaves_the_job_suspended_and_is_reported_as_the_cause() {
    let mut story = suspended(2);
    story.order(Order::Park);
    story.event(0, dumped(1));
    story.event(1, AppEvent::Failed { during: Step::Dump, failure: Failure::store_full("no") });
    story.event(0, sealed(1));
    story.event(0, restored(1));
    assert!(matches!(story.told()[..], [Report::StillSuspended { cause: StayCause::StoreFull { .. } }]));
}

#[test]
fn a_full_store_is_the_cause_that_counts_where_other_nodes_failed_otherwise() {
    let mut story = suspended(2);
    story.order(Order::Park);
    story.event(0, failed(Step::Dump, true));
    story.event(1, AppEvent::Failed { during: Step::Dump, failure: Failure::store_full("no") });
    let reason = "node-1 failed to find room for it: no".to_string();
    let cause = StayCause::StoreFull { reason };
    assert_eq!(story.told(), [Report::StillSuspended { cause }]);
}

#[test]
fn a_dump_that_fails_leaves_a_suspended_job_suspended_and_the_next_one_writes_only_what_is_missing() {
    let mut story = suspended(2);
    story.order(Order::Park);
    story.event(0, dumped(1));
    story.event(1, failed(Step::Dump, true));
    story.asked();
    story.event(0, sealed(1));
    assert_eq!(story.asked(), ["0 Restore"]);
    story.event(0, restored(1));
    assert!(matches!(story.told()[..], [Report::StillSuspended { .. }]));
    assert!(!story.armed);
    story.order(Order::Park);
    assert_eq!(story.asked(), ["0 Discard", "1 Dump"]);
    story.event(0, AppEvent::Discarded);
    story.event(1, dumped(1));
    assert_eq!(story.told(), [Report::Parked]);
    story.order(Order::Restore);
    assert!(story.asked().is_empty(), "node 1 has not sealed it");
    story.event(1, sealed(1));
    assert_eq!(story.asked(), ["0 Restore", "1 Restore"]);
}

#[test]
fn a_dump_that_loses_the_ranks_of_a_node_goes_back_to_the_snapshot_before() {
    let mut story = prefetched(2);
    story.order(Order::Resume);
    (0..2).for_each(|node| story.event(node, resumed(1)));
    story.order(Order::Park);
    (0..2).for_each(|node| story.event(node, flushed(2)));
    story.asked();
    story.told();
    story.event(0, failed(Step::Dump, false));
    assert!(story.asked().is_empty());
    story.event(1, dumped(2));
    assert_eq!(story.asked(), ["0 Discard", "1 Discard", "0 Restore", "1 Restore"]);
    (0..2).for_each(|node| story.event(node, AppEvent::Discarded));
    (0..2).for_each(|node| story.event(node, restored(1)));
    (0..2).for_each(|node| story.event(node, resumed(1)));
    let told = story.told();
    assert!(matches!(told[..], [Report::Mended { .. }, Report::StillRunning { .. }]), "{told:?}");
}

#[test]
fn a_snapshot_that_cannot_be_sealed_on_any_node_is_passed_over_once() {
    let mut story = prefetched(2);
    story.order(Order::Resume);
    (0..2).for_each(|node| story.event(node, resumed(1)));
    story.order(Order::Park);
    (0..2).for_each(|node| story.event(node, flushed(2)));
    (0..2).for_each(|node| story.event(node, dumped(2)));
    story.told();
    let no = || AppEvent::SealFailed { epoch: Epoch(2), reason: "no".into() };
    (0..2).for_each(|node| story.event(node, no()));
    assert!(matches!(story.told()[..], [Report::Mended { .. }]));
    story.asked();
    story.order(Order::Prefetch);
    assert_eq!((story.asked(), story.app.epoch), (vec!["0 Restore".into(), "1 Restore".into()], Epoch(1)));
}

#[test]
fn a_paged_out_job_has_no_snapshot_and_comes_back_without_a_seal() {
    let mut story = Story::new(2);
    story.app.launch.park = Park::PageOut;
    story.order(Order::Launch);
    (0..2).for_each(|node| story.event(node, AppEvent::Launched));
    story.order(Order::Park);
    (0..2).for_each(|node| story.event(node, flushed(1)));
    (0..2).for_each(|node| story.event(node, dumped(1)));
    story.order(Order::Prefetch);
    (0..2).for_each(|node| story.event(node, restored(1)));
    story.asked();
    story.order(Order::Park);
    assert_eq!(story.asked(), ["0 Dump", "1 Dump"], "there is no snapshot to discard its processes for");
    story.event(0, dumped(1));
    story.event(1, failed(Step::Dump, true));
    assert_eq!(story.asked(), ["0 Restore"]);
    story.event(0, restored(1));
    assert!(matches!(story.told().last(), Some(Report::StillSuspended { .. })));
    story.order(Order::Park);
    (0..2).for_each(|node| story.event(node, dumped(1)));
    story.order(Order::Restore);
    story.asked();
    story.event(0, failed(Step::Restore, false));
    story.event(1, restored(1));
    assert_eq!(story.asked(), ["0 Release", "1 Release"]);
}

#[test]
fn an_order_that_comes_while_another_is_under_way_waits_for_its_answer() {
    let mut story = Story::running(1);
    story.order(Order::Suspend);
    story.order(Order::Restore);
    story.order(Order::Park);
    assert_eq!(story.asked(), ["0 Cut"]);
    story.event(0, flushed(1));
    assert_eq!(story.told(), [Report::Suspended]);
    assert_eq!(story.asked(), ["0 Dump"], "the later one counts");
    story.event(0, dumped(1));
    assert_eq!(story.told(), [Report::Parked]);
}

#[test]
fn an_order_that_does_not_fit_is_answered_by_where_the_job_rests() {
    let mut story = Story::parked(1);
    story.order(Order::Resume);
    story.order(Order::Suspend);
    assert_eq!(story.told(), [Report::Parked, Report::Parked]);
    let mut story = Story::running(1);
    story.order(Order::Prefetch);
    assert_eq!(story.told(), [Report::Running]);
    assert!(story.asked().is_empty() && !story.armed);
}
