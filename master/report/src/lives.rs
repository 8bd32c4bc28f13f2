//! The life of each job: the stages that it went through, with their times.
//!
//! ```text
//!   Waiting ─▶ Coming ─▶ Running ─▶ Leaving ─▶ Parked ─▶ Coming ─▶ …      until the job ends
//!                │            │ ▲        ▲
//!                ▼ prefetched ▼ │        │ another job needs its memory
//!              Suspended    Suspended ───┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coswitch_policies::{Adopted, JobId, Misplaced, NodeId, Placement, Residence, SimTime, metrics::Span};
use serde::{Deserialize, Serialize};

use crate::{
    journal::{Event, SwitchStep},
    pairs,
};

/// A stage in the life of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LifeStage {
    /// Submitted, and not yet launched.
    Waiting,
    /// Its processes are being started or restored.
    Coming,
    Running,
    /// In memory, and stopped.
    Suspended,
    /// Stopped, and being taken out of memory.
    Leaving,
    /// Out of memory.
    Parked,
}

impl LifeStage {
    /// Whether the job takes memory on its nodes.
    pub(super) const fn is_in_memory(self) -> bool {
        !matches!(self, Self::Waiting | Self::Parked)
    }
}

const fn stage_of(residence: Residence) -> LifeStage {
    match residence {
        Residence::Running => LifeStage::Running,
        Residence::Suspended => LifeStage::Suspended,
        Residence::Unlaunched => LifeStage::Waiting,
        _ => LifeStage::Parked,
    }
}

/// A stretch of time that a job spent in one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stay {
    pub(super) stage: LifeStage,
    pub(super) span: Span,
}

/// The life of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Life {
    /// In order, without gaps, from its submission to its end.
    pub(super) stays: Vec<Stay>,
    pub(super) placement: Placement,
    /// The current stage and its start.
    now: Option<(LifeStage, SimTime)>,
    /// The nodes whose memory the leaving job has released.
    released: BTreeSet<NodeId>,
}

impl Life {
    pub(super) fn spans(&self, stage: LifeStage) -> impl Iterator<Item = Span> + '_ {
        self.stays.iter().filter(move |stay| stay.stage == stage).map(|stay| stay.span)
    }

    /// The time in the stages that count, up to `until` where the job has not ended.
    pub(super) fn spent(&self, counts: impl Fn(LifeStage) -> bool, until: SimTime) -> Duration {
        let now = self.now.filter(|(stage, _)| counts(*stage)).map(|(_, since)| until.since(since));
        let before = self.stays.iter().filter(|stay| counts(stay.stage)).map(|stay| stay.span.length());
        before.chain(now).sum()
    }

    /// Whether the job has not ended.
    pub(super) const fn goes_on(&self) -> bool {
        self.now.is_some()
    }

    fn is(&self, stage: LifeStage) -> bool {
        self.now.is_some_and(|(now, _)| now == stage)
    }

    fn enter(&mut self, at: SimTime, stage: LifeStage) {
        if !self.is(stage) {
            let since = self.close(at).unwrap_or(at);
            self.now = Some((stage, since));
        }
    }

    /// Ends the current stay, at the earliest at its start, and returns its end.
    fn close(&mut self, at: SimTime) -> Option<SimTime> {
        let (stage, from) = self.now.take()?;
        let to = at.max(from);
        self.stays.push(Stay { stage, span: Span { from, to } });
        Some(to)
    }
}

/// The lives of all jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Lives {
    #[serde(with = "pairs")]
    pub(super) jobs: BTreeMap<JobId, Life>,
    /// The jobs that leave memory in the current switch.
    parked: Vec<JobId>,
    incoming: Vec<JobId>,
}

impl Lives {
    pub(super) fn on_event(&mut self, at: SimTime, event: &Event) {
        match event {
            Event::JobSubmitted { job, .. } => self.job(*job).enter(at, LifeStage::Waiting),
            Event::JobLaunched { job, placement } => {
                self.job(*job).placement = placement.clone();
                self.job(*job).enter(at, LifeStage::Coming);
            }
            Event::JobRunning { job } => self.job(*job).enter(at, LifeStage::Running),
            Event::SwitchStarted { outgoing, parked, incoming, .. } => {
                self.parked = parked.clone().unwrap_or_else(|| outgoing.clone());
                self.incoming.clone_from(incoming);
                for job in outgoing {
                    let leaves = self.parked.contains(job);
                    self.job(*job).enter(at, if leaves { LifeStage::Leaving } else { LifeStage::Suspended });
                    self.job(*job).released.clear();
                }
            }
            Event::StepDone { job, node, step: SwitchStep::Release, ended, .. } => {
                let life = self.job(*job);
                life.released.insert(*node);
                let is_out = life.placement.nodes().all(|node| life.released.contains(&node));
                if life.is(LifeStage::Leaving) && is_out {
                    life.enter(*ended, LifeStage::Parked);
                }
            }
            Event::StepDone { job, step: SwitchStep::Restore, began, .. }
                if self.job(*job).is(LifeStage::Parked) =>
            {
                self.job(*job).enter(*began, LifeStage::Coming);
            }
            Event::SwitchEnded { misplaced, .. } => self.on_switch_ended(at, misplaced),
            Event::MasterReplaced { jobs, .. } => {
                for Adopted { job, placement, at: residence, .. } in jobs {
                    self.job(job.id).placement = placement.clone();
                    self.job(job.id).enter(at, stage_of(*residence));
                }
            }
            Event::JobDisplaced { job, residence } => {
                let stage = stage_of(*residence);
                self.job(*job).enter(at, stage);
            }
            Event::JobFinished { job, .. } => {
                self.job(*job).close(at);
            }
            _ => {}
        }
    }

