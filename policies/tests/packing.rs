//! Packing of jobs that come together: first fit, best fit and exact beside every possible assignment, and
//! pairing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coswitch_policies::{
    Bytes, Cluster, Communication, JobId, JobSpec, MemoryRule, NodeId, Packing, Placement, Policy, Row,
    Scheduler, SchedulerConfig, SchedulerEvent, SimTime,
    placement::Shape,
    timeshare::packing::pairing::{self, Fractions},
};
use insta::assert_snapshot;
use proptest::prelude::*;

const EXACT: Packing = Packing::Exact { visits_max: 200_000 };

/// Ranks, MiB of a rank, thousandths of communication.
type Wish = (u32, u64, u16);

fn specs(wishes: &[Wish]) -> Vec<JobSpec> {
    let spec = |(id, (ranks, mib, _)): (u32, &Wish)| JobSpec {
        id: JobId(id),
        name: format!("j{id}").into(),
        ranks: *ranks,
        memory_per_rank: Bytes::mib(*mib),
        arrival: SimTime(0),
    };
    (0..).zip(wishes).map(spec).collect()
}

fn packed(
    cluster: &Cluster,
    policy: Policy,
    packing: Packing,
    max_per_cell: Option<u32>,
    wishes: &[Wish],
) -> Scheduler {
    let config =
        SchedulerConfig { packing, max_per_cell, ..SchedulerConfig::new(policy, Duration::from_secs(1)) };
    let mut scheduler = Scheduler::new(cluster.clone(), config).unwrap();
    for (job, (.., communication)) in (0..).map(JobId).zip(wishes) {
        let communication = Communication::per_mille(*communication);
        scheduler.on_event(SimTime(0), SchedulerEvent::Measured { job, communication });
    }
    scheduler.on_event(SimTime(0), SchedulerEvent::Submitted { jobs: specs(wishes) });
    assert_eq!(scheduler.matrix().check(), Ok(()));
    scheduler
}

fn fractions(wishes: &[Wish]) -> Fractions {
    let mut fractions = Fractions::default();
    for (job, (.., communication)) in (0..).map(JobId).zip(wishes) {
        fractions.learn(job, Communication::per_mille(*communication));
    }
    fractions
}

/// Rows and pairing cost.
fn figures(scheduler: &Scheduler, wishes: &[Wish]) -> (usize, u64) {
    let rows = scheduler.matrix().rows();
    (rows.len(), rows.map(|row| pairing::cost(row, &fractions(wishes))).sum())
}

/// The least rows, then cost, over all assignments of jobs to rows and to sets of nodes. Slow, plain, and
/// with nothing in common with the search.
fn by_brute_force(cluster: &Cluster, max_per_cell: Option<u32>, wishes: &[Wish]) -> (usize, u64) {
    fn go(
        cluster: &Cluster,
        max_per_cell: Option<u32>,
        jobs: &[(JobSpec, u64)],
        rows: &mut Vec<Vec<(u64, u32, u64, u64)>>,
        best: &mut (usize, u64),
    ) {
        let Some(((job, c), others)) = jobs.split_first() else {
            let cost = rows.iter().flatten().map(|(_, _, network, processor)| *network.max(processor)).sum();
            *best = (*best).min((rows.len(), cost));
            return;
        };
        if rows.len() > best.0 {
            return;
        }
        let shape = Shape::on_empty(job, cluster, MemoryRule::MustFit).unwrap();
        assert_eq!(shape.width * shape.most, job.ranks, "even gangs only");
        let memory = job.memory_of(shape.most).0;
        for row in 0..=rows.len() {
            if row == rows.len() {
                rows.push(vec![(0, 0, 0, 0); cluster.len()]);
            }
            for set in 0u32..1 << cluster.len() {
                let nodes: Vec<usize> = (0..cluster.len()).filter(|node| set >> node & 1 == 1).collect();
                let fits = |node: &usize| {
                    let (used, count, ..) = rows[row][*node];
                    let capacity = cluster.nodes().nth(*node).unwrap().1.0;
                    used + memory <= capacity && max_per_cell.is_none_or(|max| count < max)
                };
                if nodes.len() != shape.width as usize || !nodes.iter().all(fits) {
                    continue;
                }
                let before = rows[row].clone();
                for node in nodes {
                    let (used, count, network, processor) = rows[row][node];
                    rows[row][node] = (used + memory, count + 1, network + c, processor + 1000 - c);
                }
                go(cluster, max_per_cell, others, rows, best);
                rows[row] = before;
            }
            if row + 1 == rows.len() && rows[row].iter().all(|cell| cell.1 == 0) {
                rows.pop();
                break;
            }
        }
    }
    let jobs: Vec<(JobSpec, u64)> =
        specs(wishes).into_iter().zip(wishes.iter().map(|(.., c)| u64::from(*c))).collect();
    let mut best = (usize::MAX, u64::MAX);
    go(cluster, max_per_cell, &jobs, &mut Vec::new(), &mut best);
    best
}

