//! The scheduler's knowledge of one job. Wanted and observed are kept apart: a plan is their difference, and
//! planning again after a failure needs no special case.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{Bytes, JobSpec, Landing, NodeId, Residence, SlotId};

/// Where the scheduler wants a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "wanted", rename_all = "kebab-case")]
pub enum Wanted {
    /// In the queue until a row takes it.
    Queued,
    /// In memory: its row has the turn.
    In { slot: SlotId },
    /// Out of memory: another row has the turn; or in memory still, where it goes on on idle nodes.
    Out { slot: SlotId },
    /// Out of memory, without turns: its user holds it.
    Held,
    /// Ended, or to be ended.
    Gone,
}

/// All that is known of a job, for reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobState {
    /// What the job asks for; its memory is the present estimate.
    pub spec: JobSpec,
    /// The declared working set of a rank.
    pub declared: Bytes,
    /// What the job was measured to hold, where that differs.
    #[serde(default)]
    #[serde(rename = "held")]
    pub resident: BTreeMap<NodeId, Bytes>,
    /// Where the scheduler wants it.
    pub wanted: Wanted,
    /// Where it is, by the last answer of the executor.
    pub observed: Residence,
    /// How it came to its row; `None` while queued and when it has ended.
    pub landing: Option<Landing>,
}

/// What is stored of a job; where it is wanted follows from the matrix.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) spec: JobSpec,
    pub(super) observed: Residence,
    /// Consecutive switches that failed because of it.
    pub(super) failures: u32,
    pub(super) abandoned: bool,
    /// How it was given its first row; it may have been moved since.
    pub(super) landing: Option<Arc<Landing>>,
    /// An exchange put it into a later row, and it had no turn since.
    pub(super) put_back: bool,
    /// Since a measurement differed from the declaration; `spec` holds the estimate.
    pub(super) measured: Option<Box<Measurements>>,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// The measurements of a job.
#[derive(Clone, Debug)]
pub(super) struct Measurements {
    /// The declared working set of a rank.
    pub(super) declared: Bytes,
    /// By node.
    pub(super) resident: BTreeMap<NodeId, Bytes>,
    /// It was said to take a node for itself.
    pub(super) outgrew: bool,
}

impl Entry {
    pub(super) const fn new(spec: JobSpec) -> Self {
        let observed = Residence::Unlaunched;
        Self { spec, observed, failures: 0, abandoned: false, landing: None, put_back: false, measured: None }
    }

    /// The measurements, created on first use.
    pub(super) fn measured(&mut self) -> &mut Measurements {
        let declared = self.spec.memory_per_rank;
        let none = || Box::new(Measurements { declared, resident: BTreeMap::new(), outgrew: false });
        self.measured.get_or_insert_with(none)
    }
}
