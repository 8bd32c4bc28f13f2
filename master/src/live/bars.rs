//! The bars of the live view: the slot with its remaining time, a line for each job, a bar for each dump and
//! restore.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use coswitch_policies::{Bytes, JobId};
use coswitch_report::live::View;
use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};

use super::scene::{Scene, StepKey};

const TICK: Duration = Duration::from_millis(200);

/// The bars on the terminal. They are cleared on drop.
pub(crate) struct Bars {
    all: MultiProgress,
    slot: ProgressBar,
    ends: Arc<Mutex<Option<Instant>>>,
    jobs: BTreeMap<JobId, ProgressBar>,
    steps: BTreeMap<StepKey, ProgressBar>,
}

impl Bars {
    pub(crate) fn new() -> Self {
        let ends = Arc::new(Mutex::new(None));
        let all = MultiProgress::new();
        let slot = all.add(ProgressBar::new_spinner().with_style(slot_style(Arc::clone(&ends))));
        slot.enable_steady_tick(TICK);
        Self { all, slot, ends, jobs: BTreeMap::new(), steps: BTreeMap::new() }
    }

    pub(super) fn draw(&mut self, scene: &Scene) {
        scene.lines.iter().for_each(|line| drop(self.all.println(line)));
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = scene.ends;
        for (key, (bytes, total)) in &scene.steps {
            self.step(&scene.view, *key, *bytes, *total);
        }
        let all = &self.all;
        self.steps.retain(|key, bar| {
            let goes_on = scene.steps.contains_key(key);
            if !goes_on {
                all.remove(bar);
            }
            goes_on
        });
        set(&self.slot, scene.view.headline());
        self.draw_jobs(&scene.view);
    }

    fn draw_jobs(&mut self, view: &View) {
        for (id, job) in &view.jobs {
            let bar = self.jobs.entry(*id).or_insert_with(|| {
                let bar = self.all.add(ProgressBar::new_spinner().with_style(job_style()));
                bar.set_prefix(view.name(*id));
                bar
            });
            set(bar, job.in_words());
        }
    }

    fn step(&mut self, view: &View, key: StepKey, bytes: Bytes, total: Bytes) {
        let bar = self.steps.entry(key).or_insert_with(|| {
            let (job, node, step) = key;
            let bar = self.all.add(ProgressBar::new(total.0).with_style(step_style()));
            bar.set_prefix(format!("{} {} on {node}", step.doing(), view.name(job)));
            bar
        });
        bar.set_length(total.0.max(bytes.0));
        bar.set_position(bytes.0);
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.slot.finish_and_clear();
        self.jobs.values().chain(self.steps.values()).for_each(ProgressBar::finish_and_clear);
    }
}

/// Sets the text only where it changed, because each change redraws the terminal.
fn set(bar: &ProgressBar, text: String) {
    if bar.message() != text {
        bar.set_message(text);
    }
}

fn slot_style(ends: Arc<Mutex<Option<Instant>>>) -> ProgressStyle {
    let left = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
        let ends = *ends.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ends) = ends {
            let left = ends.saturating_duration_since(Instant::now()).as_secs_f64();
            let _ = write!(out, "{left:.1}s left");
        }
    };
    ProgressStyle::with_template("{spinner} [{elapsed}] {wide_msg} {left}")
        .expect("the template is right")
        .with_key("left", left)
}

fn job_style() -> ProgressStyle {
    ProgressStyle::with_template("    {prefix:16} {wide_msg}").expect("the template is right")
}

fn step_style() -> ProgressStyle {
    const TEMPLATE: &str =
        "    {prefix:32} {bar:24} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}";
    ProgressStyle::with_template(TEMPLATE).expect("the template is right").progress_chars("=> ")
}
