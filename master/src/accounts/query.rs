//! Questions to the database: which jobs a user has had, and what they have used together.

use std::path::Path;

use clap::ValueEnum;
use coswitch_report::AccountState;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, named_params, params};
use serde::{Deserialize, Serialize};

use super::{
    database::{AccountsError, BUSY_LIMIT, FILE, SCHEMA, check_version, check_whole, real, replace, version},
    journal,
};

/// Which jobs are meant: those of which all of this holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Who asks sees no other jobs than those of this user. The server says it, and never the client.
    pub own: Option<u32>,
    /// By name or number.
    pub user: Option<String>,
    /// Jobs that ended at this date or later, and before that one: in seconds since 1970.
    pub since: Option<f64>,
    pub until: Option<f64>,
    /// By name or number.
    pub job: Option<String>,
    pub state: Option<AccountState>,
}

/// By what jobs are summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    User,
    /// The node group, of a cluster that is divided.
    Group,
    State,
}

/// A job that has ended. Dates are seconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    pub cluster: String,
    pub job: u32,
    pub name: String,
    pub uid: Option<u32>,
    pub user: Option<String>,
    pub group: Option<String>,
    pub queue: Option<String>,
    pub ranks: u32,
    pub nodes: u32,
    pub submitted: Option<f64>,
    pub began: Option<f64>,
    pub ended: Option<f64>,
    pub state: AccountState,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub reason: Option<String>,
    pub in_memory_s: f64,
    pub running_s: f64,
    pub processor_s: Option<f64>,
    pub memory_peak: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
    pub switches: u32,
    pub restores: u32,
    pub repeated_s: f64,
    pub uses: Vec<UseRow>,
}

/// What a job has used of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UseRow {
    pub node: u32,
    pub ranks: u32,
    pub memory_peak: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
    pub processor_s: Option<f64>,
}

/// What jobs have used together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    /// Of the user, the group or the state; `None` where that is not known, and for all jobs.
    pub of: Option<String>,
    pub jobs: u64,
    /// Running time by ranks, and by nodes.
    pub rank_s: f64,
    pub node_s: f64,
    pub running_s: f64,
    pub in_memory_s: f64,
    /// Of the jobs of which it is known.
    pub processor_s: f64,
    pub bytes_out: u64,
    pub bytes_in: u64,
    pub switches: u64,
    pub repeated_s: f64,
}

/// Jobs, in the order of their ends, and what they have used together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    pub jobs: Vec<JobRow>,
    pub total: Sum,
}

/// What jobs have used together, by user, group or state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    pub by: By,
    pub sums: Vec<Sum>,
    pub total: Sum,
}

/// A view of the database, to be read.
#[derive(Debug)]
pub struct View(Connection);

/// What a journal knows hides what the database has of the same job.
const ALL: &str = "
CREATE TEMP VIEW all_jobs AS
    SELECT * FROM told_jobs UNION ALL
    SELECT * FROM main.jobs AS kept WHERE NOT EXISTS
        (SELECT 1 FROM told_jobs AS told WHERE told.cluster = kept.cluster AND told.job = kept.job);
CREATE TEMP VIEW all_uses AS
    SELECT * FROM told_uses UNION ALL
    SELECT * FROM main.uses AS kept WHERE NOT EXISTS
        (SELECT 1 FROM told_jobs AS told WHERE told.cluster = kept.cluster AND told.job = kept.job);
";

const MEANT: &str = "
    (:own IS NULL OR uid = :own)
    AND (:user IS NULL OR user = :user OR uid = :uid)
    AND (:since IS NULL OR ended >= :since) AND (:until IS NULL OR ended < :until)
    AND (:job IS NULL OR name = :job OR job = :number)
    AND (:state IS NULL OR state = :state)
";

