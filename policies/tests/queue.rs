//! Properties of every queue order, played against a small machine with a manual clock.

mod plain;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coswitch_policies::{
    JobId, SimTime,
    spaceshare::{
        allocate::{Allocator, BoxPacker, Buddy, Contiguous, FirstFit, M2db, Mesh, Request},
        machine::{Calendar, GroupId, Machine, NodeGroup, NodeSet, SetId},
        queue::{
            Aging, AgingConfig, Apart, Conservative, Easy, Fcfs, Priority, QueueId, QueueOrder, QueueSpec,
            QueueTable, QueuedJob,
        },
    },
};
use plain::{PlainAging, PlainConservative};
use proptest::prelude::*;

const HOUR: u64 = 3_600_000_000_000;

/// A job and the time it really takes.
#[derive(Clone, Copy, Debug)]
struct Job {
    waits: QueuedJob,
    takes: Duration,
}

/// Plays `jobs` to the end and returns when each started; calls `look` after every step.
fn play<Q: QueueOrder>(
    order: &mut Q,
    machine: &mut Machine,
    jobs: &[Job],
    mut look: impl FnMut(SimTime, &Q, &Machine, &[QueuedJob]),
) -> BTreeMap<JobId, SimTime> {
    let mut arrivals: Vec<Job> = jobs.to_vec();
    arrivals.sort_by_key(|job| std::cmp::Reverse((job.waits.submitted, job.waits.job)));
    let takes: BTreeMap<JobId, Duration> = jobs.iter().map(|job| (job.waits.job, job.takes)).collect();
    let (mut ends, mut starts) = (BTreeSet::new(), BTreeMap::new());
    let mut now = SimTime(0);
    loop {
        let mut started = Vec::new();
        order.start(now, machine, &mut started);
        for job in &started {
            assert!(starts.insert(job.job, now).is_none(), "{} starts once", job.job);
            ends.insert((now.after(takes[&job.job]), job.job));
        }
        look(now, order, machine, &started);
        let arrival = arrivals.last().map(|job| job.waits.submitted);
        let end = ends.first().map(|(at, _)| *at);
        let wake = order.next_wake(now, machine);
        let Some(next) = [arrival, end, wake].into_iter().flatten().min() else { break };
        assert!(wake.is_none_or(|wake| wake > now), "a wake lies ahead");
        now = next;
        if end == Some(now) {
            // One at a time, as a simulator may report them.
            let (_, job) = ends.pop_first().unwrap();
            assert!(machine.release(job));
            order.on_end(now, job);
        } else if arrival == Some(now) {
            order.submit(arrivals.pop().unwrap().waits);
        }
        assert!(now < SimTime(20_000 * HOUR), "it ends");
    }
    assert_eq!((order.waiting(), machine.free()), (0, machine.total()), "all have run and left");
    starts
}

fn job(id: u32, queue: u16, nodes: u32, submitted: u64, takes: u64, limit: u64) -> Job {
    let waits = QueuedJob {
        job: JobId(id),
        queue: QueueId(queue),
        group: GroupId(queue),
        request: Request::nodes(nodes),
        submitted: SimTime(submitted * HOUR / 60),
        limit: Duration::from_secs(60 * limit),
    };
    Job { waits, takes: Duration::from_secs(60 * takes) }
}

/// Jobs on up to `width` nodes for up to two hours, minutes exact, limits kept.
fn workload(queues: u16, width: u32) -> impl Strategy<Value = Vec<Job>> {
    let one = (0..queues, 1..=width, 0u64..600, 1u64..120, 1u64..4);
    prop::collection::vec(one, 0..40).prop_map(|jobs| {
        let number = |(id, (queue, nodes, at, takes, slack))| job(id, queue, nodes, at, takes, takes * slack);
        (0..).zip(jobs).map(number).collect()
    })
}

