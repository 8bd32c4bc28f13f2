//! Checkpoints of jobs that stayed in memory, and copies of snapshots on other nodes, over the run.

use std::time::Duration;

use coswitch_policies::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    journal::Event,
    report::seconds,
    words::{self, bytes},
};

/// Checkpoints of jobs that computed, and went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Checkpoints {
    pub count: u64,
    /// For which jobs stood still, in all.
    #[serde(rename = "stood_still_s", serialize_with = "seconds")]
    pub stood_still: Duration,
    /// Size of the images.
    pub bytes: Bytes,
}

/// Snapshots of a job on a node that are on other nodes as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Copies {
    pub count: u64,
    /// The size of the snapshots, not that of all copies.
    pub bytes: Bytes,
}

impl Checkpoints {
    pub(crate) fn in_words(&self) -> String {
        let Self { count, stood_still, bytes: size } = self;
        format!(
            "{count} checkpoints of jobs that stayed in memory, {}: jobs stood still for {} in all",
            bytes(*size),
            words::seconds(*stood_still)
        )
    }
}

impl Copies {
    pub(crate) fn in_words(&self) -> String {
        format!("{} snapshots of {} in all were copied to other nodes", self.count, bytes(self.bytes))
    }
}

/// What the events so far come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SnapshotsFold {
    checkpoints: u64,
    stood_still: Duration,
    written: Bytes,
    copies: u64,
    copied: Bytes,
}

impl SnapshotsFold {
    pub(crate) fn on_event(&mut self, event: &Event) {
        match event {
            Event::JobCheckpointed { bytes, stood_still, .. } => {
                self.checkpoints += 1;
                self.stood_still += *stood_still;
                self.written = self.written.saturating_add(*bytes);
            }
            Event::JobCopied { bytes, .. } => {
                self.copies += 1;
                self.copied = self.copied.saturating_add(*bytes);
            }
            _ => {}
        }
    }

    /// `None` where there were none.
    pub(crate) fn checkpoints(&self) -> Option<Checkpoints> {
        let Self { checkpoints: count, stood_still, written: bytes, .. } = *self;
        (count > 0).then_some(Checkpoints { count, stood_still, bytes })
    }

    /// `None` where there were none.
    pub(crate) fn copies(&self) -> Option<Copies> {
        let Self { copies: count, copied: bytes, .. } = *self;
        (count > 0).then_some(Copies { count, bytes })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use coswitch_policies::{Epoch, JobId, NodeId};

    use super::*;
    use crate::{
        fold::{fold, tests::two_jobs_in_turn},
        journal::RunEvent,
    };

    /// Two checkpoints of the first job, and a copy of one of them.
    pub(crate) fn with_snapshots() -> Vec<RunEvent> {
        let job = JobId(0);
        let checkpointed = |epoch, millis| {
            let (epoch, stood_still) = (Epoch(epoch), Duration::from_millis(millis));
            Event::JobCheckpointed { job, epoch, bytes: Bytes::mib(100), stood_still }
        };
        let took = Duration::from_secs(1);
        let copied =
            Event::JobCopied { job, node: NodeId(0), to: vec![NodeId(1)], bytes: Bytes::mib(50), took };
        let mut events = two_jobs_in_turn();
        let at = Duration::from_secs(7).into();
        let news = [checkpointed(1, 200), checkpointed(2, 300), copied].map(|kind| RunEvent { at, kind });
        events.splice(8..8, news);
        events
    }

    #[test]
    fn checkpoints_and_copies_are_summed_and_told() {
        let report = fold(&with_snapshots());
        let (count, stood_still) = (2, Duration::from_millis(500));
        let checkpoints = Checkpoints { count, stood_still, bytes: Bytes::mib(200) };
        assert_eq!(report.checkpoints, Some(checkpoints));
        assert_eq!(report.copies, Some(Copies { count: 1, bytes: Bytes::mib(50) }));
        let mut text = Vec::new();
        report.write_tables(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for part in ["2 checkpoints of jobs", "200 MiB: jobs stood still for 0.5 s", "1 snapshots of 50"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let without = fold(&two_jobs_in_turn());
        assert_eq!((without.checkpoints, without.copies), (None, None));
    }
}