impl View {
    /// The database of a directory, which a master may be writing.
    ///
    /// # Errors
    /// Where it cannot be read. Where there is none, no job has ended.
    pub fn of_database(directory: &Path) -> Result<Self, AccountsError> {
        let path = real(&directory.join(FILE));
        let failed = |cause| AccountsError::Sqlite { path: path.clone(), cause };
        if !path.exists() {
            return Self::empty().map_err(failed);
        }
        let connection = open_to_read(&path).map_err(failed)?;
        check_version(&connection, &path)?;
        // It may be empty as yet.
        if version(&connection).map_err(failed)? == 0 {
            return Self::empty().map_err(failed);
        }
        Self::on(connection).map_err(failed)
    }

    /// The database of a directory, and what the journal there knows besides: a master may have died before
    /// that was written. A database that cannot be read is left out, and why.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn of_directory(directory: &Path) -> Result<(Self, Option<AccountsError>), AccountsError> {
        let path = directory.join(FILE);
        let failed = |cause| AccountsError::Sqlite { path: path.clone(), cause };
        let whole = |view: Self| check_whole(&view.0, &path).map(|()| view);
        let kept = Self::of_database(directory).and_then(whole);
        let (view, left_out) = match kept {
            Ok(view) => (view, None),
            Err(error) => (Self::empty().map_err(failed)?, Some(error)),
        };
        let accounts = journal::accounts(directory)?;
        let told = view.0.unchecked_transaction().and_then(|transaction| {
            accounts.iter().try_for_each(|account| replace(&transaction, "temp.told_", account))?;
            transaction.commit()
        });
        told.map_err(failed)?;
        Ok((view, left_out))
    }

    fn empty() -> rusqlite::Result<Self> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(SCHEMA)?;
        Self::on(connection)
    }

    fn on(connection: Connection) -> rusqlite::Result<Self> {
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        let tables = SCHEMA
            .replace("CREATE INDEX jobs_by_end ON jobs (ended);", "")
            .replace("CREATE TABLE ", "CREATE TEMP TABLE told_");
        connection.execute_batch(&tables)?;
        connection.execute_batch(ALL)?;
        Ok(Self(connection))
    }

    /// # Errors
    /// Where the database cannot be read.
    pub fn listing(&self, filter: &Filter) -> rusqlite::Result<Listing> {
        let mut jobs =
            self.0.prepare(&format!("SELECT * FROM all_jobs WHERE {MEANT} ORDER BY ended, cluster, job"))?;
        let mut uses =
            self.0.prepare("SELECT * FROM all_uses WHERE cluster = ?1 AND job = ?2 ORDER BY node")?;
        let mut rows: Vec<JobRow> = self.with(filter, |values| jobs.query_map(values, job_row)?.collect())?;
        for job in &mut rows {
            job.uses = uses.query_map(params![job.cluster, job.job], use_row)?.collect::<Result<_, _>>()?;
        }
        Ok(Listing { jobs: rows, total: self.sum(filter, None)?.pop().unwrap_or_default() })
    }

    /// # Errors
    /// Where the database cannot be read.
    pub fn sums(&self, filter: &Filter, by: By) -> rusqlite::Result<Sums> {
        let total = self.sum(filter, None)?.pop().unwrap_or_default();
        Ok(Sums { by, sums: self.sum(filter, Some(by))?, total })
    }

    fn sum(&self, filter: &Filter, by: Option<By>) -> rusqlite::Result<Vec<Sum>> {
        let key = match by {
            None => "NULL",
            // The name may have come later than the first jobs.
            Some(By::User) => "coalesce(user, uid)",
            Some(By::Group) => "node_group",
            Some(By::State) => "state",
        };
        let mut sums = self.0.prepare(&format!(
            "SELECT CAST({key} AS TEXT) AS of, count(*), total(running_s * ranks), total(running_s * nodes), \
             total(running_s), total(in_memory_s), total(processor_s), \
             CAST(total(bytes_out) AS INTEGER), CAST(total(bytes_in) AS INTEGER), \
             coalesce(sum(switches), 0), total(repeated_s) \
             FROM all_jobs WHERE {MEANT} GROUP BY 1 ORDER BY 3 DESC, 1"
        ))?;
        self.with(filter, |values| sums.query_map(values, sum_row)?.collect())
    }

    /// Hands the values of the filter on.
    fn with<T>(
        &self,
        filter: &Filter,
        query: impl FnOnce(&[(&str, &dyn rusqlite::ToSql)]) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let Filter { own, user, since, until, job, state } = filter;
        let number = |word: &str| word.parse::<u32>().ok();
        let uid = user.as_deref().and_then(number);
        let job_number = job.as_deref().and_then(|word| number(word.strip_prefix("job-").unwrap_or(word)));
        query(named_params! {
            ":own": own,
            ":user": user,
            ":uid": uid,
            ":since": since,
            ":until": until,
            ":job": job,
            ":number": job_number,
            ":state": state.map(AccountState::word),
        })
    }
}

