//! Growth of the cost of an event with the jobs and with the nodes: slower than linear.

use anyhow::Result;
use coswitch_sim::{
    spaceshare::{self, AllocatorName, Jobs, NoObserver, QueueName},
    workload::lublin,
};

use super::processor_time;
use crate::figure::{Bound, Figure};

/// In space sharing.
pub(super) fn measure() -> Result<[Figure; 2]> {
    let jobs = [(10_000, cost(10_000, 128)?), (1_000_000, cost(1_000_000, 128)?)];
    let nodes = [(128, cost(100_000, 128)?), (102_400, cost(100_000, 102_400)?)];
    Ok([growth("space sharing, with the jobs", jobs), growth("space sharing, with the nodes", nodes)])
}

/// The exponent `e` for which the cost grows as the size to the power of `e`; allowed is the square root.
pub(super) fn growth(of: &str, [small, large]: [(u32, f64); 2]) -> Figure {
    let exponent = (large.1 / small.1).ln() / (f64::from(large.0) / f64::from(small.0)).ln();
    let name = format!("growth of the cost of an event, {of}: exponent");
    let costs = [small, large].map(|(size, cost)| format!("{size}: {cost:.0} ns"));
    Figure::bounded(name, exponent, "", Bound::AtMost(0.5)).of(costs.join(", "))
}

/// Nanoseconds for an event (each job arrives and ends) of a machine about two thirds in use, without reading
/// any text.
fn cost(jobs: u32, nodes: u32) -> Result<f64> {
    // The sizes of the model grow with the machine; the load is that of 128 nodes at any size.
    let log = lublin::generate(7, &lublin::Settings { jobs, nodes, interactive: true, load: 1.0 });
    let mut machine = spaceshare::machine(spaceshare::mesh_of(nodes), AllocatorName::FirstFit);
    let all = Jobs::of_log(&log, &machine, |_| Default::default());
    let began = processor_time()?;
    let lived = spaceshare::run(&all.jobs, &mut machine, &mut *QueueName::Fcfs.order(), &mut NoObserver)?;
    Ok((processor_time()? - began).as_secs_f64() * 1e9 / (2.0 * lived.len() as f64))
}
