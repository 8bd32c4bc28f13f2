//! `coswitch accounts`: what jobs that have ended have used.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow};
use comfy_table::Cell;
use coswitch_policies::{Bytes, parse_duration};
use coswitch_report::{
    AccountState,
    journal::FILE_NAME,
    table::{right, table},
    words::{bytes, plural, span},
};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use serde::Serialize;

use super::{Answer, Exit, Failure, Output, jobs::Cluster};
use crate::{
    accounts::{By, Filter, JobRow, Listing, Sum, Sums, View, rebuild},
    api::Refusal,
    standing::{has_master, since_1970},
};

const EXAMPLES: &str = "\
Examples:
  coswitch accounts --since 1d                     # of the cluster at the socket, since yesterday
  coswitch accounts --by user --since 2026-11-01
  coswitch accounts coswitch-runs/r4711-99 --state failed";

/// List the jobs that have ended, and what they have used; or sum that up by user.
///
/// Each job has one row in the database of its cluster, `accounts.db`. You see your own jobs, root those of
/// all users. With a directory, the database there is read, and the journal for what a killed master has not
/// written to it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AccountsCommand {
    /// The directory of a cluster or of a run [default: ask the cluster at the socket].
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Only jobs of this user, by name or number.
    #[arg(long)]
    user: Option<String>,
    /// Only jobs that ended at this date (`2026-11-26`, `2026-11-26T14:30`) or later, or in the last so long
    /// (`12h`).
    #[arg(long, value_name = "TIME", value_parser = date)]
    since: Option<f64>,
    /// Only jobs that ended before this date, or so long ago.
    #[arg(long, value_name = "TIME", value_parser = date)]
    until: Option<f64>,
    /// Only this job, by number or name; with `--output json` also what it has used of each node.
    #[arg(long)]
    job: Option<String>,
    /// Only jobs that ended so: done, failed, cancelled, timed-out (at their time limits), interrupted (with
    /// their cluster).
    #[arg(long, value_parser = state)]
    state: Option<AccountState>,
    /// Sum up instead.
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Write to the database of the directory what its journal knows, and make it anew where it is damaged.
    #[arg(long, requires = "directory")]
    #[arg(conflicts_with_all = ["user", "since", "until", "job", "state", "by"])]
    rebuild: bool,
    #[command(flatten)]
    cluster: Cluster,
}

/// A database that was brought up to its journal.
#[derive(Serialize)]
struct Rebuilt {
    /// In the journal and its archives.
    jobs: usize,
}

impl AccountsCommand {
    pub(crate) fn carry_out(self, output: Output) -> Result<Exit, Failure> {
        let Self { directory, user, since, until, job, state, by, .. } = self;
        let filter = Filter { own: None, user, since, until, job, state };
        let printed = match directory {
            Some(directory) if self.rebuild => {
                check(&directory)?;
                if has_master(&directory) {
                    let why = format!("the master of {} keeps it itself", directory.display());
                    return Err(Failure::Refused(Refusal::BadRequest { why }));
                }
                output.print(&Rebuilt { jobs: rebuild(&directory).map_err(anyhow::Error::from)? })
            }
            Some(directory) => {
                check(&directory)?;
                let view = view(&directory)?;
                match by {
                    None => output.print(&view.listing(&filter).context("failed to read accounts")?),
                    Some(by) => output.print(&view.sums(&filter, by).context("failed to read accounts")?),
                }
            }
            None => {
                let client = self.cluster.client()?;
                match by {
                    None => output.print(&client.accounts(&filter)?),
                    Some(by) => output.print(&client.sums(&filter, by)?),
                }
            }
        };
        printed.context("failed to print")?;
        Ok(Exit::Done)
    }
}

fn check(directory: &Path) -> Result<(), Failure> {
    if directory.join(FILE_NAME).is_file() {
        return Ok(());
    }
    Err(Failure::Run(anyhow!("{} is not the directory of a cluster or of a run", directory.display())))
}

fn view(directory: &Path) -> anyhow::Result<View> {
    let (view, left_out) = View::of_directory(directory)?;
    if let Some(error) = left_out {
        tracing::warn!(
            %error,
            "this is what the journal knows; `coswitch accounts --rebuild {}` makes the database anew",
            directory.display()
        );
    }
    Ok(view)
}

fn state(word: &str) -> Result<AccountState, String> {
    let known = AccountState::ALL.map(AccountState::word);
    let found = AccountState::ALL.into_iter().find(|state| state.word() == word);
    found.ok_or_else(|| format!("there are {}", known.join(", ")))
}

/// Seconds since 1970.
fn date(text: &str) -> Result<f64, String> {
    if let Ok(ago) = parse_duration(text) {
        return Ok(since_1970().saturating_sub(ago).as_secs_f64());
    }
    let at = text.parse::<Timestamp>().or_else(|_| {
        text.parse::<DateTime>()
            .and_then(|date| date.to_zoned(TimeZone::system()))
            .map(|zoned| zoned.timestamp())
    });
    let at = at.map_err(|_| "write a date (`2026-11-26`, `2026-11-26T14:30`) or a time ago (`12h`)");
    Ok(at?.as_duration().as_secs_f64())
}