/// Jobs of one rank a node on up to `nodes` nodes.
fn wishes(nodes: u32, jobs: usize) -> impl Strategy<Value = Vec<Wish>> {
    let fraction = prop_oneof![Just(100u16), Just(500), Just(900)];
    prop::collection::vec((1..=nodes, 100u64..1000, fraction), 1..=jobs)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exact_packing_is_what_trying_everything_finds(
        wishes in wishes(3, 5), max in prop::option::of(2u32..4),
    ) {
        let cluster = Cluster::uniform(3, Bytes::mib(1000));
        let best = by_brute_force(&cluster, max, &wishes);
        let exact = packed(&cluster, Policy::Paired, EXACT, max, &wishes);
        prop_assert_eq!(figures(&exact, &wishes), best);
    }

    #[test]
    fn exact_packing_is_never_worse_than_first_fit_however_short_the_search(
        wishes in wishes(4, 16), max in prop::option::of(1u32..5), visits_max in 0u32..500,
    ) {
        let cluster = Cluster::uniform(4, Bytes::mib(1000));
        let rows = |packing| packed(&cluster, Policy::Hybrid, packing, max, &wishes).matrix().rows().len();
        let exact = Packing::Exact { visits_max };
        prop_assert!(rows(exact) <= rows(Packing::FirstFit));
    }

    #[test]
    fn pairing_never_costs_more_rows_or_a_worse_mix(
        wishes in wishes(4, 12), max in prop::option::of(1u32..5),
    ) {
        let cluster = Cluster::uniform(4, Bytes::mib(1000));
        let [hybrid, paired] = [Policy::Hybrid, Policy::Paired]
            .map(|policy| figures(&packed(&cluster, policy, Packing::FirstFit, max, &wishes), &wishes));
        prop_assert_eq!(hybrid.0, paired.0);
        prop_assert!(paired.1 <= hybrid.1);
    }

    #[test]
    fn the_least_loaded_block_of_the_buddy_tree_takes_a_job_and_keeps_it(
        wishes in wishes(8, 24),
        nodes in 1u32..12,
        max in prop::option::of(1u32..4),
        gone in prop::collection::vec(0u32..24, 0..12),
    ) {
        let cluster = Cluster::uniform(nodes, Bytes::mib(1000));
        let mut scheduler = packed(&cluster, Policy::Hybrid, Packing::Buddy, max, &wishes);
        let lies = |scheduler: &Scheduler| -> BTreeMap<JobId, Vec<u32>> {
            let assignments = scheduler.matrix().rows().flat_map(Row::assignments);
            let nodes = |placement: &Placement| placement.nodes().map(|node| node.0).collect();
            assignments.map(|assignment| (assignment.spec.id, nodes(&assignment.placement))).collect()
        };
        let before = lies(&scheduler);
        for held in before.values() {
            let size = (held.len() as u32).next_power_of_two();
            prop_assert!(size > nodes || held.iter().all(|node| node / size == held[0] / size), "{held:?}");
        }
        // Each took the block that was in use in the fewest rows when it came, the largest first.
        let mut order: Vec<_> = scheduler.jobs().collect();
        let size = |job: &JobSpec| (job.memory_of(job.ranks.div_ceil(nodes)), job.memory());
        order.sort_by_key(|job| (std::cmp::Reverse(size(&job.spec)), job.spec.id));
        let mut used: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        for job in &order {
            let landing = job.landing.as_ref().unwrap();
            let held: Vec<u32> = landing.placement.nodes().map(|node| node.0).collect();
            let size = (held.len() as u32).next_power_of_two().min(nodes);
            let load = |block: u32| {
                let here = used.iter().filter(|((_, node), _)| node / size == block);
                let rows: BTreeSet<u32> = here.clone().map(|((row, _), _)| *row).collect();
                (rows.len(), here.map(|(_, memory)| memory).sum::<u64>(), block)
            };
            let least = (0..nodes / size).map(load).min().unwrap();
            prop_assert_eq!(held[0] / size, least.2);
            for node in held {
                let memory = job.spec.memory_of(landing.placement.count_on(NodeId(node)));
                *used.entry((landing.slot.0, node)).or_default() += memory.0;
            }
        }
        // Rows are unified as jobs end, and each job keeps its nodes.
        for job in gone.into_iter().map(JobId) {
            scheduler.on_event(SimTime(0), SchedulerEvent::Finished { job });
            prop_assert_eq!(scheduler.matrix().check(), Ok(()));
        }
        let after = lies(&scheduler);
        prop_assert!(after.iter().all(|(job, nodes)| before[job] == *nodes));
    }

    #[test]
    fn every_packing_assigns_every_job_whole(
        wishes in wishes(5, 20), max in prop::option::of(1u32..5), mib in 1000u64..3000,
    ) {
        let cluster = Cluster::new((0..5).map(|node| Bytes::mib(mib + 200 * node)).collect());
        let exact = Packing::Exact { visits_max: 2000 };
        for packing in [Packing::FirstFit, Packing::BestFit, Packing::Buddy, exact] {
            let scheduler = packed(&cluster, Policy::Paired, packing, max, &wishes);
            let assigned: usize = scheduler.matrix().rows().map(|row| row.jobs().count()).sum();
            prop_assert_eq!(assigned, wishes.len());
        }
    }
}

