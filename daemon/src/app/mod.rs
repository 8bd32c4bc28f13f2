//! One application's part on this node: its processes, its cgroup, its segment, its snapshots.
//!
//! A task per application takes [`AppRequest`]s and notes in turn and answers with [`AppEvent`]s. What it does is
//! idempotent where it can be: a request that does not fit where the part stands is answered with a failure, and
//! nothing happens.
//!
//! ```text
//!   Absent ─Launch─▶ Running ─(cut) freeze─▶ Frozen ─Dump─▶ Parked ─Restore─▶ Stopped ─Resume─▶ Running
//!                      ▲                      │ │ ▲           ▲                  │
//!                      └────Resume, AbortCut──┘ │ │           └─────Discard──────┘
//!                               Dump, of a job that pages out ▼ │ Restore
//!                                            PagedOut
//!   any ─Release─▶ gone
//! ```

mod frozen;
mod launch;
mod paged;
mod parked;
mod release;
mod stall;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_ckpt::{Arena, Criu, SegmentFile, Store};
use coswitch_launcher::protocol::{Assembler, ExitStatus, LauncherCommand, LauncherEvent, encode};
use coswitch_policies::{Bytes, Epoch, JobId};
use coswitch_ring::Segment;
use nix::sys::wait::WaitStatus;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::{Instrument, info_span, warn};

use crate::{
    cgroup::{JobCgroup, NodeCgroup},
    children::Child,
    node::NodeConfig,
    plane::{Command, Plane, PlaneEvent},
    protocol::{AppEvent, AppRequest, DaemonEvent, Exit, Failure, LaunchRequest, Park, RankTraffic, Step},
};

/// A step that began just before it was killed has new processes.
const KILL_EVERY: Duration = Duration::from_millis(200);

/// What all applications of a node share.
pub struct Node {
    /// As told at the start.
    pub config: NodeConfig,
    /// Moves the messages.
    pub plane: Plane,
    /// Dumps and restores.
    pub criu: Criu,
    /// Keeps their snapshots.
    pub store: Store,
    /// Takes their pages.
    pub arena: Arena,
    /// Holds the groups of all jobs.
    pub cgroup: NodeCgroup,
    /// To the head node.
    pub events: UnboundedSender<DaemonEvent>,
}

impl Node {
    /// Tells the head node; where it has gone, the daemon is about to end as well.
    pub fn tell(&self, event: DaemonEvent) {
        let _ = self.events.send(event);
    }
}

/// Something for the task of an application.
pub enum Note {
    /// From the head node.
    Request(AppRequest),
    /// From the data plane.
    Plane(PlaneEvent),
    /// Counters are due.
    Sample,
    /// A background task of its own has sealed a snapshot, or could not.
    Sealed(Epoch, Result<AppEvent, String>),
}

/// A handle on the task of an application.
#[derive(Clone)]
pub struct App {
    notes: UnboundedSender<Note>,
}

impl App {
    /// Starts the task; it ends after [`AppRequest::Release`].
    #[must_use]
    pub fn start(node: Arc<Node>, job: JobId) -> (Self, tokio::task::JoinHandle<()>) {
        let (notes, inbox) = unbounded_channel();
        let part = Part {
            node,
            job,
            state: State::Absent,
            made: None,
            launcher: Assembler::default(),
            all_exited: false,
            image_bytes: Bytes(0),
            own: notes.clone(),
        };
        let span = info_span!("app", %job);
        (Self { notes }, tokio::spawn(part.run(inbox).instrument(span)))
    }

    /// Ends the task and removes everything of the application. What the task is busy with may take long, or hang: a
    /// restore does when a process is killed in it. With its processes killed under it, it fails soon.
    pub fn release(&self, node: Arc<Node>, job: JobId) {
        self.note(Note::Request(AppRequest::Release));
        let notes = self.notes.clone();
        tokio::spawn(async move {
            loop {
                node.cgroup.kill_job(&job.to_string());
                if tokio::time::timeout(KILL_EVERY, notes.closed()).await.is_ok() {
                    return;
                }
            }
        });
    }

    /// Leaves a note; a task that has ended needs none.
    pub fn note(&self, note: Note) {
        let _ = self.notes.send(note);
    }
}