/// Many jobs at a time, some of which take no time, end long before their limits or run past them. No limit
/// is zero: such a job reserves nothing, and others may take its place.
fn crowd(width: u32) -> impl Strategy<Value = Vec<Job>> {
    let one = (1..=width, 0u64..200, 1u64..90, 0u64..5);
    prop::collection::vec(one, 0..80).prop_map(|jobs| {
        let number = |(id, (nodes, at, limit, part)): (u32, (u32, u64, u64, u64))| {
            // From no time at all to a third more than the limit.
            job(id, 0, nodes, at, limit * part / 3, limit)
        };
        (0..).zip(jobs).map(number).collect()
    })
}

fn single(nodes: u32) -> Machine {
    Machine::single(Box::new(FirstFit::new(nodes)))
}

/// Two sets and three groups over them; the third is kept out of the second set by day.
fn paragon(contiguous: bool) -> Machine {
    let set = |name: &str, width: u32| {
        let allocator: Box<dyn Allocator> = if contiguous {
            Box::new(Contiguous::new(width))
        } else {
            Box::new(M2db::new(Mesh { width: width / 2, height: 2 }))
        };
        NodeSet { name: name.into(), allocator }
    };
    let group = |prime: &[u16], non_prime: &[u16]| NodeGroup {
        name: "g".into(),
        prime: prime.iter().copied().map(SetId).collect(),
        non_prime: non_prime.iter().copied().map(SetId).collect(),
    };
    let groups = vec![group(&[0], &[0]), group(&[0, 1], &[0, 1]), group(&[], &[1])];
    Machine::new(vec![set("thin", 8), set("fat", 8)], groups, Calendar::nine_to_five()).unwrap()
}

/// A machine of several sets with overlapping groups, on which a group can use any of its free nodes, and
/// jobs that their groups hold at some hour.
fn overlapping() -> impl Strategy<Value = (Vec<u32>, Vec<NodeGroup>, Vec<Job>)> {
    let widths = prop::collection::vec(1u32..=8, 1..5);
    // The order of a group's sets, and how many of them it has by day and by night.
    let group = (prop::collection::vec(any::<u16>(), 4), 0usize..4, 1usize..5);
    let parts = (widths, prop::collection::vec(group, 1..5), workload(4, 32));
    parts.prop_map(|(widths, groups, mut jobs)| {
        let group = |(order, by_day, by_night): (Vec<u16>, usize, usize)| {
            let mut sets: Vec<(u16, SetId)> =
                order.into_iter().zip((0..).map(SetId)).take(widths.len()).collect();
            sets.sort_unstable_by_key(|(key, set)| (*key, set.0));
            let sets: Vec<SetId> = sets.into_iter().map(|(_, set)| set).collect();
            let first = |count: usize| sets[..count.min(sets.len())].to_vec();
            NodeGroup { name: "g".into(), prime: first(by_day), non_prime: first(by_night) }
        };
        let groups: Vec<NodeGroup> = groups.into_iter().map(group).collect();
        for job in &mut jobs {
            let group = job.waits.queue.0 % groups.len() as u16;
            let of = &groups[usize::from(group)];
            let nodes = |sets: &[SetId]| sets.iter().map(|set| widths[usize::from(set.0)]).sum::<u32>();
            let most = nodes(&of.prime).max(nodes(&of.non_prime));
            job.waits.group = GroupId(group);
            job.waits.request.nodes = 1 + (job.waits.request.nodes - 1) % most;
        }
        (widths, groups, jobs)
    })
}

fn any_nodes(widths: &[u32], groups: &[NodeGroup]) -> Machine {
    let set = |width: &u32| NodeSet { name: "s".into(), allocator: Box::new(FirstFit::new(*width)) };
    Machine::new(widths.iter().map(set).collect(), groups.to_vec(), Calendar::nine_to_five()).unwrap()
}

fn aging(priorities: &[i64], block: Option<i64>, running_max: Option<u32>) -> AgingConfig {
    let spec = |(queue, points): (u16, &i64)| QueueSpec {
        running_max,
        ..QueueSpec::new(&format!("q{queue}"), GroupId(queue), Priority::points(*points))
    };
    AgingConfig {
        queues: QueueTable((0..).zip(priorities).map(spec).collect()),
        age_factor: Priority::points(2),
        block_priority: block.map(Priority::points),
    }
}

