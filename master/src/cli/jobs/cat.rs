//! `coswitch cat`: what a rank of a job has written.

use std::{
    fs::File,
    io::{self, Read},
    thread,
    time::Duration,
};

use anyhow::Context;

use super::{Cluster, find};
use crate::cli::{Exit, Failure};

const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Print what a rank of a job has written.
#[derive(Debug, clap::Args)]
pub(crate) struct CatCommand {
    /// The job, by number or name.
    job: String,
    /// The rank.
    #[arg(long, default_value_t = 0)]
    rank: u32,
    /// What it has written to standard error.
    #[arg(long)]
    stderr: bool,
    /// Go on until the job has ended.
    #[arg(short, long)]
    follow: bool,
    #[command(flatten)]
    cluster: Cluster,
}

impl CatCommand {
    pub(crate) fn carry_out(self) -> Result<Exit, Failure> {
        let client = self.cluster.client()?;
        let status = || Ok::<_, Failure>(find(&client.jobs(true)?, &self.job)?.clone());
        let job = status()?;
        if self.rank >= job.ranks {
            let why = format!("{} has {} ranks, numbered from 0", job.name, job.ranks);
            return Err(Failure::Refused(crate::api::Refusal::BadRequest { why }));
        }
        let suffix = if self.stderr { "err" } else { "out" };
        let path = job.output.join(format!("rank-{}.{suffix}", self.rank));
        let mut file: Option<File> = None;
        loop {
            // Asked before the file is read: what was written by then is there.
            let is_last = !self.follow || status()?.state.has_ended();
            if file.is_none() {
                file = match File::open(&path) {
                    Ok(file) => Some(file),
                    // It has not begun.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => Err(error).with_context(|| format!("failed to open {}", path.display()))?,
                };
            }
            if let Some(file) = &mut file {
                match io::copy(&mut file.by_ref(), &mut io::stdout().lock()) {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Exit::Done),
                    copied => copied.context("failed to print")?,
                };
            }
            if is_last {
                return Ok(Exit::Done);
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}
