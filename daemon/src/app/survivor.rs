//! A part that survives its daemon: the record that a daemon keeps of it while it rests, and its adoption by
//! the next daemon; see [`crate::survival`].

use std::{sync::Arc, time::Instant};

use anyhow::{Context, bail};
use coswitch_ckpt::SegmentFile;
use coswitch_launcher::protocol::Assembler;
use coswitch_policies::JobId;
use coswitch_ring::{MessagePort, Segment};
use tokio::sync::mpsc::UnboundedSender;
use tracing::warn;

use super::{
    SEGMENT,
    part::{FrozenRanks, Note, Part, Resources, State, blocking},
    services::NodeServices,
};
use crate::{
    children::Child,
    handover::{HandedPart, HandedState},
    plane::{AppPlaneEvent, Command},
    process::Process,
    protocol::AppRequest,
    running::Before,
    survival::Record,
};

/// How far the daemon has read what the launcher sends.
pub(super) fn read_to(segment: &Arc<Segment>) -> u64 {
    MessagePort::daemon_side(Arc::clone(segment)).position()
}

/// Whether the note begins a step in which a part may be anything.
pub(super) const fn begins_step(note: &Note) -> bool {
    match note {
        Note::Request(request) => matches!(
            request,
            AppRequest::Launch(_)
                | AppRequest::Dump(_)
                | AppRequest::Checkpoint(_)
                | AppRequest::Restore(_)
                | AppRequest::Discard
                | AppRequest::Resume(_)
                | AppRequest::GoBack { .. }
                | AppRequest::FetchCopy(_)
        ),
        Note::Plane(event) => !matches!(event, AppPlaneEvent::FromLauncher { .. }),
        Note::Release | Note::Leave | Note::LeaveSealed => true,
        Note::Fragment(..)
        | Note::HandOver(_)
        | Note::Forget
        | Note::StandStill
        | Note::GoOn
        | Note::Sample
        | Note::Sealed(..)
        | Note::Copied(_) => false,
    }
}

impl Part {
    /// Nothing is said of the part until it rests again.
    pub(super) async fn forget_record(&mut self) {
        self.root = None;
        if self.recorded.take().is_none() {
            return;
        }
        let (name, job) = (self.node.config.name(), self.job);
        if let Err(error) = blocking(move || Record::remove(&name, job)).await {
            warn!(%error, "the record of an application could not be removed");
        }
    }

    /// Notes what the part is, where that has changed. After a step.
    pub(super) async fn keep_record(&mut self) {
        if !self.node.config.standing {
            return;
        }
        let Some(record) = self.record() else { return self.forget_record().await };
        let text = record.text();
        if self.recorded.as_ref() == Some(&text) {
            return;
        }
        let (name, job, epoch) = (self.node.config.name(), self.job, self.told.epoch);
        let channels = match record.part.state {
            HandedState::Running { .. } => Some(Vec::new()),
            _ => self.node.plane.ask(|reply| Command::ChannelStates(job, epoch, reply)).await,
        };
        let Some(channels) = channels else { return self.forget_record().await };
        let written = text.clone();
        match blocking(move || Record::write(&name, job, &written, &channels)).await {
            Ok(()) => self.recorded = Some(text),
            Err(error) => {
                warn!(%error, "no record of an application could be written: it ends with this daemon");
                self.recorded.get_or_insert_default();
                self.forget_record().await;
            }
        }
    }

    /// `None` where it would not be whole.
    fn record(&mut self) -> Option<Record> {
        let told = &self.told;
        let is_on_its_way = self.rewinding.is_some() || self.went_back.is_some() || !told.sealing.is_empty();
        if is_on_its_way || told.failure.get().is_some() {
            return None;
        }
        let is_flushed = told.flushed == Some(told.epoch);
        let launch = &self.resources.as_ref()?.launch;
        let is_alone = launch.placement.iter().all(|node| *node == self.node.config.node);
        let pid = self.state.root().map(|root| root.pid.cast_unsigned());
        let same = |root: &Process| pid.is_none_or(|pid| pid == root.pid);
        let root = self.root.filter(same).or_else(|| Process::of(pid?))?;
        let state = match &self.state {
            State::Running { .. } if is_alone => HandedState::Running { root },
            // Until it is released.
            State::Ended if is_alone => HandedState::Running { root },
            State::Frozen(_) if is_flushed => HandedState::Frozen { root },
            State::PagedOut(_) => HandedState::PagedOut { root },
            _ => return None,
        };
        let part = HandedPart {
            job: self.job,
            launch: launch.clone(),
            state,
            epoch: told.epoch,
            cuts: told.cuts,
            flushed: told.flushed,
            reached: told.reached.clone(),
            fences: told.fences.clone().into_iter().collect(),
            life: told.life,
            launcher: self.launcher.parts().to_vec(),
            image_bytes: self.image_bytes,
            needed: self.needed(),
            channels: Vec::new(),
            channel_bytes: 0,
        };
        let failed_rank = told.failed_rank.get().cloned();
        self.root = Some(root);
        Some(Record::of(part, self.read_to, self.all_exited, failed_rank))
    }

