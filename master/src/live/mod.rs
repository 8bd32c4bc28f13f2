//! The live view of a run on standard error: bars on a terminal, log lines elsewhere.
//!
//! The state behind it and the lines are in `coswitch_report::live`, a fold over the events of the journal.

mod bars;
mod tail;

use std::{
    io::{self, IsTerminal},
    path::Path,
};

use coswitch_report::{
    journal::{Event, RunEvent},
    live::{View, line},
};

use bars::Bars;
use tail::Tails;

/// Shows events as they happen.
pub struct Live {
    view: View,
    shown: Shown,
}

enum Shown {
    Nothing,
    Lines,
    Bars(Bars, Tails),
}

impl Live {
    /// A view of the run in the directory `out`; it shows nothing where it is `quiet`.
    pub fn new(quiet: bool, out: &Path) -> Self {
        let shown = match (quiet, io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (false, true) => Shown::Bars(Bars::new(), Tails::new(out)),
            (false, false) => Shown::Lines,
        };
        Self { view: View::default(), shown }
    }

    pub fn on_event(&mut self, event: &RunEvent) {
        self.view.on_event(event);
        match &mut self.shown {
            Shown::Nothing => {}
            Shown::Lines => line(&self.view, event).iter().for_each(|line| eprintln!("{line}")),
            Shown::Bars(bars, tails) => {
                for (job, line) in tails.poll(&self.view) {
                    self.view.on_event(&RunEvent { at: event.at, kind: Event::Output { job, line } });
                }
                bars.on_event(&self.view, event);
            }
        }
    }
}
