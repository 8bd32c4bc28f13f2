//! What happened lately on a cluster that is being watched: the folds of the report ([`History`], [`View`]),
//! which forget here what is over. For the live page.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use coswitch_policies::{Bytes, Capacity, JobId, NodeId, SimTime, SwitchId, SwitchStep, metrics::Span};

use crate::{
    history::History,
    journal::{Event, RunEvent},
    live::{self, View},
};

/// The switches that are remembered, however long ago they were.
const SWITCHES: usize = 6;
const NEWS: usize = 30;
/// Of so many parts of the window the fullest sample of each node is kept.
const SAMPLES: u64 = 120;
/// What is over is forgotten once in so long.
const FORGET_EVERY: Duration = Duration::from_secs(1);

/// What happened lately.
#[derive(Clone, Debug)]
pub struct Recent {
    /// How long ago things may be.
    window: Duration,
    pub(crate) history: History,
    view: View,
    news: VecDeque<News>,
    down: BTreeMap<NodeId, (SimTime, String)>,
    repeated: Duration,
    forgot: SimTime,
}

/// Something that a user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    pub at: SimTime,
    pub text: String,
    /// Something went wrong.
    pub grave: bool,
}

/// A switch that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentSwitch {
    pub switch: SwitchId,
    pub span: Span,
    pub outgoing: Vec<String>,
    pub incoming: Vec<String>,
    /// How long no job computed because of it.
    pub exposed: Duration,
    pub bytes_out: Bytes,
    pub bytes_in: Bytes,
    /// From the first job's and node's start of each step to the last one's end.
    pub steps: Vec<(SwitchStep, Duration)>,
}

impl Recent {
    /// Nothing has happened yet on a cluster of so many nodes, each with so much memory for jobs.
    #[must_use]
    pub fn new(nodes: u32, capacity: Capacity, window: Duration) -> Self {
        Self {
            window,
            history: History { nodes, capacity, ..History::default() },
            view: View::default(),
            news: VecDeque::new(),
            down: BTreeMap::new(),
            repeated: Duration::ZERO,
            forgot: SimTime::default(),
        }
    }

    pub fn on_event(&mut self, event: &RunEvent) {
        let RunEvent { at, kind } = event;
        self.history.on_event(*at, kind);
        self.view.on_event(event);
        match kind {
            Event::NodeLost { node, reason } => drop(self.down.insert(*node, (*at, reason.clone()))),
            Event::NodeBack { node } => drop(self.down.remove(node)),
            Event::JobRepeats { work, .. } => self.repeated += *work,
            Event::MemorySample { node, .. } => self.thin_out(*node),
            _ => {}
        }
        let news = (!is_shown_elsewhere(kind)).then(|| live::text(&self.view, event)).flatten();
        if let Some(text) = news {
            self.news.push_front(News { at: *at, text, grave: is_grave(kind) });
            self.news.truncate(NEWS);
        }
        if at.since(self.forgot) >= FORGET_EVERY {
            self.forget(*at);
        }
    }

    /// Takes note of a job's name and the memory that it declared for each rank. Events that tell them may
    /// have been missed.
    pub fn learn(&mut self, job: JobId, name: &str, memory: Bytes) {
        let known = self.history.jobs.entry(job).or_default();
        known.memory = memory;
        if known.name != name {
            known.name = name.into();
            self.view.jobs.entry(job).or_default().name = name.into();
        }
    }

    /// The newest first.
    pub fn news(&self) -> impl Iterator<Item = &News> {
        self.news.iter()
    }

    /// The nodes that are down: since when, and why.
    #[must_use]
    pub const fn down(&self) -> &BTreeMap<NodeId, (SimTime, String)> {
        &self.down
    }

    /// The work that jobs had to repeat, because nodes were lost.
    #[must_use]
    pub const fn repeated(&self) -> Duration {
        self.repeated
    }

    /// The switches that have ended, the newest first.
    #[must_use]
    pub fn switches(&self) -> Vec<RecentSwitch> {
        let ended = self.history.switches.iter().filter(|switch| switch.span.from < switch.span.to);
        let names = |jobs: &[JobId]| jobs.iter().map(|job| self.history.name(*job)).collect();
        ended
            .rev()
            .take(SWITCHES)
            .map(|switch| RecentSwitch {
                switch: switch.switch,
                span: switch.span,
                outgoing: names(&switch.outgoing),
                incoming: names(&switch.incoming),
                exposed: switch.exposed,
                bytes_out: switch.bytes_out,
                bytes_in: switch.bytes_in,
                steps: self.steps(switch.switch),
            })
            .collect()
    }

    fn steps(&self, switch: SwitchId) -> Vec<(SwitchStep, Duration)> {
        let mut spans: BTreeMap<SwitchStep, Span> = BTreeMap::new();
        for step in self.history.steps.iter().filter(|step| step.switch == switch) {
            let span = spans.entry(step.step).or_insert(step.span);
            *span = Span { from: span.from.min(step.span.from), to: span.to.max(step.span.to) };
        }
        spans.into_iter().map(|(step, span)| (step, span.length())).collect()
    }

    /// The history up to `now`, of which only the window is whole.
    pub(crate) fn history(&self, now: SimTime) -> History {
        let mut history = self.history.clone();
        history.end = history.end.max(now);
        history.lives.cut_off(history.end);
        history
    }