    fn on_switch_ended(&mut self, at: SimTime, misplaced: &[Misplaced]) {
        let as_planned = |job: &JobId| misplaced.iter().all(|misplaced| misplaced.job != *job);
        for job in std::mem::take(&mut self.parked).into_iter().filter(as_planned) {
            self.moves(at, job, LifeStage::Leaving, LifeStage::Parked);
        }
        // A job that is in memory and not yet resumed was prefetched.
        for job in std::mem::take(&mut self.incoming).into_iter().filter(as_planned) {
            self.moves(at, job, LifeStage::Coming, LifeStage::Suspended);
        }
        for Misplaced { job, at: left, .. } in misplaced {
            let life = self.job(*job);
            let stage = match left {
                Residence::Unlaunched => LifeStage::Waiting,
                Residence::Running => LifeStage::Running,
                Residence::Suspended => LifeStage::Suspended,
                Residence::Parked => LifeStage::Parked,
                Residence::Finished | Residence::Failed => continue,
            };
            if life.now.is_some() {
                life.enter(at, stage);
            }
        }
    }

    fn moves(&mut self, at: SimTime, job: JobId, from: LifeStage, to: LifeStage) {
        if self.job(job).is(from) {
            self.job(job).enter(at, to);
        }
    }

    /// Ends all current stays at the end of the journal.
    pub(super) fn cut_off(&mut self, at: SimTime) {
        self.jobs.values_mut().for_each(|life| {
            life.close(at);
        });
    }

    /// Forgets stays that ended before `at`, and jobs of which nothing is left then.
    pub(super) fn forget(&mut self, at: SimTime) {
        self.jobs.retain(|_, life| {
            life.stays.retain(|stay| stay.span.to >= at);
            life.goes_on() || !life.stays.is_empty()
        });
    }

    pub(super) fn runs(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|life| life.is(LifeStage::Running))
    }

    /// The start of the oldest turn that goes on.
    pub(super) fn computing_since(&self) -> Option<SimTime> {
        let runs = |life: &Life| life.now.filter(|(stage, _)| *stage == LifeStage::Running);
        self.jobs.values().filter_map(runs).map(|(_, since)| since).min()
    }

    /// The spans in which some job computed, in order and disjoint.
    pub(super) fn computing(&self) -> Vec<Span> {
        let mut busy: Vec<Span> =
            self.jobs.values().flat_map(|life| life.spans(LifeStage::Running)).collect();
        busy.sort_by_key(|span| span.from);
        let mut merged: Vec<Span> = Vec::new();
        for span in busy {
            match merged.last_mut().filter(|last| span.from <= last.to) {
                Some(last) => last.to = last.to.max(span.to),
                None => merged.push(span),
            }
        }
        merged
    }

    fn job(&mut self, job: JobId) -> &mut Life {
        self.jobs.entry(job).or_default()
    }
}

/// The parts of `span` that are covered by `spans`, which are in order and disjoint.
pub(super) fn within<'a>(span: Span, spans: &'a [Span]) -> impl Iterator<Item = Span> + 'a {
    let first = spans.partition_point(|other| other.to <= span.from);
    let met = spans[first..].iter().take_while(move |other| other.from < span.to);
    met.map(move |other| Span { from: other.from.max(span.from), to: other.to.min(span.to) })
}

#[cfg(test)]
mod tests {
    use coswitch_policies::{Bytes, Purpose, SwitchId, SwitchOrder};

    use super::*;

    const A: JobId = JobId(0);

    fn at(seconds: u64) -> SimTime {
        Duration::from_secs(seconds).into()
    }

    fn lives(events: &[(u64, Event)]) -> Lives {
        let mut lives = Lives::default();
        events.iter().for_each(|(seconds, event)| lives.on_event(at(*seconds), event));
        lives
    }

    fn submitted() -> Event {
        Event::JobSubmitted { job: A, name: "a".into(), ranks: 2, memory: Bytes::mib(1), alone: None }
    }

