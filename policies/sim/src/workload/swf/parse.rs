//! Parses text into a [`Log`]. An error names the line, counted from 1, and the field.

use std::str::FromStr;

use thiserror::Error;

use super::{Comment, Log, Record, Status};

const FIELDS: [&str; 18] = [
    "job number",
    "submit time",
    "wait time",
    "run time",
    "number of allocated processors",
    "average CPU time used",
    "used memory",
    "requested number of processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job number",
    "think time from preceding job",
];

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct SwfError {
    /// Counted from 1.
    pub line: usize,
    pub problem: SwfProblem,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SwfProblem {
    #[error("{found} fields where the format has 18; field {} ({}) is missing", .found + 1, FIELDS[*.found])]
    Short { found: usize },
    /// Not a number, or out of the field's range.
    #[error("field {} ({}) is `{text}`, which is not {wanted}", .field, FIELDS[.field - 1])]
    Field { field: usize, text: String, wanted: &'static str },
}

pub(super) fn parse(text: &str) -> Result<Log, SwfError> {
    let mut log = Log::default();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with(';') {
            log.comments.push(Comment { before: log.records.len(), text: line.to_owned() });
        } else if !line.trim().is_empty() {
            let record = record(line).map_err(|problem| SwfError { line: number, problem })?;
            log.records.push(record);
        }
    }
    Ok(log)
}

fn record(line: &str) -> Result<Record, SwfProblem> {
    let mut fields = Fields { words: line.split_ascii_whitespace(), read: 0 };
    Ok(Record {
        number: fields.required()?,
        submit: fields.required()?,
        wait: fields.optional()?,
        run: fields.optional()?,
        processors: fields.optional()?,
        cpu_time: fields.fraction()?,
        memory_kib: fields.optional()?,
        requested_processors: fields.optional()?,
        requested_time: fields.optional()?,
        requested_memory_kib: fields.optional()?,
        status: fields.status()?,
        user: fields.optional()?,
        group: fields.optional()?,
        executable: fields.optional()?,
        queue: fields.optional()?,
        partition: fields.optional()?,
        preceding: fields.optional()?,
        think_time: fields.optional()?,
    })
}

/// The words of a line, one after the other.
struct Fields<'a> {
    words: std::str::SplitAsciiWhitespace<'a>,
    read: usize,
}

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<&'a str, SwfProblem> {
        let word = self.words.next().ok_or(SwfProblem::Short { found: self.read })?;
        self.read += 1;
        Ok(word)
    }

    fn wrong(&self, text: &str, wanted: &'static str) -> SwfProblem {
        SwfProblem::Field { field: self.read, text: text.to_owned(), wanted }
    }

    fn required<T: FromStr>(&mut self) -> Result<T, SwfProblem> {
        let word = self.next()?;
        word.parse().map_err(|_| self.wrong(word, "a whole number, zero or more"))
    }

    /// Differences of unset clocks in some logs of the archive are far below -1; they count as unknown too.
    fn optional<T: FromStr>(&mut self) -> Result<Option<T>, SwfProblem> {
        match self.next()? {
            word if word.starts_with('-') && word.parse::<i64>().is_ok() => Ok(None),
            word => {
                let value = word.parse();
                value.map(Some).map_err(|_| self.wrong(word, "-1 or a whole number, zero or more"))
            }
        }
    }

    fn fraction(&mut self) -> Result<Option<f64>, SwfProblem> {
        match self.next()? {
            "-1" | "-1.0" => Ok(None),
            word => match word.parse::<f64>() {
                Ok(value) if value.is_finite() && value >= 0.0 => Ok(Some(value)),
                _ => Err(self.wrong(word, "-1 or a number, zero or more")),
            },
        }
    }

    fn status(&mut self) -> Result<Option<Status>, SwfProblem> {
        Ok(Some(match self.next()? {
            "-1" => return Ok(None),
            "0" => Status::Failed,
            "1" => Status::Completed,
            "2" => Status::Partial,
            "3" => Status::LastCompleted,
            "4" => Status::LastFailed,
            "5" => Status::Cancelled,
            word => return Err(self.wrong(word, "one of -1, 0, 1, 2, 3, 4, 5")),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "7 306389 86382 24562 1 0.5 -1 -1 -1 -1 1 6 -1 -1 30 2 -1 -1";

    #[test]
    fn a_line_is_a_job_and_minus_one_is_nothing() {
        let log: Log =
            format!("; MaxNodes: 400 (48 interactive)\n; Queue:  2  q4s  \n\n{LINE} extra {{1,2}}\n")
                .parse()
                .unwrap();
        let record = &log.records[0];
        assert_eq!((record.number, record.wait, record.processors), (7, Some(86382), Some(1)));
        assert_eq!((record.cpu_time, record.memory_kib, record.queue), (Some(0.5), None, Some(30)));
        assert_eq!(record.status, Some(Status::Completed));
        let below = LINE.replace("24562", "-1359980917").parse::<Log>().unwrap();
        assert_eq!(below.records[0].run, None, "values below -1 are unknown");
        assert_eq!(log.queue_names()[&2], "q4s");
    }

    #[test]
    fn an_error_names_the_line_and_the_field() {
        let say = |text: &str| text.parse::<Log>().unwrap_err().to_string();
        assert_eq!(
            say(&format!("; x\n{LINE}\n{}", LINE.replace("24562", "-2s"))),
            "line 3: field 4 (run time) is `-2s`, which is not -1 or a whole number, zero or more"
        );
        assert_eq!(say("1 2 3"), "line 1: 3 fields where the format has 18; field 4 (run time) is missing");
        assert!(say(&LINE.replace(" 1 6 ", " 9 6 ")).contains("field 11 (status) is `9`"));
        assert!(say(&LINE.replace("0.5", "NaN")).contains("field 6"));
        assert!(say(&LINE.replace("306389", "-1")).contains("field 2 (submit time)"));
    }
}
