//! Slices of jobs that were in memory together, over all nodes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::report::seconds;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Slices {
    /// The length of a slice.
    #[serde(rename = "slice_s", serialize_with = "seconds")]
    pub slice: Duration,
    /// The most rows of jobs that took turns.
    pub rows: usize,
    /// Times that a node stopped jobs and let others run, without a cut.
    pub switches: u64,
    /// That took so long in all.
    #[serde(rename = "took_s", serialize_with = "seconds")]
    pub took: Duration,
    /// What jobs have computed in slices of others, by the kernel's count of their processor time.
    #[serde(rename = "overlap_s", serialize_with = "seconds")]
    pub overlap: Duration,
}

impl Slices {
    /// What a warm switch of a node took, on average.
    pub(crate) fn each(&self) -> Duration {
        self.took.checked_div(u32::try_from(self.switches).unwrap_or(u32::MAX)).unwrap_or_default()
    }

    pub(crate) fn in_words(&self) -> String {
        let Self { slice, rows, switches, overlap, .. } = self;
        if *switches == 0 {
            return format!("slots of {slice:?} for up to {rows} rows of jobs, for the node schedulers");
        }
        let each = self.each();
        format!(
            "slices of {slice:?} for up to {rows} rows of jobs: {switches} warm switches, {each:.1?} each; \
             {overlap:?} computed in slices of others"
        )
    }
}

/// What the events so far come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlicesFold {
    slice: Duration,
    rows: usize,
    switches: u64,
    took: Duration,
    overlap: Duration,
}

impl SlicesFold {
    pub(crate) fn on_begun(&mut self, slice: Duration, rows: usize) {
        self.slice = slice;
        self.rows = self.rows.max(rows);
    }

    pub(crate) fn on_used(&mut self, switches: u64, took: Duration, overlap: Duration) {
        self.switches += switches;
        self.took += took;
        self.overlap += overlap;
    }

    /// `None` where no jobs took turns.
    pub(crate) fn finish(self) -> Option<Slices> {
        let Self { slice, rows, switches, took, overlap } = self;
        (rows > 1).then_some(Slices { slice, rows, switches, took, overlap })
    }
}
