//! A run on the page.

use crate::{decisions::Decisions, history::History, report::Report};

pub(super) struct PageRun {
    /// Differs from the label of every other run on the page.
    pub(super) label: String,
    pub(super) report: Report,
    pub(super) history: History,
    /// What node schedulers decided in a stretch of the run.
    pub(super) decisions: Option<Decisions>,
}
