//! Communication meter: the share of its time that a job communicates and the bytes it sends, from its
//! driver's counters. Pure: time is an argument.
//!
//! A rank counts the time it waits for messages ([`RankTraffic::waiting`]). Between two reports its share is
//! the time waited over the time passed, its rate the bytes sent over the same time. Both are smoothed,
//! because reports come every second and programs alternate: a quarter of each report is taken in (EWMA, a
//! time constant of 3.5 s). The share of a job is the mean over its ranks, its rate their sum. Time out of
//! memory does not count.

use std::{collections::BTreeMap, time::Duration};

use coswitch_dispatcher::protocol::RankTraffic;
use coswitch_policies::{Bytes, JobId, SimTime, timeshare::packing::pairing::Communication};

use coswitch_report::journal::{Event, RankMeasured};

/// Two reports closer than this say little.
const INTERVAL_MIN: Duration = Duration::from_millis(200);
/// The weight of a new report, of four parts.
const NEWS: u64 = 1;
const PARTS: u64 = 4;

/// Counters and smoothed measures of all ranks.
#[derive(Debug, Default)]
pub(super) struct CommunicationMeter {
    last: BTreeMap<(JobId, u32), (SimTime, RankTraffic)>,
    smoothed: BTreeMap<(JobId, u32), Smoothed>,
    counted: BTreeMap<(JobId, u32), RankTraffic>,
}

/// The smoothed measures of one rank.
#[derive(Clone, Copy, Debug)]
struct Smoothed {
    /// Thousandths of its time.
    share: u64,
    /// Bytes per second.
    rate: u64,
}

impl Smoothed {
    /// The measures between two counts of a rank.
    fn between(before: RankTraffic, now: RankTraffic, passed: Duration) -> Self {
        let by =
            |amount: u128, unit: u128| u64::try_from(amount * unit / passed.as_nanos()).unwrap_or(u64::MAX);
        let waited = now.waiting.saturating_sub(before.waiting).as_nanos();
        let sent = u128::from(now.bytes.saturating_sub(before.bytes));
        Self { share: by(waited, 1000).min(1000), rate: by(sent, 1_000_000_000) }
    }

    fn take_in(&mut self, news: Self) {
        let smooth =
            |old: u64, new: u64| (old.saturating_mul(PARTS - NEWS).saturating_add(new * NEWS)) / PARTS;
        (self.share, self.rate) = (smooth(self.share, news.share), smooth(self.rate, news.rate));
    }

    fn told(self, rank: u32) -> RankMeasured {
        let communication = share(self.share);
        RankMeasured { rank, communication, bytes_per_second: Bytes(self.rate) }
    }
}

fn share(thousandths: u64) -> Communication {
    Communication::per_mille(u16::try_from(thousandths).expect("at most a thousand"))
}

/// The measures of a job after a report.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) communication: Communication,
    pub(super) bytes_per_second: Bytes,
    pub(super) ranks: Vec<RankMeasured>,
}

impl CommunicationMeter {
    /// Keeps the latest counters, for the journal's line at the end of the job.
    pub(super) fn count(&mut self, job: JobId, ranks: &[RankTraffic]) {
        self.counted.extend(ranks.iter().map(|rank| ((job, rank.rank), *rank)));
    }

    /// Takes the counters of a job's ranks on one node; returns the job's measures, if they are new.
    pub(super) fn on_traffic(&mut self, now: SimTime, job: JobId, ranks: &[RankTraffic]) -> Option<Measured> {
        let mut news = Vec::new();
        for rank in ranks {
            let key = (job, rank.rank);
            let (at, before) = *self.last.entry(key).or_insert((now, *rank));
            let passed = now.since(at);
            if passed < INTERVAL_MIN {
                continue;
            }
            self.last.insert(key, (now, *rank));
            let measured = Smoothed::between(before, *rank, passed);
            let smoothed = self.smoothed.entry(key).or_insert(measured);
            smoothed.take_in(measured);
            news.push(smoothed.told(rank.rank));
        }
        if news.is_empty() {
            return None;
        }
        let known = self.smoothed.range((job, 0)..=(job, u32::MAX)).map(|(_, rank)| rank);
        let (shares, rate, count) = known.fold((0, 0_u64, 0), |(shares, rate, count), rank| {
            (shares + rank.share, rate.saturating_add(rank.rate), count + 1)
        });
        let (communication, bytes_per_second) = (share(shares / count), Bytes(rate));
        Some(Measured { communication, bytes_per_second, ranks: news })
    }

