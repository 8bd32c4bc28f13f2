//! What node schedulers bring parallel jobs and what they cost local tasks, where runs of the same jobs are
//! compared: the two figures that Solsona's thesis weighs against each other (Fig. 5.26 and 5.27).

use std::collections::{BTreeMap, BTreeSet};

use crate::report::{JobReport, JobTimes, Report};

/// The names of jobs that are local tasks: node schedulers of some run have seen processes of them, and no
/// ranks.
pub(crate) fn local_tasks<'a>(reports: impl IntoIterator<Item = &'a Report>) -> BTreeSet<&'a str> {
    let is_local = |job: &&JobReport| {
        job.tasks.as_ref().is_some_and(|tasks| tasks.local.is_some() && tasks.ranks.is_none())
    };
    let jobs = reports.into_iter().flat_map(|report| &report.jobs);
    jobs.filter(is_local).map(|job| job.name.as_str()).collect()
}

/// *Distributed gain*: time of parallel jobs in the first run by their time in this one, of those that have
/// ended well in both; above 1 they are faster here. `None` where there are none.
pub(crate) fn distributed_gain(first: &Report, here: &Report, local: &BTreeSet<&str>) -> Option<f64> {
    let parallel =
        |report| -> BTreeMap<_, _> { well_ended(report).filter(|(name, _)| !local.contains(name)).collect() };
    let here = parallel(here);
    let turnaround = |times: &JobTimes| times.turnaround.as_secs_f64();
    let both = parallel(first).into_iter().filter_map(|(name, times)| Some((times, *here.get(name)?)));
    let (before, now) = both.fold((0.0, 0.0), |(before, now), (first, here)| {
        (before + turnaround(first), now + turnaround(here))
    });
    (now > 0.0).then(|| before / now)
}

/// *Local overhead*: response of local tasks by their time alone, less 1; the mean over their jobs. `None`
/// where no time alone is known.
pub(crate) fn local_overhead(here: &Report, local: &BTreeSet<&str>) -> Option<f64> {
    let by_alone = |times: &JobTimes| {
        let alone = times.alone.filter(|alone| !alone.is_zero())?;
        Some(times.turnaround.as_secs_f64() / alone.as_secs_f64())
    };
    let jobs = well_ended(here).filter(|(name, _)| local.contains(name));
    let stretched: Vec<f64> = jobs.filter_map(|(_, times)| by_alone(times)).collect();
    (!stretched.is_empty()).then(|| stretched.iter().sum::<f64>() / stretched.len() as f64 - 1.0)
}

fn well_ended(report: &Report) -> impl Iterator<Item = (&str, &JobTimes)> {
    let is_well = |job: &&JobReport| job.outcome.as_ref().is_some_and(|outcome| outcome.is_success());
    report.jobs.iter().filter(is_well).filter_map(|job| Some((job.name.as_str(), job.times.as_ref()?)))
}

#[cfg(test)]
pub(crate) mod tests {
    use coswitch_policies::SimTime;

    use super::*;
    use crate::{coscheduling::tests::with_counts, fold::fold, journal::RunEvent};

    /// The jobs of [`with_counts`], of which one is local tasks, in twice the time.
    pub(crate) fn slower() -> Vec<RunEvent> {
        let slower = |event: RunEvent| RunEvent { at: SimTime(2 * event.at.0), ..event };
        with_counts().into_iter().map(slower).collect()
    }

    #[test]
    fn a_run_in_twice_the_time_halves_the_gain_and_stretches_local_tasks() {
        let [first, second] = [with_counts(), slower()].map(|events| fold(&events));
        let local = local_tasks([&first, &second]);
        assert_eq!(local.iter().copied().collect::<Vec<_>>(), ["job-1"]);
        assert_eq!(distributed_gain(&first, &first, &local), Some(1.0));
        assert_eq!(distributed_gain(&first, &second, &local), Some(0.5));
        // From submission to end 30 s and 60 s; alone 10 s.
        assert_eq!(local_overhead(&first, &local), Some(2.0));
        assert_eq!(local_overhead(&second, &local), Some(5.0));
    }

    #[test]
    fn what_is_not_known_of_a_run_is_not_compared() {
        let (first, mut cut_off) = (fold(&with_counts()), fold(&slower()));
        let local = local_tasks([&first]);
        cut_off.jobs.iter_mut().for_each(|job| job.outcome = None);
        assert_eq!(distributed_gain(&first, &cut_off, &local), None);
        assert_eq!(local_overhead(&cut_off, &local), None);
        let mut unmeasured = first.clone();
        unmeasured.jobs.iter_mut().flat_map(|job| &mut job.times).for_each(|times| times.alone = None);
        assert_eq!(local_overhead(&unmeasured, &local), None);
    }
}
