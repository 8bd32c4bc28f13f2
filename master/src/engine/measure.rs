//! What share of its time a job communicates, from its driver's counters. Pure: time comes in.
//!
//! A rank that waits for a message counts the time ([`RankTraffic::waiting`]). Between two reports the share is what the
//! ranks there have waited by what has passed; it is smoothed, because reports come every second and programs
//! alternate. What passes while a job is not in memory does not count.

use std::{collections::BTreeMap, time::Duration};

use coswitch_daemon::protocol::RankTraffic;
use coswitch_policies::{Bytes, JobId, SimTime, packing::pairing::Communication};

use crate::journal::Event;

/// Two reports closer than this say little.
const INTERVAL_MIN: Duration = Duration::from_millis(200);
/// How much of the news is taken in, of four parts.
const NEWS: u32 = 1;
const PARTS: u32 = 4;

/// See the module's description.
#[derive(Debug, Default)]
pub(super) struct Measure {
    last: BTreeMap<(JobId, u32), (SimTime, Duration)>,
    shares: BTreeMap<JobId, u32>,
    counted: BTreeMap<(JobId, u32), RankTraffic>,
}

impl Measure {
    /// Keeps what the ranks have counted so far.
    pub(super) fn count(&mut self, job: JobId, ranks: &[RankTraffic]) {
        self.counted.extend(ranks.iter().map(|rank| ((job, rank.rank), *rank)));
    }

    /// The counters of a job's ranks on one node; says the job's share where there is one now.
    pub(super) fn on_traffic(
        &mut self,
        now: SimTime,
        job: JobId,
        ranks: &[RankTraffic],
    ) -> Option<Communication> {
        let mut shares = Vec::new();
        for rank in ranks {
            let (at, waited) = *self.last.entry((job, rank.rank)).or_insert((now, rank.waiting));
            let passed = now.since(at);
            if passed < INTERVAL_MIN {
                continue;
            }
            self.last.insert((job, rank.rank), (now, rank.waiting));
            let share = rank.waiting.saturating_sub(waited).as_nanos() * 1000 / passed.as_nanos();
            shares.push(u32::try_from(share.min(1000)).expect("at most a thousand"));
        }
        let count = u32::try_from(shares.len()).ok().filter(|count| *count > 0)?;
        let news = shares.iter().sum::<u32>() / count;
        let share = self.shares.entry(job).or_insert(news);
        *share = (*share * (PARTS - NEWS) + news * NEWS) / PARTS;
        Some(Communication::per_mille(u16::try_from(*share).expect("at most a thousand")))
    }

    /// The job leaves memory: its clock stands still.
    pub(super) fn pause(&mut self, job: JobId) {
        self.last.retain(|(of, _), _| *of != job);
    }

    /// The job has ended: what its ranks have counted.
    pub(super) fn forget(&mut self, job: JobId) -> Event {
        self.pause(job);
        self.shares.remove(&job);
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

    fn after(seconds: u64, waited: &[u64], measure: &mut Measure) -> Option<u16> {
        let rank = |(rank, waited): (u32, &u64)| RankTraffic {
            rank,
            messages: 0,
            bytes: 0,
            waiting: Duration::from_millis(*waited),
        };
        let ranks: Vec<_> = (0..).zip(waited).map(rank).collect();
        let now = SimTime::from(Duration::from_secs(seconds));
        measure.on_traffic(now, JOB, &ranks).map(Communication::get)
    }

    #[test]
    fn share_is_the_mean_over_ranks_of_what_they_waited() {
        let mut measure = Measure::default();
        assert_eq!(after(0, &[0, 0], &mut measure), None, "one report tells no share");
        assert_eq!(after(1, &[200, 600], &mut measure), Some(400));
    }

    #[test]
    fn share_follows_the_program_slowly() {
        let mut measure = Measure::default();
        after(0, &[0], &mut measure);
        let shares: Vec<_> = [(1, 0), (2, 1000), (3, 2000)].map(|(s, w)| after(s, &[w], &mut measure)).into();
        assert_eq!(shares, [Some(0), Some(250), Some(437)]);
    }

    #[test]
    fn a_job_that_ends_is_told_with_what_its_ranks_counted_last() {
        let mut measure = Measure::default();
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
        let mut measure = Measure::default();
        after(0, &[0], &mut measure);
        assert_eq!(after(1, &[1000], &mut measure), Some(1000));
        measure.pause(JOB);
        assert_eq!(after(60, &[1000], &mut measure), None);
        assert_eq!(after(61, &[2000], &mut measure), Some(1000));
    }
}
