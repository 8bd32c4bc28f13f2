//! Properties of every policy, for random workloads on random clusters, with and without faults.
//!
//! The journal of each run is replayed into a second scheduler and audited step by step with a model of its
//! own.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coswitch_policies::{
    Alternate, AutoQuantum, Bytes, Cluster, Communication, Decision, Estimate, JobId, MemoryRule, Packing,
    Policy, Residence, Residency, Rotation, Scheduler, SchedulerConfig, SchedulerEvent, ShortOfMemory,
    SwitchOrder, SwitchPlan,
    spaceshare::{choice::QueueName, sharing::SpaceSharing},
};
use coswitch_sim::{
    CostModel, Faults, MemoryCurve, SimJob, SimReport, Step, WorkloadShape, random_workload, simulate,
};
use proptest::prelude::*;

/// Samples count as well, and jobs that swap run for hours.
const STEPS_MAX: usize = 2_000_000;

#[derive(Clone, Debug)]
struct Case {
    cluster: Cluster,
    config: SchedulerConfig,
    jobs: Vec<SimJob>,
    faults: Faults,
}

impl Case {
    /// Equal nodes, for which jobs queue. Most jobs end before they have to.
    fn give_own_nodes(&mut self, queue: QueueName) {
        let nodes = u32::try_from(self.cluster.len()).unwrap();
        self.cluster = Cluster::uniform(nodes, self.cluster.largest());
        self.config.space = Some(SpaceSharing { queue, ..SpaceSharing::default() });
        for job in &mut self.jobs {
            job.limit = Some(job.work * (1 + job.spec.id.0 % 3));
        }
    }

