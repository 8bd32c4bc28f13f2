//! What a person sees while a set runs, made from the journal's events and nothing else.
//!
//! [`view`] is what is known now (pure); [`lines`] tells it as a log, [`bars`] as a picture that moves.

mod bars;
mod lines;
mod tail;
mod view;

use std::{
    io::{self, IsTerminal},
    path::Path,
};

use crate::journal::{Event, RunEvent};

use bars::Bars;
use tail::Tails;
use view::View;

/// Shows events as they happen, on standard error.
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
    /// A picture that moves on a terminal, else lines; nothing where it shall be `quiet`. The run's directory is `out`.
    pub fn new(quiet: bool, out: &Path) -> Self {
        let shown = match (quiet, io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (false, true) => Shown::Bars(Bars::new(), Tails::new(out)),
            (false, false) => Shown::Lines,
        };
        Self { view: View::default(), shown }
    }

    /// Shows what happened.
    pub fn on_event(&mut self, event: &RunEvent) {
        self.view.on_event(event);
        match &mut self.shown {
            Shown::Nothing => {}
            Shown::Lines => lines::tell(&self.view, event).iter().for_each(|line| eprintln!("{line}")),
            Shown::Bars(bars, tails) => {
                for (job, line) in tails.look(&self.view) {
                    self.view.on_event(&RunEvent { at: event.at, kind: Event::Output { job, line } });
                }
                bars.on_event(&self.view, event);
            }
        }
    }
}
