//! The hand-over of a part to the next program of this daemon, and its adoption there.
//!
//! Nothing of the part is on its way then: its processes are frozen at a complete cut, restored and not
//! resumed, paged out, or there are none. They do not notice.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use coswitch_ckpt::{Restored, SegmentFile};
use coswitch_launcher::protocol::Assembler;
use coswitch_policies::JobId;
use coswitch_ring::Segment;
use nix::unistd::Pid;
use tokio::sync::mpsc::UnboundedSender;

use super::{
    SEGMENT,
    part::{FrozenRanks, Note, Part, Resources, State},
    services::NodeServices,
    survivor::read_to,
};
use crate::{
    children::Child,
    handover::{HandedPart, HandedState},
    plane::Command,
    process::Process,
};

impl Part {
    /// Describes the part for the next program. The part stays as it is.
    pub(super) async fn hand_over(&mut self) -> Result<HandedPart, String> {
        let job = self.job;
        let refused = |why: &str| format!("{job} {why}");
        if !self.told.sealing.is_empty() {
            return Err(refused("is being sealed"));
        }
        if self.rewinding.is_some() || self.went_back.is_some() {
            return Err(refused("goes back to a snapshot"));
        }
        if self.all_exited || self.told.failed_rank.get().is_some() || self.told.failure.get().is_some() {
            return Err(refused("is ending"));
        }
        let state = self.handed_state().map_err(|why| refused(&why))?;
        let epoch = self.told.epoch;
        let channels = self.node.plane.ask(|reply| Command::ChannelStates(job, epoch, reply)).await;
        let channels = channels.ok_or_else(|| refused("has lost the data plane"))?;
        Ok(HandedPart {
            job,
            launch: self.resources().launch.clone(),
            state,
            epoch,
            cuts: self.told.cuts,
            flushed: self.told.flushed,
            reached: self.told.reached.clone(),
            fences: self.told.fences.clone().into_iter().collect(),
            life: self.told.life,
            launcher: self.launcher.parts().to_vec(),
            image_bytes: self.image_bytes,
            needed: self.needed(),
            channel_bytes: channels.len(),
            channels,
        })
    }

    fn handed_state(&self) -> Result<HandedState, String> {
        let process = |root: &Child| {
            let known = Process::of(root.pid.cast_unsigned());
            known.ok_or_else(|| "has lost its launcher".to_owned())
        };
        match &self.state {
            State::Frozen(ranks) if self.told.flushed == Some(self.told.epoch) => {
                Ok(HandedState::Frozen { root: process(&ranks.root)? })
            }
            State::Frozen(_) => Err("is being cut".into()),
            State::PagedOut(ranks) => Ok(HandedState::PagedOut { root: process(&ranks.root)? }),
            State::Stopped { root, restored } => {
                let processes = restored.pids.iter().map(|pid| pid.as_raw()).collect();
                Ok(HandedState::Stopped { root: process(root)?, processes })
            }
            State::Parked => Ok(HandedState::Parked),
            State::Running { .. } => Err("is running".into()),
            State::Absent | State::Ended => Err("is starting or ending".into()),
        }
    }

    /// A part that the program before has handed over.
    pub(super) async fn adopted(
        node: Arc<NodeServices>,
        job: JobId,
        own: UnboundedSender<Note>,
        handed: HandedPart,
    ) -> anyhow::Result<Self> {
        let mut part = Self::new(node, job, own);
        let HandedPart { launch, state, epoch, channels, .. } = handed;
        let segment = match &state {
            HandedState::Parked => part.make_segment_anew(&launch)?,
            _ => Arc::new(Segment::open(part.node.config.shm(job).join(SEGMENT))?),
        };
        let file = SegmentFile::at(segment.path())?;
        if matches!(state, HandedState::Parked) {
            file.empty()?;
        }
        part.read_to = read_to(&segment);
        // The program before has left a record of a part that rests: the next step removes the file.
        part.recorded = Some(Vec::new());
        let cgroup = part.node.cgroup.job(&job.to_string())?;
        part.state = part.adopt_processes(state).with_context(|| format!("failed to adopt {job}"))?;
        if part.state.root().is_some() && !matches!(part.state, State::PagedOut(_)) {
            part.node.running.rest(job, cgroup.clone());
        }
        part.node.plane.tell(Command::AddApp(job, Arc::clone(&segment), launch.placement.clone()));
        part.node.plane.tell(Command::SetLife(job, handed.life));
        part.resources = Some(Resources { cgroup, segment, file, launch });
        part.launcher = Assembler::after(handed.launcher);
        part.image_bytes = handed.image_bytes;
        part.needed = Arc::new(handed.needed.into());
        part.told.epoch = epoch;
        part.told.cuts = handed.cuts;
        part.told.flushed = handed.flushed;
        part.told.reached = handed.reached;
        part.told.fences = handed.fences.into_iter().collect();
        part.told.life = handed.life;
        let restored = part.node.plane.ask(|reply| Command::RestoreChannels(job, epoch, channels, reply));
        match restored.await {
            Some(true) => Ok(part),
            _ => bail!("the channel states of {job} do not decode"),
        }
    }

    fn adopt_processes(&self, state: HandedState) -> anyhow::Result<State> {
        let Some(process) = state.root() else { return Ok(State::Parked) };
        let root = adopt_launcher(process)?;
        let frozen = |root| FrozenRanks { root, since: Instant::now(), freeze: Duration::ZERO };
        Ok(match state {
            HandedState::Frozen { .. } => State::Frozen(frozen(root)),
            HandedState::PagedOut { .. } => State::PagedOut(frozen(root)),
            HandedState::Stopped { processes, .. } => {
                let pids = processes.into_iter().map(Pid::from_raw).collect();
                let pid = Pid::from_raw(root.pid);
                let restored = Restored { root: pid, pids, foreign: Vec::new(), took: Duration::ZERO };
                State::Stopped { root, restored }
            }
            HandedState::Parked => State::Parked,
            HandedState::Running { .. } => bail!("it runs"),
        })
    }
}

/// A launcher that this daemon has started is a child of this process, also where it has ended meanwhile;
/// one that has survived an earlier daemon is not. The kernel knows which it is, whatever program hands over.
fn adopt_launcher(process: Process) -> anyhow::Result<Child> {
    if Process::parent_of(process.pid) != Some(std::process::id()) {
        let left = Child::left_by_another(process).context("its launcher cannot be waited for")?;
        return left.context("its launcher has ended");
    }
    let child = Child::adopt(process.pid.cast_signed()).context("its launcher has been reaped")?;
    if process.is_another() {
        bail!("another process has the number of its launcher");
    }
    Ok(child)
}
