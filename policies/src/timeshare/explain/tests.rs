//! Explanations as a user reads them.

use std::time::Duration;

use insta::assert_snapshot;

use super::*;
use crate::{Alternate, Rotation};

fn explained(policy: Policy) -> String {
    let job = |(id, (name, ranks, mib)): (u32, (&str, u32, u64))| JobSpec {
        id: JobId(id),
        name: name.into(),
        ranks,
        memory_per_rank: Bytes::mib(mib),
        arrival: SimTime(0),
    };
    let jobs = [("cg", 2, 300), ("heat", 2, 700), ("ep", 1, 20), ("is", 4, 250), ("huge", 2, 4000)];
    let jobs = (0..).zip(jobs).map(job).collect();
    let config = SchedulerConfig::new(policy, Duration::from_secs(10));
    explain_jobs(Cluster::uniform(2, Bytes::mib(1024)), config, jobs, &BTreeMap::new(), vec![], vec![])
        .unwrap()
        .to_string()
}

/// Each clause on a line of its own.
fn clauses(text: &str) -> String {
    text.replace("; ", ";\n  ")
}

#[test]
fn hybrid_is_explained_by_what_fits_beside_what() {
    assert_snapshot!(clauses(&explained(Policy::Hybrid)), @r"
    policy hybrid, 2 rows

             | node-0 1GiB                | node-1 1GiB
    > slot-0 | cg*1 heat*1 ep*1 = 1020MiB | cg*1 heat*1 = 1000MiB
      slot-1 | is*2 = 500MiB              | is*2 = 500MiB

    turn 1 of 2, slot-0: cg, heat, ep;
      at most 1020MiB of 1GiB on node-0;
      its turn moves 500MiB out and 1020MiB in
    turn 2 of 2, slot-1: is;
      at most 500MiB of 1GiB on node-0;
      its turn moves 1020MiB out and 500MiB in

    cg (job-0): slot-0 on 2 nodes, beside heat
    heat (job-1): slot-0 on 2 nodes, the first there
    ep (job-2): slot-0 on 1 node, beside cg, heat
    is (job-3): slot-1 on 2 nodes, the first there;
      slot-0 has 324MiB left on node-0, not 500MiB
    huge (job-4): can never run: needs 3.9GiB on one node for 1 of its ranks, the largest node has 1GiB
    ");
}

#[test]
fn a_backfilled_job_is_not_moved() {
    let job = |(id, (ranks, name)): (u32, (u32, &str))| JobSpec {
        id: JobId(id),
        name: name.into(),
        ranks,
        memory_per_rank: Bytes::mib(100),
        arrival: SimTime(0),
    };
    let jobs = (0..).zip([(2, "wide"), (1, "left"), (1, "right"), (1, "late")]).map(job).collect();
    let config = SchedulerConfig::new(Policy::Gang, Duration::from_secs(10));
    let config = SchedulerConfig { alternate: Alternate::Whole, ..config };
    let explained =
        explain_jobs(Cluster::uniform(2, Bytes::mib(1000)), config, jobs, &BTreeMap::new(), vec![], vec![])
            .unwrap();
    assert_snapshot!(explained.grid, @r"
             | node-0 1000MiB  | node-1 1000MiB
    > slot-0 | wide*1 = 100MiB | wide*1 = 100MiB
      slot-1 | left*1 = 100MiB | right*1 = 100MiB
      slot-2 | late*1 = 100MiB | (right*1)
    ");
    let sets: Vec<&str> = explained.sets.iter().map(|set| set.text.as_str()).collect();
    assert_snapshot!(clauses(&sets.join("\n")), @r"
    turn 1 of 3, slot-0: wide;
      at most 100MiB of 1000MiB on node-0;
      its turn moves 100MiB out and 100MiB in
    turn 2 of 3, slot-1: left, right;
      at most 100MiB of 1000MiB on node-0;
      its turn moves 100MiB out and 100MiB in
    turn 3 of 3, slot-2: late;
      at most 100MiB of 1000MiB on node-0;
      on idle nodes right goes on;
      its turn moves 100MiB out and 100MiB in
    ");
}

#[test]
fn partly_backfilled_jobs_are_drawn_under_the_partial_rule() {
    let job = |(id, ranks): (u32, u32)| JobSpec {
        id: JobId(id),
        name: ["three", "two", "too"][id as usize].into(),
        ranks,
        memory_per_rank: Bytes::mib(100),
        arrival: SimTime(0),
    };
    let config = SchedulerConfig::new(Policy::Gang, Duration::from_secs(10));
    let drawn = |alternate| {
        let jobs = (0..).zip([3, 2, 2]).map(job).collect();
        let config = SchedulerConfig { alternate, ..config.clone() };
        explain_jobs(Cluster::uniform(3, Bytes::mib(100)), config, jobs, &BTreeMap::new(), vec![], vec![])
            .unwrap()
            .grid
    };
    assert_eq!(drawn(Alternate::None), drawn(Alternate::Whole));
    assert_snapshot!(drawn(Alternate::Partial), @r"
             | node-0 100MiB    | node-1 100MiB    | node-2 100MiB
    > slot-0 | three*1 = 100MiB | three*1 = 100MiB | three*1 = 100MiB
      slot-1 | two*1 = 100MiB   | two*1 = 100MiB   | (three*1)
      slot-2 | too*1 = 100MiB   | too*1 = 100MiB   | (three*1)
    ");
}

#[test]
fn measured_communication_is_told_and_jobs_are_mixed_by_it() {
    let job = |id| JobSpec {
        id: JobId(id),
        name: ["cg", "is", "ep", "mg"][id as usize].into(),
        ranks: 2,
        memory_per_rank: Bytes::mib(400),
        arrival: SimTime(0),
    };
    let known = (0..).map(JobId).zip([900, 850, 10, 100].map(Communication::per_mille)).collect();
    let config = SchedulerConfig::new(Policy::Paired, Duration::from_secs(10));
    let jobs = (0..4).map(job).collect();
    let explained =
        explain_jobs(Cluster::uniform(2, Bytes::mib(1024)), config, jobs, &known, vec![], vec![]).unwrap();
    assert_snapshot!(clauses(&explained.to_string()), @r"
    policy paired, 2 rows;
      packed by memory, and mixed by how much each job communicates

             | node-0 1GiB        | node-1 1GiB
    > slot-0 | is*1 ep*1 = 800MiB | is*1 ep*1 = 800MiB
      slot-1 | cg*1 mg*1 = 800MiB | cg*1 mg*1 = 800MiB

    turn 1 of 2, slot-0: is, ep;
      at most 800MiB of 1GiB on node-0;
      its turn moves 800MiB out and 800MiB in
    turn 2 of 2, slot-1: cg, mg;
      at most 800MiB of 1GiB on node-0;
      its turn moves 800MiB out and 800MiB in

    cg (job-0): slot-1 on 2 nodes, beside mg;
      exchanged, so that jobs that compute and jobs that communicate share nodes;
      communicates 90 % of its time
    is (job-1): slot-0 on 2 nodes, the first there;
      communicates 85 % of its time
    ep (job-2): slot-0 on 2 nodes, beside is;
      communicates 1 % of its time
    mg (job-3): slot-1 on 2 nodes, the first there;
      slot-0 has 224MiB left on node-0, not 400MiB;
      communicates 10 % of its time
    ");
}

#[test]
fn a_rotation_of_jobs_has_a_first_set_and_jobs_that_wait() {
    let config = SchedulerConfig {
        rotation: Rotation::Job,
        ..SchedulerConfig::new(Policy::Hybrid, Duration::from_secs(10))
    };
    let job = |id: u32| JobSpec {
        id: JobId(id),
        name: format!("job-{id}").into(),
        ranks: 2,
        memory_per_rank: Bytes::mib(400),
        arrival: SimTime(0),
    };
    let jobs = (0..3).map(job).collect();
    let explained =
        explain_jobs(Cluster::uniform(2, Bytes::mib(1000)), config, jobs, &BTreeMap::new(), vec![], vec![])
            .unwrap();
    let texts: Vec<&str> = explained.sets.iter().map(|set| set.text.as_str()).collect();
    let expected = [
        "slot-0 runs first: job-0, job-1; at most 800MiB of 1000MiB on node-0; at the end of each turn the \
         job that ran for longest makes room for the job that waited for longest",
        "slot-1 waits: job-2; at most 400MiB of 1000MiB on node-0",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn batch_is_explained_by_its_queue() {
    assert_snapshot!(clauses(&explained(Policy::Batch)), @r"
    policy batch, 1 row

             | node-0 1GiB   | node-1 1GiB
    > slot-0 | cg*1 = 300MiB | cg*1 = 300MiB

    turn 1 of 1, slot-0: cg;
      at most 300MiB of 1GiB on node-0

    cg (job-0): slot-0 on 2 nodes, the first there
    heat (job-1): queues, with 0 jobs ahead
    ep (job-2): queues, with 1 job ahead
    is (job-3): queues, with 2 jobs ahead
    huge (job-4): can never run: needs 3.9GiB on one node for 1 of its ranks, the largest node has 1GiB
    ");
}

#[test]
fn cosched_tells_where_the_system_will_swap() {
    assert_snapshot!(clauses(&explained(Policy::Cosched)), @r"
    policy cosched, 1 row

             | node-0 1GiB                           | node-1 1GiB
    > slot-0 | cg*1 heat*1 ep*1 is*2 huge*1 = 5.4GiB | cg*1 heat*1 is*2 huge*1 = 5.4GiB

    turn 1 of 1, slot-0: cg, heat, ep, is, huge;
      more than fits, the system swaps: 5.4GiB of 1GiB on node-0

    cg (job-0): slot-0 on 2 nodes, the first there
    heat (job-1): slot-0 on 2 nodes, beside cg
    ep (job-2): slot-0 on 1 node, beside cg, heat
    is (job-3): slot-0 on 2 nodes, beside cg, heat, ep
    huge (job-4): slot-0 on 2 nodes, beside cg, heat, ep, is
    ");
}

#[test]
fn nodes_that_hold_the_same_share_a_column_on_a_large_cluster() {
    let job = |(id, ranks): (u32, u32)| JobSpec {
        id: JobId(id),
        name: format!("j{id}").into(),
        ranks,
        memory_per_rank: Bytes::mib(600),
        arrival: SimTime(0),
    };
    let jobs = (0..).zip([100, 60, 39]).map(job).collect();
    let config = SchedulerConfig::new(Policy::Gang, Duration::from_secs(10));
    let explained =
        explain_jobs(Cluster::uniform(100, Bytes::mib(1024)), config, jobs, &BTreeMap::new(), vec![], vec![])
            .unwrap();
    assert_snapshot!(explained.grid, @r"
             | node-0 to node-59, 1GiB each | node-60 to node-98, 1GiB each | node-99 1GiB
    > slot-0 | j0*1 = 600MiB                | j0*1 = 600MiB                 | j0*1 = 600MiB
      slot-1 | j1*1 = 600MiB                | j2*1 = 600MiB                 | -
    ");
}
