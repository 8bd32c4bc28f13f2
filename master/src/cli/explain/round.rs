//! What one round of all turns costs once everybody has run: taken out of a simulation of several rounds, so that it is with the
//! order of switching, the residency and the alternate scheduling of the run file.

use std::{collections::BTreeMap, fmt, ops::Range, time::Duration};

use coswitch_policies::{
    Bytes, Communication, Decision, JobId, JobSpec, Purpose, Residence, SimTime, Start, SwitchPlan,
};
use coswitch_sim::{CostModel, Faults, SimError, SimJob, Step, simulate_telling};
use serde::Serialize;

use crate::config::JobSet;

/// The round that counts: in the first jobs are launched, in the second none of them was ever restored.
const ROUND: usize = 3;
/// Events of a turn or a job, at most: then enough was seen.
const STEPS: usize = 64;

/// All turns once. Bytes are those of all nodes.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Round {
    /// Out of memory.
    out: Bytes,
    /// Into memory.
    into: Bytes,
    /// Between the end of a turn and the begin of the next, in all.
    exposed_s: f64,
}

/// All jobs being there, and none about to end; `turns` of them are a round.
pub(super) fn simulate(
    set: &JobSet,
    cost: &CostModel,
    known: &BTreeMap<JobId, Communication>,
    turns: usize,
) -> Result<Round, SimError> {
    let config = set.scheduler_config();
    let longest = config.auto.map_or(config.quantum, |auto| auto.longest);
    let rounds = turns * ROUND;
    // Nobody ends before the last turn that counts, not even who goes on in the turns of all others.
    let work = longest.saturating_mul(u32::try_from(rounds + 2).unwrap_or(u32::MAX));
    let jobs = at_once(set.specs()).into_iter().map(|spec| SimJob {
        communication: known.get(&spec.id).copied(),
        spec,
        work,
    });
    let jobs: Vec<SimJob> = jobs.collect();
    let mut count = Count {
        jobs: &jobs,
        counts: turns * (ROUND - 1)..rounds,
        turn: 0,
        ended: None,
        round: Round::default(),
    };
    let steps_max = 1000 + STEPS * (rounds + jobs.len());
    let none = Faults::default();
    let ran = simulate_telling(&set.cluster(), &config, &jobs, cost, none, steps_max, &mut |step| {
        count.on_step(&step)
    });
    match ran {
        Ok(_) | Err(SimError::TooLong(_)) => Ok(count.round),
        Err(error) => Err(error),
    }
}

/// The jobs at one time, but in the order of their arrivals: those that came together still do.
fn at_once(mut specs: Vec<JobSpec>) -> Vec<JobSpec> {
    specs.sort_by_key(|spec| spec.arrival);
    let groups: Vec<usize> = specs.chunk_by(|a, b| a.arrival == b.arrival).map(<[_]>::len).collect();
    let arrivals = (0..).zip(groups).flat_map(|(group, jobs)| std::iter::repeat_n(SimTime(group), jobs));
    specs.iter_mut().zip(arrivals).for_each(|(spec, arrival)| spec.arrival = arrival);
    specs
}

/// Follows a simulation and adds up the turns that count.
struct Count<'a> {
    jobs: &'a [SimJob],
    counts: Range<usize>,
    /// Turns that have begun.
    turn: usize,
    /// When the last one ended.
    ended: Option<SimTime>,
    round: Round,
}

impl Count<'_> {
    fn on_step(&mut self, step: &Step) {
        for decision in &step.decisions {
            let counts = self.counts.contains(&self.turn);
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
        let Self { out, into, exposed_s } = self;
        let exposed = Duration::from_secs_f64(*exposed_s);
        if *out == Bytes(0) && *into == Bytes(0) {
            return write!(f, "nobody leaves memory; about {exposed:.1?} of switching");
        }
        write!(f, "{out} out and {into} in on all nodes, about {exposed:.1?} of switching")
    }
}