/// Where the part stands.
enum State {
    /// Not launched.
    Absent,
    /// Ranks compute, or are ending.
    Running { root: Child },
    /// Ranks are frozen for a cut, for as long as it is wanted.
    Frozen(Ice),
    /// And their pages are in swap.
    PagedOut(Ice),
    /// No processes; snapshots.
    Parked,
    /// Restored and not yet let run.
    Stopped { root: Child, restored: coswitch_ckpt::Restored },
    /// The launcher has ended, and all ranks with it.
    Ended,
}

/// Frozen ranks: since when, and how long freezing them took.
struct Ice {
    root: Child,
    since: Instant,
    freeze: Duration,
}

/// What exists from the launch to the release.
struct Made {
    cgroup: JobCgroup,
    segment: Arc<Segment>,
    /// The segment's file: the ranks must have mapped this very one, now and after a restore.
    file: SegmentFile,
    launch: LaunchRequest,
}

/// The task's own data.
struct Part {
    node: Arc<Node>,
    job: JobId,
    state: State,
    made: Option<Made>,
    launcher: Assembler<LauncherEvent>,
    /// The launcher has said its last word.
    all_exited: bool,
    /// Of the last dump.
    image_bytes: Bytes,
    /// For its own background tasks.
    own: UnboundedSender<Note>,
}

/// Blocking work, off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("blocking work does not panic")
}

impl Part {
    fn tell(&self, event: AppEvent) {
        self.node.tell(DaemonEvent::App { job: self.job, event });
    }

    fn answer(&self, during: Step, result: Result<AppEvent, Failure>) {
        self.tell(result.unwrap_or_else(|failure| AppEvent::Failed { during, failure }));
    }

    fn made(&self) -> &Made {
        self.made.as_ref().expect("made at the launch, which precedes this state")
    }

    fn park(&self) -> Park {
        self.made.as_ref().map_or(Park::default(), |made| made.launch.park)
    }

    async fn run(mut self, mut inbox: UnboundedReceiver<Note>) {
        loop {
            let note = match &self.state {
                State::Running { root }
                | State::Frozen(Ice { root, .. })
                | State::PagedOut(Ice { root, .. })
                | State::Stopped { root, .. } => tokio::select! {
                    note = inbox.recv() => note,
                    status = root.ended() => {
                        self.on_root_ended(status).await;
                        continue;
                    }
                },
                State::Absent | State::Parked | State::Ended => inbox.recv().await,
            };
            match note {
                Some(Note::Request(AppRequest::Release)) | None => break self.release().await,
                Some(Note::Request(request)) => self.on_request(request).await,
                Some(Note::Plane(event)) => self.on_plane(event).await,
                Some(Note::Sample) => self.tell_traffic(),
                Some(Note::Sealed(_, Ok(sealed))) => self.tell(sealed),
                Some(Note::Sealed(epoch, Err(reason))) => self.tell(AppEvent::SealFailed { epoch, reason }),
            }
        }
    }

    async fn on_request(&mut self, request: AppRequest) {
        match request {
            AppRequest::Launch(launch) => {
                let result = self.launch(*launch).await;
                self.answer(Step::Launch, result.map(|()| AppEvent::Launched));
            }
            AppRequest::Cut(epoch) => self.node.plane.tell(Command::BeginCut(self.job, epoch)),
            AppRequest::AbortCut(epoch) => self.node.plane.tell(Command::AbortCut(self.job, epoch)),
            AppRequest::Dump(epoch) => {
                let result = match self.park() {
                    Park::Criu => self.dump(epoch).await,
                    Park::PageOut => self.page_out(epoch).await,
                };
                let is_lost = matches!(&result, Err(Failure::Other { alive: false, .. }));
                if is_lost && let Err(failure) = self.discard().await {
                    warn!(%failure, "what a failed dump has left could not be ended");
                }
                self.answer(Step::Dump, result);
            }
            AppRequest::Restore(epoch) => {
                let result = match self.park() {
                    Park::Criu => self.restore(epoch).await,
                    Park::PageOut => self.page_in(epoch).await,
                };
                self.answer(Step::Restore, result);
            }
            AppRequest::Discard => {
                let result = self.discard().await;
                self.answer(Step::Discard, result);
            }
            AppRequest::Resume(epoch) => {
                let result = self.resume(epoch);
                self.answer(Step::Resume, result);
            }
            AppRequest::FenceDone { sequence, puts } => {
                self.tell_launcher(&LauncherCommand::FenceDone { sequence, puts });
            }
            AppRequest::Release => unreachable!("ends the task"),
        }
    }

