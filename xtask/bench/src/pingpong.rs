//! Benchmark of messages: latency of 1 byte and bandwidth of 1 MiB, by the example program `pingpong`.
//!
//! Between two virtual nodes the peer is libfabric's tcp provider on the same kind of links, launched in the
//! same way; within a node MPICH's own shared memory under mpiexec. Our ranks wait as jobs do by default:
//! poll, then sleep.

use anyhow::{Context, Result};
use coswitch_daemon::protocol::Wait;
use coswitch_examples::Program;
use coswitch_policies::{Bytes, Rate};

use crate::{
    figure::{Bound, Figure},
    mpiexec, operations,
    pairs::{Pairs, take_turns},
    programs,
    stage::{self, Stage, apart},
    tcp::TcpNodes,
};

pub(crate) const MEMORY: Bytes = Bytes::mib(1024);

/// One run of the program.
pub(crate) struct Sample {
    pub(crate) latency_us: f64,
    pub(crate) megabytes_per_s: f64,
}

pub(crate) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let program = programs::example(Program::Pingpong)?;
    let mut figures = apart(|| between_nodes(&[&program], &[0, 1], rounds, None, parse))
        .map(|samples| compare(&samples, "two nodes", "tcp", 2.5, 0.9))?;
    figures.extend(apart(|| within_a_node(&program, rounds))?);
    figures.extend(operations::measure(rounds)?);
    Ok(figures)
}

/// One-way times of messages of `bytes` between two nodes, over our driver and over tcp, in microseconds.
pub(crate) fn times(bytes: u32, rate: Option<Rate>, rounds: u32) -> Result<Vec<(f64, f64)>> {
    let (program, size) = (programs::example(Program::Pingpong)?, bytes.to_string());
    let count = if bytes > 64 << 10 { "20" } else { "300" };
    let command = [&program, "--size", &size, "--iterations", count];
    let parse = |line: &str| number(line, "transfer", "median_us");
    apart(|| between_nodes(&command, &[0, 1], rounds, rate, parse))
}

/// Runs a program in turns over our driver and over tcp, its ranks on these nodes.
pub(crate) fn between_nodes<T: Send>(
    command: &[&str],
    placement: &[u32],
    rounds: u32,
    rate: Option<Rate>,
    parse: impl Fn(&str) -> Result<T> + Copy + Send,
) -> Result<Vec<(T, T)>> {
    // The nodes of tcp have a virtual network of their own, and a thread has only one.
    let (theirs_to, theirs) = std::sync::mpsc::channel();
    let (go, turns) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let nodes = TcpNodes::set(rate, false);
            for () in turns {
                let sample = match &nodes {
                    Ok(nodes) => {
                        nodes.run(command, placement).and_then(|dir| parse(&stage::said(dir.path())?))
                    }
                    Err(error) => Err(anyhow::anyhow!("{error:#}")),
                };
                theirs_to.send(sample).ok();
            }
        });
        let stage = Stage::set(2, MEMORY, rate)?;
        let tcp = || {
            go.send(()).context("the thread of the tcp nodes has ended")?;
            theirs.recv().context("the thread of the tcp nodes has ended")?
        };
        let samples = take_turns(rounds, || ours(&stage, command, placement, parse), tcp)?;
        drop(go);
        stage.strike()?;
        Ok(samples)
    })
}

fn within_a_node(program: &str, rounds: u32) -> Result<Vec<Figure>> {
    let stage = Stage::set(1, MEMORY, None)?;
    let theirs = || parse(&mpiexec::run(2, &[program])?.0);
    let samples = take_turns(rounds, || ours(&stage, &[program], &[0, 0], parse), theirs)?;
    stage.strike()?;
    Ok(compare(&samples, "one node", "MPICH's shared memory", 1.5, 1.0 / 1.5))
}

pub(crate) fn ours<T>(
    stage: &Stage,
    command: &[&str],
    placement: &[u32],
    parse: impl Fn(&str) -> Result<T>,
) -> Result<T> {
    let mut job = stage.launch(command, placement, Wait::default());
    stage.end_of(&mut job)?;
    parse(&stage::said(&job.output)?)
}

pub(crate) fn parse(line: &str) -> Result<Sample> {
    Ok(Sample {
        latency_us: number(line, "latency", "median_us")?,
        megabytes_per_s: number(line, "bandwidth", "mb_per_s")?,
    })
}

pub(crate) fn number(line: &str, part: &str, name: &str) -> Result<f64> {
    let value: serde_json::Value = serde_json::from_str(line).context("failed to read a program's answer")?;
    value[part][name].as_f64().with_context(|| format!("the program does not say {part}.{name}"))
}

fn compare(
    samples: &[(Sample, Sample)],
    place: &str,
    other: &str,
    latency_max: f64,
    bandwidth_min: f64,
) -> Vec<Figure> {
    let pairs = |of: fn(&Sample) -> f64| {
        let halves = samples.iter().map(|(ours, theirs)| (of(ours), of(theirs)));
        let (ours, theirs) = halves.unzip();
        Pairs::new(ours, theirs)
    };
    let latency = pairs(|sample| sample.latency_us);
    let bandwidth = pairs(|sample| sample.megabytes_per_s);
    let at_least = Bound::AtLeast((bandwidth_min * 1000.0).round() / 1000.0);
    vec![
        Figure::bounded(
            format!("latency of 1 B, {place}, by {other}"),
            latency.ratio(),
            "x",
            Bound::AtMost(latency_max),
        )
        .of(latency.detail("coswitch", other, 1.0, "us")),
        Figure::bounded(format!("bandwidth of 1 MiB, {place}, by {other}"), bandwidth.ratio(), "x", at_least)
            .of(bandwidth.detail("coswitch", other, 1e-3, "GB/s")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_pingpong_is_read() {
        let line = r#"{"latency": {"bytes": 1, "median_us": 4.5}, "bandwidth": {"mb_per_s": 7100.0}}"#;
        let sample = parse(line).unwrap();
        assert_eq!((sample.latency_us, sample.megabytes_per_s), (4.5, 7100.0));
        assert!(parse("{}").is_err());
    }
}
