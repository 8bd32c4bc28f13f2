//! Prints the answer of a command: as text, JSON or comma-separated values.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// The format of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text and tables.
    Human,
    /// One JSON value.
    Json,
    /// Comma-separated values, only of `simulate`.
    Csv,
}

/// The answer of a command: serialised for programs, written as text for people.
pub trait Answer: Serialize {
    /// Writes the answer as text.
    ///
    /// # Errors
    /// Where `out` cannot be written.
    fn tell(&self, out: &mut dyn Write) -> io::Result<()>;

    /// The answer as comma-separated values, if it is a table.
    fn csv(&self) -> Option<String> {
        None
    }
}

impl Output {
    /// Prints `answer` on standard output.
    ///
    /// # Errors
    /// Where standard output cannot be written. It is not an error that its reader has closed it.
    pub fn print(self, answer: &impl Answer) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let printed = match self {
            Self::Human => answer.tell(&mut out),
            Self::Csv => match answer.csv() {
                Some(csv) => out.write_all(csv.as_bytes()),
                None => Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this answer is not a table: use `--output json`",
                )),
            },
            Self::Json => serde_json::to_writer_pretty(&mut out, answer).map_err(io::Error::from),
        };
        match printed.and_then(|()| if self == Self::Json { writeln!(out) } else { Ok(()) }) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            printed => printed,
        }
    }
}
