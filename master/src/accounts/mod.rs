//! The accounts of a cluster or of a run: what each job that has ended has used, in a database of SQLite in
//! its directory.
//!
//! ```text
//!   journal's thread ── JobAccount ──▶ [`Keeper`], a thread of its own ──▶ accounts.db ──▶ `accounts`
//!          │                                                                   ▲
//!          ▼                                                                   │ what is not there
//!    journal.jsonl, its sum and its archives ──────────────────────────────────┘
//! ```
//! The database is derived: the journal is the truth. So a job is told to the keeper only when the journal
//! has its end, a new master tells it again of all that the journal knows, and each job has one row, by
//! cluster and number, which is replaced. What is not written yet stays in the sum of a journal that is
//! compacted. Nothing waits for the database: where it is locked, full or damaged, the keeper tries again, or
//! makes another one. (RMS keeps such a database for a whole machine, paper 000 §3.1.)

mod database;
mod journal;
mod keeper;
mod query;
#[cfg(test)]
mod tests;

pub use database::{AccountsError, Database, FILE};
pub use journal::rebuild;
pub use keeper::{Keeper, Told};
pub use query::{By, Filter, JobRow, Listing, Sum, Sums, UseRow, View};
