//! Valid and invalid layouts.

use super::*;
use crate::{
    JobId, SimTime,
    spaceshare::{
        allocate::Request,
        queue::{QueueId, QueuedJob},
    },
};

fn example() -> Layout {
    let set = |name: &str, width| SetLayout { name: name.into(), width: Some(width), height: 1, nodes: None };
    let group = |name: &str, prime: Option<&[&str]>, sets: &[&str]| GroupLayout {
        name: name.into(),
        prime: prime.map(|sets| sets.iter().map(ToString::to_string).collect()),
        sets: sets.iter().map(ToString::to_string).collect(),
    };
    let queue = |name: &str, group: &str| QueueLayout {
        name: name.into(),
        group: group.into(),
        priority: 0,
        nodes: None,
        running: None,
        hours: None,
        time_limit: None,
        rank: 0,
        users: None,
    };
    Layout {
        partition: None,
        prime_time: PrimeTime::default(),
        sets: vec![set("thin", 8), set("fat", 16)],
        groups: vec![group("all", None, &["thin", "fat"]), group("night", Some(&[]), &["fat"])],
        queues: vec![queue("small", "all"), queue("3", "night")],
        age_factor: 1,
        block_priority: None,
    }
}

#[test]
fn an_unknown_name_is_reported() {
    let mut wrong = example();
    wrong.queues[1].group = "day".into();
    let error = wrong.order(QueueName::Aging).unwrap_err().to_string();
    assert_eq!(error, "`3` names the group `day`, and there is none");
    let mut wrong = example();
    wrong.groups[0].sets.push("huge".into());
    let midnight = Daytime::default();
    let error = wrong.machine(AllocatorName::FirstFit, midnight).unwrap_err().to_string();
    assert_eq!(error, "`all` names the set `huge`, and there is none");
    let empty = Layout { sets: vec![], ..example() };
    assert_eq!(empty.machine(AllocatorName::FirstFit, midnight).unwrap_err(), LayoutError::Empty);
}

#[test]
fn numbers_out_of_range_and_duplicate_names_are_reported() {
    let error_of = |change: fn(&mut Layout)| {
        let mut wrong = example();
        change(&mut wrong);
        wrong.order(QueueName::Easy).map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(error_of(|wrong| wrong.age_factor = -1), "`age_factor` is -1; it is from 0 to 1000000");
    assert_eq!(error_of(|wrong| wrong.queues[0].running = Some(0)), "`running` is 0; it is at least 1");
    assert_eq!(error_of(|wrong| wrong.sets[1].name = "thin".into()), "there are two node sets called `thin`");
    let unheeded = error_of(|wrong| wrong.queues[0].running = Some(2));
    assert!(unheeded.starts_with("the queue `small` limits how many"), "{unheeded}");
    let late = error_of(|wrong| wrong.prime_time.to = 25);
    assert_eq!(late, "`prime_time.to` is 25; it is not before its begin, and within the day");
    let huge = error_of(|wrong| (wrong.sets[0].width, wrong.sets[0].height) = (Some(u32::MAX), u32::MAX));
    assert!(huge.starts_with("a machine has at least"), "{huge}");
}

#[test]
fn hours_and_limits_are_those_of_the_file() {
    let mut layout = example();
    layout.prime_time = PrimeTime { from: 6, to: 22, weekends: false };
    (layout.queues[0].nodes, layout.queues[0].running) = (Some(4), Some(1));
    let midnight = Daytime::default();
    let machine = layout.machine(AllocatorName::FirstFit, midnight).unwrap();
    // The night group has the fat nodes outside of prime time.
    let free = |hour: u64| machine.free_in(Duration::from_secs(3600 * hour).into(), GroupId(1));
    assert_eq!([5, 6, 21, 22, 5 * 24 + 12].map(free), [16, 0, 0, 16, 16]);
    assert_eq!([4, 5].map(|nodes| layout.admits(QueueId(0), nodes)), [true, false]);
    assert!(layout.admits(QueueId(1), 5));
    let mut machine = machine;
    let mut order = layout.order(QueueName::Aging).unwrap();
    for id in 0..2 {
        let (request, submitted, limit) = (Request::nodes(1), SimTime(0), Duration::from_secs(1));
        let (queue, group) = (QueueId(0), GroupId(0));
        order.submit(QueuedJob { job: JobId(id), queue, group, request, submitted, limit });
    }
    let mut started = Vec::new();
    order.start(SimTime(0), &mut machine, &mut started);
    assert_eq!((started.len(), order.waiting()), (1, 1), "one at a time");
}

#[test]
fn every_node_is_in_one_set_by_name_or_in_order() {
    let by_number = |name: &str| name.parse().ok().map(NodeId);
    let with_nodes = |names: &[&str], height| {
        let mut layout = example();
        let nodes = Some(names.iter().map(ToString::to_string).collect());
        layout.sets[0] = SetLayout { width: None, height, nodes, ..layout.sets[0].clone() };
        layout.sets[1].width = Some(2);
        layout
    };
    let layout = with_nodes(&["4", "1", "0", "3"], 2);
    assert_eq!(layout.sets[0].mesh(), Mesh { width: 2, height: 2 });
    let nodes = layout.nodes_by_unit(6, by_number).unwrap();
    assert_eq!(nodes.iter().map(|node| node.0).collect::<Vec<_>>(), [4, 1, 0, 3, 2, 5]);
    let error =
        |names: &[&str], nodes| with_nodes(names, 1).nodes_by_unit(nodes, by_number).unwrap_err().to_string();
    assert_eq!(error(&["0", "1"], 5), "the sets have 4 nodes together, and the cluster has 5");
    assert_eq!(error(&["0", "0"], 4), "the set `thin` names the node `0`, which is in a set already");
    assert!(error(&["0", "7"], 4).starts_with("the set `thin` names the node `7`, and the cluster, which"));
    let uneven = with_nodes(&["0", "1", "2"], 2);
    assert_eq!(uneven.check().unwrap_err().to_string(), "the set `thin` names 3 nodes, and is 1 × 2");
    let mut empty = example();
    empty.groups[1].sets.clear();
    let error = empty.check().unwrap_err().to_string();
    assert_eq!(error, "the group `night` has no nodes, by day or by night");
}

#[test]
fn a_job_finds_its_queue_by_the_name_of_the_queue_or_of_the_group() {
    let layout = example();
    let home =
        |queue, group| layout.home(queue, group).map(|queue| queue.0).map_err(|error| error.to_string());
    assert_eq!([home(None, None), home(None, Some("night")), home(Some("3"), None)], [Ok(0), Ok(1), Ok(1)]);
    assert_eq!(home(Some("3"), Some("night")), Ok(1));
    let refused = |queue, group| home(queue, group).unwrap_err();
    assert_eq!(refused(None, Some("day")), "there is no group `day`; there are all, night");
    assert_eq!(refused(Some("big"), None), "there is no queue `big`; there are small, 3");
    let other = "the queue `3` has the nodes of the group `night`, not those of `all`";
    assert_eq!(refused(Some("3"), Some("all")), other);
}
