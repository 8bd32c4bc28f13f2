//! Every job gets its turn: the scheduler under each policy, packing and exchange, with an executor that
//! answers at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coswitch_policies::{
    Alternate, Bytes, Cluster, Communication, Decision, JobId, JobSpec, JobState, NodeId, Packing, Policy,
    Residence, Residency, Row, Scheduler, SchedulerConfig, SchedulerEvent, SimTime, SwitchId, TimerId,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Case {
    config: SchedulerConfig,
    nodes: u32,
    /// Ranks, MiB of a rank, the turn in which it comes, the turns it needs.
    jobs: Vec<(u32, u64, u32, u32)>,
    /// Measurements: turn, job, thousandths of communication.
    news: Vec<(u32, u32, u16)>,
    /// Measurements: turn, job, node, MiB resident there, whether the node is under memory pressure.
    resident: Vec<(u32, u32, u32, u64, bool)>,
}

fn cases() -> impl Strategy<Value = Case> {
    let policy =
        prop_oneof![Just(Policy::Batch), Just(Policy::Gang), Just(Policy::Hybrid), Just(Policy::Paired)];
    let packing = prop_oneof![
        Just(Packing::FirstFit),
        Just(Packing::BestFit),
        Just(Packing::Buddy),
        (0u32..300).prop_map(|visits_max| Packing::Exact { visits_max })
    ];
    let alternate = prop_oneof![Just(Alternate::None), Just(Alternate::Whole)];
    let residency = prop_oneof![Just(Residency::None), Just(Residency::Planned), Just(Residency::Always)];
    let config = (policy, packing, prop::option::of(1u32..4), alternate, residency).prop_map(
        |(policy, packing, max_per_cell, alternate, residency)| SchedulerConfig {
            packing,
            max_per_cell,
            alternate,
            residency,
            ..SchedulerConfig::new(policy, Duration::from_secs(1))
        },
    );
    let jobs = prop::collection::vec((1u32..6, 50u64..250, 0u32..30, 1u32..12), 1..14);
    let news = prop::collection::vec((0u32..60, 0u32..14, 0u16..1000), 0..40);
    let resident = prop::collection::vec((0u32..60, 0u32..14, 0u32..5, 10u64..2000, any::<bool>()), 0..40);
    (config, 1u32..5, jobs, news, resident).prop_map(|(config, nodes, jobs, news, resident)| Case {
        config,
        nodes,
        jobs,
        news,
        resident,
    })
}

/// Answers every decision at once; time passes only between strobes.
struct Executor {
    scheduler: Scheduler,
    now: SimTime,
    timers: BTreeSet<(SimTime, TimerId)>,
    switches: Vec<SwitchId>,
    /// Turns each job still needs.
    needs: BTreeMap<JobId, u32>,
    /// Turns of others that each assigned job has waited for, and how many rows there were at most meanwhile.
    waits: BTreeMap<JobId, (usize, usize)>,
    turns: u32,
}

impl Executor {
    fn new(case: &Case) -> Self {
        let cluster = Cluster::uniform(case.nodes, Bytes::mib(1500));
        Self {
            scheduler: Scheduler::new(cluster, case.config.clone()).unwrap(),
            now: SimTime(0),
            timers: BTreeSet::new(),
            switches: Vec::new(),
            needs: BTreeMap::new(),
            waits: BTreeMap::new(),
            turns: 0,
        }
    }

    fn tell(&mut self, event: SchedulerEvent) {
        let decisions = self.scheduler.on_event(self.now, event);
        assert_eq!(self.scheduler.matrix().check(), Ok(()), "no row over capacity, no gang split");
        for decision in decisions {
            match decision {
                Decision::SetTimer { timer, at } => drop(self.timers.insert((at, timer))),
                Decision::Switch(plan) => {
                    for incoming in &plan.incoming {
                        let job = self.scheduler.job(incoming.job).unwrap();
                        assert_eq!(incoming.placement.ranks(), job.spec.ranks, "a gang is whole");
                        assert!(plan.outgoing.iter().all(|outgoing| outgoing.job != incoming.job));
                    }
                    self.switches.push(plan.switch);
                }
                Decision::Split(split) => {
                    assert_ne!(split.moved.from, split.moved.to);
                    self.waits.remove(&split.moved.job);
                }
                Decision::Rejected { job, .. } => drop(self.needs.remove(&job)),
                _ => {}
            }
        }
    }

    fn answer_switches(&mut self) {
        while let Some(switch) = self.switches.pop() {
            self.tell(SchedulerEvent::SwitchDone { switch });
        }
        self.check_memory();
    }

