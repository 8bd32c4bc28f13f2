//! Sends the program of an application to its nodes: reads it, and carries out what
//! [`coswitch_policies::launching`] decides, by the primitives.

use std::{
    collections::{BTreeSet, VecDeque},
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use coswitch_daemon::{
    protocol::{AppRequest, Checksum, Checksummer, JobUser, ReceiveRequest, SentProgram},
    session::awake,
};
use coswitch_policies::{
    Bytes, JobId, NodeId,
    launching::{ARRIVED, FRAGMENT_BYTES, Next, Refused, Sending, TAKEN, fragments, slot},
    primitives::{Comparison, Number, Operation, Outcome, Value},
};
use thiserror::Error;
use tokio::{sync::mpsc::WeakUnboundedSender, task::JoinHandle, time::sleep};

use super::Sessions;
use crate::{Note, app::Input, protocol::Report};

/// Between two questions to nodes that write more slowly than they are sent to.
const PAUSE: Duration = Duration::from_millis(5);
/// So long a program may keep all others waiting while some node takes nothing of it.
const STALL_LIMIT: Duration = Duration::from_secs(10);

/// Why a program was not sent.
#[derive(Debug, Error)]
pub(crate) enum SendError {
    #[error("its program {} cannot be read: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("its program {} is empty", .path.display())]
    Empty { path: PathBuf },
    #[error("its program {} was changed while it was sent", .path.display())]
    Changed { path: PathBuf },
    #[error("its program found no room in the memory of {}", names(.0))]
    NoRoom(BTreeSet<NodeId>),
}

fn names(nodes: &BTreeSet<NodeId>) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What is sent where.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) job: JobId,
    pub(crate) path: PathBuf,
    /// The node of each rank.
    pub(crate) placement: Vec<NodeId>,
    pub(crate) life: u32,
    /// With whose rights it is read; `None`: root's.
    pub(crate) user: Option<JobUser>,
}

/// A program on its way. It is given up where this is dropped.
pub(crate) struct OnItsWay(JoinHandle<()>);

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a program, and tells the application how far it is.
pub(crate) fn send(sessions: &Sessions, parcel: Parcel, to: &WeakUnboundedSender<Note>) -> OnItsWay {
    let (sessions, to) = (sessions.clone(), to.clone());
    let tell = move |input| {
        if let Some(app) = to.upgrade() {
            let _ = app.send(Note::Input(input));
        }
    };
    OnItsWay(tokio::spawn(async move {
        let sent = sessions.send_program(&parcel, || tell(Input::MoreSent)).await;
        tell(Input::Sent(sent.map_err(|error| error.to_string())));
    }))
}

impl Sessions {
    /// Sends a program, and returns when all nodes have written it. Calls `on_progress` when it is its turn,
    /// and whenever all nodes have written more. Where they do not, others have their turn, and it begins
    /// again: the application has a time-out of its own.
    async fn send_program(
        &self,
        parcel: &Parcel,
        on_progress: impl Fn(),
    ) -> Result<(SentProgram, Report), SendError> {
        let program = Arc::new(Program::open(&parcel.path, parcel.user.clone()).await?);
        let mut is_first = true;
        loop {
            let _turn = self.launching.lock().await;
            if std::mem::take(&mut is_first) {
                on_progress();
            }
            if let Some(sent) = self.try_to_send(parcel, &program, &on_progress).await? {
                return Ok(sent);
            }
        }
    }

