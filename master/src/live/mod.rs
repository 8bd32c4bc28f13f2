//! What a person sees while a set runs, made from the journal's events and nothing else.
//!
//! [`view`] is what is known now (pure); [`lines`] tells it as a log, [`bars`] as a picture that moves.

mod bars;
mod lines;
mod view;

use std::io::{self, IsTerminal};

use crate::journal::RunEvent;

use bars::Bars;
use view::View;

/// Shows events as they happen, on standard error.
pub struct Live {
    view: View,
    shown: Shown,
}

enum Shown {
    Nothing,
    Lines,
    Bars(Bars),
}

impl Live {
    /// A picture that moves on a terminal, else lines; nothing where it shall be `quiet`.
    pub fn new(quiet: bool) -> Self {
        let shown = match (quiet, io::stderr().is_terminal()) {
            (true, _) => Shown::Nothing,
            (false, true) => Shown::Bars(Bars::new()),
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
            Shown::Bars(bars) => bars.on_event(&self.view, event),
        }
    }
}
