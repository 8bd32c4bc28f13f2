//! What the scheduler knows of one job. Wanted and observed are kept apart: a plan is their difference, and planning
//! again after a failure needs no thought.

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
    In {
        /// Its row.
        slot: SlotId,
    },
    /// Out of memory: another row has the turn; or in memory still, where it goes on on idle nodes.
    Out {
        /// Its row.
        slot: SlotId,
    },
    /// Ended, or to be ended.
    Gone,
}

/// Everything known of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobState {
    /// What it asks for; its memory is what is assumed by now.
    pub spec: JobSpec,
    /// The working set of a rank that it declared.
    pub declared: Bytes,
    /// What it was seen to hold where that differs.
    #[serde(default)]
    pub held: BTreeMap<NodeId, Bytes>,
    /// Where it should be.
    pub wanted: Wanted,
    /// Where it is, by the last answer of the executor.
    pub observed: Residence,
    /// How it came to its row; `None` while queued and when it has ended.
    pub landing: Option<Landing>,
}

/// What is stored of a job, a line of the cache; where it is wanted follows from the matrix.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) spec: JobSpec,
    pub(super) observed: Residence,
    /// Switches in a row that failed because of it.
    pub(super) failures: u32,
    pub(super) abandoned: bool,
    /// How it was given a row; it may have been moved since.
    pub(super) landing: Option<Arc<Landing>>,
    /// An exchange put it into a later row, and it had no turn since.
    pub(super) put_back: bool,
    /// Since it was seen to hold other than it declares; `spec` is what is assumed.
    pub(super) seen: Option<Box<Seen>>,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// What a job holds as against what it declares.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The working set of a rank, as declared.
    pub(super) declared: Bytes,
    /// What it holds where that differs.
    pub(super) held: BTreeMap<NodeId, Bytes>,
    /// It was told that it takes a node for itself.
    pub(super) outgrew: bool,
}

impl Entry {
    pub(super) const fn new(spec: JobSpec) -> Self {
        let observed = Residence::Unlaunched;
        Self { spec, observed, failures: 0, abandoned: false, landing: None, put_back: false, seen: None }
    }

    /// What it was seen to hold, to add to it.
    pub(super) fn seen(&mut self) -> &mut Seen {
        let declared = self.spec.memory_per_rank;
        let none = || Box::new(Seen { declared, held: BTreeMap::new(), outgrew: false });
        self.seen.get_or_insert_with(none)
    }
}
