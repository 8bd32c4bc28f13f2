//! Where each job was, and when. Pure: one pass over the journal.
//!
//! ```text
//!   Waiting ─▶ Coming ─▶ Running ─▶ Leaving ─▶ Parked ─▶ Coming ─▶ …      until it ends
//!                │          │ ▲        ▲
//!                ▼ fetched  ▼ │        │ its room is needed
//!              Suspended  Suspended ───┘
//! ```

use std::collections::{BTreeMap, BTreeSet};

use coswitch_policies::{JobId, Misplaced, NodeId, Placement, Residence, SimTime, metrics::Span};
use serde::Serialize;

use crate::journal::{Event, Phase};

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Submitted, and not yet begun.
    Waiting,
    /// Its processes are being started or restored.
    Coming,
    /// Its ranks run.
    Running,
    /// In memory, and stopped.
    Suspended,
    /// Stopped, and being taken out of memory.
    Leaving,
    /// Out of memory.
    Parked,
}

impl State {
    /// Whether the job takes room on its nodes.
    pub(super) const fn is_in_memory(self) -> bool {
        !matches!(self, Self::Waiting | Self::Parked)
    }
}

/// A job in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stay {
    pub(super) state: State,
    pub(super) span: Span,
}

/// One job.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    /// In order, without gaps, from its submission to its end.
    pub(super) stays: Vec<Stay>,
    pub(super) placement: Placement,
    now: Option<(State, SimTime)>,
    /// The nodes whose memory it has left while it leaves.
    gone: BTreeSet<NodeId>,
}

impl Life {
    /// When it was in that state.
    pub(super) fn spans(&self, state: State) -> impl Iterator<Item = Span> + '_ {
        self.stays.iter().filter(move |stay| stay.state == state).map(|stay| stay.span)
    }

    fn is(&self, state: State) -> bool {
        self.now.is_some_and(|(now, _)| now == state)
    }

    fn enter(&mut self, at: SimTime, state: State) {
        if !self.is(state) {
            let since = self.close(at).unwrap_or(at);
            self.now = Some((state, since));
        }
    }

    /// Ends the stay under way, not before it began; says when.
    fn close(&mut self, at: SimTime) -> Option<SimTime> {
        let (state, from) = self.now.take()?;
        let to = at.max(from);
        self.stays.push(Stay { state, span: Span { from, to } });
        Some(to)
    }
}

/// All jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Lives {
    pub(super) jobs: BTreeMap<JobId, Life>,
    /// Of the switch under way: who leaves memory, and who comes in.
    parked: Vec<JobId>,
    incoming: Vec<JobId>,
}

impl Lives {
    pub(super) fn on_event(&mut self, at: SimTime, event: &Event) {
        match event {
            Event::JobSubmitted { job, .. } => self.job(*job).enter(at, State::Waiting),
            Event::JobLaunched { job, placement } => {
                self.job(*job).placement = placement.clone();
                self.job(*job).enter(at, State::Coming);
            }
            Event::JobRunning { job } => self.job(*job).enter(at, State::Running),
            Event::SwitchStarted { outgoing, parked, incoming, .. } => {
                self.parked = parked.clone().unwrap_or_else(|| outgoing.clone());
                self.incoming.clone_from(incoming);
                for job in outgoing {
                    let leaves = self.parked.contains(job);
                    self.job(*job).enter(at, if leaves { State::Leaving } else { State::Suspended });
                    self.job(*job).gone.clear();
                }
            }
            Event::PhaseDone { job, node, phase: Phase::Release, ended, .. } => {
                let life = self.job(*job);
                life.gone.insert(*node);
                if life.is(State::Leaving) && life.placement.nodes().all(|node| life.gone.contains(&node)) {
                    life.enter(*ended, State::Parked);
                }
            }
            Event::PhaseDone { job, phase: Phase::Restore, began, .. }
                if self.job(*job).is(State::Parked) =>
            {
                self.job(*job).enter(*began, State::Coming);
            }
            Event::SwitchEnded { misplaced, .. } => self.on_switch_ended(at, misplaced),
            Event::JobFinished { job, .. } => {
                self.job(*job).close(at);
            }
            _ => {}
        }
    }

    fn on_switch_ended(&mut self, at: SimTime, misplaced: &[Misplaced]) {
        let as_planned = |job: &JobId| misplaced.iter().all(|misplaced| misplaced.job != *job);
        for job in std::mem::take(&mut self.parked).into_iter().filter(as_planned) {
            self.moves(at, job, State::Leaving, State::Parked);
        }
        // Brought in ahead of its turn.
        for job in std::mem::take(&mut self.incoming).into_iter().filter(as_planned) {
            self.moves(at, job, State::Coming, State::Suspended);
        }
        for Misplaced { job, at: left, .. } in misplaced {
            let life = self.job(*job);
            let state = match left {
                Residence::Unlaunched => State::Waiting,
                Residence::Running => State::Running,
                Residence::Suspended => State::Suspended,
                Residence::Parked => State::Parked,
                Residence::Finished | Residence::Failed => continue,
            };
            if life.now.is_some() {
                life.enter(at, state);
            }
        }
    }

