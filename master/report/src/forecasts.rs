//! Next turns, and starts on nodes of their own, as the scheduler foresaw them, against those that then came.

use std::{collections::BTreeMap, time::Duration};

use coswitch_policies::{JobId, SimTime};
use serde::{Deserialize, Serialize};

use crate::{
    journal::Event,
    pairs,
    report::seconds,
    words::{self, percent},
};

/// How good the forecasts of a run were.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Forecasts {
    /// The next turns that were foreseen, and came: those of each waiting job, whenever a turn began.
    pub count: usize,
    /// The median of what they came early or late; where a journal was compacted, of the last ones.
    #[serde(rename = "median_error_s", serialize_with = "seconds")]
    pub median_error: Duration,
    /// The same as a share of a quantum; `None` where jobs had nodes of their own, and took no turns.
    pub share: Option<f64>,
}

impl Forecasts {
    pub(crate) fn in_words(&self) -> String {
        let Self { count, median_error, share } = self;
        let error = words::seconds(*median_error);
        match share.map(percent) {
            Some(share) => format!(
                "{count} next turns were foreseen; half of them came within {error} ({share} of a quantum)"
            ),
            None => format!("{count} starts of jobs were foreseen; half of them came within {error}"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ForecastFold {
    /// `None` where no turns are taken.
    quantum: Option<Duration>,
    #[serde(with = "pairs")]
    foreseen: BTreeMap<JobId, Vec<SimTime>>,
    /// How much too early or too late.
    errors: Vec<Duration>,
    /// Errors that are not listed any more.
    before: usize,
}

impl ForecastFold {
    pub(crate) fn on_event(&mut self, at: SimTime, event: &Event) {
        match event {
            Event::RunStarted { quantum, scheduler, .. } => {
                let has_turns = scheduler.as_ref().is_none_or(|config| config.space.is_none());
                self.quantum = has_turns.then_some(*quantum);
            }
            Event::TurnsForeseen { turns } => {
                for (job, turn) in turns {
                    self.foreseen.entry(*job).or_default().push(*turn);
                }
            }
            Event::JobRunning { job } => {
                let foreseen = self.foreseen.remove(job).unwrap_or_default();
                self.errors.extend(foreseen.into_iter().map(|turn| turn.since(at).max(at.since(turn))));
            }
            // A turn that its user took away was not foreseen wrongly.
            Event::JobFinished { job, .. } | Event::JobHeld { job } => drop(self.foreseen.remove(job)),
            _ => {}
        }
    }

    /// Keeps the last so many errors, and so many forecasts of each job.
    pub(crate) fn sum_up(&mut self, kept: usize) {
        let surplus = self.errors.len().saturating_sub(kept);
        self.errors.drain(..surplus);
        self.before += surplus;
        for turns in self.foreseen.values_mut() {
            turns.drain(..turns.len().saturating_sub(kept));
        }
    }

    pub(crate) fn finish(mut self) -> Option<Forecasts> {
        self.errors.sort_unstable();
        let median_error = *self.errors.get(self.errors.len() / 2)?;
        let share_of =
            |quantum: Duration| median_error.as_secs_f64() / quantum.as_secs_f64().max(f64::MIN_POSITIVE);
        let share = self.quantum.map(share_of);
        Some(Forecasts { count: self.before + self.errors.len(), median_error, share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_compared_with_each_forecast_of_it() {
        let mut fold = ForecastFold { quantum: Some(Duration::from_secs(10)), ..ForecastFold::default() };
        let second = |seconds: u64| SimTime::from(Duration::from_secs(seconds));
        let (a, b) = (JobId(0), JobId(1));
        let foreseen = |turns: &[(JobId, u64)]| Event::TurnsForeseen {
            turns: turns.iter().map(|(job, at)| (*job, second(*at))).collect(),
        };
        fold.on_event(second(0), &foreseen(&[(a, 12), (b, 24)]));
        fold.on_event(second(13), &Event::JobRunning { job: a });
        fold.on_event(second(13), &foreseen(&[(b, 25)]));
        fold.on_event(second(20), &Event::JobRunning { job: b });
        // It never comes: it says nothing of the forecast.
        fold.on_event(second(21), &foreseen(&[(a, 30)]));
        let finished = fold.finish().unwrap();
        assert_eq!((finished.count, finished.median_error), (3, Duration::from_secs(4)), "of 1, 4 and 5 s");
        assert!((finished.share.unwrap() - 0.4).abs() < 1e-9);
        assert_eq!(ForecastFold::default().finish(), None);
    }
}