    /// Keeps the fullest of a node's samples of one part of the window.
    fn thin_out(&mut self, node: NodeId) {
        let part = (self.window.as_nanos() as u64 / SAMPLES).max(1);
        let samples = self.history.samples.entry(node).or_default();
        if let [.., before, last] = samples.as_slice()
            && before.at.0 / part == last.at.0 / part
        {
            let less = samples.len() - if before.used > last.used { 1 } else { 2 };
            samples.remove(less);
        }
    }

    fn forget(&mut self, now: SimTime) {
        self.forgot = now;
        let before = SimTime(now.0.saturating_sub(self.window.as_nanos() as u64));
        let history = &mut self.history;
        for samples in history.samples.values_mut() {
            let old = samples.partition_point(|sample| sample.at < before).min(samples.len().max(1) - 1);
            samples.drain(..old);
        }
        let too_many = history.switches.len().saturating_sub(SWITCHES + 1);
        let old = history.switches.iter().take(too_many).take_while(|switch| switch.span.to < before).count();
        history.switches.drain(..old);
        let kept: BTreeSet<SwitchId> = history.switches.iter().map(|switch| switch.switch).collect();
        history.steps.retain(|step| step.span.to >= before || kept.contains(&step.switch));
        history.lives.forget(before);
        let mut named: BTreeSet<JobId> = history.lives.jobs.keys().copied().collect();
        for switch in &history.switches {
            named.extend(switch.outgoing.iter().chain(&switch.incoming));
        }
        history.jobs.retain(|job, _| named.contains(job));
        history.jobs.values_mut().for_each(|job| job.communication.clear());
        self.view.jobs.retain(|job, _| named.contains(job));
    }
}

/// The turns, the switches and the jobs of the page tell these.
const fn is_shown_elsewhere(event: &Event) -> bool {
    matches!(
        event,
        Event::RunStarted { .. }
            | Event::SlotStarted { .. }
            | Event::SwitchStarted { .. }
            | Event::StepDone { .. }
            | Event::SwitchEnded { .. }
    )
}

fn is_grave(event: &Event) -> bool {
    match event {
        Event::JobFinished { outcome, .. } => !outcome.is_success(),
        Event::NodeLost { .. }
        | Event::JobRepeats { .. }
        | Event::JobNotCheckpointed { .. }
        | Event::JobOutgrew { .. }
        | Event::RunningStopped { .. }
        | Event::JobsStoodStill { .. }
        | Event::Warning { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fold::tests::two_jobs_in_turn, journal::JobMemory};

    fn told(events: &[RunEvent], window: Duration) -> Recent {
        let mut recent = Recent::new(1, Capacity::OfAll(Bytes::mib(100)), window);
        events.iter().for_each(|event| recent.on_event(event));
        recent
    }

    fn after(recent: &mut Recent, seconds: u64, kind: Event) {
        recent.on_event(&RunEvent { at: Duration::from_secs(seconds).into(), kind });
    }

    #[test]
    fn news_and_switches_are_told_the_newest_first() {
        let mut events = two_jobs_in_turn();
        let (switch, job, node, step) = (SwitchId(1), JobId(0), NodeId(0), SwitchStep::Dump);
        let [began, ended] = [10, 11].map(|at| Duration::from_secs(at).into());
        let kind = Event::StepDone { switch, job, node, step, began, ended, bytes: Bytes(1) };
        events.insert(9, RunEvent { at: ended, kind });
        let recent = told(&events, Duration::from_secs(1000));
        let news: Vec<&str> = recent.news().map(|news| news.text.as_str()).collect();
        assert!(news.iter().any(|text| text.starts_with("job-0 ended")), "{news:?}");
        let switches = recent.switches();
        assert!(switches.len() >= 2 && switches[0].span.from > switches[1].span.from, "{switches:?}");
        assert_eq!(switches[1].steps, [(SwitchStep::Dump, Duration::from_secs(1))]);
    }

    #[test]
    fn what_is_over_is_forgotten_and_names_of_the_last_switches_are_not() {
        let mut recent = told(&two_jobs_in_turn(), Duration::from_secs(60));
        let names = recent.switches()[0].outgoing.clone();
        for seconds in 1000..2000 {
            let by_job =
                vec![JobMemory { job: JobId(9), used: Bytes(1), swapped: Bytes(0), major_faults: 0 }];
            let (used, peak) = (Bytes(seconds % 7), Bytes(seconds % 7));
            after(
                &mut recent,
                seconds,
                Event::MemorySample { node: NodeId(0), used, by_job, looks: 1, peak },
            );
            after(&mut recent, seconds, Event::Warning { text: "again".into() });
        }
        assert!(recent.history.lives.jobs.is_empty(), "{:?}", recent.history.lives);
        assert_eq!(recent.switches()[0].outgoing, names);
        assert!(recent.history.samples[&NodeId(0)].len() <= 61);
        assert_eq!(recent.news().count(), NEWS);
    }

    #[test]
    fn a_lost_node_is_down_until_it_is_back_and_work_is_summed() {
        let mut recent = told(&[], Duration::from_secs(60));
        let node = NodeId(1);
        after(&mut recent, 1, Event::NodeLost { node, reason: "killed".into() });
        let work = Duration::from_secs(3);
        after(&mut recent, 2, Event::JobRepeats { job: JobId(0), work });
        after(&mut recent, 2, Event::JobRepeats { job: JobId(1), work });
        assert_eq!(recent.down()[&node].1, "killed");
        assert_eq!(recent.repeated(), 2 * work);
        assert!(recent.news().all(|news| news.grave));
        after(&mut recent, 4, Event::NodeBack { node });
        assert!(recent.down().is_empty());
    }
}
