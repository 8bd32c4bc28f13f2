//! Benchmark of message rate, one-sided operations and collectives between two virtual nodes, by the
//! example program
//! `operations`, against libfabric's tcp provider on the same kind of links.

use anyhow::Result;
use coswitch_examples::Program;

use crate::{
    figure::{Bound, Figure},
    pairs::Pairs,
    pingpong::{between_nodes, number},
    programs,
    stage::apart,
};

/// The most that a small operation may take, by tcp.
const SMALL_MAX: f64 = 2.5;
/// The most that a large one, or a message of a window, may take: 0.9 of tcp's bandwidth and rate.
const LARGE_MAX: f64 = 1.111;

/// Names in the program's answer and in words, with the bound of the ratio of times.
const OF_TWO: [(&str, &str, f64); 7] = [
    ("message", "a message of 8 B in a window of 64", LARGE_MAX),
    ("put", "put of 8 B", SMALL_MAX),
    ("get", "get of 8 B", SMALL_MAX),
    ("accumulate", "accumulate of 8 B", SMALL_MAX),
    ("large_put", "put of 1 MiB", LARGE_MAX),
    ("large_get", "get of 1 MiB", LARGE_MAX),
    ("large_accumulate", "accumulate of 1 MiB", LARGE_MAX),
];
const OF_FOUR: [(&str, &str, f64); 4] = [
    ("allreduce", "allreduce of 8 B", SMALL_MAX),
    ("large_allreduce", "allreduce of 1 MiB", LARGE_MAX),
    ("alltoall", "alltoall of 8 B", SMALL_MAX),
    ("large_alltoall", "alltoall of 64 KiB", LARGE_MAX),
];

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let mut figures = between(&OF_TWO, &[0, 1], "two nodes", rounds)?;
    figures.extend(between(&OF_FOUR, &[0, 0, 1, 1], "four ranks on two nodes", rounds)?);
    Ok(figures)
}

fn between(
    operations: &[(&str, &str, f64)],
    placement: &[u32],
    place: &str,
    rounds: u32,
) -> Result<Vec<Figure>> {
    let program = programs::example(Program::Operations)?;
    let parse = |line: &str| {
        let micros = operations.iter().map(|(name, ..)| number(line, name, "median_us"));
        micros.collect::<Result<Vec<f64>>>()
    };
    let samples = apart(|| between_nodes(&[&program], placement, rounds, None, parse))?;
    let figure = |(at, (_, words, bound)): (usize, &(&str, &str, f64))| {
        let (ours, theirs) = samples.iter().map(|(ours, theirs)| (ours[at], theirs[at])).unzip();
        let pairs = Pairs::new(ours, theirs);
        let name = format!("time of {words}, {place}, by tcp");
        Figure::bounded(name, pairs.ratio(), "x", Bound::AtMost(*bound))
            .of(pairs.detail("coswitch", "tcp", 1.0, "us"))
    };
    Ok(operations.iter().enumerate().map(figure).collect())
}
