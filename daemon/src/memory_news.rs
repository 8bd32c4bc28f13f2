//! What is worth telling of the memory of a node's jobs.
//!
//! The daemon looks ten times a second. It tells the head node when something changed by more than a step,
//! while applications start, stop or move, and otherwise about once a second. Nothing that was seen is lost:
//! what is told counts the looks since the last time, and has their peak.

use std::time::Duration;

use coswitch_policies::Bytes;

use crate::protocol::{JobMemory, MemoryUse};

/// Looks of which each is told after an event of an application: the master knows how a job grows when that
/// has run for two seconds, and with short turns it has no more.
const LOOKS_AFTER_EVENT: u32 = 25;
/// Looks of which at least one is told: a little more than a second, the time over which the master counts.
const LOOKS_MAX: u32 = 11;
/// A change by more than this share of what was told is news, from a mebibyte on.
const STEP_SHARE: u64 = 64;
/// And one by more than this share of the node in any case.
const STEP_SHARE_OF_NODE: u64 = 640;
/// Faults since they were told that are news: fewer than a tenth of what is memory pressure.
const FAULTS: u64 = 8;
/// The same for a stall.
const STALL: Duration = Duration::from_millis(8);

/// See the module.
pub(crate) struct MemoryNews {
    capacity: Option<Bytes>,
    told: Option<MemoryUse>,
    /// Since then.
    looks: u32,
    peak: Bytes,
    /// Looks that are told whatever they show.
    busy: u32,
}

impl MemoryNews {
    /// Of a node that offers `capacity`, where that is limited.
    pub(crate) fn new(capacity: Option<Bytes>) -> Self {
        Self { capacity, told: None, looks: 0, peak: Bytes(0), busy: 0 }
    }

    /// There is another head node, which knows nothing.
    pub(crate) fn forget(&mut self) {
        self.told = None;
    }

    /// Takes what a look has shown; `event`: an application did something since the last one. Returns what is
    /// to be told.
    pub(crate) fn on_look(&mut self, seen: MemoryUse, event: bool) -> Option<MemoryUse> {
        if event {
            self.busy = LOOKS_AFTER_EVENT;
        }
        self.looks += 1;
        self.peak = self.peak.max(seen.used);
        let is_due = self.busy > 0 || self.looks >= LOOKS_MAX;
        self.busy = self.busy.saturating_sub(1);
        if !is_due && self.told.as_ref().is_some_and(|told| !self.differ(told, &seen)) {
            return None;
        }
        self.told = Some(seen.clone());
        let (looks, peak) = (std::mem::take(&mut self.looks), std::mem::take(&mut self.peak));
        Some(MemoryUse { looks, peak, ..seen })
    }

    fn differ(&self, told: &MemoryUse, seen: &MemoryUse) -> bool {
        let stalled = |memory: &MemoryUse| memory.stall.unwrap_or_default();
        let same_jobs =
            told.jobs.iter().map(|memory| memory.job).eq(seen.jobs.iter().map(|memory| memory.job));
        told.stopped != seen.stopped
            || !same_jobs
            || self.is_step(told.used, seen.used)
            || stalled(seen).saturating_sub(stalled(told)) > STALL
            || told.jobs.iter().zip(&seen.jobs).any(|(told, seen)| self.job_differs(told, seen))
    }

    fn job_differs(&self, told: &JobMemory, seen: &JobMemory) -> bool {
        self.is_step(told.used, seen.used)
            || self.is_step(told.held, seen.held)
            || self.is_step(told.swapped, seen.swapped)
            || seen.major_faults.abs_diff(told.major_faults) > FAULTS
    }

    fn is_step(&self, told: Bytes, seen: Bytes) -> bool {
        let of_node = self.capacity.map_or(u64::MAX, |capacity| capacity.0 / STEP_SHARE_OF_NODE);
        told.0.abs_diff(seen.0) > (told.0 / STEP_SHARE).min(of_node).max(1 << 20)
    }
}

#[cfg(test)]
mod tests {
    use coswitch_policies::JobId;
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const CAPACITY: Bytes = Bytes::mib(6400);

