//! The Standard Workload Format (version 2.2) of the Parallel Workloads Archive, read and written.
//!
//! Each line is a job of 18 fields, with `-1` for unknown values. Lines that begin with `;` are comments;
//! those before the first job are the header (`; Key: value`). Comments keep their text and their place, so
//! `write(parse(text))` differs from `text` only in spaces, and in numbers below `-1`, which count as
//! unknown. Further fields that some logs append are ignored. Input and output are text: callers open and
//! unzip files.

mod machine;
mod parse;
mod write;

pub use machine::LogMachine;
pub use parse::{SwfError, SwfProblem};

use std::{collections::BTreeMap, str::FromStr};

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Log {
    pub comments: Vec<Comment>,
    /// In the order of the file, which is that of submission if the log follows the format.
    pub records: Vec<Record>,
}

/// A line that begins with `;`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comment {
    /// The index of the record that it precedes.
    pub before: usize,
    /// The line, with the `;`.
    pub text: String,
}

/// How a job ended (field 11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// 0.
    Failed,
    /// 1.
    Completed,
    /// 2: a part of a job, followed by others.
    Partial,
    /// 3: the last part of a job that completed.
    LastCompleted,
    /// 4: the last part of a job that failed.
    LastFailed,
    /// 5.
    Cancelled,
}

/// One job. `None` is the format's `-1`. Times in seconds, memory in KiB for each processor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Field 1: counts from 1 in most logs.
    pub number: u64,
    /// Field 2: seconds since the log's start.
    pub submit: u64,
    /// Field 3: from submission to start.
    pub wait: Option<u64>,
    /// Field 4: from start to end.
    pub run: Option<u64>,
    /// Field 5.
    pub processors: Option<u32>,
    /// Field 6: mean over the processors; the only field that may be a fraction.
    pub cpu_time: Option<f64>,
    /// Field 7.
    pub memory_kib: Option<u64>,
    /// Field 8.
    pub requested_processors: Option<u32>,
    /// Field 9: the time limit that the user requested.
    pub requested_time: Option<u64>,
    /// Field 10.
    pub requested_memory_kib: Option<u64>,
    /// Field 11.
    pub status: Option<Status>,
    /// Field 12.
    pub user: Option<u32>,
    /// Field 13.
    pub group: Option<u32>,
    /// Field 14.
    pub executable: Option<u32>,
    /// Field 15: by convention 0 is interactive.
    pub queue: Option<u32>,
    /// Field 16.
    pub partition: Option<u32>,
    /// Field 17: the job starts only after that one ended.
    pub preceding: Option<u64>,
    /// Field 18: time between that end and this submission.
    pub think_time: Option<u64>,
}

impl Record {
    /// The allocated processors, else the requested ones.
    #[must_use]
    pub fn size(&self) -> Option<u32> {
        self.processors.or(self.requested_processors).filter(|n| *n > 0)
    }

    /// The memory of a processor: used, else requested.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.memory_kib.or(self.requested_memory_kib).filter(|n| *n > 0)
    }
}

impl Log {
    /// The value of `; key: value` in the header; the first if there are several.
    #[must_use]
    pub fn header(&self, key: &str) -> Option<&str> {
        self.headers(key).next()
    }

    /// All values of a key that may be repeated, such as `Queue`.
    pub fn headers<'a, 'k>(&'a self, key: &'k str) -> impl Iterator<Item = &'a str> + use<'a, 'k> {
        self.comments.iter().filter(|comment| comment.before == 0).filter_map(move |comment| {
            let (found, value) = comment.text.trim_start_matches(';').split_once(':')?;
            found.trim().eq_ignore_ascii_case(key).then(|| value.trim())
        })
    }

    /// The queues by number, as the header names them (`; Queue: 2 q4s`).
    #[must_use]
    pub fn queue_names(&self) -> BTreeMap<u32, String> {
        let named = self.headers("Queue").filter_map(leading_number);
        named.map(|(number, name)| (number, name.to_owned())).collect()
    }
}

/// Text after the number is ignored.
fn leading_number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

impl FromStr for Log {
    type Err = SwfError;
    fn from_str(text: &str) -> Result<Self, SwfError> {
        parse::parse(text)
    }
}