    /// The job leaves memory: its clock stands still.
    pub(super) fn pause(&mut self, job: JobId) {
        self.last.retain(|(of, _), _| *of != job);
    }

    /// The job has ended: returns the sum of its ranks' counters.
    pub(super) fn forget(&mut self, job: JobId) -> Event {
        self.pause(job);
        self.smoothed.retain(|(of, _), _| *of != job);
        let (mut messages, mut bytes, mut waiting) = (0, 0, Duration::ZERO);
        self.counted.retain(|(of, _), rank| {
            if *of == job {
                messages += rank.messages;
                bytes += rank.bytes;
                waiting += rank.waiting;
            }
            *of != job
        });
        Event::JobCommunicated { job, messages, bytes: Bytes(bytes), waiting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(3);

    fn after(seconds: u64, waited: &[u64], measure: &mut CommunicationMeter) -> Option<u16> {
        let rank = |(rank, waited): (u32, &u64)| RankTraffic {
            rank,
            messages: 0,
            bytes: waited * 1000,
            waiting: Duration::from_millis(*waited),
        };
        let ranks: Vec<_> = (0..).zip(waited).map(rank).collect();
        let now = SimTime::from(Duration::from_secs(seconds));
        measure.on_traffic(now, JOB, &ranks).map(|measured| measured.communication.get())
    }

    #[test]
    fn share_is_the_mean_over_ranks_of_what_they_waited() {
        let mut measure = CommunicationMeter::default();
        assert_eq!(after(0, &[0, 0], &mut measure), None, "one report tells no share");
        assert_eq!(after(1, &[200, 600], &mut measure), Some(400));
    }

    #[test]
    fn share_follows_the_program_slowly() {
        let mut measure = CommunicationMeter::default();
        after(0, &[0], &mut measure);
        let shares: Vec<_> = [(1, 0), (2, 1000), (3, 2000)].map(|(s, w)| after(s, &[w], &mut measure)).into();
        assert_eq!(shares, [Some(0), Some(250), Some(437)]);
    }

    #[test]
    fn ranks_on_other_nodes_count_with_what_they_were_last_seen_to_do() {
        let mut measure = CommunicationMeter::default();
        let at = |seconds| SimTime::from(Duration::from_secs(seconds));
        let rank = |rank, ms: u64| {
            [RankTraffic { rank, messages: 0, bytes: ms * 1000, waiting: Duration::from_millis(ms) }]
        };
        for (seconds, rank) in [(0, rank(0, 0)), (0, rank(1, 0)), (1, rank(0, 200))] {
            measure.on_traffic(at(seconds), JOB, &rank);
        }
        let known = measure.on_traffic(at(1), JOB, &rank(1, 600)).unwrap();
        assert_eq!((known.communication.get(), known.bytes_per_second), (400, Bytes(800_000)));
        assert_eq!(known.ranks.len(), 1, "only one has news");
    }

    #[test]
    fn a_job_that_ends_is_told_with_what_its_ranks_counted_last() {
        let mut measure = CommunicationMeter::default();
        let rank =
            |rank, messages| RankTraffic { rank, messages, bytes: 10, waiting: Duration::from_secs(1) };
        measure.count(JOB, &[rank(0, 1), rank(1, 2)]);
        measure.count(JOB, &[rank(1, 5)]);
        measure.count(JobId(4), &[rank(0, 7)]);
        let waiting = Duration::from_secs(2);
        let told = Event::JobCommunicated { job: JOB, messages: 6, bytes: Bytes(20), waiting };
        assert_eq!(measure.forget(JOB), told);
        assert_eq!(measure.counted.len(), 1);
    }

    #[test]
    fn time_out_of_memory_does_not_count() {
        let mut measure = CommunicationMeter::default();
        after(0, &[0], &mut measure);
        assert_eq!(after(1, &[1000], &mut measure), Some(1000));
        measure.pause(JOB);
        assert_eq!(after(60, &[1000], &mut measure), None);
        assert_eq!(after(61, &[2000], &mut measure), Some(1000));
    }
}