/// A queue from which every seventh job is taken back when another job ends.
#[derive(Clone, Debug)]
struct Fickle<Q> {
    order: Q,
    submitted: Vec<JobId>,
}

impl<Q: QueueOrder + Clone> QueueOrder for Fickle<Q> {
    fn submit(&mut self, job: QueuedJob) {
        self.order.submit(job);
        self.submitted.extend((job.job.0 % 7 == 3).then_some(job.job));
    }

    fn adopt(&mut self, now: SimTime, job: QueuedJob, end: SimTime, machine: &Machine) {
        self.order.adopt(now, job, end, machine);
    }

    fn withdraw(&mut self, job: JobId) -> bool {
        self.order.withdraw(job)
    }

    fn on_end(&mut self, now: SimTime, job: JobId) {
        self.order.on_end(now, job);
        self.submitted.pop().map(|job| self.order.withdraw(job));
    }

    fn start(&mut self, now: SimTime, machine: &mut Machine, started: &mut Vec<QueuedJob>) {
        self.order.start(now, machine, started);
    }

    fn next_wake(&self, now: SimTime, machine: &Machine) -> Option<SimTime> {
        self.order.next_wake(now, machine)
    }

    fn waiting(&self) -> usize {
        self.order.waiting()
    }
}

/// Every promise after every step, and the starts.
type Told = (Vec<Vec<Option<SimTime>>>, BTreeMap<JobId, SimTime>);

fn told<Q: QueueOrder + Clone>(
    order: Q,
    machine: &mut Machine,
    jobs: &[Job],
    promised: impl Fn(&Q, JobId) -> Option<SimTime>,
) -> Told {
    let mut promises = Vec::new();
    let mut order = Fickle { order, submitted: Vec::new() };
    let starts = play(&mut order, machine, jobs, |_, order, _, _| {
        promises.push(jobs.iter().map(|job| promised(&order.order, job.waits.job)).collect());
    });
    (promises, starts)
}

/// The same promises at every step as the plain code, and the same starts.
fn conservative_decides_as_plain_code(machine: impl Fn() -> Machine, jobs: &[Job]) {
    let fast = told(Conservative::default(), &mut machine(), jobs, Conservative::reservation);
    let plain = told(PlainConservative::default(), &mut machine(), jobs, PlainConservative::promised);
    let differs = fast.0.iter().zip(&plain.0).position(|(fast, plain)| fast != plain);
    let told = differs.map(|step| (step, &fast.0[step], &plain.0[step]));
    assert_eq!(told, None, "the first step at which promises differ");
    assert_eq!(fast.1, plain.1, "starts");
}

/// The head always has a promise, which never becomes later.
fn easy_keeps_its_promises(machine: &mut Machine, jobs: &[Job]) {
    let mut promised: BTreeMap<JobId, SimTime> = BTreeMap::new();
    let starts = play(&mut Easy::default(), machine, jobs, |now, easy, machine, _| {
        let promise = easy.reservation(now, machine);
        assert_eq!(promise.is_some(), easy.waiting() > 0, "the head has a promise");
        if let Some((job, at)) = promise {
            assert!(promised.insert(job, at).is_none_or(|before| at <= before), "{job} is not delayed");
        }
    });
    assert!(promised.iter().all(|(job, at)| starts[job] <= *at));
}

/// Every job always has a promise, which never becomes later.
fn conservative_keeps_its_promises(machine: &mut Machine, jobs: &[Job]) {
    let mut promised: BTreeMap<JobId, SimTime> = BTreeMap::new();
    let starts = play(&mut Conservative::default(), machine, jobs, |_, order, _, _| {
        let promise = |job: &Job| Some((job.waits.job, order.reservation(job.waits.job)?));
        let promises: Vec<(JobId, SimTime)> = jobs.iter().filter_map(promise).collect();
        assert_eq!(promises.len(), order.waiting(), "every waiting job has a promise");
        for (job, at) in promises {
            assert!(promised.insert(job, at).is_none_or(|before| at <= before), "{job} is not delayed");
        }
    });
    assert!(promised.iter().all(|(job, at)| starts[job] <= *at));
}

