//! The process that has started this daemon: it configures the daemon, and hears when that listens.

use std::{
    io::{self, Write},
    os::fd::AsFd,
};

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::home::{HomeLine, Said};

/// The last line on the daemon's standard output, as JSON: it accepts connections at these ports.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// For the head node.
    pub control: u16,
    /// For the other daemons.
    pub data: u16,
}

/// The process that has started this daemon and configures it.
pub(crate) enum Starter {
    /// It holds this daemon's standard input and output.
    Stdio,
    /// A batch system, for a master at the other end of a connection.
    Home(Box<HomeLine>),
}

impl Starter {
    /// Whether it has ended. Of a master at the other end of a connection that is not known at once.
    pub(crate) fn has_ended(&self) -> bool {
        let Self::Stdio = self else { return false };
        let input = io::stdin();
        // Its end of the pipe is closed.
        let closed = poll(&mut [PollFd::new(input.as_fd(), PollFlags::empty())], PollTimeout::ZERO);
        closed.is_ok_and(|closed| closed > 0)
    }

    /// Fails where the starter has died.
    pub(crate) fn tell_ready(mut self, ready: Ready) -> anyhow::Result<Self> {
        match &mut self {
            Self::Stdio => say(&serde_json::to_string(&ready).expect("two numbers"))?,
            Self::Home(line) => line.say(&Said::Ready(ready))?,
        }
        Ok(self)
    }

    /// A master elsewhere does not see this process' standard error.
    pub(crate) fn tell_failure(self, error: anyhow::Error) -> anyhow::Error {
        if let Self::Home(mut line) = self
            && let Err(lost) = line.say(&Said::Failed(format!("{error:#}")))
        {
            warn!(%lost, "the master was not told why this daemon ends");
        }
        error
    }

    /// The starter holds its end of the connection open until it ends.
    pub(crate) fn wait_for_end(self) {
        match self {
            // No further input is expected, and an error counts as the end.
            Self::Stdio => drop(io::copy(&mut io::stdin().lock(), &mut io::sink())),
            Self::Home(line) => line.wait_for_end(),
        }
    }
}

/// Tells the parent process; fails where that has died.
pub(crate) fn say(word: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{word}").context("failed to write to the process that started this daemon")
}
