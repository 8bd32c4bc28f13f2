//! The MPI library's own launcher, and with it MPI's own shared memory.

use std::{
    io::{Read, Seek},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use coswitch_examples::mpi_prefix;

use crate::stage::PATIENCE;

/// Runs a program on `ranks` ranks to its end; returns its output and the time from start to end.
pub(crate) fn run(ranks: u32, command: &[&str]) -> Result<(String, Duration)> {
    let mut output = tempfile::tempfile()?;
    let mut mpiexec = Command::new(mpi_prefix().join("bin/mpiexec"));
    mpiexec.args(["-n", &ranks.to_string()]).args(command).stdin(Stdio::null()).stdout(output.try_clone()?);
    let began = Instant::now();
    let mut child = mpiexec.spawn().context("failed to start mpiexec")?;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if began.elapsed() > PATIENCE => {
                child.kill()?;
                child.wait()?;
                bail!("mpiexec -n {ranks} {} takes too long", command.join(" "));
            }
            None => std::thread::sleep(Duration::from_micros(500)),
        }
    };
    let took = began.elapsed();
    if !status.success() {
        bail!("mpiexec -n {ranks} {} ended with {status}", command.join(" "));
    }
    let mut text = String::new();
    output.rewind()?;
    output.read_to_string(&mut text)?;
    Ok((text, took))
}