/// The groups that may get nodes of `group`, also by way of others.
fn part_of(machine: &Machine, group: GroupId) -> BTreeSet<GroupId> {
    let mut part = BTreeSet::from([group]);
    loop {
        let groups = (0..).map(GroupId).take(machine.groups().len());
        let joined = groups.filter(|group| part.iter().any(|of| machine.may_compete(*of, *group)));
        let joined: BTreeSet<GroupId> = joined.collect();
        if joined == part {
            return part;
        }
        part = joined;
    }
}

/// Each part of a machine is scheduled as if there were no other.
fn parts_are_apart(empty: &dyn Fn() -> Box<dyn QueueOrder>, machine: &dyn Fn() -> Machine, jobs: &[Job]) {
    let mut order = Apart::new(&machine(), empty());
    let whole = play(&mut order, &mut machine(), jobs, |_, _, _, _| {});
    for group in (0..).map(GroupId).take(machine().groups().len()) {
        let part = part_of(&machine(), group);
        let of_part: Vec<Job> = jobs.iter().copied().filter(|job| part.contains(&job.waits.group)).collect();
        let mut order = Apart::new(&machine(), empty());
        let alone = play(&mut order, &mut machine(), &of_part, |_, _, _, _| {});
        assert!(alone.iter().all(|(job, at)| whole[job] == *at), "{alone:?} {whole:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn first_come_starts_first(jobs in workload(1, 16)) {
        let starts = play(&mut Fcfs::default(), &mut single(16), &jobs, |_, _, _, _| {});
        let mut order: Vec<&Job> = jobs.iter().collect();
        order.sort_by_key(|job| (job.waits.submitted, job.waits.job));
        prop_assert!(order.is_sorted_by_key(|job| starts[&job.waits.job]));
        prop_assert!(jobs.iter().all(|job| starts[&job.waits.job] >= job.waits.submitted));
    }

    #[test]
    fn parts_of_a_machine_know_nothing_of_each_other((widths, groups, jobs) in overlapping()) {
        let machine = || any_nodes(&widths, &groups);
        let fcfs = || Box::new(Fcfs::default()) as Box<dyn QueueOrder>;
        let easy = || Box::new(Easy::default()) as Box<dyn QueueOrder>;
        let conservative = || Box::new(Conservative::default()) as Box<dyn QueueOrder>;
        let empties: [&dyn Fn() -> Box<dyn QueueOrder>; 3] = [&fcfs, &easy, &conservative];
        empties.iter().for_each(|empty| parts_are_apart(empty, &machine, &jobs));
    }

    #[test]
    fn the_head_of_easy_starts_no_later_than_promised(
        jobs in workload(1, 16),
        (widths, groups, more) in overlapping(),
    ) {
        easy_keeps_its_promises(&mut single(16), &jobs);
        easy_keeps_its_promises(&mut any_nodes(&widths, &groups), &more);
    }

    #[test]
    fn no_job_starts_later_than_conservative_backfilling_promised(
        jobs in workload(1, 16),
        (widths, groups, more) in overlapping(),
    ) {
        conservative_keeps_its_promises(&mut single(16), &jobs);
        conservative_keeps_its_promises(&mut any_nodes(&widths, &groups), &more);
    }

    #[test]
    fn conservative_backfilling_decides_as_the_plain_code(
        crowd in crowd(16),
        jobs in workload(3, 8),
        (widths, groups, more) in overlapping(),
    ) {
        conservative_decides_as_plain_code(|| single(16), &crowd);
        conservative_decides_as_plain_code(|| Machine::single(Box::new(Contiguous::new(16))), &crowd);
        conservative_decides_as_plain_code(|| paragon(true), &jobs);
        conservative_decides_as_plain_code(|| any_nodes(&widths, &groups), &more);
    }

    #[test]
    fn limits_that_are_not_kept_stop_no_job_for_ever(
        jobs in workload(1, 16),
        (widths, groups, more) in overlapping(),
        factor in 2u32..5,
    ) {
        let lying: Vec<Job> = jobs.iter().map(|job| Job { takes: job.takes * factor, ..*job }).collect();
        play(&mut Conservative::default(), &mut single(16), &lying, |_, _, _, _| {});
        play(&mut Easy::default(), &mut single(16), &lying, |_, _, _, _| {});
        let mut machine = Machine::single(Box::new(Contiguous::new(16)));
        play(&mut Conservative::default(), &mut machine, &lying, |_, _, _, _| {});
        let lying: Vec<Job> = more.iter().map(|job| Job { takes: job.takes * factor, ..*job }).collect();
        play(&mut Conservative::default(), &mut any_nodes(&widths, &groups), &lying, |_, _, _, _| {});
        play(&mut Easy::default(), &mut any_nodes(&widths, &groups), &lying, |_, _, _, _| {});
    }

    /// A job that needs all of one set, against small ones that keep arriving there; by the count of the
    /// whole machine it would fit.
    #[test]
    fn conservative_backfilling_over_node_groups_starves_no_job(
        jobs in workload(3, 8),
        contiguous in any::<bool>(),
        takes in 10u64..20,
    ) {
        let small = |id: u32| job(id, 0, 1, u64::from(id - 1000), takes, takes);
        let wide = job(999, 0, 8, 5, 30, 30);
        let all: Vec<Job> = jobs.iter().copied().chain((1000..1300).map(small)).chain([wide]).collect();
        let starts = play(&mut Conservative::default(), &mut paragon(contiguous), &all, |_, _, _, _| {});
        // The jobs that arrived before it, one after the other, and those that run when it is due.
        let before: u64 = all.iter().filter(|job| job.waits.submitted <= wide.waits.submitted)
            .map(|job| job.takes.as_secs() / 60).sum();
        let longest = all.iter().map(|job| job.takes.as_secs() / 60).max().unwrap_or_default();
        prop_assert!(starts[&wide.waits.job].0 / (HOUR / 60) <= 5 + before + 2 * longest);
    }

    #[test]
    fn aging_follows_the_text_of_the_paper(
        jobs in workload(3, 8),
        priorities in prop::collection::vec(0i64..12, 3),
        block in prop::option::of(4i64..20),
        running_max in prop::option::of(1u32..3),
        contiguous in any::<bool>(),
    ) {
        let config = aging(&priorities, block, running_max);
        let mut letter = PlainAging::new(config.clone());
        let (mut started_at, mut expected) = (Vec::new(), Vec::new());
        play(&mut Aging::new(config), &mut paragon(contiguous), &jobs, |now, _, _, started| {
            started_at.extend(started.iter().map(|job| (now, job.job)));
        });
        play(&mut letter, &mut paragon(contiguous), &jobs, |now, _, _, started| {
            expected.extend(started.iter().map(|job| (now, job.job)));
        });
        prop_assert_eq!(started_at, expected);
    }

    /// A job of `nodes` nodes against an endless stream of small ones, more than the machine can run.
    #[test]
    fn blocking_never_starves(
        nodes in 9u32..=16,
        block in 5i64..20,
        head_start in 0i64..10,
        takes in 10u64..60,
    ) {
        let small = |id| job(id, 1, 1 + id % 4, u64::from(id), takes, 60);
        let mut jobs: Vec<Job> = (1..1200).map(small).collect();
        jobs.push(job(0, 0, nodes, 60, 30, 60));
        let machine = || {
            let set = NodeSet { name: "all".into(), allocator: Box::new(FirstFit::new(16)) };
            let group = NodeGroup { name: "all".into(), prime: vec![SetId(0)], non_prime: vec![SetId(0)] };
            Machine::new(vec![set], vec![group.clone(), group], Calendar::never_prime()).unwrap()
        };
        let start = |block| {
            let config = aging(&[0, head_start], block, None);
            play(&mut Aging::new(config), &mut machine(), &jobs, |_, _, _, _| {})[&JobId(0)]
        };
        // It ages 2 points an hour from 0, the others from `head_start`. Those that arrived before it, or up
        // to `head_start / 2` hours after, may go first, and once it blocks the longest of them has to end.
        let minutes = |at: SimTime| at.0 / (HOUR / 60);
        let ages = 60 + 30 * u64::try_from(block.max(head_start)).unwrap() + 60;
        let ahead: u64 = jobs.iter().filter(|job| minutes(job.waits.submitted) <= ages)
            .map(|job| u64::from(job.waits.request.nodes) * job.takes.as_secs() / 60).sum();
        // While one of them waits in front, at least 13 nodes are busy.
        prop_assert!(minutes(start(Some(block))) <= ages + ahead / 13 + 2 * takes);
    }

    /// The same for a job that needs both node sets, against small jobs of two groups, and of a third by
    /// night.
    #[test]
    fn blocking_never_starves_over_node_groups(
        nodes in 9u32..=16,
        block in 1i64..10,
        head_start in 0i64..10,
        takes in 10u64..60,
        contiguous in any::<bool>(),
    ) {
        let group = |id: u32| [0, 1, 0, 1, 2][id as usize % 5];
        let small = |id: u32| job(id, group(id), 1 + id % 4, 10 * u64::from(id), takes, 60);
        let mut jobs: Vec<Job> = (1..500).map(small).collect();
        jobs.push(job(0, 1, nodes, 60, 30, 60));
        let config = aging(&[head_start, 0, head_start], Some(block), None);
        let mut machine = paragon(contiguous);
        let start = play(&mut Aging::new(config), &mut machine, &jobs, |_, _, _, _| {})[&JobId(0)];
        let ages = 60 + 30 * u64::try_from(block.max(head_start)).unwrap() + 60;
        // Each job ahead may delay the others by itself.
        let ahead = jobs.iter().filter(|job| job.waits.submitted.0 / (HOUR / 60) <= ages).count() as u64;
        prop_assert!(start.0 / (HOUR / 60) <= ages + (ahead + 2) * takes);
    }
}

#[test]
fn without_blocking_a_large_job_waits_until_no_small_one_comes() {
    let jobs: Vec<Job> = (1..500)
        .map(|id| job(id, 1, 3, u64::from(id) * 5, 60, 60))
        .chain([job(0, 0, 16, 10, 30, 60)])
        .collect();
    let machine = || {
        let set = NodeSet { name: "all".into(), allocator: Box::new(FirstFit::new(16)) };
        let group = NodeGroup { name: "all".into(), prime: vec![SetId(0)], non_prime: vec![SetId(0)] };
        Machine::new(vec![set], vec![group.clone(), group], Calendar::never_prime()).unwrap()
    };
    let start = |block| {
        let config = aging(&[0, 0], block, None);
        play(&mut Aging::new(config), &mut machine(), &jobs, |_, _, _, _| {})[&JobId(0)].0 / (HOUR / 60)
    };
    // Above 4 points after two hours; a job that started before takes one more.
    assert_eq!(start(Some(4)), 190);
    let last = start(None);
    assert!(last > 2495, "it starves: {last}");
}

#[test]
fn a_short_job_is_backfilled_and_a_long_one_only_beside_the_reservation() {
    let jobs = [
        job(0, 0, 10, 0, 60, 60),
        job(1, 0, 12, 1, 60, 60), // the head: waits for job 0, leaves 4 nodes
        job(2, 0, 6, 2, 90, 90),  // too long and too wide for what is left beside
        job(3, 0, 6, 3, 30, 30),  // over before the head starts
        job(4, 0, 4, 40, 90, 90), // beside the head
    ];
    let minutes = |starts: BTreeMap<JobId, SimTime>| -> Vec<u64> {
        starts.values().map(|at| at.0 / (HOUR / 60)).collect()
    };
    let easy = play(&mut Easy::default(), &mut single(16), &jobs, |_, _, _, _| {});
    assert_eq!(minutes(easy), [0, 60, 120, 3, 40]);
    let conservative = play(&mut Conservative::default(), &mut single(16), &jobs, |_, _, _, _| {});
    assert_eq!(minutes(conservative), [0, 60, 120, 3, 40]);
    let fcfs = play(&mut Fcfs::default(), &mut single(16), &jobs, |_, _, _, _| {});
    assert_eq!(minutes(fcfs), [0, 60, 120, 120, 120]);
}

/// Thin nodes and fat ones, eight of each, for three groups: thin, both, and fat by night only.
#[test]
fn a_reservation_is_of_the_groups_own_sets() {
    let jobs = [
        job(0, 0, 6, 0, 60, 60),
        job(1, 0, 8, 1, 60, 60),   // the head: all thin nodes, once job 0 is over
        job(2, 0, 2, 2, 90, 90),   // too long, though the machine could hold it and the head
        job(3, 0, 2, 3, 30, 30),   // over before the head starts
        job(4, 2, 8, 4, 90, 90),   // on nodes that the head may not have
        job(5, 1, 4, 5, 300, 300), // the fat nodes are taken: it would be in the way
    ];
    let minutes = |starts: BTreeMap<JobId, SimTime>| -> Vec<u64> {
        starts.values().map(|at| at.0 / (HOUR / 60)).collect()
    };
    let easy = play(&mut Easy::default(), &mut paragon(false), &jobs, |_, _, _, _| {});
    assert_eq!(minutes(easy), [0, 60, 120, 3, 4, 94]);
    let conservative = play(&mut Conservative::default(), &mut paragon(false), &jobs, |_, _, _, _| {});
    assert_eq!(minutes(conservative), [0, 60, 120, 3, 4, 94]);
}

#[test]
fn a_reservation_respects_the_hours_of_the_group() {
    let jobs = [
        job(0, 2, 8, 600, 60, 60), // all fat nodes, from five in the afternoon
        job(1, 1, 16, 601, 60, 60),
        job(2, 1, 16, 602, 400, 400), // it would not be over at five
        job(3, 0, 8, 603, 480, 480),  // on nodes that job 0 may not have
    ];
    let (five, mut promises) = (SimTime(17 * HOUR), 0);
    let easy = play(&mut Easy::default(), &mut paragon(false), &jobs, |now, easy, machine, _| {
        if now >= SimTime(10 * HOUR) && now < five {
            assert_eq!(easy.reservation(now, machine), Some((JobId(0), five)));
            promises += 1;
        }
    });
    let minutes = |starts: BTreeMap<JobId, SimTime>| -> Vec<u64> {
        starts.values().map(|at| at.0 / (HOUR / 60)).collect()
    };
    assert_eq!((minutes(easy), promises > 3), (vec![1020, 601, 1141, 661], true));
    let conservative = play(&mut Conservative::default(), &mut paragon(false), &jobs, |_, _, _, _| {});
    assert_eq!(minutes(conservative), [1020, 601, 1080, 1480]);
}

/// Two sets, one of which another group uses too: a job is promised what each set grants, not what is free
/// there.
#[test]
fn a_reservation_is_divided_as_the_allocators_grant_it() {
    let group = |sets: &[u16]| {
        let sets: Vec<SetId> = sets.iter().copied().map(SetId).collect();
        NodeGroup { name: "g".into(), prime: sets.clone(), non_prime: sets }
    };
    let start = |allocators: [Box<dyn Allocator>; 2], request| {
        let sets = allocators.map(|allocator| NodeSet { name: "s".into(), allocator });
        let groups = vec![group(&[0, 1]), group(&[0])];
        let mut machine = Machine::new(sets.into(), groups, Calendar::never_prime()).unwrap();
        let mut job = job(0, 0, 1, 0, 60, 60);
        job.waits.request = request;
        play(&mut Conservative::default(), &mut machine, &[job], |_, _, _, _| {})[&JobId(0)]
    };
    // Twice the largest block, not all of one set and the rest of the other.
    assert_eq!(start([Box::new(Buddy::new(12)), Box::new(Buddy::new(12))], Request::nodes(16)), SimTime(0));
    // The first set has enough CPUs, but not enough nodes.
    let boxes: [Box<dyn Allocator>; 2] = [Box::new(BoxPacker::new(2, 4)), Box::new(BoxPacker::new(4, 4))];
    assert_eq!(start(boxes, Request { nodes: 3, cpus: 2 }), SimTime(0));
}