    /// `None` where some node takes nothing any more. Where one is lost this waits for the application, which
    /// hears of that as well and ends it.
    async fn try_to_send(
        &self,
        parcel: &Parcel,
        program: &Arc<Program>,
        on_progress: &impl Fn(),
    ) -> Result<Option<(SentProgram, Report)>, SendError> {
        let (began, mut last) = (Instant::now(), Instant::now());
        let nodes: BTreeSet<NodeId> = parcel.placement.iter().copied().collect();
        let asked: Vec<NodeId> = nodes.iter().copied().collect();
        let (sent, placement) = (program.sent(), parcel.placement.clone());
        let receive = ReceiveRequest { program: sent.clone(), life: parcel.life, placement };
        self.ask(&asked, parcel.job, &AppRequest::Receive(Box::new(receive)));
        let mut sending = Sending::new(fragments(program.bytes));
        let mut started = Started { sessions: self, operations: VecDeque::new() };
        let mut checksummer = Checksummer::default();
        loop {
            match sending.step() {
                Next::Done => break,
                Next::Transfer(fragment) => {
                    let bytes = program.fragment(fragment).await?;
                    checksummer.update(&bytes);
                    // Before the last one is on its way: no node gets what would be wrong.
                    let is_last = u64::from(fragment + 1) * FRAGMENT_BYTES >= program.bytes;
                    if is_last && checksummer.checksum() != program.checksum {
                        return Err(program.changed());
                    }
                    let value = Value::Block(bytes.into());
                    let operation = Operation::Transfer { to: slot(fragment), value, signal: Some(ARRIVED) };
                    started.start(&nodes, operation, true);
                }
                Next::Compare(taken) => {
                    let (variable, comparison, value) = (TAKEN, Comparison::AtLeast, i64::from(taken));
                    let operation = Operation::Compare { variable, comparison, value, write: None };
                    started.start(&nodes, operation, false);
                }
                Next::Wait => {
                    let before = sending.taken();
                    let over = awake::timeout(STALL_LIMIT, started.first_over(&mut sending));
                    match over.await {
                        None => return Ok(None),
                        Some(Ok(())) => {}
                        Some(Err(Refused::NoRoom(nodes))) => return Err(SendError::NoRoom(nodes)),
                        Some(Err(Refused::Lost(_))) => std::future::pending().await,
                    }
                    if sending.taken() > before {
                        last = Instant::now();
                        on_progress();
                    }
                }
                Next::Pause if last.elapsed() > STALL_LIMIT => return Ok(None),
                Next::Pause => {
                    sleep(PAUSE).await;
                    sending.on_pause_over();
                }
            }
        }
        let report = Report::Sent { bytes: Bytes(program.bytes), took: began.elapsed() };
        Ok(Some((sent, report)))
    }
}

/// Operations that may not be over, in their order. Where this is dropped nobody waits for them any more:
/// those that no node has carried out yet are dropped there as well.
struct Started<'a> {
    sessions: &'a Sessions,
    operations: VecDeque<(Number, bool)>,
}

impl Started<'_> {
    fn start(&mut self, nodes: &BTreeSet<NodeId>, operation: Operation, is_transfer: bool) {
        let number = self.sessions.start(nodes.clone(), operation);
        self.operations.push_back((number, is_transfer));
    }

    /// Waits for the end of the first one.
    async fn first_over(&mut self, sending: &mut Sending) -> Result<(), Refused> {
        let (number, is_transfer) = *self.operations.front().expect("what is waited for was started");
        let outcome: Outcome = self.sessions.signalled(number).await.expect("only this task knows of it");
        self.operations.pop_front();
        if is_transfer { sending.on_transferred(outcome) } else { sending.on_compared(outcome) }
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        for (number, _) in self.operations.drain(..).rev() {
            self.sessions.give_up(number);
        }
    }
}

/// A program that is being sent, with what it was when that began.
struct Program {
    file: File,
    path: PathBuf,
    bytes: u64,
    checksum: Checksum,
}

impl Program {
    async fn open(path: &Path, user: Option<JobUser>) -> Result<Self, SendError> {
        let path = path.to_owned();
        blocking(move || {
            let read = || {
                let open = || File::open(&path);
                let file = user.as_ref().map_or_else(open, |user| user.act(open))?;
                let bytes = file.metadata()?.len();
                let mut checksummer = Checksummer::default();
                for fragment in 0..fragments(bytes) {
                    checksummer.update(&read_fragment(&file, bytes, fragment)?);
                }
                Ok((file, bytes, checksummer.checksum()))
            };
            match read() {
                Err(source) => Err(SendError::Read { path, source }),
                Ok((_, 0, _)) => Err(SendError::Empty { path }),
                Ok((file, bytes, checksum)) => Ok(Self { file, path, bytes, checksum }),
            }
        })
        .await
    }

    fn sent(&self) -> SentProgram {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        SentProgram { name, bytes: self.bytes, checksum: self.checksum }
    }

    async fn fragment(self: &Arc<Self>, fragment: u32) -> Result<Vec<u8>, SendError> {
        let program = Arc::clone(self);
        let read = blocking(move || read_fragment(&program.file, program.bytes, fragment)).await;
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.changed(),
            _ => SendError::Read { path: self.path.clone(), source: error },
        })
    }

    fn changed(&self) -> SendError {
        SendError::Changed { path: self.path.clone() }
    }
}

fn read_fragment(file: &File, bytes: u64, fragment: u32) -> io::Result<Vec<u8>> {
    let from = u64::from(fragment) * FRAGMENT_BYTES;
    let length = usize::try_from(FRAGMENT_BYTES.min(bytes - from)).expect("a fragment");
    let mut buffer = vec![0; length];
    file.read_exact_at(&mut buffer, from)?;
    Ok(buffer)
}

/// Runs blocking work off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("blocking work does not panic")
}
