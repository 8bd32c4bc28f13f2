//! Local coscheduling: who has a node's processor, Table 4.1 of paper 001 and all node schedulers beside each other.

use std::io;

use coswitch_sim::local::{
    Shape,
    compare::compare,
    show::{comparison_as_markdown, table_as_markdown},
    table::{TableOptions, table_4_1},
};
use serde::Serialize;

use super::Simulate;
use crate::cli::{Answer, Failure};

/// Distributed tasks that a run serves, where `--jobs` does not say another number.
const SERVED: u32 = 1000;

/// Both tables, as Markdown.
#[derive(Serialize)]
pub(super) struct Studied {
    /// Distributed tasks that each run serves.
    served: u32,
    seeds: Vec<u64>,
    /// Runs behind Table 4.1.
    runs: usize,
    table_4_1: String,
    schedulers: String,
}

pub(super) fn simulate(arguments: &Simulate) -> Result<Studied, Failure> {
    let served = arguments.jobs.map_or(SERVED, |jobs| u32::try_from(jobs).unwrap_or(u32::MAX));
    let shape = Shape { served, ..Shape::default() };
    let (seeds, threads) = (arguments.seeds(), arguments.threads());
    let failed = |error| Failure::Workload(anyhow::Error::new(error).context("failed to simulate"));
    let options = TableOptions { shape: shape.clone(), seeds: seeds.clone(), threads };
    let table = table_4_1(&options).map_err(failed)?;
    let compared = compare(&shape, &seeds, threads).map_err(failed)?;
    Ok(Studied {
        served,
        runs: table.runs,
        table_4_1: table_as_markdown(&table),
        schedulers: comparison_as_markdown(&compared),
        seeds,
    })
}

impl Answer for Studied {
    fn tell(&self, out: &mut dyn io::Write) -> io::Result<()> {
        writeln!(
            out,
            "Table 4.1 of paper 001, {} runs of {} distributed tasks, {} seed(s)\n\n{}",
            self.runs,
            self.served,
            self.seeds.len(),
            self.table_4_1
        )?;
        writeln!(out, "All node schedulers\n\n{}", self.schedulers)
    }
}
