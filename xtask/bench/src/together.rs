//! Benchmark of waiting: communicating jobs share the processors of two nodes, by the way in which ranks
//! wait.
//!
//! The ways of our driver, and the MPI library over libfabric's tcp, which polls without pause, on the same
//! kind of links and the same shares of the processors.

use std::time::Instant;

use anyhow::{Context, Result};
use coswitch_daemon::protocol::Wait;
use coswitch_examples::Program;
use coswitch_policies::{Bytes, Rate};

use crate::{
    programs,
    stage::{Stage, apart},
    tcp::TcpNodes,
};

/// The ways of waiting with their names; `None` is stock MPICH.
const WAYS: [(Option<Wait>, &str); 4] = [
    (None, "stock MPICH, tcp: polls"),
    (Some(Wait::Spin), "spin: polls"),
    (Some(Wait::Block), "block: sleeps"),
    (Some(Wait::SpinBlock), "spin-block"),
];

/// Results of one way of waiting; times in seconds.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) alone: Vec<f64>,
    /// As many jobs as were asked for, at once.
    pub(crate) together: Vec<f64>,
}

/// Runs one job and `count` at once in each way, in turns.
pub(crate) fn measure(command: &[&str], rate: Rate, count: usize, rounds: u32) -> Result<Vec<Way>> {
    let program = programs::example(Program::Heat)?;
    let command = with_arguments(&program, command);
    let mut ways = WAYS
        .map(|(_, name)| Way { name, alone: Vec::new(), together: Vec::new() })
        .into_iter()
        .collect::<Vec<_>>();
    for round in 0..rounds as usize {
        for at in (0..WAYS.len()).map(|at| (at + round) % WAYS.len()) {
            let (alone, together) = apart(|| match WAYS[at].0 {
                Some(wait) => ours(&command, wait, rate, count),
                None => theirs(&command, rate, count),
            })
            .with_context(|| format!("failed to run {}", WAYS[at].1))?;
            ways[at].alone.push(alone);
            ways[at].together.push(together);
        }
    }
    Ok(ways)
}

fn with_arguments<'a>(program: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [program].into_iter().chain(arguments.iter().copied()).collect()
}

/// Seconds of one job over the stock MPI library.
pub(crate) fn alone(command: &[&str], rate: Rate) -> Result<f64> {
    let program = programs::example(Program::Heat)?;
    let command = with_arguments(&program, command);
    apart(|| Ok(TcpNodes::set(Some(rate), true)?.run_together(&command, 1)?.as_secs_f64()))
}

fn ours(command: &[&str], wait: Wait, rate: Rate, count: usize) -> Result<(f64, f64)> {
    let stage = Stage::set(2, Bytes::mib(2048), Some(rate))?;
    let run = |count: usize| -> Result<f64> {
        let began = Instant::now();
        let mut jobs: Vec<_> = (0..count).map(|_| stage.launch(command, &[0, 1], wait)).collect();
        jobs.iter_mut().try_for_each(|job| stage.end_of(job))?;
        Ok(began.elapsed().as_secs_f64())
    };
    let times = (run(1)?, run(count)?);
    stage.strike()?;
    Ok(times)
}

fn theirs(command: &[&str], rate: Rate, count: usize) -> Result<(f64, f64)> {
    let nodes = TcpNodes::set(Some(rate), true)?;
    let run = |count| nodes.run_together(command, count).map(|took| took.as_secs_f64());
    Ok((run(1)?, run(count)?))
}
