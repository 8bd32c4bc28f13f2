//! Footprint of a job on a node: what it holds, and how fast it grows, with few reports.
//!
//! While a job runs it counts with its peak of the last seconds that it ran, for a program may free and
//! allocate in each step. Frozen, it counts with what it holds, exactly. Its growth is that of its peak from
//! one second of running to the next, and known from the second one on: before, a program sets up. A report
//! follows when a figure is off by a sixty-fourth of the node; for a frozen job when it holds more than was
//! reported, less by a tenth of that, or was not measured since it ran.

use std::{collections::VecDeque, time::Duration};

use super::{Finding, JobSample, Stage};
use crate::{Bytes, JobId, NodeId};

/// The time over which a peak counts, and of which each growth is measured.
const SPAN: Duration = Duration::from_secs(1);
/// How many spans a peak lasts.
const SPANS: usize = 4;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Footprint {
    /// The peak of each span, the present one last; of seconds that the job ran.
    peaks: VecDeque<Bytes>,
    /// How long the present span has lasted.
    lasted: Duration,
    /// Spans that are over.
    over: usize,
    /// As reported last.
    resident: Bytes,
    growth: Option<Bytes>,
    /// Whether it has not run since.
    exact: bool,
}

impl Footprint {
    /// Takes a sample; `ran` is the time run since the one before. Says whether to report.
    pub(super) fn on_sample(&mut self, ran: Option<Duration>, sample: &JobSample, capacity: Bytes) -> bool {
        let step = Bytes(capacity.0 / 64);
        match (sample.stage, ran) {
            (Stage::Runs, Some(ran)) => self.on_running(ran, sample.resident, step),
            (Stage::Rests, _) => self.rests(sample.resident, Bytes(step.0 / 10)),
            _ => false,
        }
    }

    /// It comes back with as much as it had, or as is in its images.
    pub(super) fn on_dumped(&mut self, image: Bytes) -> bool {
        self.rests(image.max(self.resident), Bytes(0))
    }

    pub(super) const fn finding(&self, job: JobId, node: NodeId) -> Finding {
        let Self { resident, growth, exact, .. } = *self;
        Finding::Footprint { job, node, resident, growth, exact }
    }

    fn rests(&mut self, resident: Bytes, step: Bytes) -> bool {
        let known = std::mem::replace(&mut self.exact, true) && resident <= self.resident;
        let step = if known { step } else { Bytes(0) };
        self.set(resident, self.growth, step) || !known
    }

    fn on_running(&mut self, ran: Duration, resident: Bytes, step: Bytes) -> bool {
        self.exact = false;
        self.lasted += ran;
        if self.peaks.is_empty() || self.lasted >= SPAN {
            self.over += usize::from(!self.peaks.is_empty());
            self.lasted = Duration::ZERO;
            self.peaks.push_back(Bytes(0));
            if self.peaks.len() > SPANS {
                self.peaks.pop_front();
            }
        }
        let last = self.peaks.back_mut().expect("one was just added");
        *last = resident.max(*last);
        if self.over < 2 {
            return false;
        }
        let peak = self.peaks.iter().copied().max().unwrap_or_default();
        let growth = self.grown_since(0).max(self.grown_since(1));
        self.set(peak, Some(growth), step)
    }

    /// The growth of the peak to that of the span so many spans ago, from that of the one before.
    fn grown_since(&self, ago: usize) -> Bytes {
        let peak = |ago| self.peaks.iter().rev().nth(ago).map_or(0, |peak| peak.0);
        Bytes(peak(ago).saturating_sub(peak(ago + 1)))
    }

    fn set(&mut self, resident: Bytes, growth: Option<Bytes>, step: Bytes) -> bool {
        let differ = |a: Bytes, b: Bytes| a.0.abs_diff(b.0) > step.0;
        let news = match (growth, self.growth) {
            (Some(now), Some(told)) => differ(now, told),
            (now, told) => now != told,
        };
        let news = news || differ(resident, self.resident);
        if news {
            (self.resident, self.growth) = (resident, growth);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: Bytes = Bytes::mib(640);
    const TENTH: Duration = Duration::from_millis(100);

    /// Samples a tenth of a second apart, while running; the reports as resident and growth, in MiB.
    fn watch(footprint: &mut Footprint, mib: impl IntoIterator<Item = u64>) -> Vec<(u64, Option<u64>)> {
        let see = |mib| {
            let sample = sample(mib, Stage::Runs);
            let news = footprint.on_sample(Some(TENTH), &sample, CAPACITY);
            news.then_some((footprint.resident.0 >> 20, footprint.growth.map(|growth| growth.0 >> 20)))
        };
        mib.into_iter().filter_map(see).collect()
    }

    fn sample(mib: u64, stage: Stage) -> JobSample {
        JobSample { job: JobId(0), resident: Bytes::mib(mib), major_faults: 0, stage }
    }

    #[test]
    fn a_steady_job_is_reported_once_when_it_has_run_for_two_seconds() {
        let mut footprint = Footprint::default();
        assert_eq!(watch(&mut footprint, [100; 19]), []);
        assert_eq!(watch(&mut footprint, [100; 200]), [(100, Some(0))]);
    }

    #[test]
    fn a_job_that_allocates_and_frees_counts_with_its_peak() {
        let mut footprint = Footprint::default();
        let saw = (0..200).map(|tenth| if tenth % 7 == 0 { 200 } else { 50 });
        assert_eq!(watch(&mut footprint, saw), [(200, Some(0))]);
        assert_eq!(watch(&mut footprint, [50; 50]), [(50, Some(0))], "it no longer allocates");
    }

    #[test]
    fn growth_is_reported_at_once_and_its_end_after_two_spans() {
        let mut footprint = Footprint::default();
        watch(&mut footprint, [100; 40]);
        let saw = watch(&mut footprint, (1..=30).map(|tenth| 100 + 4 * tenth));
        assert_eq!(saw[0], (112, Some(12)), "off by more than a sixty-fourth");
        assert!(saw.len() <= 12 && saw.last().is_some_and(|(mib, _)| *mib >= 210), "{saw:?}");
        assert_eq!(watch(&mut footprint, [220; 40]).last(), Some(&(220, Some(0))));
    }

    #[test]
    fn a_frozen_job_counts_with_what_it_holds_and_one_that_moves_as_before() {
        let mut footprint = Footprint::default();
        watch(&mut footprint, [100; 40]);
        let mut rest = |mib, stage| footprint.on_sample(None, &sample(mib, stage), CAPACITY);
        assert!(!rest(20, Stage::Moves) && rest(100, Stage::Rests), "now it is exact");
        assert!(!rest(100, Stage::Rests) && !rest(99, Stage::Rests) && rest(98, Stage::Rests));
        assert_eq!((footprint.resident, footprint.growth), (Bytes::mib(98), Some(Bytes(0))));
        assert!(!footprint.on_dumped(Bytes::mib(97)) && footprint.on_dumped(Bytes::mib(99)));
        let mut fresh = Footprint::default();
        assert!(fresh.on_sample(None, &sample(30, Stage::Rests), CAPACITY));
        assert_eq!(fresh.growth, None, "it has not run for long enough");
    }
}