/// A reader makes a file beside the database, unless nothing can be written there: then nothing changes it.
fn open_to_read(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_URI;
    let escaped: String = path.to_string_lossy().chars().map(escape).collect();
    let open = |options: &str| {
        let connection = Connection::open_with_flags(format!("file:{escaped}{options}"), flags)?;
        connection.busy_timeout(BUSY_LIMIT)?;
        version(&connection).map(|_| connection)
    };
    let cannot_open =
        |error: &rusqlite::Error| error.sqlite_error_code() == Some(ErrorCode::CannotOpen) && path.exists();
    match open("?mode=ro") {
        Err(error) if cannot_open(&error) => open("?immutable=1"),
        opened => opened,
    }
}

/// Characters that mean something in the name of a file as SQLite reads it.
fn escape(character: char) -> String {
    match character {
        '%' | '?' | '#' => format!("%{:02x}", character as u32),
        other => other.into(),
    }
}

fn job_row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let state: String = row.get("state")?;
    Ok(JobRow {
        cluster: row.get("cluster")?,
        job: row.get("job")?,
        name: row.get("name")?,
        uid: row.get("uid")?,
        user: row.get("user")?,
        group: row.get("node_group")?,
        queue: row.get("queue")?,
        ranks: row.get("ranks")?,
        nodes: row.get("nodes")?,
        submitted: row.get("submitted")?,
        began: row.get("began")?,
        ended: row.get("ended")?,
        state: AccountState::ALL
            .into_iter()
            .find(|known| known.word() == state)
            .unwrap_or(AccountState::Failed),
        exit_code: row.get("exit_code")?,
        signal: row.get("signal")?,
        reason: row.get("reason")?,
        in_memory_s: row.get("in_memory_s")?,
        running_s: row.get("running_s")?,
        processor_s: row.get("processor_s")?,
        memory_peak: bytes(row, "memory_peak")?,
        bytes_out: bytes(row, "bytes_out")?,
        bytes_in: bytes(row, "bytes_in")?,
        switches: row.get("switches")?,
        restores: row.get("restores")?,
        repeated_s: row.get("repeated_s")?,
        uses: Vec::new(),
    })
}

fn use_row(row: &Row<'_>) -> rusqlite::Result<UseRow> {
    Ok(UseRow {
        node: row.get("node")?,
        ranks: row.get("ranks")?,
        memory_peak: bytes(row, "memory_peak")?,
        bytes_out: bytes(row, "bytes_out")?,
        bytes_in: bytes(row, "bytes_in")?,
        processor_s: row.get("processor_s")?,
    })
}

fn sum_row(row: &Row<'_>) -> rusqlite::Result<Sum> {
    let whole = |place: usize| row.get::<_, i64>(place).map(i64::unsigned_abs);
    Ok(Sum {
        of: row.get(0)?,
        jobs: whole(1)?,
        rank_s: row.get(2)?,
        node_s: row.get(3)?,
        running_s: row.get(4)?,
        in_memory_s: row.get(5)?,
        processor_s: row.get(6)?,
        bytes_out: whole(7)?,
        bytes_in: whole(8)?,
        switches: whole(9)?,
        repeated_s: row.get(10)?,
    })
}

fn bytes(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::unsigned_abs)
}
