//! Data and state of an application's part on this node.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use coswitch_ckpt::{Restored, SegmentFile};
use coswitch_launcher::protocol::{Assembler, LauncherEvent};
use coswitch_policies::{Bytes, Epoch, JobId, primitives::SharedBytes};
use coswitch_ring::Segment;
use tokio::{
    sync::{mpsc::UnboundedSender, oneshot},
    time::{interval, sleep},
};

use super::{
    KILL_EVERY,
    describe::Told,
    hearing::Hearing,
    program::{Incoming, Written},
    services::NodeServices,
};
use crate::{
    cgroup::JobCgroup,
    children::Child,
    handover::HandedPart,
    plane::AppPlaneEvent,
    process::Process,
    protocol::{AppEvent, AppRequest, DaemonEvent, Failure, LaunchRequest, Park, Step},
};

const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// A message to the task of an application.
pub enum Note {
    /// From the head node; a release is [`Note::Release`].
    Request(AppRequest),
    /// A fragment of the program, and the channel that reports the end of its writing.
    Fragment(SharedBytes, UnboundedSender<Written>),
    /// End, and remove everything.
    Release,
    /// End, and leave the snapshots of a parked part for another daemon.
    Leave,
    /// End, and leave all snapshots that are sealed, or are being sealed.
    LeaveSealed,
    /// Describe the part for the next program of this daemon.
    HandOver(oneshot::Sender<Result<HandedPart, String>>),
    /// End, and leave everything to the next program of this daemon.
    Forget,
    /// From the data plane.
    Plane(AppPlaneEvent),
    /// The head node is silent: the ranks are to stand still.
    StandStill,
    /// The head node is heard again.
    GoOn,
    /// Report the driver's counters.
    Sample,
    /// The task's own background work has sealed a snapshot, or failed to.
    Sealed(Epoch, Result<Seal, String>),
    /// A snapshot was copied to other nodes, or was not.
    Copied(AppEvent),
}

/// A snapshot that was made durable: see [`AppEvent::Sealed`].
pub struct Seal {
    pub(super) took: Duration,
    pub(super) tier: PathBuf,
    pub(super) bytes: Bytes,
}

/// State of the processes.
pub(super) enum State {
    /// Not launched.
    Absent,
    /// Ranks compute, or are ending.
    Running { root: Child },
    /// Ranks are frozen for a cut.
    Frozen(FrozenRanks),
    /// Ranks are frozen, and their pages are in swap.
    PagedOut(FrozenRanks),
    /// There are snapshots and no processes.
    Parked,
    /// Restored and not yet resumed.
    Stopped { root: Child, restored: Restored },
    /// The launcher and all ranks have ended.
    Ended,
}

impl State {
    pub(super) fn root(&self) -> Option<&Child> {
        match self {
            Self::Running { root } | Self::Stopped { root, .. } => Some(root),
            Self::Frozen(ranks) | Self::PagedOut(ranks) => Some(&ranks.root),
            Self::Absent | Self::Parked | Self::Ended => None,
        }
    }
}

pub(super) struct FrozenRanks {
    pub(super) root: Child,
    pub(super) since: Instant,
    /// How long freezing took.
    pub(super) freeze: Duration,
}

/// Resources of the part from launch to release.
pub(super) struct Resources {
    pub(super) cgroup: JobCgroup,
    pub(super) segment: Arc<Segment>,
    /// The segment's file: the ranks must have mapped this very one, now and after a restore.
    pub(super) file: SegmentFile,
    pub(super) launch: LaunchRequest,
}