#[test]
fn exact_packing_finds_the_two_rows_that_first_fit_misses() {
    // 6 + 3 + 3 and 4 + 4 + 4; but largest first, 6 takes 4.
    let cluster = Cluster::uniform(2, Bytes::mib(1200));
    let wishes: Vec<Wish> = [600, 400, 400, 400, 300, 300].map(|mib| (2, mib, 500)).to_vec();
    let grid = |packing| packed(&cluster, Policy::Hybrid, packing, None, &wishes).matrix().to_string();
    assert_snapshot!(grid(Packing::FirstFit), @r"
             | node-0 1.2GiB                    | node-1 1.2GiB
    > slot-0 | job-0*1 job-1*1 = 1000MiB        | job-0*1 job-1*1 = 1000MiB
      slot-1 | job-2*1 job-3*1 job-4*1 = 1.1GiB | job-2*1 job-3*1 job-4*1 = 1.1GiB
      slot-2 | job-5*1 = 300MiB                 | job-5*1 = 300MiB
    ");
    assert_snapshot!(grid(EXACT), @r"
             | node-0 1.2GiB                    | node-1 1.2GiB
    > slot-0 | job-0*1 job-4*1 job-5*1 = 1.2GiB | job-0*1 job-4*1 job-5*1 = 1.2GiB
      slot-1 | job-1*1 job-2*1 job-3*1 = 1.2GiB | job-1*1 job-2*1 job-3*1 = 1.2GiB
    ");
}

#[test]
fn best_fit_fills_the_row_that_is_left_the_fullest() {
    let cluster = Cluster::uniform(1, Bytes::mib(1000));
    let wishes: Vec<Wish> = [600, 700, 300, 350].map(|mib| (1, mib, 500)).to_vec();
    let grid = |packing| packed(&cluster, Policy::Hybrid, packing, None, &wishes).matrix().to_string();
    assert_snapshot!(grid(Packing::BestFit), @r"
             | node-0 1000MiB
    > slot-0 | job-1*1 job-2*1 = 1000MiB
      slot-1 | job-0*1 job-3*1 = 950MiB
    ");
}

#[test]
fn the_least_loaded_block_of_all_rows_takes_the_job() {
    let cluster = Cluster::uniform(8, Bytes::mib(100));
    let wishes: Vec<Wish> = [8, 4, 3, 2, 2, 1].map(|ranks| (ranks, 100, 500)).to_vec();
    let scheduler = packed(&cluster, Policy::Gang, Packing::Buddy, None, &wishes);
    let rows = scheduler.matrix().rows().map(|row| {
        let cell = |node| {
            row.jobs_on(NodeId(node))
                .next()
                .map_or(".".to_owned(), |assignment| assignment.spec.id.0.to_string())
        };
        (0..8).map(cell).collect::<String>() + "\n"
    });
    assert_snapshot!(rows.collect::<String>(), @r"
    00000000
    1111222.
    445...33
    ");
}

#[test]
fn pairing_makes_the_sets_of_the_paper() {
    // Paper 003 §5.5: four computing and four communicating jobs, four to a set: two of each.
    let cluster = Cluster::uniform(2, Bytes::mib(1000));
    let wishes: Vec<Wish> = [100, 100, 100, 100, 800, 800, 800, 800].map(|c| (2, 200, c)).to_vec();
    let grid = |policy| packed(&cluster, policy, Packing::FirstFit, Some(4), &wishes).matrix().to_string();
    assert_snapshot!(grid(Policy::Hybrid), @r"
             | node-0 1000MiB                           | node-1 1000MiB
    > slot-0 | job-0*1 job-1*1 job-2*1 job-3*1 = 800MiB | job-0*1 job-1*1 job-2*1 job-3*1 = 800MiB
      slot-1 | job-4*1 job-5*1 job-6*1 job-7*1 = 800MiB | job-4*1 job-5*1 job-6*1 job-7*1 = 800MiB
    ");
    assert_snapshot!(grid(Policy::Paired), @r"
             | node-0 1000MiB                           | node-1 1000MiB
    > slot-0 | job-2*1 job-3*1 job-4*1 job-5*1 = 800MiB | job-2*1 job-3*1 job-4*1 job-5*1 = 800MiB
      slot-1 | job-0*1 job-1*1 job-6*1 job-7*1 = 800MiB | job-0*1 job-1*1 job-6*1 job-7*1 = 800MiB
    ");
}
