//! What an event costs as the number of jobs and the number of nodes grow, each by itself: no faster than its logarithm.

use anyhow::Result;
use coswitch_sim::{
    spaceshare::{self, AllocatorName, Jobs, NoObserver, QueueName},
    workload::lublin,
};

use super::processor_time;
use crate::{
    figure::{Bound, Figure},
    pairs::median,
};

const FEW_JOBS: u32 = 10_000;
const JOBS: [u32; 3] = [FEW_JOBS, 100_000, 1_000_000];
const FEW_NODES: u32 = 128;
const NODES: [u32; 4] = [FEW_NODES, 1_280, 12_800, 102_400];

/// Two figures: growth in jobs and growth in nodes, by that of the logarithm.
pub(super) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    let by_jobs = JOBS.map(|jobs| (jobs, cost(rounds, jobs, FEW_NODES)));
    let by_nodes = NODES.map(|nodes| (nodes, cost(rounds, 100_000, nodes)));
    Ok(vec![figure("jobs", &known(by_jobs)?), figure("nodes", &known(by_nodes)?)])
}

fn known<const N: usize>(points: [(u32, Result<f64>); N]) -> Result<Vec<(u32, f64)>> {
    points.into_iter().map(|(size, cost)| Ok((size, cost?))).collect()
}

fn figure(of: &str, points: &[(u32, f64)]) -> Figure {
    let told: Vec<String> = points.iter().map(|(size, cost)| format!("{size}: {cost:.0} ns")).collect();
    Figure::bounded(
        format!("growth of the cost of an event with the {of}, by that of the logarithm"),
        growth(points),
        "x",
        Bound::AtMost(1.0),
    )
    .of(told.join(", "))
}

/// The most that any point costs of the first, by what its logarithm is of the first's.
pub(super) fn growth(points: &[(u32, f64)]) -> f64 {
    let (first, base) = points[0];
    let ratio =
        |(size, cost): &(u32, f64)| (cost / base) / (f64::from(*size).log2() / f64::from(first).log2());
    points[1..].iter().map(ratio).fold(0.0, f64::max)
}

/// Nanoseconds for an event (each job arrives and ends) of a machine about two thirds in use, without the reading of text: the median
/// of `rounds`.
fn cost(rounds: u32, jobs: u32, nodes: u32) -> Result<f64> {
    // The sizes of the model grow with the machine; the load is that of 128 nodes at any size.
    let log = lublin::generate(7, &lublin::Settings { jobs, nodes, interactive: true, load: 1.0 });
    let all =
        Jobs::of_log(&log, &spaceshare::machine(spaceshare::mesh_of(nodes), AllocatorName::FirstFit), |_| {
            Default::default()
        });
    let once = || -> Result<f64> {
        let mut machine = spaceshare::machine(spaceshare::mesh_of(nodes), AllocatorName::FirstFit);
        let began = processor_time()?;
        let lived = spaceshare::run(&all.jobs, &mut machine, &mut *QueueName::Fcfs.order(), &mut NoObserver)?;
        let events = 2.0 * f64::from(u32::try_from(lived.len()).unwrap_or(u32::MAX));
        Ok((processor_time()? - began).as_secs_f64() * 1e9 / events)
    };
    let costs = (0..rounds.clamp(1, 5)).map(|_| once()).collect::<Result<Vec<f64>>>()?;
    Ok(median(costs))
}
