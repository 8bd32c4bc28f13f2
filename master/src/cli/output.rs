//! Every command answers with a value; this prints it, for people or for programs.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

/// For whom the answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text and tables.
    Human,
    /// One JSON value.
    Json,
    /// Comma-separated values, where the answer is a table: of `simulate`.
    Csv,
}

/// What a command answers: serialised as it is for programs, told for people.
pub trait Answer: Serialize {
    /// Tells it.
    ///
    /// # Errors
    /// Where `out` takes no more.
    fn tell(&self, out: &mut dyn Write) -> io::Result<()>;

    /// As comma-separated values, where that makes sense.
    fn csv(&self) -> Option<String> {
        None
    }
}

impl Output {
    /// Prints `answer` on standard output.
    ///
    /// # Errors
    /// Where standard output takes no more; a reader that went away is none.
    pub fn print(self, answer: &impl Answer) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let printed = match self {
            Self::Human => answer.tell(&mut out),
            Self::Csv => match answer.csv() {
                Some(csv) => out.write_all(csv.as_bytes()),
                None => Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "this answer is no table: use `--output json`",
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