    fn launched() -> Event {
        Event::JobLaunched { job: A, placement: Placement::from_shares(&[1, 1]) }
    }

    fn switch(outgoing: &[JobId], parked: &[JobId], incoming: &[JobId]) -> Event {
        Event::SwitchStarted {
            switch: SwitchId(0),
            purpose: Purpose::Turn,
            order: SwitchOrder::Sequential,
            outgoing: outgoing.into(),
            parked: Some(parked.into()),
            incoming: incoming.into(),
        }
    }

    fn ended(left: Option<Residence>) -> Event {
        Event::SwitchEnded {
            switch: SwitchId(0),
            restore: None,
            exposed: Duration::ZERO,
            bytes_out: Bytes(0),
            bytes_in: Bytes(0),
            misplaced: left.map(|left| Misplaced::new(A, left)).into_iter().collect(),
        }
    }

    fn done(step: SwitchStep, node: u32, (began, over): (u64, u64)) -> Event {
        let (node, began, ended) = (NodeId(node), at(began), at(over));
        Event::StepDone { switch: SwitchId(0), job: A, node, step, began, ended, bytes: Bytes(0) }
    }

    fn stays(lives: &Lives) -> Vec<(LifeStage, u64, u64)> {
        let seconds = |at: SimTime| at.0 / 1_000_000_000;
        let stay = |stay: &Stay| (stay.stage, seconds(stay.span.from), seconds(stay.span.to));
        lives.jobs[&A].stays.iter().map(stay).collect()
    }

    #[test]
    fn a_job_is_parked_from_the_release_of_its_last_node_to_the_start_of_its_restore() {
        let mut lives = lives(&[
            (0, submitted()),
            (1, launched()),
            (2, Event::JobRunning { job: A }),
            (5, switch(&[A], &[A], &[])),
            (6, done(SwitchStep::Release, 0, (6, 6))),
            (8, done(SwitchStep::Release, 1, (7, 7))),
            (9, ended(None)),
            (9, switch(&[], &[], &[A])),
            (12, done(SwitchStep::Restore, 0, (10, 12))),
            (13, done(SwitchStep::Restore, 1, (11, 13))),
            (14, Event::JobRunning { job: A }),
        ]);
        lives.cut_off(at(20));
        let expected = [
            (LifeStage::Waiting, 0, 1),
            (LifeStage::Coming, 1, 2),
            (LifeStage::Running, 2, 5),
            (LifeStage::Leaving, 5, 7),
            (LifeStage::Parked, 7, 10),
            (LifeStage::Coming, 10, 14),
            (LifeStage::Running, 14, 20),
        ];
        assert_eq!(stays(&lives), expected);
    }

    #[test]
    fn a_job_that_keeps_its_memory_and_a_prefetched_job_are_suspended() {
        let begun = [(0, submitted()), (0, launched()), (1, Event::JobRunning { job: A })];
        let mut suspended = lives(&[&begun[..], &[(3, switch(&[A], &[], &[])), (4, ended(None))]].concat());
        suspended.cut_off(at(6));
        assert_eq!(stays(&suspended)[3..], [(LifeStage::Suspended, 3, 6)]);
        let prefetched = [
            (3, switch(&[A], &[A], &[])),
            (4, ended(None)),
            (5, switch(&[], &[], &[A])),
            (7, done(SwitchStep::Restore, 0, (6, 7))),
            (8, ended(None)),
        ];
        let mut prefetched = lives(&[&begun[..], &prefetched[..]].concat());
        prefetched.cut_off(at(9));
        let expected = [
            (LifeStage::Leaving, 3, 4),
            (LifeStage::Parked, 4, 6),
            (LifeStage::Coming, 6, 8),
            (LifeStage::Suspended, 8, 9),
        ];
        assert_eq!(stays(&prefetched)[3..], expected);
    }

    #[test]
    fn a_misplaced_job_is_where_the_switch_left_it() {
        let mut lives = lives(&[
            (0, submitted()),
            (0, launched()),
            (1, Event::JobRunning { job: A }),
            (3, switch(&[A], &[A], &[])),
            (4, ended(Some(Residence::Suspended))),
            (5, Event::JobRunning { job: A }),
        ]);
        lives.cut_off(at(6));
        let tail = stays(&lives).split_off(4);
        assert_eq!(tail, [(LifeStage::Suspended, 4, 5), (LifeStage::Running, 5, 6)]);
    }

    #[test]
    fn the_covered_parts_of_a_span_are_found() {
        let span = |from, to| Span { from: at(from), to: at(to) };
        let busy = [span(0, 3), span(5, 8), span(10, 12)];
        let parts: Vec<Span> = within(span(2, 11), &busy).collect();
        assert_eq!(parts, [span(2, 3), span(5, 8), span(10, 11)]);
        assert_eq!(within(span(3, 5), &busy).count(), 0);
    }
}