    /// Working sets in memory fit their nodes, those of backfilled jobs included, when no switch is under
    /// way; where jobs stay in memory in any case, none has left it.
    fn check_memory(&self) {
        let stay = self.scheduler.config().residency == Residency::Always;
        let is_parked = |state: JobState| state.observed == Residence::Parked;
        assert!(!(stay && self.scheduler.jobs().any(is_parked)), "a job has left memory");
        let matrix = self.scheduler.matrix();
        let mut nodes: BTreeMap<NodeId, (Bytes, u32)> = BTreeMap::new();
        for assignment in matrix.rows().flat_map(Row::assignments) {
            let observed = self.scheduler.job(assignment.spec.id).unwrap().observed;
            if matches!(observed, Residence::Running | Residence::Suspended) {
                for node in assignment.placement.nodes() {
                    let (used, jobs) = nodes.entry(node).or_default();
                    let runs = u32::from(observed == Residence::Running);
                    (*used, *jobs) = (used.saturating_add(assignment.memory_on(node)), *jobs + runs);
                }
            }
        }
        let limits = matrix.limits();
        for (node, (used, jobs)) in nodes {
            assert!(stay || used <= matrix.cluster().capacity(node), "{node} holds {used}");
            assert!(limits.max_per_cell.is_none_or(|max| jobs <= max), "{node} runs {jobs} jobs");
        }
    }

    /// Each active job has had a turn, from the last second to this one; a job that needs no more ends.
    fn count_turn(&mut self) {
        self.turns += 1;
        let rows = self.scheduler.matrix().rows().len();
        let states: Vec<(JobId, Residence)> =
            self.scheduler.jobs().map(|state| (state.spec.id, state.observed)).collect();
        let assigned: BTreeSet<JobId> = self.scheduler.matrix().rows().flat_map(|row| row.jobs()).collect();
        for (job, observed) in states {
            if observed == Residence::Running {
                self.waits.remove(&job);
                let needs = self.needs.get_mut(&job).expect("an active job is not done");
                *needs -= 1;
                if *needs == 0 {
                    self.needs.remove(&job);
                    self.tell(SchedulerEvent::Finished { job });
                }
            } else if assigned.contains(&job) {
                let (waited, most) = self.waits.entry(job).or_default();
                (*waited, *most) = (*waited + 1, rows.max(*most));
                // Once back by at most all rows in an exchange, and then through them.
                assert!(*waited <= 2 * *most, "{job} waits for {waited} turns, with {most} rows");
            }
        }
        self.answer_switches();
    }
}

fn play(case: &Case) {
    let mut executor = Executor::new(case);
    for turn in 0..2000 {
        executor.now = SimTime(turn * 1_000_000_000);
        executor.count_turn();
        let news = case.news.iter().filter(|(at, ..)| u64::from(*at) == turn);
        for (_, job, thousandths) in news {
            let communication = Communication::per_mille(*thousandths);
            executor.tell(SchedulerEvent::Measured { job: JobId(*job), communication });
        }
        for (_, job, node, mib, under_pressure) in
            case.resident.iter().filter(|(at, ..)| u64::from(*at) == turn)
        {
            let node = NodeId(*node);
            executor.tell(SchedulerEvent::Resident { job: JobId(*job), node, resident: Bytes::mib(*mib) });
            if *under_pressure {
                executor.tell(SchedulerEvent::MemoryPressure { node });
            }
        }
        executor.answer_switches();
        let mut jobs = Vec::new();
        for (id, (ranks, mib, at, needs)) in (0..).map(JobId).zip(&case.jobs) {
            if u64::from(*at) == turn {
                let memory_per_rank = Bytes::mib(*mib);
                jobs.push(JobSpec {
                    id,
                    name: "j".into(),
                    ranks: *ranks,
                    memory_per_rank,
                    arrival: executor.now,
                });
                executor.needs.insert(id, *needs);
            }
        }
        if !jobs.is_empty() {
            executor.tell(SchedulerEvent::Submitted { jobs });
        }
        let due: Vec<(SimTime, TimerId)> =
            executor.timers.range(..=(executor.now, TimerId(u32::MAX))).copied().collect();
        for (at, timer) in due {
            executor.timers.remove(&(at, timer));
            executor.tell(SchedulerEvent::TimerFired { timer });
        }
        executor.answer_switches();
        if executor.needs.is_empty() && turn > 30 {
            return;
        }
    }
    panic!("jobs are left after {} turns: {:?}", executor.turns, executor.needs);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_job_gets_its_turn_within_a_bound(case in cases()) {
        play(&case);
    }
}
