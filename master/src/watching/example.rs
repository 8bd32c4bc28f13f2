//! A cluster as it answers, for tests of what is drawn of it.

use std::time::Duration;

use coswitch_policies::{
    Bytes, Capacity, ForeseenTurn, JobId, NodeId, Outlook, Placement, Policy, SimTime, SlotId,
};

use super::Status;
use crate::{
    api::{ClusterStatus, JobState, JobStatus, NodeMemory, Queue, Timetable, User},
    config::ClusterConfig,
};

pub(crate) fn at(seconds: f64) -> SimTime {
    Duration::from_secs_f64(seconds).into()
}

pub(crate) fn job(number: u32, name: &str, state: JobState, runs: [f64; 2]) -> JobStatus {
    let [from, until] = runs;
    JobStatus {
        job: JobId(number),
        name: name.into(),
        user: User::ROOT,
        state,
        ranks: 2,
        memory: Bytes::mib(300),
        priority: 0,
        group: None,
        opens: None,
        submitted: at(0.0),
        began: None,
        ended: None,
        outcome: None,
        ran: Duration::from_secs(65),
        time_limit: None,
        after: vec![],
        outlook: Outlook {
            runs_from: Some(at(from)),
            runs_until: Some(at(until)),
            done: (number == 0).then(|| at(500.0)),
        },
        output: "out".into(),
    }
}

/// A cluster of so many nodes at second 100, whose turns of 10 s alternate between two sets.
pub(crate) fn status(nodes: u32) -> Status {
    let cluster = ClusterConfig {
        nodes,
        hosts: vec![],
        allocation: None,
        memory: Capacity::OfAll(Bytes::mib(1024)),
        memory_asked: std::collections::BTreeSet::new(),
        power: Vec::new(),
        rate: None,
        encryption: None,
        arena: None,
        store: vec![],
        copies: 0,
        lost_after: Duration::ZERO,
        heartbeats: coswitch_dispatcher::watch::Heartbeats::default(),
        stop_after: Duration::ZERO,
        mean_time_between_failures: None,
    };
    let everywhere = Placement::from_shares(&vec![1; nodes as usize]);
    let turn = |number: u32, jobs: &[u32]| ForeseenTurn {
        slot: SlotId(number % 2),
        from: at(96.0 + 11.0 * f64::from(number)),
        until: Some(at(106.0 + 11.0 * f64::from(number))),
        jobs: jobs.iter().map(|job| (JobId(*job), everywhere.clone())).collect(),
    };
    let sets: [&[u32]; 2] = [&[0, 1], &[2]];
    let memory = |node| NodeMemory { node: NodeId(node), used: Bytes::mib(612), by_job: vec![] };
    let jobs = vec![
        job(0, "heat", JobState::Running, [100.0, 106.0]),
        job(1, "conjugate-gradient", JobState::Running, [100.0, 106.0]),
        job(2, "big", JobState::Parked, [107.0, 117.0]),
    ];
    Status {
        cluster: ClusterStatus {
            version: "1".into(),
            run: "r1".into(),
            policy: Policy::Hybrid,
            quantum: Duration::from_secs(10),
            cluster,
        },
        queue: Queue { now: at(100.0), jobs, lost: vec![], drained: vec![] },
        timetable: Timetable {
            now: at(100.0),
            turns: (0..6).map(|number| turn(number, sets[number as usize % 2])).collect(),
            switch: None,
            memory: (0..nodes.min(4)).map(memory).collect(),
        },
    }
}