    fn moves(&mut self, at: SimTime, job: JobId, from: State, to: State) {
        if self.job(job).is(from) {
            self.job(job).enter(at, to);
        }
    }

    /// The journal ends here, in the middle of whatever is under way.
    pub(super) fn cut_off(&mut self, at: SimTime) {
        self.jobs.values_mut().for_each(|life| {
            life.close(at);
        });
    }

    pub(super) fn runs(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|life| life.is(State::Running))
    }

    /// When some job computed, in order and apart.
    pub(super) fn computing(&self) -> Vec<Span> {
        let mut busy: Vec<Span> = self.jobs.values().flat_map(|life| life.spans(State::Running)).collect();
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

/// The parts of `span` that `spans`, in order and apart, cover.
pub(super) fn within<'a>(span: Span, spans: &'a [Span]) -> impl Iterator<Item = Span> + 'a {
    let first = spans.partition_point(|other| other.to <= span.from);
    let met = spans[first..].iter().take_while(move |other| other.from < span.to);
    met.map(move |other| Span { from: other.from.max(span.from), to: other.to.min(span.to) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    fn done(phase: Phase, node: u32, (began, over): (u64, u64)) -> Event {
        let (node, began, ended) = (NodeId(node), at(began), at(over));
        Event::PhaseDone { switch: SwitchId(0), job: A, node, phase, began, ended, bytes: Bytes(0) }
    }

    fn told(lives: &Lives) -> Vec<(State, u64, u64)> {
        let seconds = |at: SimTime| at.0 / 1_000_000_000;
        let tell = |stay: &Stay| (stay.state, seconds(stay.span.from), seconds(stay.span.to));
        lives.jobs[&A].stays.iter().map(tell).collect()
    }

    #[test]
    fn a_job_is_parked_from_when_the_last_node_is_free_until_its_restore_begins() {
        let mut lives = lives(&[
            (0, submitted()),
            (1, launched()),
            (2, Event::JobRunning { job: A }),
            (5, switch(&[A], &[A], &[])),
            (6, done(Phase::Release, 0, (6, 6))),
            (8, done(Phase::Release, 1, (7, 7))),
            (9, ended(None)),
            (9, switch(&[], &[], &[A])),
            (12, done(Phase::Restore, 0, (10, 12))),
            (13, done(Phase::Restore, 1, (11, 13))),
            (14, Event::JobRunning { job: A }),
        ]);
        lives.cut_off(at(20));
        let expected = [
            (State::Waiting, 0, 1),
            (State::Coming, 1, 2),
            (State::Running, 2, 5),
            (State::Leaving, 5, 7),
            (State::Parked, 7, 10),
            (State::Coming, 10, 14),
            (State::Running, 14, 20),
        ];
        assert_eq!(told(&lives), expected);
    }

    #[test]
    fn a_job_that_keeps_its_memory_is_suspended_and_one_fetched_ahead_too() {
        let begun = [(0, submitted()), (0, launched()), (1, Event::JobRunning { job: A })];
        let mut suspended = lives(&[&begun[..], &[(3, switch(&[A], &[], &[])), (4, ended(None))]].concat());
        suspended.cut_off(at(6));
        assert_eq!(told(&suspended)[3..], [(State::Suspended, 3, 6)]);
        let fetched = [
            (3, switch(&[A], &[A], &[])),
            (4, ended(None)),
            (5, switch(&[], &[], &[A])),
            (7, done(Phase::Restore, 0, (6, 7))),
            (8, ended(None)),
        ];
        let mut fetched = lives(&[&begun[..], &fetched[..]].concat());
        fetched.cut_off(at(9));
        let expected =
            [(State::Leaving, 3, 4), (State::Parked, 4, 6), (State::Coming, 6, 8), (State::Suspended, 8, 9)];
        assert_eq!(told(&fetched)[3..], expected);
    }

    #[test]
    fn a_job_that_went_astray_is_where_it_was_left() {
        let mut lives = lives(&[
            (0, submitted()),
            (0, launched()),
            (1, Event::JobRunning { job: A }),
            (3, switch(&[A], &[A], &[])),
            (4, ended(Some(Residence::Suspended))),
            (5, Event::JobRunning { job: A }),
        ]);
        lives.cut_off(at(6));
        let tail = told(&lives).split_off(4);
        assert_eq!(tail, [(State::Suspended, 4, 5), (State::Running, 5, 6)]);
    }

    #[test]
    fn parts_of_a_span_are_found_among_others() {
        let span = |from, to| Span { from: at(from), to: at(to) };
        let busy = [span(0, 3), span(5, 8), span(10, 12)];
        let parts: Vec<Span> = within(span(2, 11), &busy).collect();
        assert_eq!(parts, [span(2, 3), span(5, 8), span(10, 11)]);
        assert_eq!(within(span(3, 5), &busy).count(), 0);
    }
}
