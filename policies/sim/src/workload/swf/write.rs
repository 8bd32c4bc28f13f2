//! Writes a [`Log`] as text: comments at their places, one job a line.

use std::fmt::{self, Display, Formatter};

use super::{Log, Record, Status};

impl Display for Log {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut comments = self.comments.iter().peekable();
        for (index, record) in self.records.iter().enumerate() {
            while let Some(comment) = comments.next_if(|comment| comment.before <= index) {
                writeln!(f, "{}", comment.text)?;
            }
            writeln!(f, "{record}")?;
        }
        comments.try_for_each(|comment| writeln!(f, "{}", comment.text))
    }
}

/// One line, without the line end.
impl Display for Record {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.submit)?;
        known(f, self.wait)?;
        known(f, self.run)?;
        known(f, self.processors)?;
        known(f, self.cpu_time)?;
        known(f, self.memory_kib)?;
        known(f, self.requested_processors)?;
        known(f, self.requested_time)?;
        known(f, self.requested_memory_kib)?;
        known(f, self.status.map(code))?;
        known(f, self.user)?;
        known(f, self.group)?;
        known(f, self.executable)?;
        known(f, self.queue)?;
        known(f, self.partition)?;
        known(f, self.preceding)?;
        known(f, self.think_time)
    }
}

fn known(f: &mut Formatter<'_>, value: Option<impl Display>) -> fmt::Result {
    match value {
        Some(value) => write!(f, " {value}"),
        None => f.write_str(" -1"),
    }
}

const fn code(status: Status) -> u8 {
    match status {
        Status::Failed => 0,
        Status::Completed => 1,
        Status::Partial => 2,
        Status::LastCompleted => 3,
        Status::LastFailed => 4,
        Status::Cancelled => 5,
    }
}

#[cfg(test)]
mod tests {
    use crate::workload::swf::Log;

    #[test]
    fn a_log_is_written_as_it_was_read() {
        let text = "; Version: 2.2\n;\n1 0 -1 30 4 29.25 -1 4 60 1024 5 1 2 3 0 -1 -1 -1\n; in the middle\n\
                    2 9 0 0 1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1 1 4\n; at the end\n";
        let log: Log = text.parse().unwrap();
        assert_eq!(log.to_string(), text);
        assert_eq!(log.comments[2].before, 1);
    }
}
