//! Keeps a report in the making small, for a journal that is compacted: of what is over long ago only totals
//! are kept.

use coswitch_policies::{
    Bytes, JobId, SimTime,
    metrics::{Metrics, RunTimes, Span, utilisation_between},
};
use serde::{Deserialize, Serialize};

use crate::{fold::Folder, words::plural};

/// So many sentences of a kind are kept.
const SENTENCES: usize = 1000;

/// Jobs that ended before all those that are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Unlisted {
    pub(super) jobs: u64,
    /// Their declared working sets.
    pub(super) memory: Bytes,
    /// The first of their submissions, and the last of their ends.
    submitted: SimTime,
    ended: SimTime,
}

impl Unlisted {
    /// The metrics of a run with these jobs. Their own times are not known any more: the utilisation is that
    /// since their end, and the spread that of the others.
    pub(super) fn reckoned_in(&self, times: &RunTimes, listed: Metrics) -> Metrics {
        if self.jobs == 0 {
            return listed;
        }
        let first = times.jobs.iter().map(|job| job.submitted).fold(self.submitted, SimTime::min);
        let last = times.jobs.iter().map(|job| job.finished).fold(self.ended, SimTime::max);
        let makespan = last.since(first);
        let mut metrics = Metrics {
            makespan,
            utilisation: utilisation_between(times, Span { from: self.ended, to: last }),
            overhead: listed.exposed.as_secs_f64() / makespan.as_secs_f64().max(f64::MIN_POSITIVE),
            ..listed
        };
        metrics.tradeoff.relative_makespan = None;
        metrics
    }

    fn take(&mut self, memory: Bytes, submitted: SimTime, ended: SimTime) {
        self.submitted = if self.jobs == 0 { submitted } else { self.submitted.min(submitted) };
        self.ended = self.ended.max(ended);
        self.memory = self.memory.saturating_add(memory);
        self.jobs += 1;
    }
}

/// Sentences for a report, of which the last ones are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Sentences {
    last: Vec<String>,
    before: usize,
}

impl Sentences {
    pub(super) fn push(&mut self, text: String) {
        self.last.push(text);
    }

    fn sum_up(&mut self) {
        let surplus = self.last.len().saturating_sub(SENTENCES);
        self.last.drain(..surplus);
        self.before += surplus;
    }

    pub(super) fn finish(self) -> Vec<String> {
        let before = match self.before {
            0 => None,
            before => Some(format!("{} before these are left out", plural(before, "sentence"))),
        };
        before.into_iter().chain(self.last).collect()
    }
}

impl Folder {
    /// Leaves out the details of all jobs that have ended except for the last so many.
    pub fn sum_up(&mut self, kept: usize) {
        // The turns before are over.
        let until = self.lives.computing_since().unwrap_or(self.last);
        self.add_hidden(until);
        let ended = self.jobs.iter().filter_map(|(id, job)| Some((job.finished.as_ref()?.0, *id)));
        let mut ended: Vec<(SimTime, JobId)> = ended.collect();
        ended.sort_unstable();
        let surplus = ended.len().saturating_sub(kept);
        for (at, id) in ended.into_iter().take(surplus).take_while(|(at, _)| *at <= until) {
            self.unlist_account(id);
            self.lives.jobs.remove(&id);
            if let Some(job) = self.jobs.remove(&id) {
                self.unlisted.take(job.working_set(), job.submitted, at);
            }
        }
        let jobs = &self.jobs;
        self.paging.retain(|job| jobs.contains_key(&job));
        self.coscheduling.retain(|job| jobs.contains_key(&job));
        self.forecasts.sum_up(kept);
        self.outgrown.sum_up();
        self.warnings.sum_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        coscheduling::tests::with_counts,
        fold::{fold, tests::two_jobs_in_turn},
        journal::{Event, RunEvent, record},
        known::Known,
    };

    fn summed(events: &[RunEvent], kept: usize) -> RunEvent {
        let (mut report, mut known) = (Box::new(Folder::default()), Box::new(Known::of(events)));
        events.iter().for_each(|RunEvent { at, kind }| report.on_event(*at, kind));
        report.sum_up(kept);
        known.sum_up(kept);
        RunEvent { at: known.last, kind: Event::Summed { archive: 1, report, known } }
    }

    #[test]
    fn a_sum_stands_for_the_events_before_wherever_it_is_made() {
        let events = with_counts();
        for count in 0..=events.len() {
            let line = record::write(&summed(&events[..count], 10));
            let sum: RunEvent = record::read(line.strip_suffix(b"\n").unwrap()).unwrap();
            let rest = || std::iter::once(&sum).chain(&events[count..]);
            assert_eq!(fold(rest()), fold(&events), "{count}");
            assert_eq!(Known::of(rest()), Known::of(&events), "{count}");
        }
    }

    #[test]
    fn jobs_that_are_not_listed_count_in_the_totals() {
        let (whole, short) = (fold(&two_jobs_in_turn()), fold(&[summed(&two_jobs_in_turn(), 1)]));
        assert_eq!((short.jobs.len(), short.unlisted), (1, 1));
        let totals = |set: &crate::SetReport| (set.makespan, set.exposed, set.switches, set.memory_total);
        assert_eq!(totals(&short.set), totals(&whole.set));
        assert!((short.set.overhead - whole.set.overhead).abs() < 1e-12);
        assert_eq!(short.set.relative_makespan, None);
        assert_eq!(short.steps, whole.steps);
    }

    #[test]
    fn of_many_sentences_the_last_are_kept() {
        let mut sentences = Sentences::default();
        (0..SENTENCES + 2).for_each(|number| sentences.push(number.to_string()));
        sentences.sum_up();
        let texts = sentences.finish();
        assert_eq!(texts[..2], ["2 sentences before these are left out", "2"]);
    }
}