fn local(date: Option<f64>) -> String {
    let at = date.and_then(|date| Timestamp::from_millisecond((date * 1e3) as i64).ok());
    at.map_or_else(
        || "-".into(),
        |at| at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

fn time(seconds: f64) -> String {
    span(Duration::from_secs_f64(seconds.max(0.0)))
}

/// As people of a computing centre count.
fn hours(seconds: f64) -> String {
    format!("{:.2}", seconds / 3600.0)
}

fn user_of(job: &JobRow) -> String {
    job.user.clone().or(job.uid.map(|uid| uid.to_string())).unwrap_or_else(|| "-".into())
}

/// How a job ended, in words.
fn ending(job: &JobRow) -> String {
    match (job.exit_code, job.signal) {
        (Some(code), _) if code != 0 => format!("{}, exit code {code}", job.state),
        (_, Some(signal)) => format!("{}, signal {signal}", job.state),
        _ => job.state.to_string(),
    }
}

impl Answer for Listing {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        if !self.jobs.is_empty() {
            let mut table = table();
            let has_groups = self.jobs.iter().any(|job| job.group.is_some());
            let group = has_groups.then_some("group");
            let first = ["job", "name", "user"].into_iter().chain(group);
            table.set_header(first.chain([
                "ranks",
                "nodes",
                "ended",
                "state",
                "running",
                "in memory",
                "processor",
                "peak",
                "out",
                "in",
                "switches",
                "repeated",
            ]));
            for job in &self.jobs {
                let first = [job.job.to_string(), job.name.clone(), user_of(job)].map(Cell::new);
                let group = has_groups.then(|| Cell::new(job.group.as_deref().unwrap_or("-")));
                let size = [right(job.ranks), right(job.nodes)];
                let end = [Cell::new(local(job.ended)), Cell::new(ending(job))];
                let used = [
                    time(job.running_s),
                    time(job.in_memory_s),
                    job.processor_s.map_or_else(|| "-".into(), time),
                    bytes(Bytes(job.memory_peak)),
                    bytes(Bytes(job.bytes_out)),
                    bytes(Bytes(job.bytes_in)),
                    job.switches.to_string(),
                    time(job.repeated_s),
                ];
                let used = used.map(right);
                table.add_row(first.into_iter().chain(group).chain(size).chain(end).chain(used));
            }
            writeln!(out, "{table}")?;
        }
        let Sum { jobs, rank_s, node_s, .. } = &self.total;
        let jobs = usize::try_from(*jobs).unwrap_or(usize::MAX);
        writeln!(out, "{}: {} rank hours, {} node hours", plural(jobs, "job"), hours(*rank_s), hours(*node_s))
    }
}

impl Answer for Sums {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut table = table();
        let by = match self.by {
            By::User => "user",
            By::Group => "group",
            By::State => "state",
        };
        table.set_header([
            by,
            "jobs",
            "rank hours",
            "node hours",
            "processor hours",
            "out",
            "in",
            "switches",
            "repeated",
        ]);
        let all = Sum { of: Some("all".into()), ..self.total.clone() };
        for sum in self.sums.iter().chain([&all]) {
            let numbers = [
                sum.jobs.to_string(),
                hours(sum.rank_s),
                hours(sum.node_s),
                hours(sum.processor_s),
                bytes(Bytes(sum.bytes_out)),
                bytes(Bytes(sum.bytes_in)),
                sum.switches.to_string(),
                time(sum.repeated_s),
            ];
            let of = Cell::new(sum.of.as_deref().unwrap_or("-"));
            table.add_row(std::iter::once(of).chain(numbers.map(right)));
        }
        writeln!(out, "{table}")
    }
}

impl Answer for Rebuilt {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        writeln!(out, "the database has the {} of the journal", plural(self.jobs, "job"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_a_day_an_instant_or_so_long_ago() {
        let zone = TimeZone::system();
        let at = |text: &str| {
            let zoned = text.parse::<DateTime>().unwrap().to_zoned(zone.clone()).unwrap();
            zoned.timestamp().as_second() as f64
        };
        assert_eq!(date("2026-11-26"), Ok(at("2026-11-26T00:00")));
        assert_eq!(date("2026-11-26T14:30"), Ok(at("2026-11-26T14:30")));
        assert_eq!(date("1970-01-01T00:01:00Z"), Ok(60.0));
        let ago = since_1970().as_secs_f64() - date("2h").unwrap();
        assert!((7199.0..7210.0).contains(&ago), "{ago}");
        assert!(date("yesterday-ish").unwrap_err().contains("2026-11-26"));
    }

    #[test]
    fn a_state_that_is_none_is_answered_with_those_that_are() {
        assert_eq!(state("timed-out"), Ok(AccountState::TimedOut));
        assert_eq!(state("late").unwrap_err(), "there are done, failed, cancelled, timed-out, interrupted");
    }
}
