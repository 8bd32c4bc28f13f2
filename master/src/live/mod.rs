//! The live view of a run on standard error: bars on a terminal, log lines elsewhere.
//!
//! The state behind it and the lines are in `coswitch_report::live`, a fold over the events of the journal. A
//! thread of its own draws: where the terminal has stopped (Ctrl-S, a pager), only that thread waits.

mod bars;
mod scene;
mod tail;

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use coswitch_report::journal::RunEvent;

use bars::Bars;
use scene::Scene;
use tail::Tails;

/// The longest wait at the end of a run for a terminal that has stopped.
const LAST_FRAME_LIMIT: Duration = Duration::from_secs(2);
const FRAME_EVERY: Duration = Duration::from_millis(50);

/// Shows events as they happen; taking one never blocks.
pub struct Live(Option<Drawing>);

/// The thread that draws.
struct Drawing {
    stage: Arc<Stage>,
    done: Receiver<()>,
}

struct Stage {
    scene: Mutex<Scene>,
    changed: Condvar,
}

impl Stage {
    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Live {
    /// A view of the run in the directory `out`; it shows nothing where it is `quiet`.
    ///
    /// # Errors
    /// Where the thread cannot be started.
    pub fn new(quiet: bool, out: &Path) -> io::Result<Self> {
        if quiet {
            return Ok(Self(None));
        }
        let has_bars = io::stderr().is_terminal();
        let stage = Arc::new(Stage { scene: Mutex::new(Scene::new(has_bars)), changed: Condvar::new() });
        let (ended, done) = channel();
        let (own, out) = (Arc::clone(&stage), PathBuf::from(out));
        thread::Builder::new().name("live view".into()).spawn(move || {
            if has_bars {
                draw_bars(&own, &out)
            } else {
                write_lines(&own)
            }
            let _ = ended.send(());
        })?;
        Ok(Self(Some(Drawing { stage, done })))
    }

    pub fn on_event(&mut self, event: &RunEvent) {
        if let Some(Drawing { stage, .. }) = &self.0 {
            stage.scene().on_event(event);
            stage.changed.notify_one();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(Drawing { stage, done }) = &self.0 {
            stage.scene().is_over = true;
            stage.changed.notify_one();
            let _ = done.recv_timeout(LAST_FRAME_LIMIT);
        }
    }
}

/// The next scene to show, when it differs from the last.
fn next(stage: &Stage) -> Scene {
    let mut scene = stage.scene();
    while !scene.has_news() {
        scene = stage.changed.wait(scene).unwrap_or_else(PoisonError::into_inner);
    }
    scene.take()
}

fn write_lines(stage: &Stage) {
    loop {
        let scene = next(stage);
        // A reader that has closed the pipe, or a terminal that is gone, does not concern the run.
        scene.lines.iter().for_each(|line| drop(writeln!(io::stderr(), "{line}")));
        if scene.is_over {
            return;
        }
    }
}

fn draw_bars(stage: &Stage, out: &Path) {
    let (mut bars, mut tails) = (Bars::new(), Tails::new(out));
    loop {
        let mut scene = next(stage);
        tails.poll(&scene.view);
        tails.show_in(&mut scene.view);
        bars.draw(&scene);
        if scene.is_over {
            return;
        }
        thread::sleep(FRAME_EVERY);
    }
}
