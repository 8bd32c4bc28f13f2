//! The file of the database, as the one process that writes it sees it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use coswitch_ckpt::private;
use coswitch_report::{
    JobAccount,
    journal::{JobOutcome, JournalError},
};
use nix::unistd::{Uid, User};
use rusqlite::{
    Connection, ErrorCode, OpenFlags, Row, Transaction, TransactionBehavior, params, params_from_iter,
    types::Value,
};
use thiserror::Error;

use super::journal;

/// The name of the database in the directory of its cluster.
pub const FILE: &str = "accounts.db";

/// Of the schema, in `user_version`.
pub(super) const VERSION: i64 = 1;
pub(super) const SCHEMA: &str = include_str!("schema.sql");
/// The files that SQLite keeps beside a database.
const COMPANIONS: [&str; 3] = ["", "-wal", "-shm"];
const DAMAGED: &str = ".damaged";

/// For another process to release the database.
pub(super) const BUSY_LIMIT: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 5000 });

/// Why accounts cannot be read or written.
#[derive(Debug, Error)]
pub enum AccountsError {
    #[error("failed to access {}: {cause}", .path.display())]
    Io { path: PathBuf, cause: io::Error },
    /// A retry may help, unless it [is damaged](Self::is_damage).
    #[error("failed to use {}: {cause}", .path.display())]
    Sqlite { path: PathBuf, cause: rusqlite::Error },
    #[error("{} was written by a later version of coswitch: its schema is {found}", .path.display())]
    Later { path: PathBuf, found: i64 },
    #[error("{} is damaged: {what}", .path.display())]
    Damaged { path: PathBuf, what: String },
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl AccountsError {
    /// Whether the file is no database, or not a whole one: no retry can help.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Sqlite { cause, .. } => matches!(
                cause.sqlite_error_code(),
                Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
            ),
            Self::Io { .. } | Self::Later { .. } | Self::Journal(_) => false,
        }
    }
}

/// The database, to be written.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    connection: Connection,
}

impl Database {
    /// Opens the database of a directory. A new one has all that the journal there knows. One that is damaged
    /// is put aside, and a new one has besides what can be read of it.
    ///
    /// # Errors
    /// Where it cannot be used now, or at all.
    pub fn open(directory: &Path) -> Result<Self, AccountsError> {
        let opened = Self::open_as_it_is(directory);
        match opened {
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "another one is made of the journal");
                put_aside(&directory.join(FILE))?;
                Self::open_as_it_is(directory)
            }
            opened => opened,
        }
    }

    fn open_as_it_is(directory: &Path) -> Result<Self, AccountsError> {
        let path = directory.join(FILE);
        // What SQLite makes beside it has the same mode.
        private::create_or_open(&path).map_err(|cause| AccountsError::Io { path: path.clone(), cause })?;
        let failed = |cause| AccountsError::Sqlite { path: path.clone(), cause };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection = Connection::open_with_flags(real(&path), flags).map_err(failed)?;
        connection.busy_timeout(BUSY_LIMIT).map_err(failed)?;
        // Readers and the writer do not wait for each other. A row that is written outlives a power cut: the
        // journal may forget it then.
        connection.pragma_update(None, "journal_mode", "WAL").map_err(failed)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        check_version(&connection, &path)?;
        check_whole(&connection, &path)?;
        let mut database = Self { path, connection };
        if database.version()? == 0 {
            database.fill(directory)?;
        }
        Ok(database)
    }

    fn version(&self) -> Result<i64, AccountsError> {
        version(&self.connection).map_err(|cause| self.failed(cause))
    }

    /// Makes the tables, with all that is known of earlier jobs.
    fn fill(&mut self, directory: &Path) -> Result<(), AccountsError> {
        let accounts = journal::accounts(directory)?;
        let damaged = beside(&self.path, DAMAGED);
        self.in_one_step(|transaction| {
            transaction.execute_batch(SCHEMA)?;
            if damaged.exists() {
                salvage(transaction, &damaged);
            }
            accounts.iter().try_for_each(|account| replace(transaction, "", account))?;
            transaction.pragma_update(None, "user_version", VERSION)
        })
    }

    /// Writes the rows of these jobs, in the place of earlier ones, all or none.
    ///
    /// # Errors
    /// Where they could not be written: the disk is full or broken, or another process has locked the file.
    pub fn write(&mut self, accounts: &[JobAccount]) -> Result<(), AccountsError> {
        self.in_one_step(|transaction| {
            accounts.iter().try_for_each(|account| replace(transaction, "", account))
        })
    }

    fn in_one_step(
        &mut self,
        step: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), AccountsError> {
        let done = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let done = done.and_then(|transaction| {
            step(&transaction)?;
            transaction.commit()
        });
        done.map_err(|cause| self.failed(cause))
    }

    /// Leaves one file, with everything.
    pub fn close(self) {
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "the database of accounts could not be closed");
        }
    }

    fn failed(&self, cause: rusqlite::Error) -> AccountsError {
        AccountsError::Sqlite { path: self.path.clone(), cause }
    }
}

pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// # Errors
/// Where the schema of the file is not known.
pub(super) fn check_version(connection: &Connection, path: &Path) -> Result<(), AccountsError> {
    let found = version(connection).map_err(|cause| AccountsError::Sqlite { path: path.into(), cause })?;
    if (0..=VERSION).contains(&found) {
        return Ok(());
    }
    Err(AccountsError::Later { path: path.into(), found })
}

/// # Errors
/// Where a page of the file is missing or contradicts another.
pub(super) fn check_whole(connection: &Connection, path: &Path) -> Result<(), AccountsError> {
    let what: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(|cause| AccountsError::Sqlite { path: path.into(), cause })?;
    if what == "ok" { Ok(()) } else { Err(AccountsError::Damaged { path: path.into(), what }) }
}

/// The path without links above the file: SQLite follows none at all then.
pub(super) fn real(path: &Path) -> PathBuf {
    let directory = path.parent().and_then(|parent| parent.canonicalize().ok());
    match (directory, path.file_name()) {
        (Some(directory), Some(name)) => directory.join(name),
        _ => path.into(),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Renames the database and what belongs to it.
fn put_aside(path: &Path) -> Result<(), AccountsError> {
    let damaged = beside(path, DAMAGED);
    for companion in COMPANIONS {
        let (from, to) = (beside(path, companion), beside(&damaged, companion));
        let moved = match fs::rename(&from, &to) {
            // What belongs to one that was damaged before is of no use for this one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => crate::replace::remove(&to),
            moved => moved,
        };
        moved.map_err(|cause| AccountsError::Io { path: from, cause })?;
    }
    Ok(())
}

/// Copies what can be read of a damaged database. The journal's rows come in its place where it has them.
fn salvage(transaction: &Transaction<'_>, damaged: &Path) {
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(damaged, read_only);
    // So SQLite reads a file that is shorter than it says.
    let opened = opened.and_then(|old| old.pragma_update(None, "writable_schema", true).map(|()| old));
    let Ok(old) = opened else { return };
    let mut copied = 0;
    for (table, columns) in [("jobs", 25), ("uses", 8)] {
        // A page that cannot be read is reached from both sides.
        for order in ["ASC", "DESC"] {
            copied += copy(&old, transaction, table, columns, order).unwrap_or(0);
        }
    }
    tracing::warn!("{copied} rows of {} could be read", damaged.display());
}

/// Copies the rows of a table up to the first one that cannot be read; how many are new.
fn copy(
    old: &Connection,
    new: &Connection,
    table: &str,
    columns: usize,
    order: &str,
) -> rusqlite::Result<usize> {
    let marks = vec!["?"; columns].join(", ");
    let mut insert = new.prepare(&format!("INSERT OR IGNORE INTO {table} VALUES ({marks})"))?;
    let mut rows = old.prepare(&format!("SELECT * FROM {table} ORDER BY cluster {order}, job {order}"))?;
    let values = |row: &Row<'_>| (0..columns).map(|place| row.get::<_, Value>(place)).collect();
    let rows = rows.query_map([], values)?.map_while(rusqlite::Result::<Vec<_>>::ok);
    // A row that no rule of the table allows is damaged, too.
    Ok(rows.map(|row| insert.execute(params_from_iter(row)).unwrap_or(0)).sum())
}

/// The row of a job, and one for each of its nodes, in tables of this prefix.
pub(super) fn replace(connection: &Connection, prefix: &str, account: &JobAccount) -> rusqlite::Result<()> {
    let JobAccount { cluster, job, .. } = account;
    connection.execute(
        &format!("DELETE FROM {prefix}uses WHERE cluster = ?1 AND job = ?2"),
        params![cluster, job.0],
    )?;
    let (exit_code, signal, reason) = match &account.outcome {
        Some(JobOutcome::Exit(code)) => (Some(*code), None, None),
        Some(JobOutcome::Signal(signal)) => (None, Some(*signal), None),
        Some(JobOutcome::Failed(reason)) => (None, None, Some(reason.as_str())),
        None => (None, None, Some("its cluster ended before it")),
    };
    connection.execute(
        &format!(
            "INSERT OR REPLACE INTO {prefix}jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, \
             ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25)"
        ),
        params![
            cluster,
            job.0,
            account.name,
            account.user,
            account.user.and_then(name_of),
            account.group,
            account.queue,
            account.ranks,
            u32::try_from(account.uses.len()).unwrap_or(u32::MAX),
            account.submitted.map(seconds),
            account.began.map(seconds),
            account.ended.map(seconds),
            account.state().word(),
            exit_code,
            signal,
            reason,
            seconds(account.in_memory),
            seconds(account.running),
            account.processor().map(seconds),
            whole(account.memory_peak().0),
            whole(account.bytes_out().0),
            whole(account.bytes_in().0),
            account.switches,
            account.restores,
            seconds(account.repeated),
        ],
    )?;
    let mut insert =
        connection.prepare(&format!("INSERT INTO {prefix}uses VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"))?;
    for used in &account.uses {
        insert.execute(params![
            cluster,
            job.0,
            used.node.0,
            used.ranks,
            whole(used.memory_peak.0),
            whole(used.bytes_out.0),
            whole(used.bytes_in.0),
            used.processor.map(seconds),
        ])?;
    }
    Ok(())
}

fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}

/// SQLite has signed numbers only.
fn whole(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn name_of(user: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(user)).ok().flatten().map(|user| user.name)
}
