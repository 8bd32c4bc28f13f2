//! Valid and invalid machine files.

use coswitch_policies::{
    JobId, SimTime,
    spaceshare::{allocate::Request, queue::QueuedJob},
};

use super::*;

fn example() -> Layout {
    let set = |name: &str, width| SetLayout { name: name.into(), width, height: 1 };
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
fn sets_groups_and_queues_become_a_machine() {
    let midnight = LogStart { day: 0, second: 0 };
    let machine = example().machine(AllocatorName::FirstFit, midnight).unwrap();
    let at = |hour: u64| Duration::from_secs(3600 * hour).into();
    assert_eq!((machine.total(), example().nodes()), (24, 24));
    assert_eq!([12, 20].map(|hour| machine.free_in(at(hour), GroupId(1))), [0, 16]);
    let log: Log = "; Queue: 1 small\n".parse().unwrap();
    let layout = example();
    let home = layout.homes(&log).unwrap();
    let of = |queue| home(&Record { queue: Some(queue), ..Record::default() });
    assert_eq!(of(1), (QueueId(0), GroupId(0)));
    assert_eq!(of(3), (QueueId(1), GroupId(1)));
    assert_eq!(of(7), of(1), "a queue that is not known is the first");
}

#[test]
fn an_unknown_name_is_reported() {
    let mut wrong = example();
    wrong.queues[1].group = "day".into();
    let error = wrong.order(QueueName::Aging).unwrap_err().to_string();
    assert_eq!(error, "`3` names the group `day`, and there is none");
    let mut wrong = example();
    wrong.groups[0].sets.push("huge".into());
    let midnight = LogStart { day: 0, second: 0 };
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
    let huge = error_of(|wrong| (wrong.sets[0].width, wrong.sets[0].height) = (u32::MAX, u32::MAX));
    assert!(huge.starts_with("a machine has at least"), "{huge}");
}

#[test]
fn hours_and_limits_are_those_of_the_file() {
    let mut layout = example();
    layout.prime_time = PrimeTime { from: 6, to: 22, weekends: false };
    (layout.queues[0].nodes, layout.queues[0].running) = (Some(4), Some(1));
    let midnight = LogStart { day: 4, second: 0 };
    let machine = layout.machine(AllocatorName::FirstFit, midnight).unwrap();
    // 1970-01-05 was a Monday; the night group has the fat nodes outside of prime time.
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
fn each_set_has_its_own_utilisation_and_together_they_are_that_of_the_machine() {
    // The buddies of the second set give four nodes to the job that asks for three.
    let log: Log =
        "1 0 -1 10 8 -1 -1 8 -1 -1 1 1 1 1 1 1 -1 -1\n2 0 -1 20 3 -1 -1 3 -1 -1 1 1 1 1 3 1 -1 -1\n"
            .parse()
            .unwrap();
    let layout = example();
    let mut machine = layout.machine(AllocatorName::Buddy, LogStart { day: 0, second: 0 }).unwrap();
    let jobs = Jobs::of_log(&log, &machine, layout.homes(&log).unwrap());
    let mut order = layout.order(QueueName::Fcfs).unwrap();
    let mut blocks = Blocks::default();
    let executions = crate::spaceshare::run(&jobs.jobs, &mut machine, &mut *order, &mut blocks).unwrap();
    let makespan = 20.0;
    let by_set = layout.utilisation(&jobs, &executions, &blocks, makespan);
    let whole: f64 = by_set.iter().zip([8.0, 16.0]).map(|(used, nodes)| used * nodes * makespan).sum();
    assert!((whole - (8.0 * 10.0 + 3.0 * 20.0)).abs() < 1e-9, "{by_set:?}");
    assert!(by_set.iter().all(|used| *used > 0.0), "{by_set:?}");
}