    fn seen(jobs: &[(u32, u64)]) -> MemoryUse {
        let job = |(job, bytes): &(u32, u64)| JobMemory {
            job: JobId(*job),
            used: Bytes(*bytes),
            held: Bytes(*bytes),
            swapped: Bytes(0),
            major_faults: 0,
        };
        let jobs: Vec<JobMemory> = jobs.iter().map(job).collect();
        let used = jobs.iter().map(|memory| memory.used).sum();
        MemoryUse { used, stall: None, jobs, stopped: false, looks: 1, peak: used }
    }

    /// The numbers of looks that were told.
    fn told(news: &mut MemoryNews, looks: impl IntoIterator<Item = MemoryUse>) -> Vec<usize> {
        let looks = looks.into_iter().enumerate();
        looks.filter_map(|(at, seen)| news.on_look(seen, false).map(|_| at)).collect()
    }

    #[test]
    fn a_steady_node_is_told_about_once_a_second() {
        let mut news = MemoryNews::new(Some(CAPACITY));
        let looks = std::iter::repeat_with(|| seen(&[(1, 300 * MIB)])).take(40);
        assert_eq!(told(&mut news, looks), [0, 11, 22, 33]);
    }

    #[test]
    fn a_change_is_told_at_once_and_noise_is_not() {
        let mut news = MemoryNews::new(Some(CAPACITY));
        let sizes = [300, 303, 297, 300, 305, 305, 305, 3000, 3009, 3011].map(|mib| seen(&[(1, mib * MIB)]));
        assert_eq!(told(&mut news, sizes), [0, 4, 7, 9], "by a sixty-fourth, or as much of the node");
        let faults = |major_faults| {
            let mut seen = seen(&[(1, 300 * MIB)]);
            seen.jobs[0].major_faults = major_faults;
            seen
        };
        assert_eq!(told(&mut news, [0, 5, 9, 12].map(faults)), [0, 2]);
        let stopped = MemoryUse { stopped: true, ..faults(12) };
        assert_eq!(told(&mut news, [stopped.clone(), stopped, faults(12), seen(&[])]), [0, 2, 3]);
    }

    #[test]
    fn for_some_seconds_after_an_event_everything_is_told() {
        let mut news = MemoryNews::new(None);
        let mut look = |event| news.on_look(seen(&[(1, MIB)]), event).is_some();
        assert!(look(false) && !look(false) && look(true));
        assert_eq!((0..40).take_while(|_| look(false)).count(), 24);
    }

    #[test]
    fn another_head_node_is_told_at_once() {
        let mut news = MemoryNews::new(None);
        assert!(told(&mut news, [seen(&[(1, MIB)]), seen(&[(1, MIB)])]) == [0]);
        news.forget();
        assert_eq!(told(&mut news, [seen(&[(1, MIB)])]), [0]);
    }

    proptest! {
        #[test]
        fn no_look_is_lost_and_none_is_far_from_what_was_told(
            sizes in prop::collection::vec((0..4u8, 0..500 * MIB), 1..200),
        ) {
            let mut news = MemoryNews::new(Some(CAPACITY));
            let (mut size, mut looks, mut peak, mut last) = (100 * MIB, 0, 0, None::<MemoryUse>);
            for (kind, to) in sizes {
                // Mostly small changes.
                let step = (to % (3 * MIB)) as i64 - MIB as i64;
                size = if kind == 0 { to } else { size.saturating_add_signed(step) };
                (looks, peak) = (looks + 1, peak.max(size));
                if let Some(told) = news.on_look(seen(&[(1, size)]), false) {
                    prop_assert_eq!((u64::from(told.looks), told.used), (looks, Bytes(size)));
                    prop_assert_eq!(told.peak, Bytes(peak));
                    (looks, peak, last) = (0, 0, Some(told));
                }
                let known = last.as_ref().expect("the first is told").used.0;
                prop_assert!(known.abs_diff(size) <= (known / 64).clamp(MIB, 10 * MIB));
                prop_assert!(looks < u64::from(LOOKS_MAX));
            }
        }
    }
}
