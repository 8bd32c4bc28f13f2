//! Replays the journal of a live run: feeds its inputs to a new scheduler and compares the decisions.
//!
//! The journal has the inputs of the scheduler (submissions, ends, timers, finished switches), each at the
//! instant at which the scheduler got it, and the decisions (switches, turns, splits). Decisions are compared
//! one by one; ends of turns must agree to the nanosecond. Journals before version 2 lack timers; since
//! version 3 `paired` goes by classes.

use std::{collections::VecDeque, io, path::Path, time::Duration};

use coswitch_policies::{
    Decision, JobId, JobSpec, Policy, Scheduler, SchedulerConfig, SchedulerEvent, SimTime, SlotId, Split,
    SwitchId, Turn,
};
use coswitch_report::{
    journal::{self, Event, JournalError, RunEvent},
    words::span,
};
use serde::Serialize;
use thiserror::Error;

use crate::cli::Answer;

/// A decision, as it is in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Recorded {
    Switch { switch: SwitchId, outgoing: Vec<JobId>, incoming: Vec<JobId> },
    Turn { slot: SlotId, jobs: Vec<JobId>, ends: Option<SimTime> },
    Split(Split),
}

/// A run whose decisions were made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Replayed {
    /// Inputs of the scheduler.
    pub(super) events: u32,
    pub(super) decisions: u32,
}

impl Answer for Replayed {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let Self { events, decisions } = self;
        writeln!(out, "{events} events, {decisions} decisions: the scheduler decides the same again")
    }
}

#[derive(Debug, Error)]
pub(super) enum ReplayError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("the journal does not begin with the start of a run")]
    NoStart,
    #[error("the journal is of version {0}; runs can be replayed since version 2, under `paired` since 3")]
    Old(u32),
    #[error(
        "the first {} of the run were compacted, and their archive, number {archive}, is gone",
        span(*first)
    )]
    Compacted { archive: u32, first: Duration },
    #[error(transparent)]
    Config(#[from] coswitch_policies::ConfigError),
    #[error("line {line}: the run decided {run}, the scheduler now decides {now}")]
    Differs {
        /// Counts from 1.
        line: usize,
        /// The decision in the journal.
        run: String,
        /// The decision of the new scheduler.
        now: String,
    },
}

/// Replays the run in `directory`.
pub(super) fn replay_run(directory: &Path) -> Result<Replayed, ReplayError> {
    replay(&journal::read(&directory.join(journal::FILE_NAME))?)
}

/// Replays the events of a run.
fn replay(events: &[RunEvent]) -> Result<Replayed, ReplayError> {
    let first = events.first().map(|event| &event.kind);
    let Some(Event::RunStarted { version, policy, nodes, capacity, quantum, scheduler, .. }) = first else {
        return Err(ReplayError::NoStart);
    };
    if *version < 2 || (*version < 3 && *policy == Policy::Paired) {
        return Err(ReplayError::Old(*version));
    }
    if let Some((archive, at)) = journal::missing_archive(events) {
        return Err(ReplayError::Compacted { archive, first: at.since(SimTime(0)) });
    }
    let config = scheduler.clone().unwrap_or_else(|| SchedulerConfig::new(*policy, *quantum));
    let mut replay = Replay {
        scheduler: Scheduler::new(capacity.cluster(*nodes), config.clone())?,
        decided: VecDeque::new(),
        counts: Replayed { events: 0, decisions: 0 },
    };
    for (index, event) in events.iter().enumerate() {
        if let Event::MasterReplaced { .. } = event.kind {
            replay.scheduler = Scheduler::new(capacity.cluster(*nodes), config.clone())?;
            // What the master before had still decided is void.
            replay.decided.clear();
        }
        for input in inputs(events, index) {
            replay.feed(index, event.at, input)?;
        }
        replay.compare(index, &event.kind)?;
    }
    Ok(replay.counts)
}

struct Replay {
    scheduler: Scheduler,
    /// Decisions that were not yet met in the journal.
    decided: VecDeque<Recorded>,
    counts: Replayed,
}

