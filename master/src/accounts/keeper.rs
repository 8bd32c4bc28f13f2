//! The keeper of the accounts: a thread that writes what it is told to the database. Nothing waits for it.
//!
//! ```text
//!   told ──▶ waiting, by job ──▶ one transaction for all that wait ──▶ written
//!                 ▲                             │ locked, full, damaged
//!                 └────── again, 10 s later ◀───┘
//! ```
//! A job waits here in a few hundred bytes, of the thousands that a master keeps of each job.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use coswitch_policies::JobId;
use coswitch_report::{JobAccount, words::plural};

use super::database::{AccountsError, Database};

/// After a failure it is tried again so much later.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Writes accounts to the database of a directory.
#[derive(Debug)]
pub struct Keeper {
    directory: PathBuf,
    told: Told,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

/// The end of the keeper to which accounts are told.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to do.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: BTreeMap<JobId, JobAccount>,
    is_ending: bool,
}

impl Keeper {
    /// Starts the thread, which opens the database when there is a job to be written.
    ///
    /// # Errors
    /// Where no thread can be started.
    pub fn start(directory: &Path) -> io::Result<Self> {
        Self::start_with(directory, RETRY_AFTER)
    }

    pub(super) fn start_with(directory: &Path, retry_after: Duration) -> io::Result<Self> {
        let (told, directory) = (Told::default(), directory.to_path_buf());
        let (alive, ended) = channel();
        let mut writer =
            Writer { directory: directory.clone(), told: told.clone(), retry_after, database: None };
        thread::Builder::new().name("accounts".into()).spawn(move || {
            writer.write_all();
            drop(alive);
        })?;
        Ok(Self { directory, told, ended })
    }

    #[must_use]
    pub fn told(&self) -> Told {
        self.told.clone()
    }

    /// Waits until everything is written, for at most `limit`. What is not is in the journal.
    pub fn finish(self, limit: Duration) {
        self.told.lock().is_ending = true;
        self.told.0.wake.notify_all();
        // Nothing is ever sent.
        let _ = self.ended.recv_timeout(limit);
        let missing = self.told.waiting().len();
        if missing > 0 {
            tracing::warn!(
                "{} could not be written to the database of accounts: `coswitch accounts --rebuild {}` \
                 takes them from the journal",
                plural(missing, "job"),
                self.directory.display()
            );
        }
    }
}

impl Told {
    /// Takes the account of a job, in the place of an earlier one.
    pub fn tell(&self, accounts: impl IntoIterator<Item = JobAccount>) {
        let mut state = self.lock();
        state.waiting.extend(accounts.into_iter().map(|account| (account.job, account)));
        self.0.wake.notify_all();
    }

    /// The jobs that are not in the database yet.
    #[must_use]
    pub fn waiting(&self) -> BTreeSet<JobId> {
        self.lock().waiting.keys().copied().collect()
    }

    /// Waits until accounts wait, or all is to end; what waits then.
    fn next(&self) -> Option<Vec<JobAccount>> {
        let idle = |state: &mut State| state.waiting.is_empty() && !state.is_ending;
        let state = self.0.wake.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        (!state.waiting.is_empty()).then(|| state.waiting.values().cloned().collect())
    }

    /// These are in the database; what was told of them meanwhile is not.
    fn written(&self, accounts: &[JobAccount]) {
        let mut state = self.lock();
        for account in accounts {
            if state.waiting.get(&account.job) == Some(account) {
                state.waiting.remove(&account.job);
            }
        }
    }

    /// Waits for so long, or until all is to end; whether that is so.
    fn pause(&self, span: Duration) -> bool {
        let until = Instant::now() + span;
        let mut state = self.lock();
        while !state.is_ending {
            let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
            else {
                break;
            };
            (state, _) = self.0.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_ending
    }

    /// A thread that panics leaves whole values.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Writer {
    directory: PathBuf,
    told: Told,
    retry_after: Duration,
    /// While it is open.
    database: Option<Database>,
}

impl Writer {
    fn write_all(&mut self) {
        let mut failed = None;
        while let Some(accounts) = self.told.next() {
            match self.write(&accounts) {
                Ok(()) => {
                    self.told.written(&accounts);
                    if failed.take().is_some() {
                        tracing::warn!("the database of accounts is written again");
                    }
                }
                Err(error) => {
                    // It may be another file by then.
                    self.database = None;
                    let text = error.to_string();
                    if failed.as_ref() != Some(&text) {
                        tracing::warn!(error = text, "accounts are not written for now; jobs go on");
                        failed = Some(text);
                    }
                    if self.told.pause(self.retry_after) {
                        // The last chance.
                        if self.write(&accounts).is_ok() {
                            self.told.written(&accounts);
                        }
                        break;
                    }
                }
            }
        }
        if let Some(database) = self.database.take() {
            database.close();
        }
    }

    fn write(&mut self, accounts: &[JobAccount]) -> Result<(), AccountsError> {
        let database = match &mut self.database {
            Some(database) => database,
            none => none.insert(Database::open(&self.directory)?),
        };
        database.write(accounts)
    }
}
