//! The node scheduler, live: the policy that the simulator runs decides which ranks of this node are
//! favoured.
//!
//! ```text
//!   segment: activity, counters ──look──▶ TaskEvent ──▶ NodeScheduler ──▶ NodeDecision ──▶ weight of a rank
//!      a message for a rank that is not favoured rings
//! ```
//! A thread of the daemon looks at the ranks' [activity](coswitch_ring::Activity) every millisecond while
//! more of them are ready than the node has processors, and at once where a message arrives for a rank that
//! is not favoured. No rank makes a system call for it, except that ring. A rank that would get a processor
//! at once has the usual weight before it is woken, and the thread hears of the message afterwards.
//!
//! The tasks that have a processor by the scheduler's decision keep the usual weight, and all others get the
//! least one: the kernel then gives a favoured rank 68 parts of 69 of a processor that another one wants,
//! wakes it before any other, and gives what it leaves to the rest. So a decision that comes late costs time
//! and never stops a rank. Only where a technique says that a task may not run at all does its job stand
//! still on this node, by the [freezer](crate::running).
//!
//! A process of a job that does not use MPI is a [local task](local_task) to the techniques.
//!
//! Ten times a second it learns as well what each task [uses](measure): processor time, memory, faults and
//! bytes. No technique goes by that; a report shows how far the kernel carries decisions out.
//!
//! What the scheduler [counts](counting) of a job's tasks goes to the master. The scheduler remembers its
//! last moments as well: of each job that ends, a stretch of them lies beside the job's output, for the
//! picture of a report.

mod clock;
mod counting;
mod job;
mod local_task;
mod measure;
mod rank;
mod shell;
mod weight;

use std::{
    collections::BTreeSet,
    io,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use coswitch_policies::{
    JobId,
    local::{ByKind, Excerpt, Technique, explicit::Slices},
};
use coswitch_ring::{Bell, Segment};
use tokio::{sync::oneshot, time::timeout};

use self::shell::Shell;
use crate::{cgroup::JobCgroup, running::Running};

/// For the thread to answer, which looks at its commands every millisecond.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// See the module. Without a technique it does nothing.
pub struct Scheduling(Option<Thread>);

struct Thread {
    teller: Teller,
    load: Load,
    handle: JoinHandle<()>,
}

/// The load of local tasks, as the scheduler has reported it last.
type Load = Arc<Mutex<Option<f64>>>;

/// Tells the thread what is the case.
#[derive(Clone)]
pub(crate) struct Teller {
    commands: mpsc::Sender<Command>,
    bell: Arc<Bell>,
}

enum Command {
    Run(JobId, Arc<Segment>, JobCgroup),
    Rest(JobId),
    Leave(JobId),
    Strobe(BTreeSet<JobId>),
    Slices(Slices),
    Count(JobId, oneshot::Sender<ByKind>),
    Draw(JobId, oneshot::Sender<Excerpt>),
    Stop,
}

impl Teller {
    fn tell(&self, command: Command) {
        // It ends only with its [`Scheduling`].
        let _ = self.commands.send(command);
        self.bell.ring();
    }

    /// The slot of these jobs begins, of which one at most is on this node; without a job it is a slot for
    /// all others.
    pub(crate) fn strobe(&self, row: BTreeSet<JobId>) {
        self.tell(Command::Strobe(row));
    }

    /// The parallel one of these slices begins, on all nodes.
    pub(crate) fn begin(&self, slices: Slices) {
        self.tell(Command::Slices(slices));
    }
}

impl Scheduling {
    /// Starts the thread, which ends with this.
    ///
    /// # Errors
    /// Where there can be no more threads.
    pub fn start(technique: Option<Technique>, processors: usize, running: Arc<Running>) -> io::Result<Self> {
        let Some(technique) = technique else { return Ok(Self(None)) };
        let (commands, its) = mpsc::channel();
        let bell = Arc::new(Bell::new());
        let shell_bell = Arc::clone(&bell);
        let processors = NonZeroUsize::new(processors).unwrap_or(NonZeroUsize::MIN);
        let load = Load::default();
        let reported = Arc::clone(&load);
        let run = move || Shell::new(technique, processors, its, shell_bell, running, reported).run();
        let handle = std::thread::Builder::new().name("node-scheduler".into()).spawn(run)?;
        Ok(Self(Some(Thread { teller: Teller { commands, bell }, load, handle })))
    }

    /// How many local tasks want a processor on average, under a technique that reports it.
    pub(crate) fn load(&self) -> Option<f64> {
        let Thread { load, .. } = self.0.as_ref()?;
        *load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For what happens to all nodes at one time.
    pub(crate) fn teller(&self) -> Option<Teller> {
        self.0.as_ref().map(|thread| thread.teller.clone())
    }

    fn tell(&self, command: Command) {
        if let Some(thread) = &self.0 {
            thread.teller.tell(command);
        }
    }

    /// The ranks of a job run from now on.
    pub(crate) fn run(&self, job: JobId, segment: &Arc<Segment>, cgroup: &JobCgroup) {
        if self.0.is_some() {
            self.tell(Command::Run(job, Arc::clone(segment), cgroup.clone()));
        }
    }

    /// The ranks of a job are about to stand still.
    pub(crate) fn rest(&self, job: JobId) {
        self.tell(Command::Rest(job));
    }

    /// What has been added to the accounts of a job's tasks since this was asked last. None without a
    /// technique, and where that is nothing.
    pub(crate) async fn count(&self, job: JobId) -> Option<ByKind> {
        let (answer, counted) = oneshot::channel();
        self.tell(Command::Count(job, answer));
        let counted = timeout(ANSWER_LIMIT, counted).await.ok()?.ok();
        counted.filter(|counted| *counted != ByKind::default())
    }

    /// What was seen and decided in the last part of a job's stay. None without a technique.
    pub(crate) async fn draw(&self, job: JobId) -> Option<Excerpt> {
        let (answer, drawn) = oneshot::channel();
        self.tell(Command::Draw(job, answer));
        timeout(ANSWER_LIMIT, drawn).await.ok()?.ok()
    }

    /// The processes of a job have ended, or are about to leave memory.
    pub(crate) fn leave(&self, job: JobId) {
        self.tell(Command::Leave(job));
    }
}

impl Drop for Scheduling {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.0.take() {
            let _ = thread.handle.join();
        }
    }
}