impl Replay {
    fn feed(&mut self, index: usize, at: SimTime, event: SchedulerEvent) -> Result<(), ReplayError> {
        if let Some(more) = self.decided.front() {
            return Err(differs(index, &"nothing", more));
        }
        self.counts.events += 1;
        for decision in self.scheduler.on_event(at, event) {
            match decision {
                Decision::Switch(plan) => self.decided.push_back(Recorded::Switch {
                    switch: plan.switch,
                    outgoing: plan.outgoing.into_iter().map(|outgoing| outgoing.job).collect(),
                    incoming: plan.incoming.into_iter().map(|incoming| incoming.job).collect(),
                }),
                Decision::SlotStarted(_) | Decision::SlotChanged(_) => {
                    let turn = self.scheduler.turn();
                    self.decided.extend(turn.map(|Turn { slot, jobs, ends }| Recorded::Turn {
                        slot,
                        jobs,
                        ends,
                    }));
                }
                Decision::Split(split) => self.decided.push_back(Recorded::Split(split)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares a line that may have a decision.
    fn compare(&mut self, index: usize, line: &Event) -> Result<(), ReplayError> {
        let Some(run) = recorded_decision(line) else { return Ok(()) };
        match self.decided.pop_front() {
            Some(now) if now == run => {
                self.counts.decisions += 1;
                Ok(())
            }
            Some(now) => Err(differs(index, &run, &now)),
            None => Err(differs(index, &run, &"nothing")),
        }
    }
}

/// The inputs of the scheduler in the line `index`. Jobs that were submitted together are an input in their
/// last line.
fn inputs(events: &[RunEvent], index: usize) -> Vec<SchedulerEvent> {
    let submitted = |event: &RunEvent| match &event.kind {
        Event::JobSubmitted { job, name, ranks, memory, .. } => {
            let (id, name, ranks) = (*job, name.as_str().into(), *ranks);
            Some(JobSpec { id, name, ranks, memory_per_rank: *memory, arrival: event.at })
        }
        _ => None,
    };
    let at = events[index].at;
    match events[index].kind.clone() {
        Event::JobSubmitted { .. } => {
            let together = |event: &&RunEvent| event.at == at && submitted(event).is_some();
            if events.get(index + 1).filter(together).is_some() {
                return Vec::new();
            }
            let mut jobs: Vec<JobSpec> =
                events[..=index].iter().rev().take_while(together).filter_map(submitted).collect();
            jobs.reverse();
            vec![SchedulerEvent::Submitted { jobs }]
        }
        Event::MasterReplaced { switches, jobs, drained, .. } => {
            let drained = drained.into_iter().map(|node| SchedulerEvent::Drained { node });
            drained.chain([SchedulerEvent::Adopted { switches, jobs }]).collect()
        }
        Event::NodeDrained { node } => vec![SchedulerEvent::Drained { node }],
        Event::NodeUndrained { node } => vec![SchedulerEvent::Undrained { node }],
        Event::JobsPrioritized { priorities } => vec![SchedulerEvent::Prioritized { priorities }],
        Event::JobsLimited { left } => vec![SchedulerEvent::Limited { left }],
        Event::JobsGrouped { queues } => vec![SchedulerEvent::Grouped { queues }],
        Event::JobHeld { job } => vec![SchedulerEvent::Held { job }],
        Event::JobReleased { job } => vec![SchedulerEvent::Released { job }],
        Event::NodeLost { node, .. } => vec![SchedulerEvent::NodeDown { node }],
        Event::NodeBack { node } => vec![SchedulerEvent::NodeUp { node }],
        Event::JobDisplaced { job, residence } => vec![SchedulerEvent::Displaced { job, at: residence }],
        Event::JobCheckpointed { job, stood_still, .. } => {
            vec![SchedulerEvent::Checkpointed { job, stood_still }]
        }
        Event::JobNotCheckpointed { job, .. } => vec![SchedulerEvent::NotCheckpointed { job }],
        Event::JobMoved { job, from, to, .. } => vec![SchedulerEvent::Moved { job, from, to }],
        Event::TimerFired { timer } => vec![SchedulerEvent::TimerFired { timer }],
        Event::JobFinished { job, outcome, .. } if outcome.is_success() => {
            vec![SchedulerEvent::Finished { job }]
        }
        Event::JobFinished { job, .. } => vec![SchedulerEvent::Failed { job }],
        Event::JobMeasured { job, communication, .. } => {
            vec![SchedulerEvent::Measured { job, communication }]
        }
        Event::JobResident { job, node, resident } => {
            vec![SchedulerEvent::Resident { job, node, resident }]
        }
        Event::JobFootprint { job, node, resident, growth, exact } => {
            vec![SchedulerEvent::Footprint { job, node, resident, growth, exact }]
        }
        Event::RunningStopped { node } => vec![SchedulerEvent::RunningStopped { node }],
        Event::NodeUnderPressure { node, .. } => vec![SchedulerEvent::MemoryPressure { node }],
        Event::SwitchEnded { switch, restore, exposed, misplaced, .. } => {
            let over = if misplaced.is_empty() {
                SchedulerEvent::SwitchDone { switch }
            } else {
                SchedulerEvent::SwitchFailed { switch, misplaced }
            };
            vec![SchedulerEvent::SwitchTimed { switch, restore, exposed }, over]
        }
        _ => Vec::new(),
    }
}

fn recorded_decision(event: &Event) -> Option<Recorded> {
    match event.clone() {
        Event::SwitchStarted { switch, outgoing, incoming, .. } => {
            Some(Recorded::Switch { switch, outgoing, incoming })
        }
        Event::SlotStarted { slot, jobs, ends } => Some(Recorded::Turn { slot, jobs, ends }),
        Event::SetSplit(split) => Some(Recorded::Split(split)),
        _ => None,
    }
}

fn differs(index: usize, run: &dyn std::fmt::Debug, now: &dyn std::fmt::Debug) -> ReplayError {
    ReplayError::Differs { line: index + 1, run: format!("{run:?}"), now: format!("{now:?}") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coswitch_policies::{Misplaced, Purpose, Residence, SwitchOrder, TimerId};

    use super::*;

    /// The demo, recorded on two nodes: eleven jobs in four slots, with restores, jobs that move to an
    /// earlier slot, and switches during which jobs end. Events other than inputs and decisions are left out.
    fn recorded() -> Vec<RunEvent> {
        let lines = include_str!("testdata/hybrid.jsonl").lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_live_run_is_decided_the_same_way_again() {
        let expected = recorded().iter().filter(|event| recorded_decision(&event.kind).is_some()).count();
        let replayed = replay(&recorded()).unwrap();
        assert_eq!(replayed.decisions as usize, expected);
        assert!(expected > 25, "{expected} decisions");
    }

    /// Two jobs that share a node only where a cell may hold two, and a switch that at first fails to dump
    /// one of them.
    #[test]
    fn settings_and_failed_switches_are_replayed() {
        let (a, b) = (JobId(0), JobId(1));
        let config = SchedulerConfig {
            max_per_cell: Some(1),
            ..SchedulerConfig::new(coswitch_policies::Policy::Hybrid, Duration::from_secs(10))
        };
        let mut events = recorded();
        let Event::RunStarted { scheduler, policy, quantum, nodes, .. } = &mut events[0].kind else {
            panic!()
        };
        (*scheduler, *policy, *quantum, *nodes) = (Some(config.clone()), config.policy, config.quantum, 1);
        let mut run = vec![events[0].clone()];
        let mut push =
            |seconds: u64, kind| run.push(RunEvent { at: Duration::from_secs(seconds).into(), kind });
        let fired = |timer| Event::TimerFired { timer: TimerId(timer) };
        let submitted = |job, name: &str| Event::JobSubmitted {
            job,
            name: name.into(),
            ranks: 1,
            memory: coswitch_policies::Bytes(1),
            alone: None,
        };
        let started = |switch, outgoing: &[JobId], incoming: &[JobId]| Event::SwitchStarted {
            purpose: Purpose::Turn,
            order: SwitchOrder::Sequential,
            parked: None,
            switch: SwitchId(switch),
            outgoing: outgoing.to_vec(),
            incoming: incoming.to_vec(),
        };
        let ended = |switch, misplaced| Event::SwitchEnded {
            restore: None,
            switch: SwitchId(switch),
            exposed: Duration::ZERO,
            bytes_out: coswitch_policies::Bytes(0),
            bytes_in: coswitch_policies::Bytes(0),
            misplaced,
        };
        let turn = |job, slot, ends| Event::SlotStarted {
            slot: SlotId(slot),
            jobs: vec![job],
            ends: Some(Duration::from_secs(ends).into()),
        };
        push(0, submitted(a, "a"));
        push(0, submitted(b, "b"));
        push(0, started(0, &[], &[a]));
        push(1, ended(0, vec![]));
        push(1, turn(a, 0, 11));
        push(11, fired(0));
        push(11, started(1, &[a], &[b]));
        let left = [(a, Residence::Running), (b, Residence::Unlaunched)]
            .map(|(job, left)| Misplaced::new(job, left));
        push(12, ended(1, left.to_vec()));
        push(12, turn(a, 0, 22));
        push(22, fired(1));
        push(22, started(2, &[a], &[b]));
        assert_eq!(replay(&run).unwrap().decisions, 5);
        let misplaced = run.iter_mut().find_map(|event| match &mut event.kind {
            Event::SwitchEnded { misplaced, .. } if !misplaced.is_empty() => Some(misplaced),
            _ => None,
        });
        misplaced.unwrap().clear();
        assert!(matches!(replay(&run), Err(ReplayError::Differs { .. })));
    }

    #[test]
    fn a_differing_decision_is_an_error() {
        let mut events = recorded();
        let swapped = events.iter_mut().find_map(|event| match &mut event.kind {
            Event::SwitchStarted { incoming, .. } if incoming.len() > 2 => Some(incoming),
            _ => None,
        });
        swapped.unwrap().pop();
        let error = replay(&events).unwrap_err();
        assert!(matches!(error, ReplayError::Differs { .. }), "{error}");
        let missing: Vec<RunEvent> =
            recorded().into_iter().filter(|event| !matches!(event.kind, Event::JobFinished { .. })).collect();
        assert!(replay(&missing).is_err());
        assert!(matches!(replay(&events[1..]), Err(ReplayError::NoStart)));
        if let Event::RunStarted { version, .. } = &mut events[0].kind {
            *version = 1;
        }
        assert!(matches!(replay(&events), Err(ReplayError::Old(1))));
    }
}