    fn run(&self) -> SimReport {
        simulate(&self.cluster, &self.config, &self.jobs, &CostModel::default(), self.faults, STEPS_MAX)
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

fn policies() -> impl Strategy<Value = Policy> {
    use Policy::{Batch, Cosched, Gang, Hybrid, Paired};
    prop_oneof![Just(Batch), Just(Cosched), Just(Gang), Just(Hybrid), Just(Paired)]
}

fn packings() -> impl Strategy<Value = Packing> {
    let exact = (0_u32..300).prop_map(|visits_max| Packing::Exact { visits_max });
    prop_oneof![Just(Packing::FirstFit), Just(Packing::BestFit), Just(Packing::Buddy), exact]
}

/// What a rank holds, in thousandths of what it declares: so much at first, and so much from a moment on. All
/// jobs of a node together may allocate all of it within a tenth of a second.
#[derive(Clone, Copy, Debug)]
struct Holds {
    first: u16,
    then: u16,
    from: u64,
    within: u64,
}

impl Holds {
    fn curve(self, declared: Bytes) -> MemoryCurve {
        let part = |thousandths: u16| Bytes(declared.0 * u64::from(thousandths) / 1000);
        let at = Duration::from_millis;
        MemoryCurve::new(vec![
            (at(self.from), part(self.first)),
            (at(self.from + self.within), part(self.then)),
        ])
    }
}

fn holds() -> impl Strategy<Value = Holds> {
    let part = || prop_oneof![Just(1000_u16), 0_u16..=1000, 0_u16..=250];
    (part(), part(), 0_u64..15_000, 100_u64..5000).prop_map(|(first, then, from, within)| Holds {
        first,
        then,
        from,
        within,
    })
}

fn cases(faults: impl Strategy<Value = Faults>) -> impl Strategy<Value = Case> {
    let cluster = prop::collection::vec(200_u64..1000, 1..5)
        .prop_map(|mib| Cluster::new(mib.into_iter().map(Bytes::mib).collect()));
    let workload = (any::<u64>(), 1_u32..16, 1_u32..7, 10_u64..600, 100_u64..20_000, 0_u64..20_000);
    let shares = prop::collection::vec(prop::option::of(0_u16..1000), 16);
    // In half of the cases all jobs hold what they declare.
    let held = prop::option::of(prop::collection::vec(prop::option::of(holds()), 16));
    let jobs = (workload, shares, held).prop_map(
        |((seed, jobs, ranks_max, memory_max, work_max, within), shares, held)| {
            let shape = WorkloadShape {
                jobs,
                ranks_max,
                memory_max: Bytes::mib(memory_max),
                work_max: Duration::from_millis(work_max),
                arrivals_within: Duration::from_millis(within),
            };
            let share = |share: Option<u16>| share.map(Communication::per_mille);
            let held = held.unwrap_or_else(|| vec![None; 16]);
            let jobs = random_workload(seed, &shape).into_iter().zip(shares).zip(held);
            let job = |((job, known), holds): ((SimJob, Option<u16>), Option<Holds>)| SimJob {
                communication: share(known),
                memory: holds.map(|holds| holds.curve(job.spec.memory_per_rank)),
                ..job
            };
            jobs.map(job).collect()
        },
    );
    let matrix = (policies(), packings(), prop::option::of(1_u32..4), any::<bool>());
    let config =
        (matrix, 200_u64..5000, orders(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let config = config.prop_map(|(matrix, quantum, switching, planned, auto, jobwise, swaps)| {
        let (policy, packing, max_per_cell, whole) = matrix;
        let jobwise = jobwise && policy == Policy::Hybrid && !auto;
        SchedulerConfig {
            max_per_cell,
            packing,
            rotation: if jobwise { Rotation::Job } else { Rotation::Set },
            alternate: if whole { Alternate::Whole } else { Alternate::None },
            switching,
            short_of_memory: if swaps { ShortOfMemory::Swap } else { ShortOfMemory::Sequential },
            estimate: if swaps { Estimate::Declared } else { Estimate::Measured },
            residency: if planned { Residency::Planned } else { Residency::None },
            auto: auto.then_some(AutoQuantum { overhead: 50_000, longest: Duration::from_secs(30) }),
            ..SchedulerConfig::new(policy, Duration::from_millis(quantum))
        }
    });
    let queue = prop::option::of(0..QueueName::ALL.len());
    // In half of the cases running jobs are checkpointed, often.
    let between_failures = prop::option::of((1_u64..100).prop_map(Duration::from_secs));
    let rest = (queue, between_failures);
    (cluster, config, jobs, faults, rest).prop_map(|(cluster, mut config, jobs, faults, rest)| {
        let (queue, between_failures) = rest;
        config.mean_time_between_failures = between_failures;
        let mut case = Case { cluster, config, jobs, faults };
        if let Some(queue) = queue.filter(|_| case.config.policy == Policy::Batch) {
            case.give_own_nodes(QueueName::ALL[queue].1);
        }
        case
    })
}

/// For each order of a switch the scheduler's rules hold and no node exceeds its memory.
fn orders() -> impl Strategy<Value = SwitchOrder> {
    prop_oneof![Just(SwitchOrder::Sequential), Just(SwitchOrder::Overlapped), Just(SwitchOrder::Prefetch)]
}

fn some_faults() -> impl Strategy<Value = Faults> {
    (any::<u64>(), 0_u32..400, 0_u32..400, 0_u32..500, 0_u32..300)
        .prop_map(|(seed, dump, restore, lost, crash)| Faults { seed, dump, restore, lost, crash, hold: 0 })
}

fn holds_and_faults() -> impl Strategy<Value = Faults> {
    (some_faults(), 200_u32..1000, any::<bool>()).prop_map(|(faults, hold, only)| match only {
        true => Faults { seed: faults.seed, hold, ..Faults::default() },
        false => Faults { hold, ..faults },
    })
}

/// Follows a journal and remembers only what the rules need.
struct Audit<'a> {
    case: &'a Case,
    scheduler: Scheduler,
    submitted: BTreeSet<JobId>,
    ended: BTreeSet<JobId>,
    under_way: Option<SwitchPlan>,
    /// For each assigned job that is not active: turns that others may have before it must run.
    patience: BTreeMap<JobId, usize>,
    /// The jobs of the active row, by the decisions so far.
    turn: BTreeSet<JobId>,
    /// Not all rows took turns at some time.
    narrowed: bool,
    prioritized: bool,
}

impl<'a> Audit<'a> {
    fn new(case: &'a Case) -> Self {
        let scheduler = Scheduler::new(case.cluster.clone(), case.config.clone()).unwrap();
        let (submitted, ended) = (BTreeSet::new(), BTreeSet::new());
        let (patience, turn) = (BTreeMap::new(), BTreeSet::new());
        let prioritized = case.jobs.iter().any(|job| job.priority != 0);
        Self {
            case,
            scheduler,
            submitted,
            ended,
            under_way: None,
            patience,
            turn,
            narrowed: false,
            prioritized,
        }
    }

    fn follow(&mut self, step: &Step) {
        self.note_event(&step.event);
        let decisions = self.scheduler.on_event(step.at, step.event.clone());
        assert_eq!(decisions, step.decisions, "the same events lead to the same decisions");
        assert_eq!(self.scheduler.matrix().check(), Ok(()));
        let rows = self.scheduler.matrix().rows().len();
        assert!(rows <= 1 || self.case.config.space.is_none(), "jobs with nodes of their own take no turns");
        for job in self.scheduler.jobs().filter(|job| self.scheduler.is_held_out(job.spec.id)) {
            assert!(!job.observed.is_in_memory() && self.scheduler.matrix().row_of(job.spec.id).is_none());
        }
        for decision in &decisions {
            self.check_names(decision);
            self.check_acts(step, decision);
        }
        self.note_waiting();
    }

    fn note_event(&mut self, event: &SchedulerEvent) {
        match event {
            SchedulerEvent::Submitted { jobs } => self.submitted.extend(jobs.iter().map(|job| job.id)),
            SchedulerEvent::Finished { job } | SchedulerEvent::Failed { job } => {
                self.ended.insert(*job);
            }
            SchedulerEvent::SwitchDone { switch } => {
                assert_eq!(self.under_way.take().map(|plan| plan.switch), Some(*switch));
            }
            SchedulerEvent::SwitchFailed { switch, misplaced } => {
                assert_eq!(self.under_way.take().map(|plan| plan.switch), Some(*switch));
                let lost = misplaced.iter().filter(|misplaced| misplaced.at == Residence::Failed);
                self.ended.extend(lost.map(|misplaced| misplaced.job));
            }
            SchedulerEvent::Adopted { .. } => panic!("the simulator has one scheduler"),
            SchedulerEvent::TimerFired { .. }
            | SchedulerEvent::Held { .. }
            | SchedulerEvent::Prioritized { .. }
            | SchedulerEvent::Released { .. }
            | SchedulerEvent::Measured { .. }
            | SchedulerEvent::Resident { .. }
            | SchedulerEvent::MemoryPressure { .. }
            | SchedulerEvent::Footprint { .. }
            | SchedulerEvent::RunningStopped { .. }
            | SchedulerEvent::NodeDown { .. }
            | SchedulerEvent::NodeUp { .. }
            | SchedulerEvent::Drained { .. }
            | SchedulerEvent::Undrained { .. }
            | SchedulerEvent::Checkpointed { .. }
            | SchedulerEvent::NotCheckpointed { .. }
            | SchedulerEvent::Moved { .. }
            | SchedulerEvent::Displaced { .. }
            | SchedulerEvent::Limited { .. }
            | SchedulerEvent::Grouped { .. }
            | SchedulerEvent::SwitchTimed { .. } => {}
        }
    }

    fn check_names(&self, decision: &Decision) {
        let named: Vec<JobId> = match decision {
            Decision::Admitted { job, .. }
            | Decision::Queued { job, .. }
            | Decision::Rejected { job, .. }
            | Decision::Held { job }
            | Decision::NotHeld { job }
            | Decision::Checkpoint { job }
            | Decision::Abandon { job, .. } => vec![*job],
            Decision::Moved(step) => vec![step.job],
            Decision::Split(split) => vec![split.job, split.moved.job],
            Decision::Outgrew { job, .. } => vec![*job],
            Decision::Switch(plan) => {
                plan.outgoing.iter().map(|o| o.job).chain(plan.incoming.iter().map(|i| i.job)).collect()
            }
            Decision::SlotStarted(turn) => turn.jobs.clone(),
            Decision::SlotChanged(change) => change.came.iter().chain(&change.went).copied().collect(),
            Decision::SetTimer { .. } | Decision::Narrowed { .. } | Decision::Widened | Decision::AllDone => {
                vec![]
            }
        };
        for job in named {
            assert!(self.submitted.contains(&job), "{decision:?} names a job that was never submitted");
            assert!(!self.ended.contains(&job), "{decision:?} names a job that has ended");
        }
    }

    fn check_acts(&mut self, step: &Step, decision: &Decision) {
        match decision {
            Decision::Switch(plan) => {
                assert!(self.under_way.is_none(), "one switch at a time");
                for incoming in &plan.incoming {
                    let spec = self.scheduler.job(incoming.job).unwrap().spec;
                    assert_eq!(incoming.placement.ranks(), spec.ranks, "a gang is whole");
                    assert!(plan.outgoing.iter().all(|outgoing| outgoing.job != incoming.job));
                }
                self.under_way = Some(plan.clone());
            }
            Decision::Checkpoint { job } => {
                assert!(self.under_way.is_none(), "a switch goes before");
                assert_eq!(self.scheduler.job(*job).unwrap().observed, Residence::Running);
            }
            Decision::SetTimer { at, .. } if self.case.config.mean_time_between_failures.is_some() => {
                assert!(*at >= step.at);
            }
            Decision::SetTimer { at, .. } if self.case.config.space.is_some() => {
                assert!(*at > step.at, "a reservation begins later");
            }
            Decision::SetTimer { at, .. } => {
                assert!(self.scheduler.matrix().rows().len() > 1, "with one row there is no timer");
                let longest = self.case.config.auto.map_or(self.case.config.quantum, |auto| auto.longest);
                assert!(*at >= step.at && *at <= step.at.after(longest));
            }
            Decision::Narrowed { .. } => self.narrowed = true,
            // An exchange may put a job back: it waits anew, from where it then is (bounded in
            // `policies/tests/turns.rs`).
            Decision::Moved(step) if self.case.config.policy == Policy::Paired => {
                self.patience.remove(&step.job);
            }
            Decision::SlotStarted(turn) => {
                let front = self.scheduler.matrix().front().expect("a row has the turn");
                assert_eq!(front.slot, turn.slot);
                let row: Vec<JobId> = front.jobs().collect();
                self.check_priority(&row);
                self.note_turn(&row);
                self.turn = turn.jobs.iter().copied().collect();
            }
            Decision::SlotChanged(change) => {
                self.turn.retain(|job| !self.ended.contains(job) && !change.went.contains(job));
                self.turn.extend(&change.came);
                let whole = self.scheduler.turn().expect("a turn that changes has been told");
                let jobs: BTreeSet<JobId> = whole.jobs.iter().copied().collect();
                assert_eq!((&self.turn, change.ends), (&jobs, whole.ends), "the differences make the whole");
            }
            _ => {}
        }
    }

    /// A job of the highest priority is among those that have the turn, unless a step has failed.
    fn check_priority(&self, row: &[JobId]) {
        let Faults { dump, restore, hold, .. } = self.case.faults;
        if dump == 0 && restore == 0 && hold == 0 {
            let highest =
                |jobs: &mut dyn Iterator<Item = JobId>| jobs.map(|job| self.scheduler.priority(job)).max();
            let all = &mut self.scheduler.matrix().rows().flat_map(|row| row.jobs());
            assert_eq!(highest(&mut row.iter().copied()), highest(all));
        }
    }

    /// A row began its turn: the jobs of the others wait one turn more.
    fn note_turn(&mut self, row: &[JobId]) {
        for (job, turns) in self.patience.iter_mut().filter(|(job, _)| !row.contains(job)) {
            let by_rows = !self.narrowed && !self.prioritized && self.case.config.rotation == Rotation::Set;
            let Faults { dump, restore, hold, .. } = self.case.faults;
            let orderly = dump == 0 && restore == 0 && hold == 0 && by_rows;
            assert!(*turns > 0 || !orderly, "{job} was overtaken");
            *turns = turns.saturating_sub(1);
        }
    }

    /// A job that is not active sees at most as many other turns begin as there were rows before its own when
    /// it began to wait; one that joined the active row may find its turn over, and then sees all others. (A
    /// dump that fails gives one more turn to its row, a restore that fails costs a turn: then only the end
    /// of the run is bounded.)
    fn note_waiting(&mut self) {
        for state in self.scheduler.jobs() {
            let rows = self.scheduler.matrix().rows();
            match rows.clone().position(|row| row.contains(state.spec.id)) {
                Some(0) if state.observed != Residence::Running => {
                    // Rows that appear before its turn is over come before its next one.
                    self.patience.insert(state.spec.id, rows.len() - 1);
                }
                Some(ahead) if state.observed != Residence::Running => {
                    self.patience.entry(state.spec.id).or_insert(ahead);
                }
                _ => drop(self.patience.remove(&state.spec.id)),
            }
        }
    }
}

fn audit(case: &Case, report: &SimReport) {
    let mut audit = Audit::new(case);
    report.journal.iter().for_each(|step| audit.follow(step));
    assert!(audit.under_way.is_none());
    if case.config.limits().memory == MemoryRule::MustFit {
        for ((node, capacity), peak) in case.cluster.nodes().zip(&report.memory_peak) {
            let overlaps = case.config.short_of_memory == ShortOfMemory::Swap
                && case.config.switching != SwitchOrder::Sequential;
            let most = capacity.times(if overlaps { 2 } else { 1 });
            assert!(*peak <= most, "{peak} at once on {node}, which offers {capacity}");
        }
    }
    let rejected: BTreeSet<JobId> = report.rejected.iter().map(|(job, _)| *job).collect();
    let over: BTreeSet<JobId> = audit.ended.union(&rejected).copied().collect();
    assert_eq!(over, audit.submitted, "every job ends or is refused");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_faults_every_rule_holds_and_every_job_finishes(case in cases(Just(Faults::default()))) {
        let report = case.run();
        audit(&case, &report);
        prop_assert!(report.failed.is_empty());
        prop_assert!(report.metrics.utilisation <= 1.0 + 1e-9);
        for (job, metrics) in report.times.jobs.iter().zip(&report.metrics.jobs) {
            prop_assert!(metrics.run >= job.alone.unwrap(), "no job gets more done than time passes");
        }
    }

    #[test]
    fn with_faults_every_rule_of_safety_holds_and_every_job_ends(case in cases(some_faults())) {
        audit(&case, &case.run());
    }

    /// A held job that is out has no row, and comes back to its nodes; whoever is held is released.
    #[test]
    fn with_holds_every_rule_of_safety_holds_and_every_job_ends(case in cases(holds_and_faults())) {
        audit(&case, &case.run());
    }

    /// The same, where jobs have priorities; jobs of a lower one have turns when those of a higher one ended.
    #[test]
    fn with_priorities_every_rule_holds_and_every_job_ends(
        case in prop_oneof![cases(Just(Faults::default())), cases(holds_and_faults())],
        priorities in prop::collection::vec(-1_i32..3, 16),
    ) {
        let mut case = case;
        for (job, priority) in case.jobs.iter_mut().zip(priorities) {
            job.priority = priority;
        }
        audit(&case, &case.run());
    }

    #[test]
    fn the_same_seed_gives_the_same_run(case in cases(some_faults())) {
        prop_assert_eq!(case.run(), case.run());
    }

    #[test]
    fn only_jobs_that_the_empty_cluster_cannot_hold_are_refused(case in cases(Just(Faults::default()))) {
        let report = case.run();
        let refused: BTreeSet<JobId> = report.rejected.iter().map(|(job, _)| *job).collect();
        for job in &case.jobs {
            let memory = job.spec.memory_per_rank.0;
            let held: u64 = case.cluster.nodes().map(|(_, capacity)| capacity.0 / memory).sum();
            let fits = case.config.policy == Policy::Cosched || held >= u64::from(job.spec.ranks);
            prop_assert_eq!(refused.contains(&job.spec.id), !fits);
        }
    }
}
