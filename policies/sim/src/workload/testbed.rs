//! Workload file of the scheduler testbed (Frachtenberg and Petrini, §4.3.1). Each line gives the start of an
//! application, the number of processing elements, and the command line; lines are sorted by start.
//!
//! ```text
//! # start  PEs  command
//! 0        32   ./sweep3d -n 100
//! 12.5     64   ./sage timing.input
//! ```
//!
//! The paper leaves the unit of time open (*some predefined units*), so it is an argument. Empty lines and
//! lines that begin with `#` are skipped.

use std::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

use coswitch_policies::SimTime;
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: SimTime,
    /// At least one.
    pub elements: u32,
    pub command: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TestbedError {
    #[error("line {line}: the start is `{text}`, which is not a number of time units, zero or more")]
    Entry { line: usize, text: String },
    #[error("line {line}: the number of PEs is `{text}`, which is not a whole number, one or more")]
    Elements { line: usize, text: String },
    #[error("line {line}: there is no command")]
    NoCommand { line: usize },
    /// The machine manager sleeps from line to line, so it could never start this one.
    #[error("line {line}: it starts before the line in front of it; sort the file by start")]
    NotSorted { line: usize },
}

/// Reads a workload file whose times are in `unit`.
///
/// # Errors
/// Where a field is missing or invalid, or lines are not sorted.
pub fn parse(text: &str, unit: Duration) -> Result<Vec<Entry>, TestbedError> {
    let mut entries: Vec<Entry> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let start = parse_line(line, text, unit)?;
        if entries.last().is_some_and(|last| last.at > start.at) {
            return Err(TestbedError::NotSorted { line });
        }
        entries.push(start);
    }
    Ok(entries)
}

fn parse_line(line: usize, text: &str, unit: Duration) -> Result<Entry, TestbedError> {
    let (at, rest) = word(text);
    let (elements, command) = word(rest);
    let units = at.parse::<f64>().ok().filter(|units| units.is_finite() && *units >= 0.0);
    let span = units.and_then(|units| Duration::try_from_secs_f64(unit.as_secs_f64() * units).ok());
    let span = span.ok_or_else(|| TestbedError::Entry { line, text: at.to_owned() })?;
    let count = elements.parse::<u32>().ok().filter(|count| *count > 0);
    let elements = match count {
        Some(count) => count,
        None if elements.is_empty() => return Err(TestbedError::NoCommand { line }),
        None => return Err(TestbedError::Elements { line, text: elements.to_owned() }),
    };
    if command.is_empty() {
        return Err(TestbedError::NoCommand { line });
    }
    Ok(Entry { at: span.into(), elements, command: command.to_owned() })
}

fn word(text: &str) -> (&str, &str) {
    text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

/// One line, with the start in seconds.
impl Display for Entry {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = self.at.since(SimTime(0)).as_secs_f64();
        write!(f, "{seconds} {} {}", self.elements, self.command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_line_is_a_start_some_elements_and_a_command() {
        let entries =
            parse("# c\n0 32 ./sweep3d -n 100\n\n12.5\t64  ./sage  timing.input\n", SECOND).unwrap();
        assert_eq!(entries[1].at, SimTime(12_500_000_000));
        assert_eq!((entries[1].elements, entries[1].command.as_str()), (64, "./sage  timing.input"));
        let written: String = entries.iter().map(|start| format!("{start}\n")).collect();
        assert_eq!(parse(&written, SECOND).unwrap(), entries);
        assert_eq!(parse("2 1 x", Duration::from_millis(10)).unwrap()[0].at, SimTime(20_000_000));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let say = |text: &str| parse(text, SECOND).unwrap_err().to_string();
        assert_eq!(
            say("0 1 a\nx 1 a"),
            "line 2: the start is `x`, which is not a number of time units, zero or more"
        );
        assert_eq!(
            say("0 0 a"),
            "line 1: the number of PEs is `0`, which is not a whole number, one or more"
        );
        assert_eq!(say("0 1"), "line 1: there is no command");
        assert_eq!(say("0"), "line 1: there is no command");
        assert!(say("5 1 a\n4 1 a").starts_with("line 2: it starts before"));
    }
}
