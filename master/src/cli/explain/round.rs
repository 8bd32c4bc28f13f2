//! The cost of one round of all turns, measured in a simulation of several rounds, so that it includes the
//! order of switching, the residency and the backfilled jobs of the run file.

use std::{collections::BTreeMap, fmt, ops::Range, time::Duration};

use coswitch_policies::{
    Bytes, Communication, Decision, JobId, JobSpec, Purpose, Residence, SimTime, Start, SwitchPlan,
    timeshare::short_quantum::{QuantumWatch, ShortQuantum},
};
use coswitch_sim::{CostModel, Faults, SimError, SimJob, Step, simulate_telling};
use serde::Serialize;

use crate::config::JobSet;

/// The round that counts: jobs are launched in the first, and parked for the first time in the second.
const ROUND: usize = 3;
/// The most simulated steps for each turn and each job; then the simulation ends.
const STEPS: usize = 64;

/// One round of all turns. Bytes are summed over all nodes.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Round {
    /// Bytes that leave memory.
    out: Bytes,
    /// Bytes that come into memory.
    into: Bytes,
    /// Time between the end of a turn and the start of the next, summed.
    exposed_s: f64,
    /// A given quantum that is short for these switches.
    pub(super) short_quantum: Option<ShortQuantum>,
}

/// Simulates a round of `turns` turns in which all jobs are submitted and none ends.
pub(super) fn simulate(
    set: &JobSet,
    cost: &CostModel,
    known: &BTreeMap<JobId, Communication>,
    turns: usize,
) -> Result<Round, SimError> {
    let config = set.scheduler_config();
    let longest = config.auto.map_or(config.quantum, |auto| auto.longest);
    let rounds = turns * ROUND;
    // No job ends before the last turn that counts, not even a job that is backfilled into all other slots.
    let work = longest.saturating_mul(u32::try_from(rounds + 2).unwrap_or(u32::MAX));
    let jobs = at_once(set.specs()).into_iter().map(|spec| SimJob {
        communication: known.get(&spec.id).copied(),
        processors: 1,
        priority: 0,
        spec,
        work,
        memory: None,
        limit: None,
        queue: Default::default(),
    });
    let jobs: Vec<SimJob> = jobs.collect();
    let mut count = Count {
        jobs: &jobs,
        counts: turns * (ROUND - 1)..rounds,
        turn: 0,
        ended: None,
        round: Round::default(),
        quantum: set.scheduler.quantum_watch(),
    };
    let steps_max = 1000 + STEPS * (rounds + jobs.len());
    let none = Faults::default();
    let ran = simulate_telling(&set.cluster(), &config, &jobs, cost, none, steps_max, &mut |step| {
        count.on_step(&step)
    });
    match ran {
        Ok(_) | Err(SimError::TooLong(_)) => Ok(count.finish()),
        Err(error) => Err(error),
    }
}

/// The jobs with all arrivals close together, in their order; equal arrivals stay equal.
fn at_once(mut specs: Vec<JobSpec>) -> Vec<JobSpec> {
    specs.sort_by_key(|spec| spec.arrival);
    let groups: Vec<usize> = specs.chunk_by(|a, b| a.arrival == b.arrival).map(<[_]>::len).collect();
    let arrivals = (0..).zip(groups).flat_map(|(group, jobs)| std::iter::repeat_n(SimTime(group), jobs));
    specs.iter_mut().zip(arrivals).for_each(|(spec, arrival)| spec.arrival = arrival);
    specs
}

/// Adds up the turns of one round of a simulation.
struct Count<'a> {
    jobs: &'a [SimJob],
    /// The turns that count.
    counts: Range<usize>,
    /// The number of turns that have begun.
    turn: usize,
    /// The end of the last turn.
    ended: Option<SimTime>,
    round: Round,
    quantum: Option<QuantumWatch>,
}

impl Count<'_> {
    fn on_step(&mut self, step: &Step) {
        if let Some(watch) = self.quantum.as_mut().filter(|_| self.counts.contains(&self.turn)) {
            watch.on_event(&step.event);
        }
        for decision in &step.decisions {
            let counts = self.counts.contains(&self.turn);
            if let Some(watch) = &mut self.quantum {
                watch.on_decision(decision);
            }
            match decision {
                Decision::Switch(plan) => {
                    if plan.purpose == Purpose::Turn {
                        self.ended = Some(step.at);
                    }
                    if counts {
                        self.round.add(plan, self.jobs);
                    }
                }
                Decision::SlotStarted(_) => {
                    if let (true, Some(ended)) = (counts, self.ended.take()) {
                        self.round.exposed_s += step.at.since(ended).as_secs_f64();
                    }
                    self.turn += 1;
                }
                _ => {}
            }
        }
    }
}

impl Count<'_> {
    fn finish(self) -> Round {
        Round { short_quantum: self.quantum.and_then(|watch| watch.judge()), ..self.round }
    }
}

impl Round {
    fn add(&mut self, plan: &SwitchPlan, jobs: &[SimJob]) {
        let memory = |job: JobId| {
            let spec = jobs.iter().find(|other| other.spec.id == job).map(|job| job.spec.memory());
            spec.unwrap_or_default()
        };
        let parked = plan.outgoing.iter().filter(|outgoing| outgoing.to == Residence::Parked);
        let restored = plan.incoming.iter().filter(|incoming| incoming.start == Start::Restore);
        let sum = |before: Bytes, more: Bytes| before.saturating_add(more);
        self.out = parked.map(|outgoing| memory(outgoing.job)).fold(self.out, sum);
        self.into = restored.map(|incoming| memory(incoming.job)).fold(self.into, sum);
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { out, into, exposed_s, .. } = self;
        let exposed = Duration::from_secs_f64(*exposed_s);
        if *out == Bytes(0) && *into == Bytes(0) {
            return write!(f, "no job leaves memory; about {exposed:.1?} of switching");
        }
        write!(f, "{out} out and {into} in on all nodes, about {exposed:.1?} of switching")
    }
}
