//! What the live view is to show: the state of the run, the step of each job, and lines not yet shown.
//!
//! The engine updates it with each event, and the thread that draws takes it when it can: of all but the
//! lines only the latest is drawn, and of the lines a terminal that has stopped gets the first thousand.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    time::Instant,
};

use coswitch_policies::{Bytes, JobId, NodeId};
use coswitch_report::{
    journal::{Event, RunEvent, SwitchStep},
    live::{View, line},
};

const LINES_MAX: usize = 1000;

/// A dump or restore of a job on a node.
pub(super) type StepKey = (JobId, NodeId, SwitchStep);

#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    pub(super) view: View,
    /// When the slot's turn ends.
    pub(super) ends: Option<Instant>,
    /// Bytes moved, and to be moved in all, of the steps under way.
    pub(super) steps: BTreeMap<StepKey, (Bytes, Bytes)>,
    pub(super) lines: VecDeque<String>,
    /// The run is over.
    pub(super) is_over: bool,
    has_changed: bool,
    left_out: usize,
    /// Bars show what most lines say.
    has_bars: bool,
}

impl Scene {
    pub(super) fn new(has_bars: bool) -> Self {
        Self { has_bars, ..Self::default() }
    }

    pub(super) fn has_news(&self) -> bool {
        self.has_changed || self.is_over
    }

    pub(super) fn on_event(&mut self, event: &RunEvent) {
        self.view.on_event(event);
        self.has_changed = true;
        if !self.has_bars || is_said_beside_bars(&event.kind) {
            self.say(line(&self.view, event));
        }
        match &event.kind {
            Event::SlotStarted { ends, .. } => {
                self.ends = ends.map(|ends| Instant::now() + ends.since(event.at));
            }
            Event::Progress { job, node, step, bytes, total } => {
                self.steps.insert((*job, *node, *step), (*bytes, *total));
            }
            Event::StepDone { job, node, step, .. } => drop(self.steps.remove(&(*job, *node, *step))),
            Event::SwitchStarted { .. } => self.ends = None,
            Event::SwitchEnded { .. } => self.steps.clear(),
            _ => {}
        }
    }

    fn say(&mut self, line: Option<String>) {
        match line {
            Some(_) if self.lines.len() >= LINES_MAX => self.left_out += 1,
            line => self.lines.extend(line),
        }
    }

    /// What is to be shown now; its lines are not shown again.
    pub(super) fn take(&mut self) -> Self {
        let mut lines = mem::take(&mut self.lines);
        if let left_out @ 1.. = mem::take(&mut self.left_out) {
            lines.push_back(format!("({left_out} more lines were not shown; the journal has all)"));
        }
        self.has_changed = false;
        Self { lines, ..self.clone() }
    }
}

fn is_said_beside_bars(event: &Event) -> bool {
    matches!(
        event,
        Event::Warning { .. }
            | Event::SetSplit(_)
            | Event::JobOutgrew { .. }
            | Event::JobFinished { .. }
            | Event::NodeWasSilent { .. }
            | Event::NodeLost { .. }
            | Event::NodeBack { .. }
            | Event::DaemonReplaced { .. }
            | Event::NodeDrained { .. }
            | Event::NodeUndrained { .. }
            | Event::JobSurvived { .. }
            | Event::JobRepeats { .. }
            | Event::JobNotCheckpointed { .. }
            | Event::JobMoved { .. }
            | Event::JobsStoodStill { .. }
    )
}

#[cfg(test)]
mod tests {
    use coswitch_policies::SimTime;

    use super::*;

    fn warn(scene: &mut Scene, number: usize) {
        let kind = Event::Warning { text: number.to_string() };
        scene.on_event(&RunEvent { at: SimTime(0), kind });
    }

    #[test]
    fn lines_are_shown_once() {
        let mut scene = Scene::new(true);
        warn(&mut scene, 1);
        assert!(scene.has_news());
        assert_eq!(scene.take().lines.len(), 1);
        assert!(scene.take().lines.is_empty() && !scene.has_news());
    }

    #[test]
    fn a_terminal_that_has_stopped_fills_no_memory() {
        let mut scene = Scene::new(false);
        (0..LINES_MAX + 7).for_each(|number| warn(&mut scene, number));
        let shown = scene.take().lines;
        assert_eq!(shown.len(), LINES_MAX + 1);
        assert!(shown.back().unwrap().starts_with("(7 more lines"), "{shown:?}");
    }
}