    async fn on_plane(&mut self, event: PlaneEvent) {
        match event {
            PlaneEvent::Freeze { epoch, .. } => self.freeze(epoch).await,
            PlaneEvent::Thaw { .. } => self.thaw(),
            PlaneEvent::Flushed { epoch, drained, .. } => self.on_flushed(epoch, drained),
            PlaneEvent::Aborted { epoch, .. } => self.tell(AppEvent::Resumed { epoch, thaw: None }),
            PlaneEvent::CutFailed { reason, .. } => self.answer(Step::Cut, Err(Failure::alive(reason))),
            PlaneEvent::Corrupt { reason, .. } => {
                self.answer(
                    Step::Run,
                    Err(Failure::dead(format!("a rank has damaged its segment: {reason}"))),
                );
            }
            PlaneEvent::FromLauncher { message, .. } => match self.launcher.push(&message) {
                Ok(Some(event)) => self.on_launcher(event),
                Ok(None) => {}
                Err(error) => self.answer(Step::Run, Err(Failure::dead(error))),
            },
            // About the node as a whole.
            PlaneEvent::LinkLost { .. } => {}
        }
    }

    fn tell_launcher(&self, command: &LauncherCommand) {
        for part in encode(command) {
            self.node.plane.tell(Command::ToLauncher(self.job, part));
        }
    }

    fn on_launcher(&mut self, event: LauncherEvent) {
        match event {
            LauncherEvent::Ready => {}
            LauncherEvent::AllExited => {
                self.all_exited = true;
                self.tell_ended();
            }
            LauncherEvent::Fence { sequence, puts } => self.tell(AppEvent::Fence { sequence, puts }),
            LauncherEvent::RankExited { rank, status } => {
                let exit = match status {
                    ExitStatus::Exited(status) => Exit::Status(status),
                    ExitStatus::Signaled(libc::SIGKILL) if self.made().cgroup.was_out_of_memory() => {
                        Exit::OutOfMemory
                    }
                    ExitStatus::Signaled(signal) => Exit::Signal(signal),
                    ExitStatus::ExecFailed(reason) => Exit::NotStarted(reason),
                };
                self.tell_exit(rank, exit);
            }
            LauncherEvent::Abort { rank, code, .. } => self.tell_exit(rank, Exit::Aborted(code)),
        }
    }

    fn tell_exit(&self, rank: u32, exit: Exit) {
        let output = &self.made().launch.output;
        let last_output =
            if exit == Exit::Status(0) { String::new() } else { launch::last_output(output, rank) };
        self.tell(AppEvent::RankExited { rank, exit, last_output });
    }

    async fn on_root_ended(&mut self, status: std::io::Result<WaitStatus>) {
        self.tell_traffic();
        self.state = State::Ended;
        match status {
            Ok(WaitStatus::Exited(_, 0)) => self.tell_ended(),
            Ok(status) => {
                let reason = format!("its launcher ended with {status:?}");
                warn!(reason);
                self.answer(Step::Run, Err(Failure::dead(reason)));
            }
            Err(error) => self.answer(Step::Run, Err(Failure::dead(error))),
        }
    }

    /// The end counts when the launcher has been reaped *and* its last word has come through the rings: how the ranks
    /// ended is known before it.
    fn tell_ended(&self) {
        if self.all_exited && matches!(self.state, State::Ended) {
            self.tell(AppEvent::Exited);
        }
    }

    fn tell_traffic(&self) {
        let Some(Made { segment, .. }) = &self.made else { return };
        if matches!(self.state, State::Parked) {
            return; // The counters are in the snapshot.
        }
        let traffic = (0..segment.local_ranks()).map(|local| {
            let counters = segment.counters(local);
            RankTraffic {
                rank: segment.global_of(local),
                messages: counters.messages_sent,
                bytes: counters.bytes_sent,
                waiting: Duration::from_nanos(counters.wait_ns),
            }
        });
        self.tell(AppEvent::Traffic(traffic.collect()));
    }
}
