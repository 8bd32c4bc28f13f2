//! What a snapshot holds besides the processes: all that a new daemon needs to restore the part.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use anyhow::{Context, ensure};
use coswitch_ckpt::{SegmentFile, Snapshot};
use coswitch_launcher::protocol::Assembler;
use coswitch_policies::{Bytes, Epoch, JobId, NodeId};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;

use super::{
    hearing::Hearing,
    part::{Note, Part, Resources, State},
    services::NodeServices,
};
use crate::{
    plane::Command,
    protocol::{FENCES_MAX, Held, LaunchRequest, PUTS_BYTES_MAX, Puts, put_bytes},
};

/// A part as it was at the cut of its snapshot.
#[derive(Serialize, Deserialize)]
pub struct SavedPart {
    launch: LaunchRequest,
    /// The fence that the ranks had reached and that was not answered.
    reached: Option<(u64, Puts)>,
    /// The answers to earlier fences.
    fences: Vec<(u64, Puts)>,
    /// The beginning of a message from the launcher.
    launcher: Vec<u8>,
    #[serde(default)]
    heard: Hearing,
    /// Memory of the ranks.
    bytes: Bytes,
    /// The epochs that are kept while copies of later ones are made ([`Part::copy`]). A new daemon hears of
    /// them again only when the next copy is ordered, and would remove them at the snapshot before that.
    #[serde(default)]
    needed: BTreeSet<u64>,
}

impl SavedPart {
    pub fn held(&self, job: JobId) -> Held {
        Held::by(job, &self.launch)
    }

    /// The life that its launch began.
    pub(super) const fn launched(&self) -> u32 {
        self.launch.life
    }

    /// As it is where the ranks are on these nodes.
    ///
    /// # Errors
    /// Where it is damaged.
    pub(crate) fn placed(part: &[u8], placement: &[NodeId]) -> anyhow::Result<Vec<u8>> {
        let mut saved: Self = serde_json::from_slice(part).context("failed to understand its part")?;
        saved.launch.placement = placement.to_vec();
        Ok(serde_json::to_vec(&saved)?)
    }

    /// `None` where an earlier version has written the snapshot.
    ///
    /// # Errors
    /// Where it is damaged.
    pub fn of(snapshot: &Snapshot) -> anyhow::Result<Option<Self>> {
        let part = snapshot.part()?;
        let read = |bytes: Vec<u8>| {
            let part: Self = serde_json::from_slice(&bytes).context("failed to understand its part")?;
            part.check()?;
            Ok(part)
        };
        part.map(read).transpose()
    }

    /// Whether its fences are those of an application: a frame to the master has to hold all of them.
    fn check(&self) -> anyhow::Result<()> {
        let fences = self.fences.iter().chain(&self.reached);
        let puts = fences.clone().flat_map(|(_, puts)| puts);
        let bytes: usize = puts.map(|(key, value)| put_bytes(key, value)).sum();
        ensure!(fences.count() as u64 <= FENCES_MAX + 1, "its part has more than {FENCES_MAX} fences");
        ensure!(bytes <= 2 * PUTS_BYTES_MAX, "its part has {bytes} bytes of keys and values");
        Ok(())
    }
}

impl Part {
    pub(super) fn save(&self) -> anyhow::Result<Vec<u8>> {
        let saved = SavedPart {
            launch: self.resources().launch.clone(),
            reached: self.told.reached.clone(),
            fences: self.told.fences.clone().into_iter().collect(),
            launcher: self.launcher.parts().to_vec(),
            heard: self.hearing.clone(),
            bytes: self.resources().cgroup.used()?,
            needed: self.needed(),
        };
        Ok(serde_json::to_vec(&saved)?)
    }

    /// The processes are back at the cut of a snapshot, and so is what was known of them.
    pub(super) fn recall(&mut self, saved: SavedPart) {
        self.launcher = Assembler::after(saved.launcher);
        self.hearing = saved.heard;
        self.told.reached = saved.reached;
        // An answer that came later is repeated; it is the same.
        self.told.fences.extend(saved.fences);
    }

    /// A part of an earlier daemon, in the store since the cut of `epoch`.
    pub(super) fn taken_up(
        node: Arc<NodeServices>,
        job: JobId,
        own: UnboundedSender<Note>,
        saved: SavedPart,
        epoch: Epoch,
    ) -> anyhow::Result<Self> {
        let mut part = Self::new(node, job, own);
        part.begin_parked(saved, epoch)?;
        Ok(part)
    }

    /// An absent part is parked from now on, at a snapshot that lies in the store.
    pub(super) fn begin_parked(&mut self, saved: SavedPart, epoch: Epoch) -> anyhow::Result<()> {
        let (job, launch) = (self.job, saved.launch.clone());
        let segment = self.make_segment(&launch)?;
        let file = SegmentFile::at(segment.path())?;
        file.empty()?;
        let cgroup = self.node.cgroup.job(&job.to_string())?;
        self.node.plane.tell(Command::AddApp(job, Arc::clone(&segment), launch.placement.clone()));
        self.node.plane.tell(Command::Rewind(job, 0));
        self.rewinding = Some(0);
        self.resources = Some(Resources { cgroup, segment, file, launch });
        self.state = State::Parked;
        self.image_bytes = saved.bytes;
        self.needed = Arc::new(Mutex::new(saved.needed.clone()));
        (self.told.epoch, self.told.cuts) = (epoch, epoch);
        self.recall(saved);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part as a snapshot holds it, of an earlier version.
    fn part(fences: &[(u64, Puts)]) -> SavedPart {
        let launch = serde_json::json!({
            "name": "job", "placement": [0], "command": ["true"], "env": [], "cwd": "/", "umask": 18,
            "output": "/tmp", "wait": "yield", "park": "Criu",
        });
        let part = serde_json::json!({
            "launch": launch, "reached": null, "fences": fences, "launcher": [], "bytes": 0,
        });
        serde_json::from_value(part).expect("it is understood without what it does not have")
    }

    #[test]
    fn what_copies_need_stays_known_where_the_part_moves() {
        let saved = SavedPart { needed: BTreeSet::from([3]), ..part(&[]) };
        let moved = SavedPart::placed(&serde_json::to_vec(&saved).unwrap(), &[NodeId(1)]).unwrap();
        let moved: SavedPart = serde_json::from_slice(&moved).unwrap();
        assert_eq!((moved.needed, moved.launch.placement), (BTreeSet::from([3]), vec![NodeId(1)]));
        assert!(part(&[]).needed.is_empty(), "an earlier version does not say");
    }

    #[test]
    fn fences_that_no_application_has_are_refused() {
        let put = |bytes: usize| vec![(String::new(), "v".repeat(bytes))];
        assert!(part(&[(1, put(100)), (2, Vec::new())]).check().is_ok());
        let long = part(&[(1, put(PUTS_BYTES_MAX)), (2, put(PUTS_BYTES_MAX))]).check().unwrap_err();
        assert!(long.to_string().contains("bytes of keys and values"), "{long}");
        let many: Vec<(u64, Puts)> = (0..FENCES_MAX + 2).map(|sequence| (sequence, Vec::new())).collect();
        assert!(part(&many).check().unwrap_err().to_string().contains("more than 4096 fences"));
    }
}