pub(super) struct Part {
    pub(super) node: Arc<NodeServices>,
    pub(super) job: JobId,
    pub(super) state: State,
    pub(super) resources: Option<Resources>,
    /// The program of the launch that follows.
    pub(super) incoming: Option<Incoming>,
    pub(super) launcher: Assembler<LauncherEvent>,
    pub(super) hearing: Hearing,
    /// A message was not from the launcher: the application ends, and no more is heard.
    pub(super) is_deaf: bool,
    /// How far this daemon has read what the launcher has sent, and acted upon it.
    pub(super) read_to: u64,
    /// The last record of it, without its channel states.
    pub(super) recorded: Option<Vec<u8>>,
    /// The launcher, as it was recorded last.
    pub(super) root: Option<Process>,
    /// The launcher has sent its last message.
    pub(super) all_exited: bool,
    /// By then the launcher has to end, too.
    pub(super) ends_by: Option<tokio::time::Instant>,
    /// The head node is silent: running ranks are frozen until it is heard again.
    pub(super) stands_still: bool,
    pub(super) told: Told,
    /// What the data plane tells before [`AppPlaneEvent::Rewound`] is void.
    pub(super) rewinding: Option<u32>,
    /// The answer to a [`AppRequest::GoBack`] waits until snapshots are sealed.
    pub(super) went_back: Option<u32>,
    /// Snapshots that are removed once they are sealed.
    pub(super) unwanted: BTreeSet<Epoch>,
    /// Snapshots that stay although newer ones are sealed: they are being copied, or are the newest of which
    /// all nodes have copies.
    pub(super) needed: Arc<Mutex<BTreeSet<u64>>>,
    /// How often its counters were asked for.
    pub(super) sampled: u32,
    /// Size of the last dump or checkpoint.
    pub(super) image_bytes: Bytes,
    /// A release was ordered: until that is done, nothing is told. The job may already be launched anew.
    pub(super) is_released: Arc<AtomicBool>,
    /// For background work of this task.
    pub(super) own: UnboundedSender<Note>,
}

/// Runs blocking work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("blocking work does not panic")
}

impl Part {
    pub(super) fn new(node: Arc<NodeServices>, job: JobId, own: UnboundedSender<Note>) -> Self {
        Self {
            node,
            job,
            state: State::Absent,
            resources: None,
            incoming: None,
            launcher: Assembler::default(),
            hearing: Hearing::default(),
            is_deaf: false,
            read_to: 0,
            recorded: None,
            root: None,
            all_exited: false,
            ends_by: None,
            sampled: 0,
            stands_still: false,
            told: Told::default(),
            rewinding: None,
            went_back: None,
            unwanted: BTreeSet::new(),
            needed: Arc::default(),
            image_bytes: Bytes(0),
            is_released: Arc::default(),
            own,
        }
    }

    pub(super) fn tell(&self, event: AppEvent) {
        if self.is_released.load(Ordering::Relaxed) {
            return;
        }
        self.node.tell(DaemonEvent::App { job: self.job, event });
    }

    pub(super) fn answer(&self, during: Step, result: Result<AppEvent, Failure>) {
        if let (Step::Run, Err(failure)) = (during, &result) {
            let _ = self.told.failure.set(failure.clone());
        }
        self.tell(result.unwrap_or_else(|failure| AppEvent::Failed { during, failure }));
    }

    /// Waits for `work`, or until a release is ordered. For work that the end of the processes does not stop,
    /// such as opening links: a release must not wait for other nodes.
    pub(super) async fn unless_released<T>(&self, work: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = sleep(KILL_EVERY) => {}
            }
            if self.is_released.load(Ordering::Relaxed) {
                return Err(Failure::dead("it is to be released"));
            }
        }
    }

    pub(super) fn resources(&self) -> &Resources {
        self.resources.as_ref().expect("made at the launch, which precedes this state")
    }

    pub(super) fn park(&self) -> Park {
        self.resources.as_ref().map_or(Park::default(), |resources| resources.launch.park)
    }

    /// Leaves `Ended` in place.
    pub(super) fn take_state(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Ended)
    }

    /// Reports the progress of `work` until it is done.
    pub(super) async fn with_progress<T>(
        &self,
        step: Step,
        total: Bytes,
        mut so_far: impl FnMut() -> Bytes,
        work: impl Future<Output = T>,
    ) -> T {
        let progress = move || AppEvent::Progress { step, bytes: so_far().min(total), total };
        self.telling(progress, work).await
    }

    /// Tells of `work` a few times a second until it is done.
    pub(super) async fn telling<T>(
        &self,
        mut news: impl FnMut() -> AppEvent,
        work: impl Future<Output = T>,
    ) -> T {
        let mut ticks = interval(PROGRESS_EVERY);
        ticks.tick().await;
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = ticks.tick() => self.tell(news()),
            }
        }
    }
}
