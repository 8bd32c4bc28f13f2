//! Benchmark of the simulator: jobs a second on a log, against AccaSim; growth of the cost of an event;
//! backfilling and time sharing at size.
//!
//! One core: everything runs on the thread of the benchmark, and times are processor times, so that other
//! processes disturb little. A job counts from its line of text to its place in the summary. The log is the
//! SDSC Paragon's of the Parallel Workloads Archive where `--log` (or `COSWITCH_SWF`) says where it lies;
//! without it, for it is not part of the repository, a log of the same size is drawn from the model of Lublin
//! and Feitelson. AccaSim does the same log in the same minutes, in a Python process of its own whose start
//! does not count.

mod backfill;
mod curve;
mod peer;
mod program;
mod turns;

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use coswitch_sim::{
    spaceshare::{self, AllocatorName, Jobs, NoObserver, QueueName},
    workload::{lublin, swf::Log},
};

use nix::time::ClockId;

use crate::{
    figure::{Bound, Figure},
    pairs::{median, take_turns},
};

/// Of the log of the Paragon, and of the log drawn in its place.
const NODES: u32 = 400;
const JOBS: u32 = 32_135;
/// The targets.
const JOBS_PER_SECOND: f64 = 160_000.0;
const TIMES_THE_PEER: f64 = 100.0;

pub(crate) fn measure(rounds: u32, log: Option<&Path>) -> Result<Vec<Figure>> {
    let (text, name) = text_of(log)?;
    let mut figures = Vec::from(jobs_a_second(rounds, &text, &name)?);
    figures.extend(curve::measure()?);
    figures.push(backfill::measure()?);
    figures.extend(turns::measure()?);
    Ok(figures)
}

/// In turns with AccaSim, which comes from a registry.
fn jobs_a_second(rounds: u32, text: &str, name: &str) -> Result<[Figure; 2]> {
    let peer = peer::Peer::install().context("failed to install AccaSim")?;
    let pairs = take_turns(rounds, || ours(text), || peer.run(text, NODES))?;
    let rate = |(jobs, seconds): (u64, f64)| jobs as f64 / seconds;
    let ours = median(pairs.iter().map(|(ours, _)| rate(*ours)));
    let conditions = format!("{name}, FCFS and first fit on {NODES} nodes, one core, median of {rounds}");
    let theirs = median(pairs.iter().map(|(_, theirs)| rate(*theirs)));
    let ratio = median(pairs.iter().map(|(ours, theirs)| rate(*ours) / rate(*theirs)));
    let ((jobs, _), (their_jobs, _)) = pairs[0];
    let told = format!("coswitch {jobs} jobs at {ours:.0}/s, AccaSim {their_jobs} jobs at {theirs:.0}/s");
    let rates =
        Figure::bounded("jobs simulated in a second", ours, "jobs/s", Bound::AtLeast(JOBS_PER_SECOND));
    let name = "times as many as AccaSim 1.1.3 does";
    Ok([rates.of(conditions), Figure::bounded(name, ratio, "x", Bound::AtLeast(TIMES_THE_PEER)).of(told)])
}

fn text_of(log: Option<&Path>) -> Result<(String, String)> {
    if let Some(path) = log {
        let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Ok((text, name));
    }
    let shape = lublin::Settings { jobs: JOBS, nodes: NODES, interactive: true, load: 1.0 };
    Ok((lublin::generate(1, &shape).to_string(), format!("Lublin-Feitelson, {JOBS} jobs, seed 1")))
}

/// Of this thread.
fn processor_time() -> Result<Duration> {
    let now = ClockId::CLOCK_THREAD_CPUTIME_ID.now().context("failed to ask for the processor time")?;
    Ok(Duration::from(now))
}

/// Jobs and seconds.
fn ours(text: &str) -> Result<(u64, f64)> {
    let began = processor_time()?;
    let log: Log = text.parse()?;
    let mut machine = spaceshare::machine(spaceshare::mesh_of(NODES), AllocatorName::FirstFit);
    let jobs = Jobs::of_log(&log, &machine, |_| Default::default());
    let lived = spaceshare::run(&jobs.jobs, &mut machine, &mut *QueueName::Fcfs.order(), &mut NoObserver)?;
    let summary = spaceshare::summarise(&jobs.jobs, &lived, NODES);
    Ok((summary.jobs, (processor_time()? - began).as_secs_f64()))
}