    /// A part that the daemon before has left. Nothing of it has changed where this fails.
    pub(super) async fn survived(
        node: Arc<NodeServices>,
        job: JobId,
        own: UnboundedSender<Note>,
        record: Record,
    ) -> anyhow::Result<Self> {
        let mut part = Self::new(node, job, own);
        let Record { part: handed, read_to: known, all_exited, failed_rank, .. } = record;
        let segment = Arc::new(Segment::open(part.node.config.shm(job).join(SEGMENT))?);
        let there = read_to(&segment);
        if there != known {
            bail!("its daemon had read up to {there} of what the launcher sent, and acted up to {known}");
        }
        let HandedPart { launch, state, epoch, channels, .. } = handed;
        let root = state.root().context("it had no processes")?;
        let child = Child::left_by_another(root).context("its launcher cannot be waited for")?;
        let has_ended = child.is_none();
        let cgroup = part.node.cgroup.job(&job.to_string())?;
        let file = SegmentFile::at(segment.path())?;
        let ran = matches!(state, HandedState::Running { .. });
        let placement = launch.placement.clone();
        part.resources =
            Some(Resources { cgroup: cgroup.clone(), segment: Arc::clone(&segment), file, launch });
        (part.launcher, part.image_bytes) = (Assembler::after(handed.launcher), handed.image_bytes);
        (part.read_to, part.all_exited, part.root) = (known, all_exited, Some(root));
        // The file of this record is there until it is replaced or removed.
        part.recorded = Some(Vec::new());
        (part.told.epoch, part.told.cuts, part.told.life) = (epoch, handed.cuts, handed.life);
        part.needed = Arc::new(handed.needed.into());
        part.told.flushed = handed.flushed.filter(|_| !ran);
        part.told.reached = handed.reached;
        part.told.fences = handed.fences.into_iter().collect();
        failed_rank.into_iter().for_each(|end| drop(part.told.failed_rank.set(end)));
        let frozen = |root| FrozenRanks { root, since: Instant::now(), freeze: Default::default() };
        part.state = match (state, child) {
            (HandedState::Running { .. }, Some(root)) => State::Running { root },
            (HandedState::Frozen { .. }, Some(root)) => State::Frozen(frozen(root)),
            (HandedState::PagedOut { .. }, Some(root)) => State::PagedOut(frozen(root)),
            (HandedState::Running { .. }, None) => State::Ended,
            _ => bail!("its launcher has ended"),
        };
        if has_ended {
            part.hear_last_words(&segment)?;
        }
        let channels = match channels.is_empty() {
            true => crate::plane::no_channel_states(),
            false => channels,
        };
        let life = handed.life;
        let add = |reply| Command::AddAtCut(job, segment, placement, life, epoch, channels, reply);
        let restored = part.node.plane.ask(add).await;
        if restored != Some(true) {
            bail!("its channel states do not decode");
        }
        match &part.state {
            State::Running { .. } => {
                part.node.plane.tell(Command::Resume(job, epoch));
                // A silent master, the guard of memory or its slice may have stopped it.
                part.let_run(Before::Frozen)?;
            }
            State::Frozen(_) => part.node.running.rest(job, cgroup),
            _ => {}
        }
        part.keep_record().await;
        Ok(part)
    }

    /// What the launcher has sent before its end, while no daemon was there.
    fn hear_last_words(&mut self, segment: &Arc<Segment>) -> anyhow::Result<()> {
        let mut port = MessagePort::daemon_side(Arc::clone(segment));
        let mut message = Vec::new();
        while port.recv(&mut message)? {
            self.hear(&message)?;
        }
        self.read_to = port.position();
        if self.all_exited { Ok(()) } else { bail!("its launcher has ended without a last word") }
    }
}
